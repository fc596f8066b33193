//! What is each GPU, and who holds it?

use vramfit_base::text::{cut_end, without_folder};

use super::super::check::Check;
use super::super::system_info::SystemInfo;
use crate::Bytes;
use crate::host::{Closed, ComputeMode, HostGpu, Mig, Process, ProcessKind};

const ID: &str = "gpu";

pub(super) fn check(info: &SystemInfo) -> Vec<Check> {
    if let Some(gpu) = &info.virtual_gpu {
        let held = match gpu.occupied_bytes {
            0 => String::new(),
            held => format!(", {} used by others", Bytes(held)),
        };
        return vec![Check::pass(
            ID,
            format!(
                "virtual: {} x {} ({}), {} each{held}; it does not compute",
                gpu.count,
                gpu.name,
                gpu.description,
                Bytes(gpu.total_bytes)
            ),
        )];
    }
    let host = info.host();
    if host.gpus.is_empty() {
        return vec![Check::skip(ID, "no GPU found")];
    }
    host.gpus.iter().map(check_gpu).collect()
}

fn check_gpu(gpu: &HostGpu) -> Check {
    let name = display_name(gpu);
    let unknown = gpu.unknown.iter().map(|one| format!("unknown: {one}"));
    let holders = gpu.processes.iter().map(describe_process);
    let with_evidence =
        |check: Check| check.evidence_lines(holders.clone()).evidence_lines(unknown.clone());
    let Some(memory) = gpu.memory else {
        let lost = gpu.unknown.iter().any(|one| one.contains("fallen off"));
        return with_evidence(match (lost, &gpu.mig) {
            (true, _) => Check::fail(
                ID,
                format!("{name} has fallen off the bus"),
                "reboot; if it happens again, check power supply, temperature and PCIe slot",
            ),
            (false, Mig::Parent) => parent(&name),
            (false, _) => Check::warn(
                ID,
                format!("{name} does not report its memory"),
                "check what `nvidia-smi`, which uses the same driver, reports about this GPU",
            ),
        });
    };
    let usable = memory.total_bytes - memory.reserved_bytes.unwrap_or(0).min(memory.total_bytes);
    let mut message = format!("{name}: {}", Bytes(usable));
    match &gpu.mig {
        Mig::Parent => return with_evidence(parent(&name)),
        Mig::Instance { parent_total_bytes, .. } => {
            message += ", a MIG slice";
            if let Some(parent) = parent_total_bytes {
                message += &format!(" (whole GPU: {})", Bytes(*parent));
            }
        }
        Mig::Off => {}
    }
    message += &match memory.used_bytes.min(usable) {
        _ if gpu.processes.is_empty() => format!(", {} free", Bytes(memory.free_bytes)),
        used => format!(
            ", {} free; {} use {}",
            Bytes(memory.free_bytes),
            process_count(gpu.processes.len()),
            Bytes(used)
        ),
    };
    if gpu.display == Some(true) {
        message += "; drives a display";
    }
    let open = || format!("`sudo nvidia-smi --id={} --compute-mode=DEFAULT`", gpu.index);
    with_evidence(match gpu.closed_by() {
        Some(Closed::ToAll) => Check::fail(
            ID,
            format!("{message}; its compute mode prohibits all processes"),
            format!("{}, or use another GPU", open()),
        ),
        Some(Closed::HeldBy(_)) => Check::fail(
            ID,
            format!("{message}; its compute mode allows one process, which already uses it"),
            format!("stop that process, or {}", open()),
        ),
        None if gpu.compute_mode == Some(ComputeMode::ExclusiveProcess) => {
            Check::pass(ID, format!("{message}; its compute mode allows one process"))
        }
        None => Check::pass(ID, message),
    })
}

/// A GPU that is divided is used by its slices, which are GPUs of their own here.
fn parent(name: &str) -> Check {
    Check::pass(ID, format!("{name} is partitioned into MIG slices, which are used instead"))
}

fn display_name(gpu: &HostGpu) -> String {
    let name = match gpu.name.is_empty() {
        true => "of unknown name",
        false => &gpu.name,
    };
    match gpu.mig {
        Mig::Instance { number, .. } => format!("GPU {} slice {number} ({name})", gpu.index),
        _ => format!("GPU {} ({name})", gpu.index),
    }
}

fn process_count(processes: usize) -> String {
    match processes {
        1 => "1 process and the driver".to_owned(),
        count => format!("{count} processes and the driver"),
    }
}

/// Says who a process is and what it holds.
fn describe_process(process: &Process) -> String {
    let command = process.command.as_deref().unwrap_or("(unknown command)");
    let command = cut_end(without_folder(command), 80);
    let held = process
        .used_bytes
        .map_or_else(|| "an unknown amount".to_owned(), |used| Bytes(used).to_string());
    let kind = match process.kind {
        ProcessKind::Compute => "",
        ProcessKind::Graphics | ProcessKind::Both => ", graphics",
    };
    let user = process.user.as_deref().map(|user| format!(", {user}"));
    let container = process.container.as_deref().map(|name| format!(", {name}"));
    format!(
        "process {} uses {held}{kind}{}{}: {command}",
        process.pid,
        user.unwrap_or_default(),
        container.unwrap_or_default()
    )
}
