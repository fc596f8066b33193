//! Whether a run fits, and on which conditions that holds.
//!
//! The one place that decides: text, JSON, page, exit codes and other commands ask
//! [`RunSummary::verdict`]. How a condition is put into words is the business of [`crate::report`]; what it
//! does to an answer, and so where it is told, is its [`Bearing`].

use serde::Serialize;

use super::device_summary::DeviceSummary;
use super::hosts::ProgramMismatch;
use super::programs::Evidence;
use super::step_search::StepStop;
use super::summary::{ProgramSummary, RunSummary};
use crate::trace::{CpuProgram, OtherProcess, ProcessExit, Sharing, UncaughtError};

/// Whether a run fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// `Some(false)` when a request for memory was refused or an allocator would have aborted,
    /// `Some(true)` when the run came to its end without that, `None` when it cannot be told.
    pub fits: Option<bool>,
    /// What the answer depends on, the condition that leaves it open first.
    pub conditions: Vec<Condition>,
}

impl Verdict {
    /// Returns why a run does not fit to which the pool has refused nothing; `None` if that is not so.
    pub fn outside_pool(&self) -> Option<&Condition> {
        let mut conditions = self.conditions.iter();
        conditions.find(|condition| {
            matches!(
                condition,
                Condition::OutsidePool {
                    is_certain: true,
                    ..
                }
            )
        })
    }
}

/// What a condition does to an answer, the one that weighs most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bearing {
    /// It makes it impossible to tell whether a run fits that was refused nothing: `unknown: …`.
    Open,
    /// The answer holds only if this is so: `fits, if …`.
    Assumed,
    /// That a run fits says nothing about something else: `fits: …; …`.
    Excluded,
    /// It is told below the headline.
    Explained,
}

/// Something that an answer depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Condition {
    /// The program stopped by its own error, not for want of GPU memory.
    ProcessFailed {
        /// How its process ended; `None` where only the trace tells of the error.
        exit: Option<ProcessExit>,
        /// The exception that nothing in the program caught, where it was a Python one.
        error: Option<UncaughtError>,
        /// What was executed last; `None` when nothing was.
        after: Option<LastExecution>,
        /// The line of the placeholder that it read last, if it fails otherwise with other values.
        placeholder_read: Option<String>,
    },
    /// The trace ends before its process did: the process was killed, or still runs. Or the rest was not
    /// to be read.
    TraceEndsEarly {
        /// What was executed last; `None` when nothing was.
        after: Option<LastExecution>,
        /// The last event that was to be read, if not all were.
        until: Option<u64>,
    },
    /// The request that was refused is met on a GPU of the same kind whose driver reports a higher
    /// total. The lowest total decides.
    TotalRange {
        /// The total that decided.
        total_memory_bytes: u64,
        /// The highest that drivers report, with which the request is met.
        max_total_memory_bytes: u64,
    },
    /// The run was ended after the training step had run as often as was asked for.
    StoppedAtStep {
        /// How many steps were asked for.
        steps: u64,
        /// Which program was taken for the step, and how often it ran.
        #[serde(flatten)]
        stop: StepStop,
        /// Why it was taken.
        evidence: Evidence,
        /// How the program ended after that, if not well: it was not let finish.
        exit: Option<ProcessExit>,
    },
    /// The run was ended while its peak still grew from step to step.
    StillGrowing {
        /// Name of the program that was taken for the step.
        program: String,
        /// The last step that was run, from 1.
        step: u64,
        /// The peak before that step, on the device where it grew most.
        previous_peak_bytes: u64,
        /// The peak after it.
        peak_bytes: u64,
    },
    /// The run was to be ended after a number of steps, and no step ran so often.
    NoStepFound {
        /// How many steps were asked for.
        steps: u64,
        /// The name that was given to the step.
        name: Option<String>,
        /// The program that was taken for it, and how often it ran; `None` where none was.
        found: Option<LastExecution>,
        /// Programs that `--step` could name, those that needed most first.
        programs: Vec<String>,
    },
    /// A program was compiled, did not run, and needs more than anything that ran: the answer is
    /// about its plan.
    CompiledOnly {
        /// What its plan needs.
        #[serde(flatten)]
        plan: ProgramNeed,
        /// Whether anything was executed or put on a GPU.
        anything_ran: bool,
    },
    /// Other processes held memory of the GPU on which a request was refused.
    SharedGpu {
        /// The number of the GPU in its machine.
        gpu: u32,
        /// What the other processes held of it then.
        used_bytes: u64,
        /// Its total memory.
        total_bytes: u64,
        /// Those that held most of it, the largest first.
        processes: Vec<OtherProcess>,
        /// Whether the request would be met without them.
        fits_alone: Option<bool>,
        /// Whether they are processes of the same dry run.
        of_this_run: bool,
    },
    /// Two hosts execute different programs of those that they execute together.
    HostsDiffer(ProgramMismatch),
    /// What ran, or how large it was, followed from values that were not computed.
    PlaceholderDecides {
        /// The line that reads most of them, empty if not known.
        site: String,
        /// The expression that reads there, empty if not known; `None` if JAX makes a shape of it.
        expression: Option<String>,
        /// What it reads; `None` if JAX makes a shape of it.
        value: Option<String>,
        /// How many other lines there are.
        other_lines: usize,
    },
    /// A program ran on JAX's CPU backend, of which the dry run sees nothing.
    RanOnCpu {
        /// The program that weighs most.
        #[serde(flatten)]
        program: CpuProgram,
        /// Whether it is what the answer should be about, so that there is none.
        decides: bool,
    },
    /// What lies outside the pool, constants of programs and their code, is more than the GPU has left there.
    OutsidePool {
        /// The program with most constants.
        program: String,
        /// Its constants: values that its function has captured.
        constant_bytes: u64,
        /// What the process holds outside the pool, the CUDA context excluded.
        outside_bytes: u64,
        /// What pool, context and other processes leave of the GPU.
        available_bytes: u64,
        /// Whether it would not have room in place of the context either, whose size is an estimate.
        is_certain: bool,
    },
    /// Managed memory (`TF_FORCE_UNIFIED_MEMORY`): what the GPU has no room for lies in host memory.
    HostMemory {
        /// The peak on the device where it is highest.
        peak_bytes: u64,
        /// What of it the GPU has no room for, so that the host must have as much free memory.
        host_bytes: u64,
    },
    /// A routine of a library may take more scratch memory than the run had left for it.
    LibraryScratch {
        /// The library, such as `cuFFT`.
        library: String,
        /// The routine and its operand.
        routine: String,
        /// Name of the program that calls it.
        program: String,
        /// The line that calls it, empty if not known.
        site: String,
        /// Bytes that it takes at least, which the run had.
        low_bytes: u64,
        /// Bytes that it may take at most.
        high_bytes: u64,
        /// Bytes that it can have: the run fits when it takes no more.
        available_bytes: u64,
    },
}

/// What the compiler's plan of one program needs on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramNeed {
    /// Name of the program.
    pub program: String,
    /// Arguments, results that are no arguments reused, temporaries, and the least scratch memory of
    /// library routines: what a call needs in the pool, its rounding aside. Constants lie outside of it.
    pub needed_bytes: u64,
    /// What the process could have had there.
    pub capacity_bytes: u64,
}

/// Programs with less in constants are not the reason of a shortage outside the pool.
const MIN_CONSTANT_BYTES: u64 = 1 << 20;

/// How many names [`Condition::NoStepFound`] tells.
const MAX_NAMES: usize = 5;

/// Growth that would not fill the GPU in so many steps is no [`Condition::StillGrowing`].
const MAX_STEPS: u64 = 100_000;

impl Condition {
    /// Returns what it does to an answer.
    pub fn bearing(&self) -> Bearing {
        match self {
            Condition::ProcessFailed { .. }
            | Condition::TraceEndsEarly { .. }
            | Condition::HostsDiffer(_)
            | Condition::LibraryScratch { .. }
            | Condition::OutsidePool { .. }
            | Condition::RanOnCpu { decides: true, .. } => Bearing::Open,
            Condition::PlaceholderDecides { .. } | Condition::HostMemory { .. } => Bearing::Assumed,
            Condition::StoppedAtStep { .. }
            | Condition::StillGrowing { .. }
            | Condition::RanOnCpu { decides: false, .. } => Bearing::Excluded,
            // Something was refused where these two are said.
            Condition::TotalRange { .. } | Condition::SharedGpu { .. } => Bearing::Explained,
            Condition::NoStepFound { .. } | Condition::CompiledOnly { .. } => Bearing::Explained,
        }
    }

    /// Says whether this condition alone makes it impossible to tell whether a run fits that was
    /// refused nothing.
    pub fn leaves_open(&self) -> bool {
        self.bearing() == Bearing::Open
    }
}

/// The execution that was begun last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastExecution {
    /// Name of the program.
    pub program: String,
    /// Which execution of it, from 1.
    pub call: u64,
}

impl RunSummary {
    /// Says whether the run fits, and on which conditions.
    pub fn verdict(&self) -> Verdict {
        let mut conditions = Vec::new();
        conditions.extend(self.ended_early());
        conditions.extend(self.shared_gpu());
        conditions.extend(self.total_range.filter(|range| range.is_met).map(|range| {
            Condition::TotalRange {
                total_memory_bytes: self.header.total_memory_bytes,
                max_total_memory_bytes: range.max_total_memory_bytes,
            }
        }));
        conditions.extend(self.steps_wanted());
        conditions.extend(self.still_growing());
        let plan = self.plan();
        let is_too_large = plan
            .as_ref()
            .is_some_and(|plan| plan.needed_bytes > plan.capacity_bytes);
        conditions.extend(plan.map(|plan| Condition::CompiledOnly {
            plan,
            anything_ran: self.devices.iter().any(|device| device.peak_bytes > 0),
        }));
        conditions.extend(self.placeholder_decides());
        conditions.extend(self.ran_on_cpu());
        conditions.extend(self.short_of_scratch());
        conditions.extend(self.short_outside_pool());
        conditions.extend(self.in_host_memory());
        // One is enough: each has the same cause as a rule.
        let mismatch = self
            .hosts
            .as_ref()
            .and_then(|hosts| hosts.mismatches.first());
        conditions.extend(mismatch.cloned().map(Condition::HostsDiffer));
        // A stable sort: what leaves the answer open comes first.
        conditions.sort_by_key(Condition::bearing);
        let mut verdict = Verdict {
            fits: Some(!is_too_large),
            conditions,
        };
        if self.is_refused() || verdict.outside_pool().is_some() {
            verdict.fits = Some(false);
        } else if verdict
            .conditions
            .first()
            .is_some_and(Condition::leaves_open)
        {
            verdict.fits = None;
        }
        verdict
    }

    /// Returns [`Verdict::fits`].
    pub fn fits(&self) -> Option<bool> {
        self.verdict().fits
    }

    /// Says whether a request for memory was refused, the CUDA context found no room, or an allocator
    /// would have aborted: whether the run does not fit, however it ended.
    pub fn is_refused(&self) -> bool {
        self.failure_count > 0 || self.abort.is_some() || self.no_context.is_some()
    }

    /// Returns the plan of the program that decides without having run: the largest of those of whose
    /// name none ran, if it needs more than anything that did. `None` for a run that was refused
    /// memory, whose answer is about what happened.
    pub fn plan(&self) -> Option<ProgramNeed> {
        if self.is_refused() {
            return None;
        }
        let ran = |name: &str| {
            let mut programs = self.programs.iter();
            programs.any(|program| program.name == name && program.calls > 0)
        };
        let in_pool = |program: &ProgramSummary| {
            let sizes = &program.sizes;
            let planned = sizes.needed_bytes().saturating_sub(sizes.constant_bytes);
            planned + program.scratch_bytes
        };
        let compiled = self.programs.iter().filter(|program| program.calls == 0);
        let largest = compiled
            .filter(|program| !ran(&program.name))
            .max_by_key(|program| in_pool(program))?;
        let device = self.critical_device()?;
        let plan = ProgramNeed {
            program: largest.name.clone(),
            needed_bytes: in_pool(largest),
            capacity_bytes: device.capacity_bytes,
        };
        (plan.needed_bytes > device.peak_bytes).then_some(plan)
    }

    /// Whether values that were not computed decided what ran.
    fn placeholder_decides(&self) -> Option<Condition> {
        let reads = self.unknown_reads.iter();
        let mut lines = reads.filter(|line| line.shapes > 0 || line.decisions > 0);
        let first = lines.next()?;
        let decision = |text: &Option<String>| text.clone().filter(|_| first.shapes == 0);
        Some(Condition::PlaceholderDecides {
            site: first.site.clone(),
            expression: decision(&first.expression),
            value: decision(&first.value),
            other_lines: lines.count(),
        })
    }

    /// Who else was on the GPU when a request was refused.
    fn shared_gpu(&self) -> Option<Condition> {
        let others = self.others_at_failure.as_ref()?;
        Some(Condition::SharedGpu {
            gpu: self.header.gpu_of(others.device),
            used_bytes: others.used_bytes,
            total_bytes: self.header.total_memory_bytes,
            processes: others.processes.clone(),
            fits_alone: self.fits_alone,
            of_this_run: self.header.sharing == Sharing::Run,
        })
    }

    /// What became of the wish to end the run after some steps.
    fn steps_wanted(&self) -> Option<Condition> {
        let search = self.step_search.as_ref()?;
        let steps = search.steps?;
        if let Some(stop) = &search.stop {
            return Some(Condition::StoppedAtStep {
                steps,
                stop: stop.clone(),
                evidence: self.step_evidence.unwrap_or_default(),
                exit: self.process_exit.filter(|exit| !exit.is_success()),
            });
        }
        let step = self.step();
        let found = step.filter(|_| self.step_evidence >= Some(Evidence::StateReturned));
        let programs = self.programs.iter().filter(|program| program.calls > 1);
        // A step that ran as often as was asked for, and a run that then ended by itself: nothing was left out.
        let is_whole = found.is_some_and(|step| step.calls >= steps);
        // A run that stopped before its time says why, and this is not the reason.
        let is_said = !is_whole && !self.is_refused() && self.ended_early().is_none();
        is_said.then(|| Condition::NoStepFound {
            steps,
            name: search.name.clone(),
            found: found.map(|step| LastExecution {
                program: step.name.clone(),
                call: step.calls,
            }),
            programs: programs
                .map(|one| one.name.clone())
                .take(MAX_NAMES)
                .collect(),
        })
    }

    /// Whether the peak still grew in the last step before the run was ended.
    fn still_growing(&self) -> Option<Condition> {
        let stop = self.step_search.as_ref()?.stop.as_ref()?;
        let growth = stop.growth.filter(|_| stop.calls > 1)?;
        let grown_bytes = growth.peak_bytes.saturating_sub(growth.previous_peak_bytes);
        let total_bytes = self.header.total_memory_bytes;
        // A list of losses grows, too, and no training is long enough for it to matter.
        (grown_bytes.saturating_mul(MAX_STEPS) >= total_bytes.max(1)).then(|| {
            Condition::StillGrowing {
                program: stop.program.clone(),
                step: stop.calls,
                previous_peak_bytes: growth.previous_peak_bytes,
                peak_bytes: growth.peak_bytes,
            }
        })
    }

    /// What lies in host memory.
    fn in_host_memory(&self) -> Option<Condition> {
        let devices = self.devices.iter().filter(|_| self.header.unified_memory);
        let free_bytes = self.header.free_bytes();
        let highest = devices.max_by_key(|device| device.peak_bytes)?;
        let host_bytes = highest.peak_bytes.saturating_sub(free_bytes);
        (host_bytes > 0).then_some(Condition::HostMemory {
            peak_bytes: highest.peak_bytes,
            host_bytes,
        })
    }

    /// Whether constants of programs have no room beside the pool. Code alone is no reason: what is outside is known
    /// to some MiB only.
    fn short_outside_pool(&self) -> Option<Condition> {
        let header = &self.header;
        let available = |device: &DeviceSummary| {
            let pool_bytes = device.pool_bytes.unwrap_or(device.peak_bytes);
            let taken_bytes = pool_bytes.saturating_add(header.occupied_bytes);
            let left_bytes = header.total_memory_bytes.saturating_sub(taken_bytes);
            left_bytes.saturating_sub(header.context_bytes)
        };
        let devices = self.devices.iter();
        let tightest =
            devices.max_by_key(|device| device.outside_bytes.saturating_sub(available(device)))?;
        let (outside_bytes, available_bytes) = (tightest.outside_bytes, available(tightest));
        let programs = self.programs.iter().filter(|program| program.calls > 0);
        let program = programs.max_by_key(|program| program.sizes.constant_bytes)?;
        let constant_bytes = program.sizes.constant_bytes;
        let is_short = outside_bytes > available_bytes && constant_bytes >= MIN_CONSTANT_BYTES;
        // Managed memory of the pool makes room.
        let may_move = header.unified_memory;
        (is_short && !may_move && !self.is_refused()).then(|| Condition::OutsidePool {
            program: program.name.clone(),
            constant_bytes,
            outside_bytes,
            available_bytes,
            // A pool that grows may not have been so large when the constants were there.
            is_certain: header.preallocate
                && outside_bytes > available_bytes.saturating_add(header.context_bytes),
        })
    }

    /// The routine that may take more scratch memory than it could have had. That of a run that was
    /// refused a request anyway says nothing new.
    fn short_of_scratch(&self) -> Option<Condition> {
        let scratch = self.scratch.as_ref().filter(|_| !self.is_refused())?;
        let shortage = scratch.shortage.as_ref()?;
        let need = scratch.needs.get(shortage.need)?;
        Some(Condition::LibraryScratch {
            library: need.library.clone(),
            routine: need.routine.clone(),
            program: need.program.clone(),
            site: need.site.clone(),
            low_bytes: need.low_bytes,
            high_bytes: shortage.high_bytes,
            available_bytes: shortage.available_bytes,
        })
    }

    /// How the run ended before its time, if it did. A process of a program that ended well may
    /// have been killed by it, as workers are; then the program saw the end of its work.
    fn ended_early(&self) -> Option<Condition> {
        let after = self.last_execution.clone();
        let failed = |exit| Condition::ProcessFailed {
            exit,
            error: self.uncaught_error.clone(),
            after: after.clone(),
            placeholder_read: self
                .last_unknown_read
                .clone()
                .filter(|_| self.is_placeholder_cause),
        };
        let is_cut = self
            .step_search
            .as_ref()
            .is_some_and(|search| search.stop.is_some());
        match self.process_exit {
            // It was not let finish, and how it takes that says nothing about its memory.
            _ if is_cut => None,
            // It ended for want of memory, which is told with the request that was refused.
            _ if self.is_refused() && self.ended_out_of_memory() => None,
            // The program may end well although one of its processes did not.
            Some(exit) if exit.is_success() && self.uncaught_error.is_some() => {
                (!self.is_refused()).then(|| failed(None))
            }
            Some(exit) if exit.is_success() => None,
            Some(exit) => Some(failed(Some(exit))),
            None if self.uncaught_error.is_some() => Some(failed(None)),
            None if !self.complete => {
                let until = self.until;
                Some(Condition::TraceEndsEarly { after, until })
            }
            None => None,
        }
    }
}

/// What the messages of JAX's errors begin with when a request for memory was refused.
const OUT_OF_MEMORY: &str = "RESOURCE_EXHAUSTED";

impl RunSummary {
    /// Says whether the exception that nothing in the program caught is one of refused memory.
    fn ended_out_of_memory(&self) -> bool {
        let error = self.uncaught_error.as_ref();
        error.is_some_and(|error| error.message.starts_with(OUT_OF_MEMORY))
    }
}
