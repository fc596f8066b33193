//! What an answer depends on, and what that does to it: where it is told is its [`Bearing`]. How it is put into words is
//! the business of [`crate::report`].

use std::collections::BTreeMap;

use serde::Serialize;

use super::hosts::ProgramMismatch;
use super::programs::Evidence;
use super::step_search::StepStop;
use crate::gpu::HostLink;
use crate::run_config::StepLimit;
use crate::trace::{CpuProgram, OtherProcess, ProcessExit, UncaughtError};

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
        /// After which steps it was to end.
        steps: StepLimit,
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
        /// Whether this is one of several hosts, and nothing ran that has a backward pass: what is to be measured may not
        /// have run at all.
        replaces_step: bool,
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
        /// What of the peaks the GPUs have no room for, so that the host must have as much free memory.
        host_bytes: u64,
        /// How many GPUs have no room for all of their peak.
        gpus: u32,
        /// What the host has free; `None` where that is not known.
        available_bytes: Option<u64>,
        /// The program that uses more memory in a call than a GPU has; `None` if no single one does.
        moved: Option<LinkTraffic>,
    },
    /// Other libraries in the process that allocate GPU memory of their own, which is not counted.
    OtherLibraries {
        /// Their versions, by the names that they are imported by.
        libraries: BTreeMap<String, String>,
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

/// What a call of a program moves between GPU and host, where it uses more memory than the GPU has: what has no room at
/// its end was moved to the host. Of arguments that it does not read in full it may move less.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LinkTraffic {
    /// The program.
    pub program: String,
    /// Bytes that each call moves at least.
    pub bytes: u64,
    /// The link; `None` for a GPU that is not in the catalog.
    pub link: Option<HostLink>,
}

impl LinkTraffic {
    /// Returns the seconds that this takes at the full rate of the link.
    pub fn seconds(&self) -> Option<f64> {
        self.link.map(|link| self.bytes as f64 / link.bytes_per_s() as f64)
    }
}

impl Condition {
    /// Returns what it does to an answer.
    pub fn bearing(&self) -> Bearing {
        match self {
            Condition::ProcessFailed { .. }
            | Condition::TraceEndsEarly { .. }
            | Condition::HostsDiffer(_)
            | Condition::LibraryScratch { .. }
            | Condition::OutsidePool { .. }
            | Condition::PlaceholderDecides { replaces_step: true, .. }
            | Condition::RanOnCpu { decides: true, .. } => Bearing::Open,
            Condition::PlaceholderDecides { .. }
            | Condition::HostMemory { available_bytes: None, .. } => Bearing::Assumed,
            Condition::StoppedAtStep { .. }
            | Condition::StillGrowing { .. }
            | Condition::RanOnCpu { decides: false, .. } => Bearing::Excluded,
            // Something was refused where these two are said.
            Condition::TotalRange { .. } | Condition::SharedGpu { .. } => Bearing::Explained,
            Condition::NoStepFound { .. }
            | Condition::CompiledOnly { .. }
            | Condition::HostMemory { .. }
            | Condition::OtherLibraries { .. } => Bearing::Explained,
        }
    }

    /// Returns `true` if it is how much scratch memory a library takes.
    pub fn is_library_scratch(&self) -> bool {
        matches!(self, Condition::LibraryScratch { .. })
    }

    /// Returns `true` if one of the conditions is that the run was ended after some training steps.
    pub fn is_stopped(conditions: &[Condition]) -> bool {
        let mut conditions = conditions.iter();
        conditions.any(|condition| matches!(condition, Condition::StoppedAtStep { .. }))
    }

    /// Returns `true` if this condition alone makes it impossible to tell whether a run fits that was
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
