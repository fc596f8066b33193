//! What was going on at an event, and what failed, before names are looked up.

use super::device_summary::RequestContext;
use super::programs::Programs;
use crate::replay::PoolState;
use crate::trace::{Purpose, TextId};

/// What was going on at an event.
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

impl EventContext {
    /// Looks up the names.
    pub(super) fn named(
        &self,
        programs: &Programs,
        text: &impl Fn(TextId) -> String,
    ) -> RequestContext {
        RequestContext {
            program: self.entry.map(|entry| text(programs.name(entry))),
            call: self.call,
            purpose: self.purpose,
            requested_bytes: self.bytes,
            site: text(self.site),
            event: self.event,
        }
    }
}

impl OomMessage {
    pub(super) fn text(&self, text: &impl Fn(TextId) -> String) -> String {
        match self {
            OomMessage::Recorded(id) => text(*id),
            OomMessage::Computed(message) => message.clone(),
        }
    }
}

/// A request that was refused.
pub(super) struct RefusedRequest {
    pub(super) device: u32,
    pub(super) context: EventContext,
    /// The buffer it was for, in XLA's assignment.
    pub(super) slot: u32,
    /// What its execution had still to allocate, the request included.
    pub(super) remaining_bytes: u64,
    /// What the block at the end of the pool has beyond its rounded size, too little to be split off.
    pub(super) pool_end_surplus_bytes: u64,
    pub(super) message: OomMessage,
    pub(super) pool: PoolState,
    pub(super) growth: Option<u64>,
    pub(super) gpu_free: Option<u64>,
    pub(super) used_by_others: u64,
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

/// The message of a failure: that of the run, or of this replay only.
pub(super) enum OomMessage {
    Recorded(TextId),
    Computed(String),
}
