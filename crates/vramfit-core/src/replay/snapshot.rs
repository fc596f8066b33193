//! Pools and live allocations before and after a pass.

use super::autotune_range::{Execution, Program, VariantReplay};
use super::effect::{Block, Divergence};
use super::engine::Replay;
use super::fast_forward::Period;
use super::pool::{DeviceSource, PoolLevel, ReplayPool};
use crate::allocator::{DeviceMemory, StateKey};

use rustc_hash::FxHashMap;

/// A replay at one moment.
pub(crate) struct ReplaySnapshot {
    events: u64,
    allocations: u64,
    divergence: Option<Divergence>,
    /// In the order of their numbers.
    live: Vec<Block>,
    pools: Vec<PoolSnapshot>,
}

struct PoolSnapshot {
    /// `None` where the allocator was not made yet.
    state: Option<StateKey>,
    num_allocs: u64,
    level: PoolLevel,
    has_pending_results: bool,
    /// What the device says to questions that were not asked yet.
    device: Option<StateKey>,
}

/// The run with other kernels at one moment.
pub(crate) struct VariantSnapshot {
    replay: ReplaySnapshot,
    programs: FxHashMap<u32, Program>,
    running: Vec<Execution>,
    refused: bool,
}

impl Replay {
    /// Returns what later events depend on.
    pub(crate) fn snapshot(&self) -> ReplaySnapshot {
        let Replay { pools, live, allocations, events, mode: _, divergence } = self;
        let mut live: Vec<_> = live.values().copied().collect();
        live.sort_unstable_by_key(|block| block.number);
        ReplaySnapshot {
            events: *events,
            allocations: *allocations,
            divergence: *divergence,
            live,
            pools: pools.iter().map(ReplayPool::snapshot).collect(),
        }
    }

    /// Returns the pass since a snapshot if every further pass does the same to the pools.
    /// `first_named` is the earliest allocation that an event of the pass names.
    pub(crate) fn period_since(&self, before: &ReplaySnapshot, first_named: u64) -> Option<Period> {
        let after = self.snapshot();
        let period = Period {
            begin: before.events,
            events: after.events - before.events,
            allocations: after.allocations - before.allocations,
            first_moving: first_named.min(before.allocations),
        };
        let repeats_block = |(before, after): (&Block, &Block)| {
            let same = Block { number: after.number, ..*before };
            same == *after && period.repeats_allocation(before.number, after.number)
        };
        let repeats = before.divergence == after.divergence
            && before.live.len() == after.live.len()
            && before.live.iter().zip(&after.live).all(repeats_block)
            && before.pools.len() == after.pools.len()
            && before.pools.iter().zip(&after.pools).all(|(before, after)| before.repeats(after));
        repeats.then_some(period)
    }

    /// Lets so many more passes be over.
    pub(crate) fn skip_passes(&mut self, period: &Period, before: &ReplaySnapshot, passes: u64) {
        self.events += passes * period.events;
        self.allocations += passes * period.allocations;
        for (pool, before) in self.pools.iter_mut().zip(&before.pools) {
            pool.skip_passes(before, passes);
        }
        if period.allocations == 0 {
            return;
        }
        let live = std::mem::take(&mut self.live);
        let moved = live.into_values().map(|mut block| {
            period.move_allocation(&mut block.number, passes);
            (block.number, block)
        });
        self.live = moved.collect();
    }
}

/// Returns what is written into a new state.
fn written(write: impl FnOnce(&mut StateKey)) -> StateKey {
    let mut state = StateKey::default();
    write(&mut state);
    state
}

impl ReplayPool {
    fn snapshot(&self) -> PoolSnapshot {
        let ReplayPool { allocator, options: _, device, has_pending_results, level } = self;
        PoolSnapshot {
            state: allocator
                .as_ref()
                .map(|allocator| written(|state| allocator.write_state(state))),
            num_allocs: allocator.as_ref().map_or(0, |allocator| allocator.stats().num_allocs),
            level: *level,
            has_pending_results: *has_pending_results,
            device: match device {
                DeviceSource::Recorded(device) => Some(written(|state| device.write_state(state))),
                // What it has left is in the state of the allocator.
                DeviceSource::Simulated(_) => None,
            },
        }
    }

    fn skip_passes(&mut self, before: &PoolSnapshot, passes: u64) {
        if let Some(allocator) = &mut self.allocator {
            let count = allocator.stats().num_allocs - before.num_allocs;
            allocator.add_allocations(count * passes);
        }
    }
}

impl PoolSnapshot {
    fn repeats(&self, after: &PoolSnapshot) -> bool {
        let same = |before: &Option<StateKey>, after: &Option<StateKey>| match (before, after) {
            (Some(before), Some(after)) => before.is_same(after),
            (None, None) => true,
            _ => false,
        };
        same(&self.state, &after.state)
            && same(&self.device, &after.device)
            && self.level == after.level
            && self.has_pending_results == after.has_pending_results
    }
}

impl VariantReplay {
    /// Returns what later events depend on.
    pub(crate) fn snapshot(&self) -> VariantSnapshot {
        let VariantReplay { replay, programs, running, refused } = self;
        VariantSnapshot {
            replay: replay.snapshot(),
            programs: programs.clone(),
            running: running.clone(),
            refused: *refused,
        }
    }

    /// Returns the pass since a snapshot if every further pass does the same.
    pub(crate) fn period_since(
        &self,
        before: &VariantSnapshot,
        first_named: u64,
    ) -> Option<Period> {
        let same = self.programs == before.programs
            && self.running == before.running
            && self.refused == before.refused;
        same.then(|| self.replay.period_since(&before.replay, first_named))?
    }

    /// Lets so many more passes be over.
    pub(crate) fn skip_passes(&mut self, period: &Period, before: &VariantSnapshot, passes: u64) {
        self.replay.skip_passes(period, &before.replay, passes);
    }
}
