//! From a trace to a [`RunSummary`]: everything is replayed through the same allocators and added up.
//!
//! There is only a summary when replay and run agree: on every request whether it was granted, on every driver
//! call, and on the final statistics of every device to the byte.

use std::cmp::Reverse;
use std::io::Read;

use super::{TraceAnalyzer, replay_events};
use crate::allocator::{AllocatorKind, Fidelity};
use crate::analysis::allocation_failure::AllocationFailure;
use crate::analysis::condition::LastExecution;
use crate::analysis::critical_point::CriticalPoint;
use crate::analysis::device_summary::{DeviceSummary, tightest};
use crate::analysis::facts::array_holders;
use crate::analysis::facts::autotune_range::AutotuneRange;
use crate::analysis::facts::compilations::repeated;
use crate::analysis::facts::undivided_batch::UndividedBatch;
use crate::analysis::facts::whole_batch::WholeBatch;
use crate::analysis::other_processes::OtherProcessesSummary;
use crate::analysis::partitions::{count_communicators, replicated_arguments};
use crate::analysis::planned::attribute_planned;
use crate::analysis::roles::read_again;
use crate::analysis::scratch::least_in_execution;
use crate::analysis::series::TimelinePoint;
use crate::analysis::summary::{AbortInfo, ProgramMemorySummary, ProgramSummary, RunSummary};
use crate::error::Result;
use crate::program::ProgramMemory;
use crate::replay::{Block, replay_mismatch};
use crate::trace::{
    CpuProgram, EventSource, Footer, Header, Note, ProcessExit, Reader, TextId, UncaughtError,
};

/// Replays a trace and says what the run came to.
///
/// # Errors
/// [`crate::ErrorKind::Io`] for a trace that cannot be read, and [`crate::ErrorKind::InvalidFile`] for one
/// that is damaged, or with which its own replay disagrees on anything.
///
/// # Examples
/// ```
/// use vramfit_analysis::analysis::summarize;
/// use vramfit_model::trace::{Header, Reader, Writer};
///
/// let path = std::env::temp_dir().join(format!("example-{}.trace", std::process::id()));
/// let header = Header {
///     devices: 1,
///     allocator: "bfc".to_owned(),
///     ..Header::default()
/// };
/// drop(Writer::new(std::fs::File::create(&path)?, &header)?);
///
/// let summary = summarize(Reader::new(std::fs::File::open(&path)?)?)?;
/// assert_eq!(summary.executions, 0);
/// assert!(!summary.complete, "the trace has no footer");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn summarize<R: Read>(reader: Reader<R>) -> Result<RunSummary> {
    summarize_until(reader, u64::MAX)
}

/// Replays a trace as if the run had been cut off after the event of that index: what it had come to
/// by then, and what lay where.
///
/// # Errors
/// As [`summarize`].
pub fn summarize_until<R: Read>(mut reader: Reader<R>, last: u64) -> Result<RunSummary> {
    summarize_events(&mut reader, last)
}

/// Does the same with events from anywhere.
///
/// # Errors
/// As [`summarize`].
pub fn summarize_events(source: &mut dyn EventSource, last: u64) -> Result<RunSummary> {
    let mut analyzer = TraceAnalyzer::new(source.header())?;
    replay_events(source, &mut [&mut analyzer], last)?;
    if let Some(footer) = source.footer() {
        analyzer.verify_footer(footer)?;
    }
    let header = source.header().clone();
    let mut summary = analyzer.into_summary(&header, source);
    summary.until = (last < u64::MAX && !summary.complete).then_some(last);
    Ok(summary)
}

impl TraceAnalyzer {
    /// Compares the final statistics with those of the process.
    pub(in crate::analysis) fn verify_footer(&mut self, footer: &Footer) -> Result<()> {
        let lists = [
            ("bytes in use", &footer.bytes_in_use),
            ("peak bytes in use", &footer.peak_bytes_in_use),
            ("pool bytes", &footer.pool_bytes),
            ("allocations", &footer.num_allocs),
        ];
        let at = self.replay.events();
        for (what, theirs) in lists {
            if theirs.len() != self.devices.len() {
                let (theirs, ours) = (theirs.len(), self.devices.len());
                let text = format!("{what} of {theirs} devices, expected {ours}");
                return Err(replay_mismatch(at, &text));
            }
        }
        for (device, state) in self.devices.iter().enumerate() {
            let stats = self.replay.allocator(device as u32).stats();
            let ours = [
                stats.bytes_in_use,
                state.reported_peak_bytes,
                stats.pool_bytes.unwrap_or(0),
                stats.num_allocs,
            ];
            for ((what, theirs), ours) in lists.iter().zip(ours) {
                let theirs = theirs[device];
                if ours != theirs {
                    let text = format!(
                        "{what} of device {device} are {ours} in the replay, but were {theirs} in the run"
                    );
                    return Err(replay_mismatch(at, &text));
                }
            }
        }
        if self.executions != footer.executions {
            let (ours, theirs) = (self.executions, footer.executions);
            let text = format!("{ours} executions in the replay, but {theirs} in the run");
            return Err(replay_mismatch(at, &text));
        }
        Ok(())
    }

    /// Looks names up and puts everything where a [`RunSummary`] has it. `header` says under which
    /// settings it happened; `source` is where the events came from, read to the end.
    pub(in crate::analysis) fn into_summary(
        mut self,
        header: &Header,
        source: &dyn EventSource,
    ) -> RunSummary {
        let text = |id| source.text(id).to_owned();
        let mut live = vec![Vec::new(); self.devices.len()];
        for block in self.replay.live() {
            live[block.device as usize].push(*block);
        }
        self.output_uses.on_end(self.replay.live());
        let devices: Vec<_> = (0..)
            .zip(&live)
            .map(|(device, live)| self.device_summary(device, live, header, &text))
            .collect();
        let limit = devices.first().and_then(DeviceSummary::limit);
        let limit = limit.unwrap_or(header.total_memory_bytes());
        let variant = self.variant.as_mut();
        let autotune_range = variant.map(|it| AutotuneRange::new(it, &self.programs, limit, &text));
        let allocator_model = self.allocator_model();
        let tightest = tightest(&devices).map_or(0, |device| device.device as usize);
        let (mut attribution, memory) = self.critical_point(tightest).attribute(
            &live,
            &self.sites,
            &self.programs,
            &self.roles,
            source,
        );
        let step = self.programs.step;
        let step_entry = step.map(|entry| &self.programs.entries[entry]);
        // A stable sort: programs that need the same stay in the order of their compilation.
        let entries = &self.programs.entries;
        let mut order: Vec<usize> = (0..entries.len()).collect();
        order.sort_by_key(|entry| Reverse(entries[*entry].key.sizes.needed_bytes()));
        let index_of = |entry: usize| order.iter().position(|other| *other == entry);
        if let Some(attribution) = &mut attribution {
            attribution.program = attribution.program.and_then(index_of);
        }
        let (process_exit, uncaught_error) = ending(source.notes());
        let peaks = self.devices.iter().map(|device| device.peak_bytes);
        let peak_bytes = peaks.max().unwrap_or(0);
        let of_program = |entry: usize, mut memory: ProgramMemory| {
            let (notes, program) = (source.notes(), entries[entry].program);
            memory.retain_donatable(&read_again(source.notes(), entry, &self.programs));
            Some(ProgramMemorySummary {
                program: index_of(entry)?,
                unread_outputs: match memory.is_eager_operation(&text(entries[entry].site)) {
                    true => Vec::new(),
                    false => self.output_uses.unread(entry, &memory, &self.sites),
                },
                replicated: replicated_arguments(notes, program, &memory),
                whole_batch: WholeBatch::find(notes, program, &memory),
                undivided_batch: UndividedBatch::find(notes, program, &memory),
                memory,
            })
        };
        let growth = self.leaks.summary(&self.sites, &self.programs, &text);
        let mut summary = RunSummary {
            header: header.clone(),
            complete: source.footer().is_some(),
            until: None,
            programs: self.program_summaries(&order, source, &text),
            step: step.and_then(index_of),
            step_evidence: step_entry.map(|entry| entry.evidence),
            step_search: self.step_notes.summary(&self.programs, peak_bytes, &text),
            step_time: self.programs.step_time(source),
            failures: self.failures(header, &text),
            failure_count: self.denial_count,
            abort: self.abort_info(&text),
            facts: self.facts.finish(&text),
            total_range: None,
            no_context: self.others.no_context.clone(),
            others_at_failure: self.others_at_denial(),
            fits_alone: None,
            processes: Vec::new(),
            communicators: count_communicators(source.notes()),
            hosts: None,
            is_placeholder_cause: false,
            read_as_one: None,
            measured_edits: Vec::new(),
            not_computed: source.not_computed().to_vec(),
            autotune_range,
            scratch: self.scratch.summary(&self.programs, &self.devices, &text),
            leaks: growth.leaks,
            created: growth.created,
            compilations: repeated(
                &self.programs.compilations,
                step_entry.and_then(|entry| Some((entry.key.name, entry.call_events.first()?))),
                text,
            ),
            attribution,
            program_memory: memory.and_then(|(entry, memory)| of_program(entry, memory)),
            compiler_warnings: source.compiler_warnings().to_vec(),
            environment: source.settings().cloned(),
            executions: self.executions,
            evaluated: source.footer().map(|footer| footer.evaluated),
            process_exit,
            uncaught_error,
            cpu_programs: cpu_programs(source.notes()),
            array_holders: array_holders::from_notes(source.notes()),
            last_execution: self.last_entry.map(|entry| LastExecution {
                program: text(self.programs.name(entry)),
                call: self.programs.calls(entry),
            }),
            events: self.replay.events(),
            allocator_model,
            devices,
        };
        if let Some((index, need)) = summary.planned_program()
            && let entry = &entries[order[index]]
            && let Some(memory) = source.program_memory(entry.program)
        {
            let id_text = |id| source.text(id);
            summary.attribution =
                Some(attribute_planned(index, &memory, &entry.scratch, need.needed_bytes, id_text));
            summary.program_memory = of_program(order[index], memory);
        }
        summary
    }

    /// Returns the point that decides; `tightest` is the device where nothing failed.
    fn critical_point(&self, tightest: usize) -> CriticalPoint<'_> {
        let refused = self.refusals.first().filter(|refused| refused.fatal.is_none());
        let device = match (refused, &self.abort) {
            (Some(refused), _) => refused.device as usize,
            (None, Some(abort)) => abort.device as usize,
            (None, None) => tightest,
        };
        CriticalPoint {
            refused,
            arguments_at_denial: &self.arguments_at_denial,
            device: self.devices.get(device),
        }
    }

    fn program_summaries(
        &self,
        order: &[usize],
        source: &dyn EventSource,
        text: &impl Fn(TextId) -> String,
    ) -> Vec<ProgramSummary> {
        let entries = order.iter().map(|entry| &self.programs.entries[*entry]);
        entries
            .map(|entry| ProgramSummary {
                name: text(entry.key.name),
                calls: entry.calls,
                call_events: entry.call_events.calls().to_vec(),
                compilations: entry.compilations,
                loaded: entry.loaded,
                devices: entry.key.devices,
                compile_attempt: text(entry.key.compile_attempt),
                site: text(entry.site),
                variant_temp_bytes: entry.variant.map(|(_, bytes)| bytes),
                sizes: entry.key.sizes,
                scratch_bytes: least_in_execution(&entry.scratch),
                time: source.program_time(entry.program).cloned(),
            })
            .collect()
    }

    fn failures(
        &self,
        header: &Header,
        text: &impl Fn(TextId) -> String,
    ) -> Vec<AllocationFailure> {
        self.refusals
            .iter()
            .map(|refused| AllocationFailure {
                device: refused.device,
                context: refused.context.named(&self.programs, text),
                remaining_bytes: refused.remaining_bytes,
                pool_end_surplus_bytes: refused.pool_end_surplus_bytes,
                message: refused.message.text(text),
                pool: refused.pool,
                growth_bytes: refused.growth,
                gpu_free_bytes: refused.gpu_free,
                is_preallocated: header.preallocate,
                used_by_others_bytes: refused.used_by_others,
                fatal: refused.fatal.clone(),
                recovered: self.executions > refused.executions_before,
            })
            .collect()
    }

    fn abort_info(&self, text: &impl Fn(TextId) -> String) -> Option<AbortInfo> {
        self.abort.as_ref().map(|abort| AbortInfo {
            device: abort.device,
            program: abort.entry.map(|entry| text(self.programs.name(entry))),
            executions: abort.executions,
            message: abort.message.text(text),
            event: abort.event,
        })
    }

    fn device_summary(
        &mut self,
        device: u32,
        live: &[Block],
        header: &Header,
        text: &impl Fn(TextId) -> String,
    ) -> DeviceSummary {
        let stats = self.replay.allocator(device).stats();
        let at_end = self.replay.device_state(device);
        let state = &self.devices[device as usize];
        let refusals = self.refusals.iter();
        let refused = refusals
            .filter(|refused| refused.device == device)
            .map(|refused| TimelinePoint { event: refused.context.event, state: refused.pool });
        let program = |entry: u32| {
            let entry = self.programs.entries.get(entry as usize)?;
            Some(text(entry.key.name))
        };
        let used_by_others_bytes = self.others.usage(device).max_bytes;
        let gpu_bytes = self.gpu_bytes.saturating_sub(used_by_others_bytes);
        let step = self.programs.step;
        let steady_state = step.map(|entry| &self.programs.entries[entry].steady_state);
        let peak = state.peak_context;
        DeviceSummary {
            limit_bytes: stats.bytes_limit,
            // What `cuda_async` reports as its limit is what it keeps, not what it may take.
            capacity_bytes: match stats.bytes_limit {
                Some(limit) if header.allocator != AllocatorKind::CudaAsync.name() => {
                    limit.min(gpu_bytes.max(stats.peak_pool_bytes.unwrap_or(0)))
                }
                _ => gpu_bytes,
            },
            used_by_others_bytes,
            pool_bytes: stats.peak_pool_bytes,
            peak: peak.map(|context| context.named(&self.programs, text)),
            at_end,
            steady_state_bytes: steady_state
                .and_then(|bytes| bytes.get(device as usize).copied())
                .unwrap_or(0),
            ..state.summary(live, refused, &self.sites, text, program)
        }
    }

    /// Returns who else held memory of the GPU on which a request was refused first.
    fn others_at_denial(&self) -> Option<OtherProcessesSummary> {
        let usage = self.others.at_denial.clone()?;
        let no_context = self.others.no_context.as_ref();
        let first = self.refusals.first().map(|refused| refused.device);
        Some(OtherProcessesSummary {
            device: first.or(no_context.map(|no_context| no_context.device))?,
            used_bytes: usage.bytes,
            processes: usage.processes,
        })
        .filter(|others| others.used_bytes > 0)
    }

    fn allocator_model(&mut self) -> Option<&'static str> {
        if self.devices.is_empty() {
            return None;
        }
        match self.replay.allocator(0).fidelity() {
            Fidelity::Exact => None,
            Fidelity::Model(what) => Some(what),
        }
    }
}

/// Returns the programs that ran on the CPU.
fn cpu_programs(notes: &[Note]) -> Vec<CpuProgram> {
    let programs = notes.iter().filter_map(|note| match note {
        Note::CpuProgram(program) => Some(program.clone()),
        _ => None,
    });
    programs.collect()
}

/// Returns how the process ended, and the exception that it did not catch.
fn ending(notes: &[Note]) -> (Option<ProcessExit>, Option<UncaughtError>) {
    let (mut process_exit, mut uncaught_error) = (None, None);
    for note in notes {
        match note {
            Note::Exit(exit) => process_exit = Some(*exit),
            Note::Error(error) => uncaught_error = Some(error.clone()),
            Note::Search { .. }
            | Note::Program { .. }
            | Note::Phase { .. }
            | Note::Stopped { .. }
            | Note::PartitionedProgram(_)
            | Note::CpuProgram(_)
            | Note::ReadAgain { .. }
            | Note::ReadAfterPeak { .. }
            | Note::ArrayHolders { .. }
            | Note::Others { .. }
            | Note::NoContext { .. } => {}
        }
    }
    (process_exit, uncaught_error)
}
