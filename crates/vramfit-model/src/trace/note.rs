//! Notes in a trace: what was learnt about a run beside its events. `docs/reference/trace-format.md` has them.

use serde::{Deserialize, Serialize};

use super::wire::tag;
use crate::run_config::StepLimit;

/// Something that was learnt about a run. A trace without notes is as good; a note of a kind that
/// is not known is passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Note {
    /// The training step is searched for; the first note of every trace in which it is.
    Search {
        /// After which steps the run is to end.
        steps: Option<StepLimit>,
        /// The name of the program that is the step, where one was given.
        name: Option<String>,
    },
    /// What is known of a program that may be the step; it stands before the execution that shows it.
    Program {
        /// Its number.
        program: u32,
        /// Whether it has a backward pass.
        backward: bool,
        /// Whether it has the name of [`Note::Search`].
        named: bool,
        /// Bytes of its arguments that came back from its earlier calls; 0 as long as none did.
        returned_bytes: u64,
    },
    /// A program is executed for the first time although the training step is known already: a phase of the run begins.
    Phase {
        /// Number of the program.
        program: u32,
        /// How often the step has been executed: the program that was called most of those that are one.
        step_calls: u64,
        /// The peak of the run before, on the device where it is highest.
        peak_bytes: u64,
    },
    /// The run was ended here, as the steps asked for were done and another one would have begun.
    Stopped {
        /// Number of the program that is the step.
        program: u32,
        /// How often it was executed.
        calls: u64,
        /// The peak before the last step, on the device where it grew most; 0 where it did not grow.
        #[serde(default)]
        previous_peak_bytes: u64,
        /// The peak after it; 0 where it did not grow.
        #[serde(default)]
        peak_bytes: u64,
    },
    /// A program that runs on several devices; it stands behind the record of the program.
    PartitionedProgram(PartitionedProgram),
    /// An exception of the program that nothing caught.
    Error(UncaughtError),
    /// How the program's process ended.
    Exit(ProcessExit),
    /// A program that has run on JAX's CPU backend, of which there is nothing else in the trace.
    CpuProgram(CpuProgram),
    /// An argument was read again after an execution whose output replaces it: it cannot be donated. Written once for
    /// each parameter.
    ReadAgain {
        /// Number of the program that was executed.
        program: u32,
        /// Which parameter of it the array was.
        parameter: u32,
    },
    /// Arrays of at least [`MIN_UNREAD_BYTES`](super::MIN_UNREAD_BYTES) that were allocated before the peak of their
    /// device and read after it. Written when the trace ends, as often as needed, and at least once: so that no
    /// array is named if none was read.
    ReadAfterPeak {
        /// Numbers of their allocations.
        allocations: Vec<u64>,
    },
    /// The variables of the program that hold its arrays at the end, those with most bytes first.
    ArrayHolders {
        /// One each.
        holders: Vec<ArrayHolder>,
    },
    /// What other processes hold of a GPU from here on. It stands before the event at which it was
    /// seen; the first one of a device before those of its pool.
    Others {
        /// The device of this process.
        device: u32,
        /// What they hold now, contexts included.
        used_bytes: u64,
        /// The most that they have held at once since this process uses the GPU.
        max_used_bytes: u64,
        /// Those that hold most of it now, the largest first.
        processes: Vec<OtherProcess>,
    },
    /// There was no room for the CUDA context: the process could not use the GPU at all.
    NoContext {
        /// The device of this process.
        device: u32,
        /// What the context takes.
        context_bytes: u64,
        /// What the GPU had left.
        free_bytes: u64,
    },
}

/// Another process that holds memory of the same GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OtherProcess {
    /// Its number.
    pub pid: u32,
    /// What it holds, its CUDA context included.
    pub bytes: u64,
    /// Its command line, empty if not known.
    pub command: String,
}

/// A program that runs on several devices, also of other hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionedProgram {
    /// Its number.
    pub program: u32,
    /// Equal for equal programs, also of different hosts.
    pub fingerprint: String,
    /// The hosts that have devices of it, in ascending order.
    pub hosts: Vec<u32>,
    /// Its devices on all hosts.
    pub devices: u32,
    /// Whether devices of different hosts exchange data while it runs.
    pub communicates: bool,
    /// For each way in which its devices are grouped to exchange data, a number that is equal for equal groups, also
    /// of other programs.
    pub communicators: Vec<u64>,
    /// How many devices have the same part of each parameter; empty where that is not known.
    pub copies: Vec<u32>,
    /// How many devices have the same part of each output, by its allocation; empty where that is not known.
    pub output_copies: Vec<(u32, u32)>,
}

/// An exception that ended a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UncaughtError {
    /// Its class, such as `ValueError`.
    pub name: String,
    /// Its message, cut to its first line.
    pub message: String,
    /// The line of the program that it came from, as `file:line (function)`; empty if not known.
    pub site: String,
}

/// A variable of the program, with the arrays that it leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArrayHolder {
    /// What it is called and where it is, such as "`self.history` of `Trainer.fit` (train.py:12)".
    pub name: String,
    /// How many arrays.
    pub arrays: u64,
    /// Their bytes on the fullest device.
    pub bytes: u64,
}

/// A program that ran on the CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuProgram {
    /// Its name.
    pub name: String,
    /// The line of the program that executed it first; empty if not known.
    pub site: String,
    /// Arguments, results that are no arguments reused, and temporaries, as compiled for the CPU.
    pub needed_bytes: u64,
    /// Whether it has a backward pass.
    pub backward: bool,
    /// Whether it multiplies matrices or has convolutions.
    pub products: bool,
    /// What selected the CPU, such as `device = "cpu"`; empty if not known.
    pub selected_by: String,
}

/// How a process ended: by itself, or by a signal. One of the two is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessExit {
    /// Its exit code.
    pub code: Option<u8>,
    /// The number of the signal that killed it.
    pub signal: Option<i32>,
}

impl ProcessExit {
    /// Returns `true` if the process ended by itself with exit code 0.
    pub fn is_success(self) -> bool {
        self.code == Some(0)
    }
}

impl Note {
    /// Returns the tag of its record: notes about the step and about the process have one each.
    pub(super) fn tag(&self) -> u8 {
        match self {
            Note::Search { .. }
            | Note::Program { .. }
            | Note::Phase { .. }
            | Note::Stopped { .. } => tag::STEP_NOTE,
            Note::PartitionedProgram(_)
            | Note::Error(_)
            | Note::Exit(_)
            | Note::CpuProgram(_)
            | Note::ReadAgain { .. }
            | Note::ReadAfterPeak { .. }
            | Note::ArrayHolders { .. }
            | Note::Others { .. }
            | Note::NoContext { .. } => tag::PROCESS_NOTE,
        }
    }
}

/// Returns `true` if a program is the one that a person calls `name`: JAX puts `jit_` or `pmap_` before the
/// name of a function.
pub fn is_program_named(program: &str, name: &str) -> bool {
    let function = |prefix| program.strip_prefix(prefix) == Some(name);
    program == name || function("jit_") || function("pmap_")
}

/// Longest note in bytes.
pub(super) const MAX_NOTE_BYTES: usize = 64 << 10;
/// How many notes are kept of a trace; a writer makes a few of each kind, of some kinds one for each parameter.
pub(super) const MAX_NOTES: usize = 1 << 16;
