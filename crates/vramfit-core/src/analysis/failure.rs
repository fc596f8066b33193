//! What went wrong in a run and when, before names are looked up.

use crate::replay::PoolState;
use crate::trace::{Purpose, TextId};

/// A moment of a run.
#[derive(Clone, Copy)]
pub(super) struct EventContext {
    pub(super) entry: Option<usize>,
    pub(super) call: u64,
    pub(super) purpose: Purpose,
    pub(super) bytes: u64,
    pub(super) site: TextId,
    pub(super) event: u64,
    /// Number of the first allocation that the execution going on could make.
    pub(super) first_allocation: u64,
}

/// A request that was refused.
pub(super) struct DeniedRequest {
    pub(super) device: u32,
    pub(super) moment: EventContext,
    /// The buffer it was for, in XLA's assignment.
    pub(super) slot: u32,
    pub(super) message: OomMessage,
    pub(super) pool: PoolState,
    pub(super) growth: Option<u64>,
    pub(super) card_free: Option<u64>,
    pub(super) held_by_others: u64,
    pub(super) fatal: Option<String>,
    pub(super) executions_before: u64,
}

/// Where the allocator would have aborted the process.
pub(super) struct Abort {
    pub(super) device: u32,
    pub(super) entry: Option<usize>,
    pub(super) executions: u64,
    pub(super) message: OomMessage,
    pub(super) event: u64,
}

/// What the program was told: in the run, or only in this replay.
pub(super) enum OomMessage {
    Recorded(TextId),
    Computed(String),
}
