//! Which passes of a repeat add up to the same, so that they can be skipped ([`crate::replay::feed`]).
//!
//! Every snapshot takes its structure apart field by field without `..`: whoever adds a field to what is
//! added up is told by the compiler to decide here what the field does from pass to pass.

use super::{ActiveExecution, TraceAnalyzer};
use crate::analysis::attribution::Arguments;
use crate::analysis::callbacks::Callbacks;
use crate::analysis::devices::{DeviceAnalysis, DeviceSnapshot};
use crate::analysis::leaks::Leaks;
use crate::analysis::programs::{ProgramsSnapshot, RecordedCall, UNLIMITED};
use crate::analysis::scratch::ScratchDemand;
use crate::analysis::series::TimelinePoint;
use crate::analysis::unknown_reads::UnknownReadCounts;
use crate::analysis::unread_outputs::OutputUses;
use crate::error::Result;
use crate::replay::{EventConsumer, Period, ReplaySnapshot, VariantSnapshot};
use crate::trace::{Event, Note};

/// An analyzer before a pass.
pub(in crate::analysis) struct AnalyzerSnapshot {
    replay: ReplaySnapshot,
    variant: Option<VariantSnapshot>,
    devices: Vec<DeviceSnapshot>,
    programs: ProgramsSnapshot,
    active: Vec<ActiveExecution>,
    executions: u64,
    last_entry: Option<usize>,
    refusals: usize,
    denial_count: u64,
    arguments_at_denial: Arguments,
    is_aborted: bool,
    is_newly_granted: bool,
    unknown_reads: UnknownReadCounts,
    callbacks: Callbacks,
    sites: usize,
    leaks: Leaks,
    output_uses: OutputUses,
    notes: usize,
    scratch: ScratchDemand,
}

/// What happens in a pass.
#[derive(Debug, Default)]
pub(super) struct PassRecord {
    /// The earliest allocation that an event names; `None` where none does.
    first_named: Option<u64>,
    pub(super) calls: Vec<RecordedCall>,
    /// Points of the timeline of each device.
    points: Vec<Vec<TimelinePoint>>,
}

impl PassRecord {
    pub(super) fn on_event(&mut self, event: &Event) {
        let named = self.first_named.into_iter();
        self.first_named = named.chain(event.named_allocation()).min();
    }

    /// Says whether the step, as far as one can know in the pass, was called in it.
    fn runs_step(&self) -> bool {
        self.calls.iter().any(|call| call.is_step)
    }

    fn first_named(&self) -> u64 {
        self.first_named.unwrap_or(u64::MAX)
    }
}

/// Several analyzers of the same events.
impl EventConsumer for Vec<&mut TraceAnalyzer> {
    type Snapshot = Vec<AnalyzerSnapshot>;

    fn live_allocations(&self) -> u64 {
        let live = |analyzer: &&mut TraceAnalyzer| analyzer.replay.live().count() as u64;
        self.iter().map(live).sum()
    }

    fn on_notes(&mut self, notes: &[Note]) {
        self.iter_mut().for_each(|analyzer| analyzer.on_notes(notes));
    }

    fn on_event(&mut self, event: &Event) -> Result<bool> {
        for analyzer in self {
            analyzer.on_event(event)?;
        }
        Ok(true)
    }

    fn start_pass(&mut self) -> Vec<AnalyzerSnapshot> {
        self.iter_mut().map(|analyzer| analyzer.start_pass()).collect()
    }

    /// Skips as many passes as are the same in all analyzers.
    fn skip_passes(&mut self, before: Vec<AnalyzerSnapshot>, max_passes: u64) -> u64 {
        let records: Vec<_> = self.iter_mut().map(|analyzer| analyzer.end_pass()).collect();
        let mut passes = max_passes;
        let mut periods = Vec::with_capacity(self.len());
        for ((analyzer, before), record) in self.iter().zip(&before).zip(&records) {
            let Some((period, limit)) = analyzer.period_since(before, record) else {
                return 0;
            };
            periods.push(period);
            passes = passes.min(limit);
        }
        if passes == 0 {
            return 0;
        }
        let all = self.iter_mut().zip(&before).zip(&records).zip(periods);
        for (((analyzer, before), record), period) in all {
            analyzer.skip_passes(&period, before, record, passes);
        }
        passes
    }
}

impl TraceAnalyzer {
    /// Takes a snapshot and begins to record what a pass does.
    fn start_pass(&mut self) -> AnalyzerSnapshot {
        self.pass = Some(Box::default());
        self.devices.iter_mut().for_each(DeviceAnalysis::start_pass);
        self.snapshot()
    }

    fn end_pass(&mut self) -> PassRecord {
        let devices = self.devices.iter_mut();
        PassRecord {
            points: devices.map(DeviceAnalysis::end_pass).collect(),
            ..*self.pass.take().unwrap_or_default()
        }
    }

    fn snapshot(&self) -> AnalyzerSnapshot {
        let TraceAnalyzer {
            replay,
            variant,
            gpu_bytes: _,
            devices,
            programs,
            active,
            executions,
            last_entry,
            refusals,
            denial_count,
            arguments_at_denial,
            abort,
            newly_granted,
            unknown_reads,
            // What others hold is from notes, which stand in no repeat.
            others: _,
            callbacks,
            sites,
            leaks,
            output_uses,
            // What arrays are to a program is told in its first executions; more of the same line add nothing.
            roles: _,
            step_notes,
            scratch,
            pass: _,
        } = self;
        AnalyzerSnapshot {
            replay: replay.snapshot(),
            variant: variant.as_ref().map(|variant| variant.snapshot()),
            devices: devices.iter().map(DeviceAnalysis::snapshot).collect(),
            programs: programs.snapshot(),
            active: active.clone(),
            executions: *executions,
            last_entry: *last_entry,
            // Once the list is full, refusals are only counted.
            refusals: refusals.len(),
            denial_count: *denial_count,
            arguments_at_denial: arguments_at_denial.clone(),
            is_aborted: abort.is_some(),
            is_newly_granted: newly_granted.is_some(),
            unknown_reads: unknown_reads.clone(),
            callbacks: callbacks.clone(),
            sites: sites.len(),
            leaks: leaks.clone(),
            output_uses: output_uses.clone(),
            // All else that is known of the step is from notes.
            notes: step_notes.count(),
            scratch: scratch.clone(),
        }
    }

    /// Returns the pass since a snapshot, and how many more passes do the same; `None` for none.
    fn period_since(
        &self,
        before: &AnalyzerSnapshot,
        record: &PassRecord,
    ) -> Option<(Period, u64)> {
        let first_named = record.first_named();
        let period = self.replay.period_since(&before.replay, first_named)?;
        let repeats_execution = |(before, after): (&ActiveExecution, &ActiveExecution)| {
            let moved = before.first_allocation + period.allocations;
            before.entry == after.entry
                && before.site == after.site
                && before.checks == after.checks
                && [before.first_allocation, moved].contains(&after.first_allocation)
        };
        let runs_step = record.runs_step();
        let mut devices = self.devices.iter().zip(&before.devices);
        let variant_repeats = match (&self.variant, &before.variant) {
            (Some(after), Some(before)) => after.period_since(before, first_named).is_some(),
            (None, None) => true,
            _ => false,
        };
        let repeats = variant_repeats
            && devices.all(|(after, before)| after.repeats(before, &period, runs_step))
            && self.programs.repeats(&before.programs, &period)
            && self.active.len() == before.active.len()
            && before.active.iter().zip(&self.active).all(repeats_execution)
            && self.last_entry == before.last_entry
            && self.refusals.len() == before.refusals
            && self.arguments_at_denial == before.arguments_at_denial
            && self.abort.is_some() == before.is_aborted
            && self.newly_granted.is_some() == before.is_newly_granted
            && self.unknown_reads.repeats(&before.unknown_reads)
            && self.callbacks.repeats(&before.callbacks)
            && self.sites.len() == before.sites
            && self.leaks.repeats(&before.leaks)
            && self.output_uses == before.output_uses
            && self.step_notes.count() == before.notes
            && self.scratch == before.scratch
            && !record.calls.iter().any(|call| call.changes_step_program);
        let passes = || self.programs.passes_until_change(&before.programs, &record.calls);
        repeats.then(|| (period, passes())).filter(|(_, passes)| *passes > 0)
    }

    /// Lets so many more passes be over.
    fn skip_passes(
        &mut self,
        period: &Period,
        before: &AnalyzerSnapshot,
        record: &PassRecord,
        passes: u64,
    ) {
        debug_assert!(passes < UNLIMITED, "a trace has fewer passes");
        if let (Some(variant), Some(before)) = (&mut self.variant, &before.variant)
            // Its own pass: it may have left the run.
            && let Some(period) = variant.period_since(before, record.first_named())
        {
            variant.skip_passes(&period, before, passes);
        }
        self.replay.skip_passes(period, &before.replay, passes);
        let runs_step = record.runs_step();
        let devices = self.devices.iter_mut().zip(&before.devices);
        for ((device, before), points) in devices.zip(&record.points) {
            device.skip_passes(before, period, points, runs_step, passes);
        }
        self.programs.skip_passes(&before.programs, period, passes);
        for (execution, before) in self.active.iter_mut().zip(&before.active) {
            if execution.first_allocation != before.first_allocation {
                execution.first_allocation += passes * period.allocations;
            }
        }
        self.executions += passes * (self.executions - before.executions);
        self.denial_count += passes * (self.denial_count - before.denial_count);
        self.unknown_reads.skip_passes(&before.unknown_reads, passes);
        self.callbacks.skip_passes(&before.callbacks, passes);
        self.leaks.skip_passes(&before.leaks, passes);
    }
}
