use super::{Judgement, is_driver_call, other_framework};
use crate::bytes::Bytes;
use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::log::Event;
use crate::explain::message::{DriverCall, Library, Message, Reason};
use crate::explain::other_allocator::AllocatorOwner;

/// A library that does not start with this much free has another reason.
pub(super) const PLENTY_BYTES: u64 = 512 << 20;

/// A fraction that leaves so much of the GPU outside the pool that libraries start.
const LOW_FRACTION: f64 = 0.5;

pub(super) fn find(facts: &Facts<'_>) -> Option<Judgement> {
    let event = first_failure(facts)?;
    if let Message::OtherAllocator(refused) = &event.message {
        return Some(other_framework::judge(facts, event, refused));
    }
    let (what, names_memory) = match &event.message {
        Message::Library { library, reason } => {
            (library.label().to_owned(), *reason == Reason::Memory)
        }
        Message::DriverOutOfMemory { call, function, .. } => {
            (describe_call(*call, function.as_deref()), true)
        }
        _ => ("the driver".to_owned(), true),
    };
    let is_unnamed = matches!(&event.message, Message::DriverOutOfMemory { is_certain: false, .. });
    let free = free_at_failure(facts);
    let is_plenty = free.is_some_and(|free| free >= PLENTY_BYTES);
    let is_execution = is_execution(&event.message);
    // A kernel that fails while it runs seldom does so for want of memory.
    if is_execution && free.is_none_or(|_| is_plenty) {
        return None;
    }
    let is_doubtful = is_execution || is_plenty;
    let confidence = if facts.is_after_failure(event) || is_doubtful {
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
        Message::Library { .. } if is_execution => {
            format!("a kernel of {what} failed, which may be for lack of memory")
        }
        Message::Library { .. } if is_of_running(event) => {
            format!("{what} failed and names no reason; that often means no free GPU memory")
        }
        Message::Library { .. } => {
            format!("{what} could not start; that often means no free GPU memory")
        }
        _ => format!("{what} failed for lack of memory"),
    };
    let why = match is_plenty && names_memory {
        true => {
            "of the GPU's memory that was enough, so it may be that of the host, or another limit"
        }
        false => "the pool leaves too little of the GPU to what is outside of it",
    };
    let summary = format!("{subject}{left}: {why}");
    Some(Judgement::new(confidence, summary, facts.quote_all(facts.log.all(is_outside))))
}

/// Returns `true` if the log shows a fraction that leaves half of the GPU outside the pool.
pub(super) fn leaves_half(facts: &Facts<'_>) -> bool {
    facts.settings.has_pool()
        && facts.settings.fraction.is_some_and(|fraction| fraction <= LOW_FRACTION)
}

/// Names what the driver had no memory for: the function, where the log has it.
fn describe_call(call: DriverCall, function: Option<&str>) -> String {
    let named = function.map(|function| format!("`{function}`"));
    named.unwrap_or_else(|| {
        match call {
            DriverCall::Module => "loading compiled kernels",
            DriverCall::Graph => "a CUDA graph",
            DriverCall::Context | DriverCall::Unknown => "the driver",
        }
        .to_owned()
    })
}

/// Returns `true` if a library fails that was not just to start, by the words of its error.
fn is_of_running(event: &Event) -> bool {
    let text = event.text.to_ascii_lowercase();
    let starts = ["creat", "handle", "init"];
    let is_internal = text.contains("internal_error") || text.contains("internal error");
    is_internal && !starts.iter().any(|word| text.contains(word))
}

/// Returns `true` if a kernel of a library failed, which had started.
pub(super) fn is_execution(message: &Message) -> bool {
    matches!(message, Message::Library { reason: Reason::Execution, .. })
}

pub(super) fn is_outside(message: &Message) -> bool {
    match message {
        Message::Library { .. } | Message::OtherAllocator(_) => true,
        Message::DriverOutOfMemory { .. } => !is_driver_call(message, &[DriverCall::Context]),
        _ => false,
    }
}

/// Returns the failure that tells most: one that names memory, else the first; of kernels that ran only where there is
/// no other.
pub(super) fn first_failure<'a>(facts: &Facts<'a>) -> Option<&'a Event> {
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
        Message::DriverOutOfMemory { .. } => {
            !is_driver_call(&event.message, &[DriverCall::Unknown])
        }
        _ => false,
    };
    let started = |event: &&Event| !is_execution(&event.message);
    outside().find(names_memory).or_else(|| outside().find(started)).or_else(|| outside().next())
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
    // Or that the host had no memory for what processes share.
    let is_of_host = library == Library::Nccl && facts.is_shared_segment();
    let names_other = names(Reason::Other) || is_other_release || is_of_network || is_of_host;
    names_other && !names(Reason::Memory)
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
