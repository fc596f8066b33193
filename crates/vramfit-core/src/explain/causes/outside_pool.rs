use super::{Judgement, is_driver_call};
use crate::bytes::Bytes;
use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::log::Event;
use crate::explain::message::{AllocatorOwner, DriverCall, Message, OtherAllocator, Reason};
use crate::explain::number::Size;

/// A library that does not start with this much free has another reason.
pub(super) const PLENTY_BYTES: u64 = 512 << 20;

/// A fraction that leaves so much of the GPU outside the pool that libraries start.
const LOW_FRACTION: f64 = 0.5;

pub(super) fn find(facts: &Facts<'_>) -> Option<Judgement> {
    let event = first_failure(facts)?;
    if let Message::OtherAllocator(refused) = &event.message {
        return other_framework(facts, event, refused);
    }
    let (what, names_memory) = match &event.message {
        Message::Library { library, reason } => (library.label(), *reason == Reason::Memory),
        Message::DriverOutOfMemory { call: DriverCall::Module } => {
            ("loading compiled kernels", true)
        }
        Message::DriverOutOfMemory { call: DriverCall::Graph } => {
            ("instantiating a CUDA graph", true)
        }
        _ => ("the driver", true),
    };
    let is_unnamed = is_driver_call(&event.message, &[DriverCall::Unknown]);
    let free = free_at_failure(facts);
    let is_plenty = free.is_some_and(|free| free >= PLENTY_BYTES) || leaves_half(facts);
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
    Some(Judgement::new(confidence, summary, facts.quote_all(facts.log.all(is_outside))))
}

/// Another framework in the process found no memory beside JAX's pool.
fn other_framework(
    facts: &Facts<'_>,
    event: &Event,
    refused: &OtherAllocator,
) -> Option<Judgement> {
    let bytes = |size: Option<Size>| size.map(|size| size.bytes);
    let held = bytes(refused.held);
    let total = bytes(refused.total).or(facts.figures.gpu_total_bytes);
    // What is neither free nor its own is what others hold.
    let others = total
        .zip(bytes(refused.free))
        .zip(held)
        .and_then(|((total, free), held)| total.checked_sub(free)?.checked_sub(held));
    let is_of_others = others.zip(total).map(|(others, total)| others >= total / 2);
    let is_of_jax = |message: &Message| {
        matches!(message, Message::JaxNamed | Message::Jax { .. } | Message::Setting { .. })
    };
    let is_jax_named = facts.log.has(is_of_jax);
    // PyTorch runs out of memory without JAX often enough.
    if refused.owner == AllocatorOwner::Pytorch && !is_jax_named && is_of_others != Some(true) {
        return None;
    }
    let is_known = refused.owner != AllocatorOwner::Unknown;
    let confidence = match (is_known, is_of_others) {
        _ if facts.is_after_failure(event) => Confidence::Possible,
        (false, _) | (true, Some(false)) => Confidence::Possible,
        (true, _) => Confidence::Likely,
    };
    // Another line of the same failure may tell it.
    let told = facts.log.find(|message| match message {
        Message::OtherAllocator(other) if other.owner == refused.owner => other.size,
        _ => None,
    });
    let asked = match bytes(refused.size).or(told.map(|(_, size)| size.bytes)) {
        Some(bytes) => format!(" for {}", Bytes(bytes)),
        None => String::new(),
    };
    let figures = match (bytes(refused.free), total) {
        (Some(free), Some(total)) => format!(" ({} of {} were free)", Bytes(free), Bytes(total)),
        _ => String::new(),
    };
    let itself = match held {
        Some(held) => format!(", with {} of its own", Bytes(held)),
        None => String::new(),
    };
    let summary = format!(
        "{} found no GPU memory{asked}{figures}{itself}: it allocates beside JAX's pool, which may leave too \
         little of the GPU to it",
        refused.owner.label()
    );
    Some(Judgement::new(
        confidence,
        summary,
        facts.quote_all(std::iter::once(event).chain(facts.log.all(is_outside))),
    ))
}

/// Returns `true` if the log shows a fraction that leaves half of the GPU outside the pool.
pub(super) fn leaves_half(facts: &Facts<'_>) -> bool {
    facts.log.has(|message| match message {
        Message::Setting { name, value } if name.ends_with("MEM_FRACTION") => {
            value.parse().is_ok_and(|fraction: f64| fraction > 0.0 && fraction <= LOW_FRACTION)
        }
        _ => false,
    })
}

fn is_outside(message: &Message) -> bool {
    match message {
        Message::Library { .. } | Message::OtherAllocator(_) => true,
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
        Message::OtherAllocator(refused) => refused.owner != AllocatorOwner::Unknown,
        Message::DriverOutOfMemory { call } => *call != DriverCall::Unknown,
        _ => false,
    };
    outside().find(names_memory).or_else(|| outside().next())
}

/// Returns `true` if a library failed for another reason than memory: it says so itself, here or in the message before.
pub(super) fn fails_otherwise(facts: &Facts<'_>, event: &Event) -> bool {
    let Message::Library { library, .. } = event.message else {
        return false;
    };
    let names = |reason: Reason| {
        let named = Message::Library { library, reason };
        facts.log.has(|message| *message == named)
    };
    let is_other_release = facts.log.has(|message| *message == Message::VersionMismatch);
    (names(Reason::Other) || is_other_release) && !names(Reason::Memory)
}

/// Returns the GPU's free memory when a library failed, where the log tells.
pub(super) fn free_at_failure(facts: &Facts<'_>) -> Option<u64> {
    let told = facts.log.events.iter().filter_map(|event| match event.message {
        Message::GpuMemory { free, .. } => Some(free),
        _ => None,
    });
    // What was free after the program had ended says nothing.
    told.min()
}
