//! What a run adds up to while its events are replayed one by one.
//!
//! | file | content |
//! | --- | --- |
//! | `executions.rs` | executions, and their arguments |
//! | `failures.rs` | refused requests and aborts |
//! | `summarize.rs` | from what was added up to a [`super::RunSummary`] |

mod executions;
mod failures;
mod summarize;

pub use summarize::{summarize, summarize_events, summarize_until};

use super::arrays::{AllocationKey, AllocationSites, NO_PROGRAM};
use super::attribution::Arguments;
use super::device_summary::RequestContext;
use super::devices::DeviceAnalysis;
use super::facts::RunningFacts;
use super::facts::compilations::Compilation;
use super::facts::leaks::Leaks;
use super::facts::unread_outputs::OutputUses;
use super::failure::{Abort, EventContext, RefusedRequest};
use super::other_processes::OtherProcesses;
use super::programs::{ErrorText, Programs};
use super::roles::ArgumentRoles;
use super::scratch::{RecordedScratch, ScratchChecks, ScratchDemand};
use super::step_search::StepNotes;
use crate::error::Result;
use crate::replay::{
    Block, Divergence, EventEffect, Replay, VariantReplay, allocatable_bytes, corrupt_trace,
};
use crate::trace::{Event, EventSource, Header, Note, Purpose, TextId};

/// Adds up a run while its events are replayed.
pub(super) struct TraceAnalyzer {
    replay: Replay,
    /// The same run with other kernels, where that was asked for.
    variant: Option<VariantReplay>,
    /// What a GPU has for this process and those that share it, going by the header alone.
    gpu_bytes: u64,
    devices: Vec<DeviceAnalysis>,
    programs: Programs,
    /// The innermost last.
    active: Vec<ActiveExecution>,
    executions: u64,
    /// Entry of the execution started last.
    last_entry: Option<usize>,
    refusals: Vec<RefusedRequest>,
    denial_count: u64,
    /// Arguments of the execution whose request was refused first.
    arguments_at_denial: Arguments,
    abort: Option<Abort>,
    /// The request that was refused in the run and is granted here, at which the replay diverges.
    newly_granted: Option<EventContext>,
    facts: RunningFacts,
    others: OtherProcesses,
    sites: AllocationSites,
    leaks: Leaks,
    output_uses: OutputUses,
    roles: ArgumentRoles,
    step_notes: StepNotes,
    scratch: ScratchDemand,
}

/// An execution that has not ended yet.
struct ActiveExecution {
    entry: usize,
    /// Where it was called.
    site: TextId,
    first_allocation: u64,
    checks: ScratchChecks,
}

/// Replays the events of a source through each analyzer, up to and including the one of index `last`.
///
/// # Errors
/// Those of [`EventSource::next_event`], and [`crate::ErrorKind::InvalidFile`] for an event that cannot
/// have happened.
pub(super) fn replay_events(
    source: &mut dyn EventSource,
    analyzers: &mut [&mut TraceAnalyzer],
    last: u64,
) -> Result<()> {
    let mut replayed = 0;
    while replayed <= last
        && let Some(event) = source.next_event()?
    {
        for analyzer in &mut *analyzers {
            // They stand before the events that they are about.
            analyzer.on_notes(source.notes());
            analyzer.on_event(&event)?;
        }
        replayed += 1;
    }
    analyzers.iter_mut().for_each(|analyzer| analyzer.on_notes(source.notes()));
    Ok(())
}

impl TraceAnalyzer {
    /// Prepares for a run as it was.
    pub(super) fn new(header: &Header) -> Result<TraceAnalyzer> {
        let replay = Replay::new(header)?;
        let variant = header.run.autotune_range.then(|| VariantReplay::new(header)).transpose()?;
        Ok(TraceAnalyzer {
            variant,
            others: OtherProcesses::new(replay.devices() as usize),
            ..TraceAnalyzer::for_replay(header, replay)
        })
    }

    /// Prepares for a replay under the settings in `header`.
    pub(super) fn for_replay(header: &Header, replay: Replay) -> TraceAnalyzer {
        let count = replay.devices();
        TraceAnalyzer {
            variant: None,
            gpu_bytes: allocatable_bytes(header).unwrap_or_else(|_| header.free_bytes()),
            devices: (0..count).map(|number| DeviceAnalysis::new(number, count as usize)).collect(),
            replay,
            programs: Programs::default(),
            active: Vec::new(),
            executions: 0,
            last_entry: None,
            refusals: Vec::new(),
            denial_count: 0,
            arguments_at_denial: Arguments::default(),
            abort: None,
            newly_granted: None,
            facts: RunningFacts::default(),
            others: OtherProcesses::default(),
            sites: AllocationSites::default(),
            leaks: Leaks::default(),
            output_uses: OutputUses::default(),
            roles: ArgumentRoles::default(),
            step_notes: StepNotes::default(),
            scratch: ScratchDemand::default(),
        }
    }

    /// Returns why the replay diverges from the run, if it does.
    pub(super) fn divergence(&self) -> Option<Divergence> {
        self.replay.divergence()
    }

    /// Returns the request at which it diverges by granting it.
    pub(super) fn newly_granted(&self, source: &dyn EventSource) -> Option<RequestContext> {
        let context = self.newly_granted?;
        Some(context.named(&self.programs, &|id| source.text(id).to_owned()))
    }

    /// Records the notes that were read since the last time.
    fn on_notes(&mut self, notes: &[Note]) {
        self.step_notes.on_notes(notes, &mut self.programs, &mut self.others);
    }

    /// Replays one event and adds it up.
    fn on_event(&mut self, event: &Event) -> Result<()> {
        let owner = self.allocation_site(event);
        let active = self.active.last_mut();
        let active = active.map(|execution| (execution.entry, &mut execution.checks));
        self.scratch.on_event(event, active, &self.programs, &mut self.replay, self.gpu_bytes);
        let effect = self.replay.apply(event, owner)?;
        if self.replay.divergence().is_some() && effect == EventEffect::None {
            self.on_divergence(event);
            return Ok(());
        }
        if let Some(variant) = &mut self.variant {
            variant.apply(event)?;
        }
        match effect {
            EventEffect::None => return self.on_other_event(event),
            EventEffect::Allocated(block) => self.on_allocated(&block, event),
            EventEffect::Freed(block) => self.on_freed(&block),
            EventEffect::Aborted(block, message) => self.on_aborted(&block, message, event),
            EventEffect::Refused(device, error) => self.on_refused(device, error, event),
        }
        Ok(())
    }

    /// Records an event that leaves the pools as they are.
    fn on_other_event(&mut self, event: &Event) -> Result<()> {
        self.facts.on(event);
        match *event {
            Event::Begin { program, site } => return self.on_begin(program, site),
            Event::End => return self.on_end(),
            Event::Argument { parameter, allocation } => {
                return self.on_argument(parameter, allocation);
            }
            Event::OutsidePool { device, bytes } => {
                self.devices[device as usize].on_non_pool_memory(bytes);
            }
            Event::Unread { allocation } => self.output_uses.on_unread(allocation),
            Event::ClearPeak { device } => self.devices[device as usize].on_clear_peak(),
            _ => {
                let added = self.on_program_event(event);
                return self.check_consistent(added);
            }
        }
        Ok(())
    }

    /// Records an event about a program.
    fn on_program_event(&mut self, event: &Event) -> Result<(), ErrorText> {
        match *event {
            Event::Program { program, name, sizes, devices, loaded, compile_attempt, site } => {
                let compilation =
                    Compilation { name, site, sizes, loaded, event: self.replay.events() - 1 };
                self.programs.on_compiled(program, compilation, devices, compile_attempt)
            }
            Event::Variant { program, name, sizes } => {
                self.programs.register_variant(program, name, sizes.temp_bytes)
            }
            Event::Scratch {
                program,
                library,
                routine,
                site,
                low_bytes,
                high_bytes,
                source,
                phase,
            } => {
                let need = RecordedScratch {
                    library,
                    routine,
                    site,
                    low_bytes,
                    high_bytes,
                    source,
                    phase,
                };
                self.programs.add_scratch(program, need)
            }
            Event::Unload { program } => self.programs.on_unloaded(program),
            _ => Ok(()),
        }
    }

    fn on_allocated(&mut self, block: &Block, event: &Event) {
        self.leaks.on_allocated(block);
        let device = &mut self.devices[block.device as usize];
        if device.on_allocated(&mut self.replay)
            && let Event::Allocate { bytes, purpose, site, .. } = *event
        {
            let context = self.context(purpose, bytes, site);
            self.devices[block.device as usize].peak_context = Some(context);
        }
    }

    fn on_freed(&mut self, block: &Block) {
        self.leaks.on_freed(block);
        self.output_uses.on_freed(block);
        self.devices[block.device as usize].on_freed(block, &mut self.replay);
    }

    /// Returns what is going on at the event applied last.
    fn context(&self, purpose: Purpose, bytes: u64, site: TextId) -> EventContext {
        let execution = self.active.last();
        let entry = execution.map(|execution| execution.entry);
        EventContext {
            entry,
            call: entry.map_or(self.executions, |entry| self.programs.calls(entry)),
            purpose,
            bytes,
            // Inside an execution the line is that of the call.
            site: execution.map_or(site, |execution| execution.site),
            event: self.replay.events() - 1,
            first_allocation: execution.map_or(0, |execution| execution.first_allocation),
        }
    }

    /// Returns the number of the site that allocates in this event; 0 where nothing is allocated.
    #[inline]
    fn allocation_site(&mut self, event: &Event) -> u32 {
        let Event::Allocate { device, purpose, slot, site, .. } = *event else {
            return 0;
        };
        let (entry, site) = match self.active.last() {
            Some(execution) => (execution.entry as u32, execution.site),
            None => (NO_PROGRAM, site),
        };
        self.sites.number(AllocationKey { device, purpose, site, entry, slot })
    }

    fn invalid_event(&self, what: ErrorText) -> Result<()> {
        self.check_consistent(Err(what))
    }

    fn check_consistent<T>(&self, result: Result<T, ErrorText>) -> Result<T> {
        result.map_err(|what| corrupt_trace(self.replay.events(), what))
    }
}
