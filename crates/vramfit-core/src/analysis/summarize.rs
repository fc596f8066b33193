//! From a trace to an [`RunSummary`]: everything is replayed through the same allocators and counted.
//!
//! An answer is only given when replay and run agree: on every request whether it was met, on what
//! the card was asked for, and on the closing figures of every device to the byte.

use std::io::Read;

use super::analyzer::TraceAnalyzer;
use super::arrays::{NO_PROGRAM, grouped};
use super::compilations::repeated;
use super::failure::{EventContext, OomMessage};
use super::layout::layout;
use super::other_processes::OtherProcessesSummary;
use super::programs::{ProgramEntry, ProgramKey};
use super::series::{LayoutSummary, LeakSummary, TimelinePoint};
use super::summary::{
    AbortInfo, AllocationFailure, AutotuneRange, DeviceSummary, PeakContext, ProgramMemorySummary,
    ProgramSummary, RunSummary, UnknownReads, tightest,
};
use super::verdict::LastExecution;
use crate::allocator::{Fidelity, Kind};
use crate::error::Result;
use crate::replay::{Block, feed, replay_mismatch};
use crate::trace::{Events, Footer, Header, Note, Reader, TextId};

/// Replays a trace and says what the run came to.
///
/// # Errors
/// [`crate::ErrorKind::Io`] for a trace that cannot be read, and [`crate::ErrorKind::InvalidFile`] for one
/// that is damaged, or with which its own replay disagrees on anything.
pub fn summarise<R: Read>(reader: Reader<R>) -> Result<RunSummary> {
    summarise_until(reader, u64::MAX)
}

/// Replays a trace as if the run had been cut off after the event of that index: what it had come to
/// by then, and what lay where.
///
/// # Errors
/// As [`summarise`].
pub fn summarise_until<R: Read>(mut reader: Reader<R>, last: u64) -> Result<RunSummary> {
    summarise_events(&mut reader, last)
}

/// Does the same with events from anywhere.
///
/// # Errors
/// As [`summarise`].
pub fn summarise_events(source: &mut dyn Events, last: u64) -> Result<RunSummary> {
    let mut count = TraceAnalyzer::new(source.header())?;
    feed(source, &mut vec![&mut count], last)?;
    if let Some(footer) = source.footer() {
        count.check(footer)?;
    }
    let header = source.header().clone();
    Ok(count.answer(&header, source))
}

impl TraceAnalyzer {
    /// Compares the closing figures with those of the process.
    pub(super) fn check(&mut self, footer: &Footer) -> Result<()> {
        let lists = [
            ("bytes in use", &footer.bytes_in_use),
            ("peak bytes in use", &footer.peak_bytes_in_use),
            ("pool bytes", &footer.pool_bytes),
            ("allocations", &footer.num_allocs),
        ];
        let at = self.replay.events();
        for (what, theirs) in lists {
            if theirs.len() != self.devices.len() {
                let text = format!(
                    "{what} of {} devices instead of {}",
                    theirs.len(),
                    self.devices.len()
                );
                return Err(replay_mismatch(at, &text));
            }
        }
        for (device, state) in self.devices.iter().enumerate() {
            let stats = self.replay.allocator(device as u32).stats();
            let ours = [
                stats.bytes_in_use,
                state.reported_peak,
                stats.pool_bytes.unwrap_or(0),
                stats.num_allocs,
            ];
            for ((what, theirs), ours) in lists.iter().zip(ours) {
                let theirs = theirs[device];
                if ours != theirs {
                    let text =
                        format!("{what} of device {device} are {ours} here and were {theirs}");
                    return Err(replay_mismatch(at, &text));
                }
            }
        }
        if self.executions != footer.executions {
            let text = format!(
                "{} executions here and {} there",
                self.executions, footer.executions
            );
            return Err(replay_mismatch(at, &text));
        }
        Ok(())
    }

    /// Looks names up and puts everything where an [`RunSummary`] has it. `header` says under which
    /// settings it happened; `source` is where the events came from, read to the end.
    pub(super) fn answer(mut self, header: &Header, source: &dyn Events) -> RunSummary {
        let text = |id| source.text(id).to_owned();
        let told = |message: &OomMessage| match message {
            OomMessage::Recorded(id) => text(*id),
            OomMessage::Computed(text) => text.clone(),
        };
        let step = self.programs.step;
        let step_key = step.map(|entry| self.programs.entries[entry].key);
        let mut live = vec![Vec::new(); self.devices.len()];
        for block in self.replay.live() {
            live[block.device as usize].push(*block);
        }
        let devices = live.iter().enumerate();
        let devices: Vec<_> = devices
            .map(|(number, live)| self.device(number, live, header, &text))
            .collect();
        let refusals = self.refusals.iter().map(|refused| AllocationFailure {
            device: refused.device,
            moment: named(&refused.moment, &self.programs.entries, &text),
            message: told(&refused.message),
            pool: refused.pool,
            growth_bytes: refused.growth,
            card_free_bytes: refused.card_free,
            held_by_others_bytes: refused.held_by_others,
            fatal: refused.fatal.clone(),
            recovered: self.executions > refused.executions_before,
        });
        let refusals = refusals.collect();
        let abort = self.abort.as_ref().map(|abort| AbortInfo {
            device: abort.device,
            program: abort
                .entry
                .map(|entry| text(self.programs.entries[entry].key.0)),
            executions: abort.executions,
            message: told(&abort.message),
            event: abort.event,
        });
        let tightest = tightest(&devices).map_or(0, |device| device.device as usize);
        let (mut attribution, memory) = self.attribution(&live, tightest, source);
        let limit = devices.first().and_then(DeviceSummary::limit);
        let limit = limit.unwrap_or(header.total_memory_bytes);
        let autotune_range = self.autotune_range(limit, &text);
        let allocator_model = match self.devices.is_empty() {
            true => None,
            false => match self.replay.allocator(0).fidelity() {
                Fidelity::Exact => None,
                Fidelity::Model(what) => Some(what),
            },
        };
        let leaks = self.leaks(&text);
        let step_search = self.step_search(&text);
        let step_evidence = step.map(|entry| self.programs.entries[entry].evidence);
        let scratch = self.scratch(&text);
        let last_execution = self.last_entry.map(|entry| LastExecution {
            program: text(self.programs.entries[entry].key.0),
            call: self.programs.entries[entry].calls,
        });
        let first_step = step.and_then(|entry| {
            let entry = &self.programs.entries[entry];
            Some((entry.key.0, entry.first_call?))
        });
        let compilations = repeated(&self.programs.compiled, first_step, text);
        let keys: Vec<_> = self
            .programs
            .entries
            .iter()
            .map(|entry| entry.key)
            .collect();
        // A stable sort: programs that need the same stay in the order of their compilation.
        self.programs
            .entries
            .sort_by_key(|entry| std::cmp::Reverse(entry.key.1.needed_bytes()));
        let place = |key: ProgramKey| {
            self.programs
                .entries
                .iter()
                .position(|entry| entry.key == key)
        };
        let step = step_key.and_then(place);
        if let Some(attribution) = &mut attribution {
            attribution.program = attribution.program.and_then(|entry| place(keys[entry]));
        }
        let program_memory = memory.and_then(|(entry, memory)| {
            let program = place(keys[entry])?;
            Some(ProgramMemorySummary { program, memory })
        });
        let programs = self.programs.entries.iter().map(|entry| {
            let (name, sizes, devices, compile_attempt) = entry.key;
            ProgramSummary {
                name: text(name),
                calls: entry.calls,
                first_call_event: entry.first_call,
                compilations: entry.compilations,
                loaded: entry.loaded,
                devices,
                compile_attempt: text(compile_attempt),
                site: text(entry.site),
                variant_temp_bytes: entry.variant.map(|(_, bytes)| bytes),
                sizes,
            }
        });
        let mut unknown_reads: Vec<_> = self
            .reads
            .iter()
            .map(|(site, reads)| UnknownReads {
                site: text(*site),
                reads: reads.count,
                bytes: reads.bytes,
                shapes: reads.shapes,
            })
            .collect();
        let order = |a: &UnknownReads, b: &UnknownReads| {
            (b.shapes, b.reads)
                .cmp(&(a.shapes, a.reads))
                .then_with(|| a.site.cmp(&b.site))
        };
        unknown_reads.sort_by(order);
        let (mut program_exit, mut uncaught_error) = (None, None);
        for note in source.notes() {
            match note {
                Note::Exit(exit) => program_exit = Some(*exit),
                Note::Error(error) => uncaught_error = Some(error.clone()),
                Note::Search { .. }
                | Note::Program { .. }
                | Note::Cut { .. }
                | Note::Others { .. }
                | Note::NoContext { .. } => {}
            }
        }
        let others_at_refusal = self.others_at_refusal();
        let last_unknown_read = self.last_read.map(text);
        let callbacks = self.callbacks.answers(&text);
        RunSummary {
            header: header.clone(),
            complete: source.footer().is_some(),
            devices,
            programs: programs.collect(),
            step,
            step_evidence,
            step_search,
            refusals,
            refusal_count: self.refusal_count,
            abort,
            unknown_reads,
            total_range: None,
            no_context: self.others.no_context.clone(),
            others_at_refusal,
            fits_alone: None,
            processes: Vec::new(),
            last_unknown_read,
            callbacks,
            not_computed: source.not_computed().to_vec(),
            autotune_range,
            scratch,
            leaks,
            compilations,
            attribution,
            program_memory,
            compiler_warnings: source.compiler_warnings().to_vec(),
            environment: source.settings().cloned(),
            executions: self.executions,
            evaluated: source.footer().map(|footer| footer.evaluated),
            program_exit,
            uncaught_error,
            last_execution,
            events: self.replay.events(),
            allocator_model,
        }
    }

    /// Looks up the names of a moment.
    pub(super) fn named(&self, moment: &EventContext, source: &dyn Events) -> PeakContext {
        named(moment, &self.programs.entries, &|id| {
            source.text(id).to_owned()
        })
    }

    fn device(
        &mut self,
        number: usize,
        live: &[Block],
        header: &Header,
        text: &impl Fn(TextId) -> String,
    ) -> DeviceSummary {
        let device = number as u32;
        let stats = self.replay.allocator(device).stats();
        let at_end = self.replay.state(device);
        let state = &self.devices[number];
        let program = |entry: u32| {
            let entry = self.programs.entries.get(entry as usize)?;
            Some(text(entry.key.0))
        };
        let group =
            |blocks: &mut dyn Iterator<Item = &Block>| grouped(blocks, &self.makers, text, program);
        let place = |event, blocks: &mut dyn Iterator<Item = &Block>| {
            layout(state.regions_at(event), blocks, &self.makers, text, program)
        };
        let refused = self
            .refusals
            .iter()
            .filter(|refused| refused.device == device);
        let refused = refused.map(|refused| TimelinePoint {
            event: refused.moment.event,
            state: refused.pool,
        });
        let peak_event = state.moment.map(|moment| moment.event);
        let held_by_others_bytes = self.others.now(device).max_bytes;
        let card_bytes = self.card_bytes.saturating_sub(held_by_others_bytes);
        DeviceSummary {
            device,
            limit_bytes: stats.bytes_limit,
            // What `cuda_async` reports as its limit is what it keeps, not what it may take.
            capacity_bytes: match stats.bytes_limit {
                Some(limit) if header.allocator != Kind::CudaAsync.name() => {
                    limit.min(card_bytes.max(stats.peak_pool_bytes.unwrap_or(0)))
                }
                _ => card_bytes,
            },
            held_by_others_bytes,
            pool_bytes: stats.peak_pool_bytes,
            peak_bytes: state.peak,
            peak: state
                .moment
                .map(|moment| named(&moment, &self.programs.entries, text)),
            at_peak: state.at_peak,
            at_end,
            timeline: state.timeline.points(refused),
            arrays_at_peak: group(&mut state.blocks_at_peak.blocks(live.iter())),
            arrays_between_steps: group(&mut state.blocks_at_step.blocks(live.iter())),
            arrays_at_end: group(&mut live.iter()),
            layout_at_peak: match peak_event {
                Some(event) => place(Some(event), &mut state.blocks_at_peak.blocks(live.iter())),
                None => LayoutSummary::default(),
            },
            layout_at_end: place(None, &mut live.iter()),
            steady_state_bytes: self
                .programs
                .step
                .and_then(|entry| self.programs.entries[entry].held.get(number))
                .copied()
                .unwrap_or(0),
            outside_bytes: state.outside,
            refusals: state.refusals,
        }
    }

    /// Returns who else held memory of the GPU on which a request was refused first.
    fn others_at_refusal(&self) -> Option<OtherProcessesSummary> {
        let held = self.others.at_refusal.clone()?;
        let no_context = self.others.no_context.as_ref();
        let first = self.refusals.first().map(|refused| refused.device);
        Some(OtherProcessesSummary {
            device: first.or(no_context.map(|answer| answer.device))?,
            held_bytes: held.bytes,
            processes: held.processes,
        })
        .filter(|others| others.held_bytes > 0)
    }

    fn autotune_range(
        &mut self,
        limit: u64,
        text: &impl Fn(TextId) -> String,
    ) -> Option<AutotuneRange> {
        let what_if = self.what_if.as_mut()?;
        let measured = self
            .programs
            .entries
            .iter()
            .filter_map(|entry| entry.variant);
        let other = self.programs.entries.iter().filter(|entry| {
            let (_, _, _, compile_attempt) = entry.key;
            entry.variant.is_none() && compile_attempt == TextId(0)
        });
        let sizes = other.map(|entry| entry.key.1);
        let (unmeasured, small): (Vec<_>, Vec<_>) = sizes.partition(|sizes| sizes.is_large(limit));
        let mut names = measured.clone();
        Some(AutotuneRange {
            variant: names.next().map_or(String::new(), |(name, _)| text(name)),
            peak_bytes: what_if.peak_bytes(),
            fits: what_if.fits(),
            measured: measured.count() as u64,
            unmeasured: unmeasured.len() as u64,
            small: small.len() as u64,
            small_temp_bytes: small
                .iter()
                .fold(0, |sum: u64, sizes| sum.saturating_add(sizes.temp_bytes)),
        })
    }

    fn leaks(&self, text: &impl Fn(TextId) -> String) -> Vec<LeakSummary> {
        let Some(clock) = self.leaks.clock() else {
            return Vec::new();
        };
        let name = |entry: usize| text(self.programs.entries[entry].key.0);
        let suspects = self.leaks.suspects(&self.makers).into_iter();
        let answers = suspects.map(|suspect| LeakSummary {
            device: suspect.device,
            site: text(suspect.site),
            program: (suspect.entry != NO_PROGRAM).then(|| name(suspect.entry as usize)),
            purpose: suspect.purpose,
            step: name(clock),
            steps: suspect.steps,
            arrays: suspect.arrays,
            bytes: suspect.bytes,
            held_bytes: suspect.held_bytes,
        });
        answers.collect()
    }
}

fn named(
    moment: &EventContext,
    entries: &[ProgramEntry],
    text: &impl Fn(TextId) -> String,
) -> PeakContext {
    PeakContext {
        program: moment.entry.map(|entry| text(entries[entry].key.0)),
        call: moment.call,
        purpose: moment.purpose,
        requested_bytes: moment.bytes,
        site: text(moment.site),
        event: moment.event,
    }
}
