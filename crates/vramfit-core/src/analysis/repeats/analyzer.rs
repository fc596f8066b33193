//! All that is counted, before and after a pass.

use rustc_hash::FxHashMap;

use super::Call;
use super::devices::DeviceSnapshot;
use super::programs::{ProgramsSnapshot, UNLIMITED};
use crate::analysis::analyzer::{ActiveExecution, Reads, TraceAnalyzer};
use crate::analysis::attribution::Arguments;
use crate::analysis::callbacks::{CallbackCounts, Callbacks};
use crate::analysis::leaks::Leaks;
use crate::analysis::scratch::ScratchDemand;
use crate::analysis::series::TimelinePoint;
use crate::replay::{Period, ReplaySnapshot, VariantSnapshot};
use crate::trace::TextId;

/// A count at one moment.
pub(in crate::analysis) struct Snapshot {
    replay: ReplaySnapshot,
    what_if: Option<VariantSnapshot>,
    devices: Vec<DeviceSnapshot>,
    programs: ProgramsSnapshot,
    running: Vec<ActiveExecution>,
    executions: u64,
    last_entry: Option<usize>,
    refusals: usize,
    refusal_count: u64,
    arguments_at_refusal: Arguments,
    is_aborted: bool,
    is_met: bool,
    reads: FxHashMap<TextId, Reads>,
    callbacks: Callbacks,
    makers: usize,
    leaks: Leaks,
    notes: usize,
    most: ScratchDemand,
}

/// What is noted while a pass is watched.
#[derive(Debug, Default)]
pub(in crate::analysis) struct PassRecord {
    /// The earliest allocation that an event names; `None` where none does.
    pub(in crate::analysis) first_named: Option<u64>,
    pub(in crate::analysis) calls: Vec<Call>,
    /// Points of the timeline of each device.
    pub(in crate::analysis) points: Vec<Vec<TimelinePoint>>,
}

impl PassRecord {
    /// Says whether the step, as far as one can know in the pass, was called in it.
    fn led(&self) -> bool {
        self.calls.iter().any(|call| call.leads)
    }
}

impl TraceAnalyzer {
    /// Returns how many allocations there are now.
    pub(super) fn live_allocations(&self) -> u64 {
        self.replay.live().count() as u64
    }

    /// Takes a snapshot and begins to note what a pass does.
    pub(super) fn watch(&mut self) -> Snapshot {
        self.watched = Some(Box::default());
        for device in &mut self.devices {
            device.watched = Some(Vec::new());
        }
        self.snapshot()
    }

    /// Returns what was noted, and notes no more.
    pub(super) fn unwatch(&mut self) -> PassRecord {
        let mut notes = self
            .watched
            .take()
            .map_or_else(PassRecord::default, |notes| *notes);
        let points = self
            .devices
            .iter_mut()
            .map(|device| device.watched.take().unwrap_or_default());
        notes.points = points.collect();
        notes
    }

    fn snapshot(&self) -> Snapshot {
        let TraceAnalyzer {
            replay,
            what_if,
            card_bytes: _,
            devices,
            programs,
            running,
            executions,
            last_entry,
            refusals,
            refusal_count,
            arguments_at_refusal,
            abort,
            met,
            reads,
            // Nothing depends on it, and after each pass it is the last one of the pass.
            last_read: _,
            // What others hold is from notes, which stand in no repeat.
            others: _,
            callbacks,
            makers,
            leaks,
            search,
            most,
            watched: _,
        } = self;
        Snapshot {
            replay: replay.snapshot(),
            what_if: what_if.as_ref().map(|what_if| what_if.snapshot()),
            devices: devices.iter().map(|device| device.snapshot()).collect(),
            programs: programs.snapshot(),
            running: running.clone(),
            executions: *executions,
            last_entry: *last_entry,
            // Once the list is full, refusals are only counted.
            refusals: refusals.len(),
            refusal_count: *refusal_count,
            arguments_at_refusal: arguments_at_refusal.clone(),
            is_aborted: abort.is_some(),
            is_met: met.is_some(),
            reads: reads.clone(),
            callbacks: callbacks.clone(),
            makers: makers.len(),
            leaks: leaks.clone(),
            // All else that the search knows is from notes.
            notes: search.seen(),
            most: most.clone(),
        }
    }

    /// Returns the pass since a snapshot, and how many more passes do the same; `None` for none.
    pub(super) fn period_since(
        &self,
        before: &Snapshot,
        notes: &PassRecord,
    ) -> Option<(Period, u64)> {
        let first_named = notes.first_named.unwrap_or(u64::MAX);
        let period = self.replay.period_since(&before.replay, first_named)?;
        let repeats_running = |(before, after): (&ActiveExecution, &ActiveExecution)| {
            let moved = before.first_allocation + period.allocations;
            before.entry == after.entry
                && before.site == after.site
                && before.asked == after.asked
                && [before.first_allocation, moved].contains(&after.first_allocation)
        };
        let led = notes.led();
        let mut devices = self.devices.iter().zip(&before.devices);
        let what_if = match (&self.what_if, &before.what_if) {
            (Some(after), Some(before)) => after.period_since(before, first_named).is_some(),
            (None, None) => true,
            _ => false,
        };
        let repeats = what_if
            && devices.all(|(after, before)| after.repeats(before, &period, led))
            && self.programs.repeats(&before.programs, &period)
            && self.running.len() == before.running.len()
            && before
                .running
                .iter()
                .zip(&self.running)
                .all(repeats_running)
            && self.last_entry == before.last_entry
            && self.refusals.len() == before.refusals
            && self.arguments_at_refusal == before.arguments_at_refusal
            && self.abort.is_some() == before.is_aborted
            && self.met.is_some() == before.is_met
            && self.reads.len() == before.reads.len()
            && self.callbacks.repeats(&before.callbacks)
            && self.makers.len() == before.makers
            && self.leaks.repeats(&before.leaks)
            && self.search.seen() == before.notes
            && self.most == before.most
            && !notes.calls.iter().any(|call| call.changes_clock);
        let passes = || {
            self.programs
                .passes_until_change(&before.programs, &notes.calls)
        };
        repeats
            .then(|| (period, passes()))
            .filter(|(_, passes)| *passes > 0)
    }

    /// Lets so many more passes be over.
    pub(super) fn skip(
        &mut self,
        period: &Period,
        before: &Snapshot,
        notes: &PassRecord,
        passes: u64,
    ) {
        debug_assert!(passes < UNLIMITED, "a trace has fewer passes");
        let first_named = notes.first_named.unwrap_or(u64::MAX);
        if let (Some(what_if), Some(before)) = (&mut self.what_if, &before.what_if)
            // Its own pass: it may have left the run.
            && let Some(period) = what_if.period_since(before, first_named)
        {
            what_if.skip(&period, before, passes);
        }
        self.replay.skip(period, &before.replay, passes);
        let points = self
            .devices
            .iter_mut()
            .zip(&before.devices)
            .zip(&notes.points);
        for ((device, before), points) in points {
            device.skip(before, period, points, notes.led(), passes);
        }
        self.programs.skip(&before.programs, period, passes);
        for (running, before) in self.running.iter_mut().zip(&before.running) {
            if running.first_allocation != before.first_allocation {
                running.first_allocation += passes * period.allocations;
            }
        }
        self.executions += passes * (self.executions - before.executions);
        self.refusal_count += passes * (self.refusal_count - before.refusal_count);
        for (site, reads) in &mut self.reads {
            let before = before.reads.get(site).cloned().unwrap_or_default();
            reads.count += passes * (reads.count - before.count);
            let bytes = passes.saturating_mul(reads.bytes - before.bytes);
            reads.bytes = reads.bytes.saturating_add(bytes);
            reads.shapes += passes * (reads.shapes - before.shapes);
        }
        self.callbacks.skip(&before.callbacks, passes);
        self.leaks.skip(&before.leaks, passes);
    }
}

impl Callbacks {
    /// Says whether each further pass calls functions as this one did.
    fn repeats(&self, before: &Callbacks) -> bool {
        self.0.len() == before.0.len()
    }

    /// Lets so many more passes be over.
    fn skip(&mut self, before: &Callbacks, passes: u64) {
        for (site, entry) in &mut self.0 {
            let CallbackCounts {
                calls,
                errors,
                // After each pass these are the last ones of the pass.
                error: _,
                skipped,
                reason: _,
            } = entry;
            let before = before.0.get(site).copied().unwrap_or_default();
            let add = |count: &mut u64, before: u64| {
                *count = count.saturating_add(passes.saturating_mul(*count - before));
            };
            add(calls, before.calls);
            add(errors, before.errors);
            add(skipped, before.skipped);
        }
    }
}
