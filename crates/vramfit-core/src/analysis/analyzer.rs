//! Counts what a trace comes to while its events are replayed one by one.

use rustc_hash::FxHashMap;

use super::arrays::{AllocationSite, AllocationSites, NO_PROGRAM};
use super::attribution::Arguments;
use super::callbacks::Callbacks;
use super::compilations::Compilation;
use super::devices::Device;
use super::failure::{Abort, DeniedRequest, EventContext, OomMessage};
use super::leaks::Leaks;
use super::other_processes::OtherProcesses;
use super::programs::Programs;
use super::repeats::{Call, PassRecord};
use super::scratch::{ScratchChecks, ScratchDemand, ScratchNeed};
use super::step_search::Search;
use super::summary::MAX_REFUSALS_KEPT;
use crate::allocator::AllocError;
use crate::error::Result;
use crate::replay::{Block, Divergence, Replay, StepEffect, VariantReplay, corrupt_trace};
use crate::trace::{Event, Header, Purpose, TextId};

/// Executions inside executions; more than any program nests callbacks.
const MAX_DEPTH: usize = 1024;

/// What is counted while events go by.
pub(super) struct TraceAnalyzer {
    pub(super) replay: Replay,
    /// The same run with other kernels, where that was asked for.
    pub(super) what_if: Option<VariantReplay>,
    /// What a card has for this process and those that share it, going by the header alone.
    pub(super) card_bytes: u64,
    pub(super) devices: Vec<Device>,
    pub(super) programs: Programs,
    /// The executions that are going on, the innermost last.
    pub(super) running: Vec<ActiveExecution>,
    pub(super) executions: u64,
    /// ProgramEntry of the execution begun last.
    pub(super) last_entry: Option<usize>,
    pub(super) refusals: Vec<DeniedRequest>,
    pub(super) refusal_count: u64,
    /// Arguments of the execution whose request was refused first.
    pub(super) arguments_at_refusal: Arguments,
    pub(super) abort: Option<Abort>,
    /// The request with which a replay elsewhere leaves the run, by meeting it.
    pub(super) met: Option<EventContext>,
    pub(super) reads: FxHashMap<TextId, Reads>,
    /// The line of the last of them.
    pub(super) last_read: Option<TextId>,
    /// What other processes hold of the GPUs.
    pub(super) others: OtherProcesses,
    pub(super) callbacks: Callbacks,
    pub(super) makers: AllocationSites,
    pub(super) leaks: Leaks,
    pub(super) search: Search,
    /// The most that library routines may take.
    pub(super) most: ScratchDemand,
    /// What is noted while a pass of a repeat is watched.
    pub(super) watched: Option<Box<PassRecord>>,
}

/// Reads of values that are not known, from one line.
#[derive(Clone, Default)]
pub(super) struct Reads {
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) shapes: u64,
}

/// An execution that is going on.
#[derive(Clone)]
pub(super) struct ActiveExecution {
    pub(super) entry: usize,
    /// Where it was called.
    pub(super) site: TextId,
    pub(super) first_allocation: u64,
    /// Where the most that its library routines may take was asked for.
    pub(super) asked: ScratchChecks,
}

impl TraceAnalyzer {
    /// Prepares to count a run as it was.
    pub(super) fn new(header: &Header) -> Result<TraceAnalyzer> {
        let replay = Replay::new(header)?;
        let what_if = header
            .autotune_range
            .then(|| VariantReplay::new(header))
            .transpose()?;
        Ok(TraceAnalyzer {
            what_if,
            others: OtherProcesses::new(replay.devices() as usize),
            ..TraceAnalyzer::of(header, replay)
        })
    }

    /// Prepares to count what a replay comes to.
    pub(super) fn of(header: &Header, replay: Replay) -> TraceAnalyzer {
        let count = replay.devices();
        let devices = (0..count).map(|number| Device::new(number, count as usize));
        let elsewhere = header.occupied_bytes.saturating_add(header.context_bytes);
        TraceAnalyzer {
            replay,
            what_if: None,
            card_bytes: header.total_memory_bytes.saturating_sub(elsewhere),
            devices: devices.collect(),
            programs: Programs::default(),
            running: Vec::new(),
            executions: 0,
            last_entry: None,
            refusals: Vec::new(),
            refusal_count: 0,
            arguments_at_refusal: Arguments::default(),
            abort: None,
            met: None,
            reads: FxHashMap::default(),
            last_read: None,
            others: OtherProcesses::default(),
            callbacks: Callbacks::default(),
            makers: AllocationSites::default(),
            leaks: Leaks::default(),
            search: Search::default(),
            most: ScratchDemand::default(),
            watched: None,
        }
    }

    /// Lets one event happen and counts it.
    pub(super) fn event(&mut self, event: &Event) -> Result<()> {
        if let Some(watched) = &mut self.watched
            && let Some(named) = event.named_allocation()
        {
            let first = watched.first_named.get_or_insert(named);
            *first = named.min(*first);
        }
        let owner = self.owner(event);
        self.ask_for_scratch(event);
        let effect = self.replay.apply(event, owner)?;
        if self.replay.divergence().is_some() && effect == StepEffect::None {
            self.note_met(event);
            return Ok(());
        }
        if let Some(what_if) = &mut self.what_if {
            what_if.apply(event)?;
        }
        match (effect, *event) {
            (
                StepEffect::Allocated(block),
                Event::Allocate {
                    bytes,
                    purpose,
                    site,
                    ..
                },
            ) => {
                self.leaks.allocated(&block);
                let device = &mut self.devices[block.device as usize];
                device.card_refused = false;
                if device.note(&mut self.replay) {
                    let moment = self.now(purpose, bytes, site);
                    self.devices[block.device as usize].moment = Some(moment);
                }
            }
            (StepEffect::Freed(block), _) => self.freed(&block),
            (StepEffect::Aborted(block, text), event) => {
                self.freed(&block);
                let message = match event {
                    Event::FreeAborts { message, .. } => OomMessage::Recorded(message),
                    _ => OomMessage::Computed(text),
                };
                let (entry, executions) = (self.last_entry, self.executions);
                let event = self.replay.events() - 1;
                self.abort.get_or_insert(Abort {
                    device: block.device,
                    entry,
                    executions,
                    message,
                    event,
                });
            }
            (
                StepEffect::Denied(device, refusal),
                Event::Refuse {
                    bytes,
                    purpose,
                    slot,
                    message,
                    ..
                },
            ) => {
                let moment = self.now(purpose, bytes, TextId(0));
                self.refused(
                    device,
                    refusal,
                    OomMessage::Recorded(message),
                    (moment, slot),
                );
            }
            (
                StepEffect::Denied(device, refusal),
                Event::Allocate {
                    bytes,
                    purpose,
                    slot,
                    site,
                    ..
                },
            ) => {
                let moment = self.now(purpose, bytes, site);
                let told = self.replay.allocator(device).out_of_memory_message(bytes);
                self.refused(device, refusal, OomMessage::Computed(told), (moment, slot));
            }
            (
                _,
                Event::Driver {
                    device, granted, ..
                },
            ) => {
                self.devices[device as usize].card_refused |= granted == 0;
            }
            (_, Event::Outside { device, bytes }) => {
                let outside = &mut self.devices[device as usize].outside;
                *outside = bytes.max(*outside);
            }
            (_, Event::ClearPeak { device }) => {
                let state = &mut self.devices[device as usize];
                state.reported_peak = state.level.in_use_bytes;
            }
            (
                _,
                Event::Program {
                    program,
                    name,
                    sizes,
                    devices,
                    loaded,
                    compile_attempt,
                    site,
                },
            ) => {
                let compiled = Compilation {
                    name,
                    site,
                    sizes,
                    loaded,
                    event: self.replay.events() - 1,
                    times: 1,
                    every: 0,
                };
                let added = self
                    .programs
                    .add(program, compiled, devices, compile_attempt);
                return self.consistent(added);
            }
            (
                _,
                Event::Variant {
                    program,
                    name,
                    sizes,
                },
            ) => {
                let measured = self
                    .programs
                    .register_variant(program, name, sizes.temp_bytes);
                return self.consistent(measured);
            }
            (
                _,
                Event::Scratch {
                    program,
                    library,
                    routine,
                    site,
                    low_bytes,
                    high_bytes,
                    source,
                    phase,
                },
            ) => {
                let need = ScratchNeed {
                    library,
                    routine,
                    site,
                    low_bytes,
                    high_bytes,
                    source,
                    phase,
                };
                let added = self.programs.add_scratch(program, need);
                return self.consistent(added);
            }
            (_, Event::Unload { program }) => {
                let unloaded = self.programs.unload(program);
                return self.consistent(unloaded);
            }
            (_, Event::Begin { program, site }) => {
                let entry = self.consistent(self.programs.entry_for(program))?;
                return self.begin(entry, site);
            }
            (_, Event::End) => {
                let Some(ActiveExecution { entry, .. }) = self.running.pop() else {
                    return self.wrong("an execution ends that never began");
                };
                let levels = self.devices.iter().map(|device| device.level.in_use_bytes);
                let (at, ended) = (
                    self.replay.events(),
                    &mut self.programs.entries[entry].ended,
                );
                match ended {
                    Some((time, kept)) => {
                        *time = at;
                        kept.clear();
                        kept.extend(levels);
                    }
                    None => *ended = Some((at, levels.collect())),
                }
            }
            (
                _,
                Event::Argument {
                    parameter,
                    allocation,
                },
            ) => return self.argument(parameter, allocation),
            (_, Event::UnknownRead { site, bytes }) => self.read(site, bytes, 0),
            (_, Event::ShapeRead { site, bytes }) => self.read(site, bytes, 1),
            (
                _,
                Event::Callback {
                    site,
                    calls,
                    errors,
                    error,
                },
            ) => self.callbacks.called(site, calls, errors, error),
            (
                _,
                Event::CallbackSkipped {
                    site,
                    calls,
                    reason,
                },
            ) => self.callbacks.skipped(site, calls, reason),
            _ => {}
        }
        Ok(())
    }

    fn read(&mut self, site: TextId, bytes: u64, shapes: u64) {
        self.last_read = Some(site);
        let reads = self.reads.entry(site).or_default();
        reads.count += 1;
        reads.bytes = reads.bytes.saturating_add(bytes);
        reads.shapes += shapes;
    }

    fn wrong(&self, what: &str) -> Result<()> {
        self.consistent(Err(what))
    }

    /// Makes an error of what cannot have happened.
    fn consistent<T>(&self, result: std::result::Result<T, &str>) -> Result<T> {
        result.map_err(|what| corrupt_trace(self.replay.events(), what))
    }

    /// Returns the number of whoever made what an event allocates; 0 where it allocates nothing.
    #[inline]
    fn owner(&mut self, event: &Event) -> u32 {
        let Event::Allocate {
            device,
            purpose,
            slot,
            site,
            ..
        } = *event
        else {
            return 0;
        };
        let (entry, site) = match self.running.last() {
            Some(running) => (running.entry as u32, running.site),
            None => (NO_PROGRAM, site),
        };
        self.makers.number(AllocationSite {
            device,
            purpose,
            site,
            entry,
            slot,
        })
    }

    /// Notes the request that was met although the run had refused it.
    fn note_met(&mut self, event: &Event) {
        if let Event::Refuse { bytes, purpose, .. } = *event
            && self.replay.divergence() == Some(Divergence::Granted)
            && self.met.is_none()
        {
            self.met = Some(self.now(purpose, bytes, TextId(0)));
        }
    }

    fn freed(&mut self, block: &Block) {
        self.leaks.freed(block);
        self.devices[block.device as usize].freed(block, &mut self.replay);
    }

    fn now(&self, purpose: Purpose, bytes: u64, site: TextId) -> EventContext {
        let (entry, site) = match self.running.last() {
            // Inside an execution the line is that of the call.
            Some(running) => (Some(running.entry), running.site),
            None => (None, site),
        };
        let call = entry.map_or(self.executions, |entry| self.programs.entries[entry].calls);
        EventContext {
            entry,
            call,
            purpose,
            bytes,
            site,
            event: self.replay.events() - 1,
            first_allocation: self
                .running
                .last()
                .map_or(0, |running| running.first_allocation),
        }
    }

    /// Notes an argument of the execution that goes on, where it holds a moment that decides.
    fn argument(&mut self, parameter: u32, allocation: u64) -> Result<()> {
        let Some(running) = self.running.last() else {
            return self.wrong("an argument of no execution");
        };
        let Some(device) = self.replay.device_of(allocation) else {
            return self.wrong("an argument is not there");
        };
        let here = |moment: &EventContext| {
            moment.entry == Some(running.entry)
                && moment.first_allocation == running.first_allocation
        };
        let mut has_room = true;
        let state = &mut self.devices[device as usize];
        if let Some(moment) = state.moment.filter(here) {
            has_room &= state.arguments_at_peak.add(&moment, parameter, allocation);
        }
        if let Some(refused) = self.refusals.first()
            && refused.device == device
            && here(&refused.moment)
        {
            let (moment, arguments) = (&refused.moment, &mut self.arguments_at_refusal);
            has_room &= arguments.add(moment, parameter, allocation);
        }
        match has_room {
            true => Ok(()),
            false => self.wrong("an execution has more arguments than any program"),
        }
    }

    fn refused(
        &mut self,
        device: u32,
        refusal: AllocError,
        message: OomMessage,
        (moment, slot): (EventContext, u32),
    ) {
        let state = &mut self.devices[device as usize];
        // The pool may have grown although the request was refused.
        state.note(&mut self.replay);
        state.refusals += 1;
        let card_refused = std::mem::take(&mut state.card_refused);
        self.refusal_count += 1;
        if self.refusals.len() == MAX_REFUSALS_KEPT {
            return;
        }
        let stats = self.replay.allocator(device).stats();
        let growth = stats
            .bytes_limit
            .zip(stats.pool_bytes)
            .map(|(limit, pool)| {
                if card_refused {
                    0
                } else {
                    limit.saturating_sub(pool)
                }
            });
        let held = self.others.now(device);
        let held_by_others = held.bytes;
        if self.refusals.is_empty() {
            self.others.at_refusal.get_or_insert(held);
            let next = self.replay.allocations();
            self.devices[device as usize].blocks_at_refusal.mark(next);
        }
        self.refusals.push(DeniedRequest {
            device,
            moment,
            slot,
            message,
            pool: self.replay.state(device),
            growth,
            card_free: match stats.pool_bytes {
                Some(_) => None,
                None => {
                    let elsewhere = stats.bytes_in_use.saturating_add(held_by_others);
                    Some(self.card_bytes.saturating_sub(elsewhere))
                }
            },
            held_by_others,
            fatal: match refusal {
                AllocError::OutOfMemory => None,
                AllocError::Fatal(text) => Some(text),
            },
            executions_before: self.executions,
        });
    }

    fn begin(&mut self, entry: usize, site: TextId) -> Result<()> {
        if self.running.len() == MAX_DEPTH {
            return self.wrong("too many executions inside each other");
        }
        self.executions += 1;
        let first_allocation = self.replay.allocations();
        self.running.push(ActiveExecution {
            entry,
            site,
            first_allocation,
            asked: ScratchChecks::default(),
        });
        self.last_entry = Some(entry);
        let event = self.replay.events() - 1;
        let (step, clock) = (self.programs.step, self.leaks.clock());
        let leads = self.programs.call(entry, event);
        if leads {
            let next = self.replay.allocations();
            for device in &mut self.devices {
                device.blocks_at_step.mark(next);
            }
        }
        let is_step = self.programs.is_step(entry);
        if is_step {
            let rank = |entry| self.programs.rank(entry);
            self.leaks.begin(entry, leads, rank);
        }
        if let Some(watched) = &mut self.watched {
            let rank = |entry| self.programs.rank(entry);
            watched.calls.push(Call {
                entry,
                step: step.map(|entry| (entry, rank(entry))),
                // Calls of other programs are not compared with it.
                clock: clock.filter(|_| is_step).map(|entry| (entry, rank(entry))),
                changes_clock: self.leaks.clock() != clock,
                leads,
                rank: rank(entry),
            });
        }
        let entry = &mut self.programs.entries[entry];
        let devices = self.devices.iter().enumerate();
        let held = devices.map(|(index, device)| match &entry.ended {
            // Nothing noted since means that nothing changed since.
            Some((time, levels)) => {
                let since = device.low_water.lowest_after(*time).unwrap_or(u64::MAX);
                since.min(levels[index])
            }
            None => device.level.in_use_bytes,
        });
        entry.held.clear();
        entry.held.extend(held);
        Ok(())
    }
}
