use super::{Judgement, is_driver_call};
use crate::bytes::Bytes;
use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::log::Event;
use crate::explain::message::{
    AllocatorOwner, DriverCall, Library, Message, OtherAllocator, Reason,
};
use crate::explain::number::Size;
use crate::explain::shares::Shares;

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
    let subject = match &event.message {
        Message::Library { .. } if names_memory => format!("{what} found no memory"),
        Message::Library { .. } => {
            format!("{what} could not start; that often means no free GPU memory")
        }
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
    let shares = Shares::of(facts, refused);
    let is_of_others = shares.map(|shares| {
        let others = shares.jax.saturating_add(shares.other_processes.unwrap_or(0));
        others >= shares.total / 2
    });
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
    let owner = refused.owner.label();
    let summary = match shares {
        Some(shares) => format!("{owner} found no GPU memory{asked}: {}", divided(&shares)),
        None => {
            let itself = match bytes(refused.held) {
                Some(held) => format!(", with {} of its own", Bytes(held)),
                None => String::new(),
            };
            format!(
                "{owner} found no GPU memory{asked}{itself}: it allocates beside JAX's pool, which may leave too \
                 little of the GPU to it"
            )
        }
    };
    Some(Judgement::new(
        confidence,
        summary,
        facts.quote_all(std::iter::once(event).chain(facts.log.all(is_outside))),
    ))
}

/// Returns the GPU's memory as a framework's own figures divide it.
fn divided(shares: &Shares) -> String {
    let Shares { owner, total, free, own, jax, other_processes } = *shares;
    let known = format!(
        "of {}, {} are free and {} are {}'s",
        Bytes(total),
        Bytes(free),
        Bytes(own),
        owner.label()
    );
    match other_processes {
        Some(others) => format!(
            "{known}; {} more are of this process, JAX's pool and contexts, and {} of other processes",
            Bytes(jax),
            Bytes(others)
        ),
        None => format!(
            "{known}; the other {} are JAX's pool, unless other processes use the GPU as well",
            Bytes(jax)
        ),
    }
}

/// Returns `true` if the log shows a fraction that leaves half of the GPU outside the pool.
pub(super) fn leaves_half(facts: &Facts<'_>) -> bool {
    facts.settings.has_pool()
        && facts.settings.fraction.is_some_and(|fraction| fraction <= LOW_FRACTION)
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
    // One of NCCL's messages may say which system call failed, and another only that one did.
    let is_of_network = library == Library::Nccl
        && event.text.contains("unhandled system error")
        && facts.log.has(|message| *message == Message::PeerFailure);
    (names(Reason::Other) || is_other_release || is_of_network) && !names(Reason::Memory)
}

/// Returns the GPU's free memory when a library failed, where the log tells: XLA does, just then. What a table of
/// `nvidia-smi` shows before may be of an idle GPU.
pub(super) fn free_at_failure(facts: &Facts<'_>) -> Option<u64> {
    let told = facts.log.messages().filter_map(|(_, message)| match message {
        Message::GpuMemory { free, at_failure: true, .. } => Some(*free),
        _ => None,
    });
    // What was free after the program had ended says nothing.
    told.min()
}
