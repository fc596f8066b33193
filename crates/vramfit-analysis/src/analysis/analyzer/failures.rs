//! Refused requests, aborts, and requests that only this replay grants.

use super::TraceAnalyzer;
use crate::allocator::{AllocError, ChunkTag, PoolEnd, round_up};
use crate::analysis::allocation_failure::MAX_FAILURES_KEPT;
use crate::analysis::failure::{Abort, EventContext, OomMessage, RefusedRequest};
use crate::replay::{Block, Divergence};
use crate::trace::{Event, Purpose};

impl TraceAnalyzer {
    /// Records a free at which the allocator would have aborted the process.
    pub(super) fn on_aborted(&mut self, block: &Block, message: String, event: &Event) {
        self.on_freed(block);
        let message = match *event {
            Event::FreeAborts { message, .. } => OomMessage::Recorded(message),
            _ => OomMessage::Computed(message),
        };
        self.abort.get_or_insert(Abort {
            device: block.device,
            entry: self.last_entry,
            executions: self.executions,
            message,
            event: self.replay.events() - 1,
        });
    }

    /// Records a request that was refused: in the run, or only under these settings.
    pub(super) fn on_refused(&mut self, device: u32, error: AllocError, event: &Event) {
        let (context, slot, message) = match *event {
            Event::AllocationFailure { bytes, purpose, slot, site, message, .. } => {
                let context = self.context(purpose, bytes, site);
                (context, slot, OomMessage::Recorded(message))
            }
            Event::Allocate { bytes, purpose, slot, site, .. } => {
                let message = self.replay.allocator(device).out_of_memory_message(bytes);
                let context = self.context(purpose, bytes, site);
                (context, slot, OomMessage::Computed(message))
            }
            _ => return,
        };
        self.devices[device as usize].on_refused(&mut self.replay);
        self.denial_count += 1;
        if self.refusals.len() == MAX_FAILURES_KEPT {
            return;
        }
        let usage = self.others.usage(device);
        let used_by_others = usage.bytes;
        if self.refusals.is_empty() {
            self.facts.on_first_failure();
            self.others.at_denial.get_or_insert(usage);
            let next = self.replay.allocations();
            let state = &mut self.devices[device as usize];
            state.live_at_refusal.capture(next);
        }
        let remaining_bytes = self.remaining_bytes(device, &context);
        let pool_end_surplus_bytes = self.pool_end_surplus_bytes(device);
        let allocator = self.replay.allocator(device);
        let is_pooled = allocator.stats().pool_bytes.is_some();
        let obtainable = allocator.obtainable_bytes(self.gpu_bytes.saturating_sub(used_by_others));
        self.refusals.push(RefusedRequest {
            device,
            context,
            slot,
            remaining_bytes,
            pool_end_surplus_bytes,
            message,
            pool: self.replay.device_state(device),
            growth: is_pooled.then_some(obtainable),
            gpu_free: (!is_pooled).then_some(obtainable),
            used_by_others,
            fatal: match error {
                AllocError::OutOfMemory => None,
                AllocError::Fatal(text) => Some(text),
            },
            executions_before: self.executions,
        });
    }

    /// Returns what the execution that makes a request has still to allocate on a device, the request included. An
    /// execution allocates all of its outputs and temporaries before it runs; copies of arguments that were not
    /// donated come last, and are not counted.
    fn remaining_bytes(&self, device: u32, request: &EventContext) -> u64 {
        let is_planned =
            |purpose| matches!(purpose, Purpose::Output | Purpose::Temporary | Purpose::Tuple);
        let Some(entry) = request.entry.filter(|_| is_planned(request.purpose)) else {
            return request.bytes;
        };
        let sizes = &self.programs.entries[entry].key.sizes;
        let planned = sizes.output_bytes.saturating_sub(sizes.alias_bytes);
        let planned = planned.saturating_add(sizes.temp_bytes);
        let own = self.replay.live().filter(|block| {
            let site = self.sites.get(block.owner);
            block.device == device
                && block.number >= request.first_allocation
                && site.entry as usize == entry
                && is_planned(site.purpose)
        });
        let allocated = own.fold(0, |sum: u64, block| sum.saturating_add(block.requested_bytes));
        planned.saturating_sub(allocated).max(request.bytes)
    }

    /// Returns what the last block that default memory can have in the pool of a device has beyond its rounded size: with
    /// a larger pool it would have been split off. What other blocks have in surplus they would have in any pool.
    fn pool_end_surplus_bytes(&mut self, device: u32) -> u64 {
        let allocator = self.replay.allocator(device);
        // Those of the default pool alone: collective memory may have one of its own.
        let chunks = allocator.live_set().chunks();
        let last = match allocator.default_end() {
            // In other than partitioned pools all chunks are of the lower end.
            PoolEnd::Lower => chunks.iter().rfind(|chunk| chunk.tag == ChunkTag::Lower),
            PoolEnd::Upper => chunks.iter().find(|chunk| chunk.tag == ChunkTag::Upper),
        };
        // Where there is a gap, the block beside it was split off from that.
        let has_gap = chunks.iter().any(|chunk| chunk.tag == ChunkTag::Gap);
        last.filter(|chunk| chunk.in_use && !has_gap).map_or(0, |chunk| {
            let rounded = round_up(chunk.requested_bytes).unwrap_or(u64::MAX);
            chunk.bytes.saturating_sub(rounded)
        })
    }

    /// Notes the request that is granted although the run was refused it.
    pub(super) fn on_divergence(&mut self, event: &Event) {
        if let Event::AllocationFailure { bytes, purpose, site, .. } = *event
            && self.replay.divergence() == Some(Divergence::Granted)
            && self.newly_granted.is_none()
        {
            self.newly_granted = Some(self.context(purpose, bytes, site));
        }
    }
}
