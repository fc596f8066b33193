//! What is each card, and who holds it?

use super::super::check::Check;
use super::super::facts::Facts;
use crate::Bytes;
use crate::machine::{Card, ComputeMode, Mig, Process, ProcessKind};

const ID: &str = "card";

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    if let Some(card) = &facts.virtual_card {
        let held = match card.held_bytes {
            0 => String::new(),
            held => format!(", of which something else holds {}", Bytes(held)),
        };
        return vec![Check::pass(
            ID,
            format!(
                "virtual: {} x {} ({}), {} each{held}; nothing computes on it",
                card.count,
                card.name,
                card.description,
                Bytes(card.total_bytes)
            ),
        )];
    }
    let machine = facts.machine();
    if machine.cards.is_empty() {
        return vec![Check::skip(ID, "there is no card to look at")];
    }
    machine.cards.iter().map(one).collect()
}

fn one(card: &Card) -> Check {
    let name = called(card);
    let unknown = card.unknown.iter().map(|one| format!("not known: {one}"));
    let holders = card.processes.iter().map(holder);
    let with_evidence = |check: Check| {
        check
            .because_of(holders.clone())
            .because_of(unknown.clone())
    };
    let Some(memory) = card.memory else {
        let lost = card.unknown.iter().any(|one| one.contains("fell off"));
        return with_evidence(match (lost, &card.mig) {
            (true, _) => Check::fail(
                ID,
                format!("{name} fell off the bus"),
                "restart the machine; if it happens again, suspect power, heat or the slot",
            ),
            (false, Mig::Parent) => parent(&name),
            (false, _) => Check::warn(
                ID,
                format!("{name} does not tell its memory"),
                "`nvidia-smi` asks the same driver: see what it says of this card",
            ),
        });
    };
    let usable = memory.total_bytes - memory.reserved_bytes.unwrap_or(0).min(memory.total_bytes);
    let mut sentence = format!("{name}: {}", Bytes(usable));
    match &card.mig {
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
        _ if card.processes.is_empty() => format!(", {} free", Bytes(memory.free_bytes)),
        used => format!(
            ", {} free; {} hold {}",
            Bytes(memory.free_bytes),
            counted(card.processes.len()),
            Bytes(used)
        ),
    };
    if card.display == Some(true) {
        sentence += "; a display runs on it";
    }
    with_evidence(match (card.compute_mode, card.processes.len()) {
        (Some(ComputeMode::Prohibited), _) => Check::fail(
            ID,
            format!("{sentence}; its mode lets no process use it"),
            format!(
                "`sudo nvidia-smi --id={} --compute-mode=DEFAULT`, or use another card",
                card.index
            ),
        ),
        (Some(ComputeMode::ExclusiveProcess), held) if held > 0 => Check::fail(
            ID,
            format!("{sentence}; its mode lets one process use it, and that one is there"),
            format!(
                "end that process, or `sudo nvidia-smi --id={} --compute-mode=DEFAULT`",
                card.index
            ),
        ),
        (Some(ComputeMode::ExclusiveProcess), _) => {
            Check::pass(ID, format!("{sentence}; its mode lets one process use it"))
        }
        _ => Check::pass(ID, sentence),
    })
}

/// A card that is divided is used by its slices, which are cards of their own here.
fn parent(name: &str) -> Check {
    Check::pass(
        ID,
        format!("{name} is divided (MIG): its slices are used in its place"),
    )
}

fn called(card: &Card) -> String {
    let name = match card.name.is_empty() {
        true => "of unknown name",
        false => &card.name,
    };
    match card.mig {
        Mig::Slice { number, .. } => format!("card {} slice {number} ({name})", card.index),
        _ => format!("card {} ({name})", card.index),
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
