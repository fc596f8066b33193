//! The causes, one file each: a function that says whether, and how certainly, a log speaks for it.
//!
//! `Sure` is for what follows from the log: figures that leave no other reading, or the message that names
//! the reason itself. What only usually is so is `Likely`.

mod address_space;
mod autotuning;
mod fragmentation;
mod host_memory;
mod leak;
mod memory_taken_later;
pub(super) mod not_memory;
mod outside_pool;
mod pool_not_obtained;
mod pool_too_small;
mod recompilation;
mod request_larger_than_gpu;
mod tpu;
mod wrong_setting;

use std::cmp::Reverse;

use super::cause::{Cause, CauseId, Confidence, Evidence};
use super::facts::Facts;
use super::message::{DriverCall, Message, Reason};

/// How certain a cause is, and why.
pub(super) struct Judgement {
    pub(super) confidence: Confidence,
    pub(super) summary: String,
    pub(super) evidence: Vec<Evidence>,
}

impl Judgement {
    fn new(confidence: Confidence, summary: impl Into<String>, evidence: Vec<Evidence>) -> Self {
        Judgement { confidence, summary: summary.into(), evidence }
    }

    fn sure(summary: impl Into<String>, evidence: Vec<Evidence>) -> Self {
        Judgement::new(Confidence::Sure, summary, evidence)
    }

    fn likely(summary: impl Into<String>, evidence: Vec<Evidence>) -> Self {
        Judgement::new(Confidence::Likely, summary, evidence)
    }

    fn possible(summary: impl Into<String>, evidence: Vec<Evidence>) -> Self {
        Judgement::new(Confidence::Possible, summary, evidence)
    }
}

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
        causes.extend(judgement.map(|judgement| facts.cause(id, judgement)));
    }
    // What fills the memory may be the reason that there is too little.
    let fills = |cause: &Cause| matches!(cause.id, CauseId::Leak | CauseId::Recompilation);
    if causes.iter().any(fills) {
        for cause in causes.iter_mut().filter(|cause| is_filled(cause.id)) {
            cause.confidence = cause.confidence.min(Confidence::Likely);
        }
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
fn is_gpu_memory_failure(message: &Message) -> bool {
    match message {
        Message::PoolRefusal { .. }
        | Message::OutOfMemory { .. }
        | Message::DirectRefusal { .. }
        | Message::AsyncRefusal { .. }
        | Message::BudgetRefusal { .. }
        | Message::OtherAllocator(_)
        | Message::Workspace { .. }
        | Message::DriverOutOfMemory { .. } => true,
        Message::DriverRefusal { pinned_host, .. } => !pinned_host,
        Message::Library { reason, .. } => *reason == Reason::Memory,
        _ => false,
    }
}

/// Returns `true` if the driver refused something that is not an array.
fn is_driver_call(message: &Message, calls: &[DriverCall]) -> bool {
    matches!(message, Message::DriverOutOfMemory { call } if calls.contains(call))
}

fn has(causes: &[Cause], id: CauseId) -> bool {
    causes.iter().any(|cause| cause.id == id)
}

#[cfg(test)]
mod tests {
    use crate::explain::{ExplainOptions, LogScanner, explain};

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
            let mut scanner = LogScanner::new("");
            scanner.push(text.as_bytes());
            let causes = explain(&scanner.finish(), &ExplainOptions::default()).causes;
            assert!(!causes.is_empty(), "{text}");
        }
    }
}
