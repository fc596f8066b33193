//! The causes, one file each: a function that says whether, and how certainly, a log speaks for it.
//!
//! `Sure` is for what follows from the log: figures that leave no other reading, or the message that names
//! the reason itself. What only usually is so is `Likely`.

mod address_space;
mod autotuning;
mod falsified;
mod fragmentation;
mod host_memory;
mod leak;
mod memory_taken_later;
pub(super) mod not_memory;
pub(super) mod other_framework;
mod outside_pool;
mod pool_not_obtained;
mod pool_too_small;
mod recompilation;
mod request_larger_than_gpu;
mod tpu;
mod wrong_setting;

use std::cmp::Reverse;

use super::cause::{Cause, CauseId, Confidence, Judgement};
use super::facts::Facts;
use super::message::{DriverCall, Message, Reason};
use super::recovery::Recovery;
use super::remedy::beside;
use super::remedy::platform::keep_if_portable;

/// Finds the causes, the likeliest first; of equally likely ones the most specific. What is certain leaves no
/// alternatives; a setting that does nothing is none, and returned as a note then.
pub(super) fn find(facts: &Facts<'_>) -> (Vec<Cause>, Option<String>) {
    let mut causes = Vec::new();
    for id in CauseId::ALL {
        let judgement = match id {
            CauseId::Tpu => tpu::find(facts),
            CauseId::RequestLargerThanGpu => request_larger_than_gpu::find(facts),
            CauseId::AddressSpace => address_space::find(facts),
            CauseId::HostMemory => host_memory::find(facts),
            CauseId::WrongSetting => wrong_setting::find(facts),
            CauseId::PoolNotObtained => pool_not_obtained::find(facts),
            CauseId::MemoryTakenLater => memory_taken_later::find(facts),
            CauseId::Fragmentation => fragmentation::find(facts),
            CauseId::OutsidePool => outside_pool::find(facts),
            CauseId::Autotuning => autotuning::find(facts),
            CauseId::Recompilation => recompilation::find(facts),
            CauseId::Leak => leak::find(facts),
            CauseId::PoolTooSmall => pool_too_small::find(facts, &causes),
            CauseId::NotMemory => not_memory::find(facts, &causes),
        };
        causes.extend(judgement.map(|judgement| make_cause(facts, id, judgement)));
    }
    // What fills the memory may be the reason that there is too little.
    let fills = |cause: &Cause| matches!(cause.id, CauseId::Leak | CauseId::Recompilation);
    let is_full = causes.iter().any(fills);
    // What a program handled did not end it.
    let is_handled = facts.recovery.and_then(Recovery::handled_by_line).is_some();
    for cause in causes.iter_mut().filter(|it| is_handled || (is_full && is_filled(it.id))) {
        cause.confidence = cause.confidence.min(Confidence::Likely);
    }
    causes.sort_by_key(|cause| (Reverse(cause.confidence), cause.id));
    let is_sure = |cause: &Cause| cause.confidence == Confidence::Sure;
    if !causes.first().is_some_and(is_sure) {
        return (causes, None);
    }
    let (certain, others): (Vec<_>, Vec<_>) = causes.into_iter().partition(is_sure);
    let setting = others.into_iter().find(|cause| cause.id == CauseId::WrongSetting);
    (certain, setting.map(|cause| cause.summary))
}

/// Returns `true` if a cause is a lack of memory that may have been filled step by step.
fn is_filled(cause: CauseId) -> bool {
    matches!(cause, CauseId::PoolTooSmall | CauseId::OutsidePool | CauseId::HostMemory)
}

/// Returns `true` if a message reports that GPU memory, of whatever kind, could not be had.
pub(super) fn is_gpu_memory_failure(message: &Message) -> bool {
    match message {
        Message::PoolRefusal { .. }
        | Message::OutOfMemory { .. }
        | Message::DirectRefusal { .. }
        | Message::AsyncRefusal { .. }
        | Message::BudgetRefusal { .. }
        | Message::OtherAllocator(_)
        | Message::Workspace { .. }
        | Message::CutOff
        | Message::DriverOutOfMemory { .. } => true,
        Message::DriverRefusal { pinned_host, .. } => !pinned_host,
        Message::Library { reason, .. } => *reason == Reason::Memory,
        _ => false,
    }
}

/// Returns `true` if the driver refused something that is not an array.
pub(super) fn is_driver_call(message: &Message, calls: &[DriverCall]) -> bool {
    matches!(message, Message::DriverOutOfMemory { call, .. } if calls.contains(call))
}

fn has(causes: &[Cause], id: CauseId) -> bool {
    causes.iter().any(|cause| cause.id == id)
}

/// Makes a cause with the usual words for it.
fn make_cause(facts: &Facts<'_>, id: CauseId, judgement: Judgement) -> Cause {
    let (confidence, summary) = match falsified::against(facts, id) {
        Some(against) => (
            falsified::lower(judgement.confidence),
            format!("{}; against it: {against}", judgement.summary),
        ),
        None => (judgement.confidence, judgement.summary),
    };
    let is_without_pool = id == CauseId::PoolTooSmall && !facts.settings.has_pool();
    let of_framework = other_framework::describe(facts).filter(|_| id == CauseId::OutsidePool);
    Cause {
        id,
        title: match id {
            CauseId::PoolTooSmall if is_without_pool => "the GPU is too small for the program",
            CauseId::NotMemory if not_memory::is_kernel_of_library(facts) => {
                "a kernel of a library failed, and nothing shows that memory is the reason"
            }
            _ => of_framework.map_or(id.title(), |(title, _)| title),
        },
        confidence,
        summary,
        evidence: judgement.evidence,
        falsified_by: match id {
            _ if is_without_pool => {
                "a dry run with the same allocator fits (`vramfit dryrun --allocator`)".to_owned()
            }
            CauseId::HostMemory if facts.is_shared_segment() => {
                "`df -h /dev/shm` shows free space while the program runs".to_owned()
            }
            _ => of_framework.map_or(id.falsified_by(), |(_, shown)| shown).to_owned(),
        },
        next_command: match facts.platform() {
            Some(_) => keep_if_portable(next_command(facts, id)),
            None => next_command(facts, id),
        },
    }
}

/// Returns what to do first.
fn next_command(facts: &Facts<'_>, id: CauseId) -> String {
    let command = &facts.command;
    let gpu = facts.gpu_label();
    match id {
        CauseId::Tpu => {
            "see the error page of OpenXLA for TPUs: https://openxla.org/xla/errors".to_owned()
        }
        CauseId::RequestLargerThanGpu | CauseId::PoolTooSmall => {
            format!("vramfit dryrun --gpu {gpu} --full -- {command}")
        }
        CauseId::AddressSpace => format!("ulimit -v unlimited; {command}"),
        CauseId::HostMemory if facts.is_shared_segment() => "df -h /dev/shm".to_owned(),
        CauseId::HostMemory => format!("/usr/bin/time -v {command}"),
        CauseId::WrongSetting => "vramfit doctor --verbose".to_owned(),
        CauseId::PoolNotObtained => "vramfit doctor".to_owned(),
        CauseId::MemoryTakenLater => "vramfit top".to_owned(),
        CauseId::Fragmentation => {
            format!("vramfit run --allocator cuda_async -- {command}")
        }
        CauseId::OutsidePool => beside::smaller_pool(facts)
            .filter(|_| other_framework::own_shortage(facts).is_none())
            .map_or_else(|| "vramfit top".to_owned(), |remedy| remedy.command),
        CauseId::Autotuning => format!("XLA_FLAGS=--xla_gpu_autotune_level=0 {command}"),
        CauseId::Recompilation => format!("JAX_LOG_COMPILES=1 {command}"),
        CauseId::Leak => format!("vramfit dryrun --gpu {gpu} --steps 20 --full -- {command}"),
        CauseId::NotMemory if not_memory::is_about_peer(facts) => {
            "vramfit explain LOG...".to_owned()
        }
        CauseId::NotMemory if not_memory::is_about_installation(facts) => {
            "vramfit doctor".to_owned()
        }
        // An error of the program is for its author to find.
        CauseId::NotMemory => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use crate::explain::explain_text;

    /// Figures at the end of what 64 bits hold, which a damaged log may have.
    #[test]
    fn figures_may_be_as_large_as_numbers_can_be() {
        const MOST: u64 = u64::MAX;
        for text in [
            "failed to allocate 5295t: out_of_memory\nout of memory while trying to allocate 10079p".to_owned(),
            format!("bytes_in_use: {MOST}\n").repeat(5)
                + "out of memory while trying to allocate 1.00GiB",
            format!(
                "Allocator (GPU_0_bfc) ran out of memory trying to allocate {MOST}\nStats:\nLimit: {MOST}\n\
                 InUse: 0\n"
            ),
        ] {
            assert!(!explain_text(&text).causes.is_empty(), "{text}");
        }
    }
}
