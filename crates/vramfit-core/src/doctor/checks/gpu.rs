//! What is each GPU, and who holds it?

use super::super::check::Check;
use super::super::facts::Facts;
use crate::Bytes;
use crate::host::{ComputeMode, HostGpu, Mig, Process, ProcessKind};

const ID: &str = "card";

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    if let Some(gpu) = &facts.virtual_gpu {
        let held = match gpu.held_bytes {
            0 => String::new(),
            held => format!(", of which something else holds {}", Bytes(held)),
        };
        return vec![Check::pass(
            ID,
            format!(
                "virtual: {} x {} ({}), {} each{held}; nothing computes on it",
                gpu.count,
                gpu.name,
                gpu.description,
                Bytes(gpu.total_bytes)
            ),
        )];
    }
    let machine = facts.machine();
    if machine.gpus.is_empty() {
        return vec![Check::skip(ID, "there is no GPU to look at")];
    }
    machine.gpus.iter().map(one).collect()
}

fn one(gpu: &HostGpu) -> Check {
    let name = called(gpu);
    let unknown = gpu.unknown.iter().map(|one| format!("not known: {one}"));
    let holders = gpu.processes.iter().map(holder);
    let with_evidence = |check: Check| {
        check
            .because_of(holders.clone())
            .because_of(unknown.clone())
    };
    let Some(memory) = gpu.memory else {
        let lost = gpu.unknown.iter().any(|one| one.contains("fallen off"));
        return with_evidence(match (lost, &gpu.mig) {
            (true, _) => Check::fail(
                ID,
                format!("{name} fell off the bus"),
                "restart the machine; if it happens again, suspect power, heat or the slot",
            ),
            (false, Mig::Parent) => parent(&name),
            (false, _) => Check::warn(
                ID,
                format!("{name} does not tell its memory"),
                "`nvidia-smi` asks the same driver: see what it says of this GPU",
            ),
        });
    };
    let usable = memory.total_bytes - memory.reserved_bytes.unwrap_or(0).min(memory.total_bytes);
    let mut sentence = format!("{name}: {}", Bytes(usable));
    match &gpu.mig {
        Mig::Parent => return with_evidence(parent(&name)),
        Mig::Slice {
            parent_total_bytes, ..
        } => {
            sentence += ", a MIG slice with memory of its own";
            if let Some(parent) = parent_total_bytes {
                sentence += &format!(" (the whole card: {})", Bytes(*parent));
            }
        }
        Mig::Off => {}
    }
    sentence += &match memory.used_bytes.min(usable) {
        _ if gpu.processes.is_empty() => format!(", {} free", Bytes(memory.free_bytes)),
        used => format!(
            ", {} free; {} hold {}",
            Bytes(memory.free_bytes),
            counted(gpu.processes.len()),
            Bytes(used)
        ),
    };
    if gpu.display == Some(true) {
        sentence += "; a display runs on it";
    }
    with_evidence(match (gpu.compute_mode, gpu.processes.len()) {
        (Some(ComputeMode::Prohibited), _) => Check::fail(
            ID,
            format!("{sentence}; its mode lets no process use it"),
            format!(
                "`sudo nvidia-smi --id={} --compute-mode=DEFAULT`, or use another GPU",
                gpu.index
            ),
        ),
        (Some(ComputeMode::ExclusiveProcess), held) if held > 0 => Check::fail(
            ID,
            format!("{sentence}; its mode lets one process use it, and that one is there"),
            format!(
                "end that process, or `sudo nvidia-smi --id={} --compute-mode=DEFAULT`",
                gpu.index
            ),
        ),
        (Some(ComputeMode::ExclusiveProcess), _) => {
            Check::pass(ID, format!("{sentence}; its mode lets one process use it"))
        }
        _ => Check::pass(ID, sentence),
    })
}

/// A GPU that is divided is used by its slices, which are GPUs of their own here.
fn parent(name: &str) -> Check {
    Check::pass(
        ID,
        format!("{name} is divided (MIG): its slices are used in its place"),
    )
}

fn called(gpu: &HostGpu) -> String {
    let name = match gpu.name.is_empty() {
        true => "of unknown name",
        false => &gpu.name,
    };
    match gpu.mig {
        Mig::Slice { number, .. } => format!("GPU {} slice {number} ({name})", gpu.index),
        _ => format!("GPU {} ({name})", gpu.index),
    }
}

fn counted(processes: usize) -> String {
    match processes {
        1 => "1 process and the driver".to_owned(),
        count => format!("{count} processes and the driver"),
    }
}

/// Says who a process is and what it holds.
fn holder(process: &Process) -> String {
    let command = process.command.as_deref().unwrap_or("of unknown command");
    let command: String = command.chars().take(80).collect();
    let held = process.used_bytes.map_or_else(
        || "an unknown amount".to_owned(),
        |used| Bytes(used).to_string(),
    );
    let kind = match process.kind {
        ProcessKind::Compute => "",
        ProcessKind::Graphics | ProcessKind::Both => ", drawing",
    };
    let user = process.user.as_deref().map(|user| format!(", {user}"));
    let container = process.container.as_deref().map(|name| format!(", {name}"));
    format!(
        "process {} holds {held}{kind}{}{}: {command}",
        process.pid,
        user.unwrap_or_default(),
        container.unwrap_or_default()
    )
}
