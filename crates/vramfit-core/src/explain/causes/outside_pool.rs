use super::{Judgement, is_driver_call};
use crate::bytes::Bytes;
use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::log::Event;
use crate::explain::message::{DriverCall, Message, Reason};

/// A library that does not start with this much free has another reason.
pub(super) const PLENTY_BYTES: u64 = 512 << 20;

pub(super) fn find(facts: &Facts<'_>) -> Option<Judgement> {
    let event = first_failure(facts)?;
    let (what, names_memory) = match &event.message {
        Message::Library { library, reason } => (library.label(), *reason == Reason::Memory),
        Message::DriverOutOfMemory {
            call: DriverCall::Module,
        } => ("loading compiled kernels", true),
        Message::DriverOutOfMemory {
            call: DriverCall::Graph,
        } => ("instantiating a CUDA graph", true),
        _ => ("the driver", true),
    };
    let is_unnamed = is_driver_call(&event.message, &[DriverCall::Unknown]);
    let free = free_at_failure(facts);
    let is_plenty = free.is_some_and(|free| free >= PLENTY_BYTES);
    let confidence = if facts.is_after_failure(event) || (is_plenty && !names_memory) {
        Confidence::Possible
    } else if names_memory && !is_unnamed {
        Confidence::Sure
    } else {
        Confidence::Likely
    };
    let left = match free {
        Some(free) => format!(" ({} were free)", Bytes(free)),
        None => String::new(),
    };
    let reason = match names_memory {
        true => "found no memory",
        false => "failed to start, as it does without memory",
    };
    let subject = match &event.message {
        Message::Library { .. } => format!("{what} {reason}"),
        _ => format!("{what} failed for lack of memory"),
    };
    let summary =
        format!("{subject}{left}: the pool leaves too little of the GPU to what is outside of it");
    Some(Judgement::new(
        confidence,
        summary,
        facts.quote_all(facts.log.all(is_outside)),
    ))
}

fn is_outside(message: &Message) -> bool {
    match message {
        Message::Library { .. } => true,
        Message::DriverOutOfMemory { call } => *call != DriverCall::Context,
        _ => false,
    }
}

/// Returns the failure that tells most: one that names memory, else the first.
fn first_failure<'a>(facts: &Facts<'a>) -> Option<&'a Event> {
    let autotuning = |event: &Event| {
        facts.log.events.iter().any(|other| {
            matches!(other.message, Message::Autotuning { .. })
                && other.source == event.source
                && other.line.abs_diff(event.line) <= 1
        })
    };
    let outside = || {
        let events = facts.log.events.iter();
        events.filter(|event| {
            is_outside(&event.message) && !autotuning(event) && !fails_otherwise(facts, event)
        })
    };
    let names_memory = |event: &&Event| match &event.message {
        Message::Library { reason, .. } => *reason == Reason::Memory,
        Message::DriverOutOfMemory { call } => *call != DriverCall::Unknown,
        _ => false,
    };
    outside().find(names_memory).or_else(|| outside().next())
}

/// Says whether a library failed for another reason than memory: it says so itself, here or in the message before.
pub(super) fn fails_otherwise(facts: &Facts<'_>, event: &Event) -> bool {
    let Message::Library { library, .. } = event.message else {
        return false;
    };
    let names = |reason: Reason| {
        let named = Message::Library { library, reason };
        facts.log.has(|message| *message == named)
    };
    names(Reason::Other) && !names(Reason::Memory)
}

/// Returns the GPU's free memory when a library failed, where the log tells.
pub(super) fn free_at_failure(facts: &Facts<'_>) -> Option<u64> {
    let told = facts
        .log
        .events
        .iter()
        .filter_map(|event| match event.message {
            Message::GpuMemory { free, .. } => Some(free),
            _ => None,
        });
    // What was free after the program had ended says nothing.
    told.min()
}
