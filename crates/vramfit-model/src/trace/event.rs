//! The events of a trace.

use serde::{Deserialize, Serialize};

use crate::allocator::PoolSpace;
use crate::program::{EstimateSource, ProgramSizes, ScratchPhase};

/// The smallest output of which a trace says that nothing has read it.
pub const MIN_UNREAD_BYTES: u64 = 1 << 20;

/// An interned text (a name, a source line); 0 is the empty text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextId(pub u32);

/// Why bytes were allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// An array put on the device from the host.
    Upload,
    /// An output of an execution.
    Output,
    /// The temporary block of an execution.
    Temporary,
    /// The table of pointers of a multi-output execution.
    Tuple,
    /// A copy of a buffer (between devices or memories, or to keep an argument alive).
    Copy,
    /// A constant of a program, loaded with it.
    Constant,
    /// Scratch memory of a library's routine, which comes and goes inside an execution.
    Scratch,
}

impl Purpose {
    /// All of them, in the order of their numbers in a trace.
    pub const ALL: [Purpose; 7] = [
        Purpose::Upload,
        Purpose::Output,
        Purpose::Temporary,
        Purpose::Tuple,
        Purpose::Copy,
        Purpose::Constant,
        Purpose::Scratch,
    ];

    /// Returns what such bytes are called in every output for people.
    pub fn label(self) -> &'static str {
        match self {
            Purpose::Upload => "upload",
            Purpose::Output => "output",
            Purpose::Temporary => "temporaries",
            Purpose::Tuple => "output table",
            Purpose::Copy => "copy",
            Purpose::Constant => "constants",
            Purpose::Scratch => "library scratch",
        }
    }
}

/// Why a Python function that a program calls was not called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackSkip {
    /// The program goes on with what the function returns, which is a placeholder.
    Results,
    /// The user asked for it.
    Request,
    /// It is in a branch that is not taken when the condition, which is not known, is false.
    Branch,
    /// It was called as often as a dry run calls it in one execution.
    Bound,
}

impl CallbackSkip {
    /// All of them, in the order of their numbers in a trace.
    pub const ALL: [CallbackSkip; 4] =
        [CallbackSkip::Results, CallbackSkip::Request, CallbackSkip::Branch, CallbackSkip::Bound];
}

/// One thing that happened.
///
/// Allocations are numbered from 0 in the order of their [`Event::Allocate`]; programs carry the
/// number they were given when compiled or loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A program was compiled, or loaded from a cache.
    Program {
        /// Its number.
        program: u32,
        /// Its name, such as `jit_train_step`.
        name: TextId,
        /// Per-device sizes.
        sizes: ProgramSizes,
        /// On how many devices it runs.
        devices: u32,
        /// True when it came from a cache or a serialized file.
        loaded: bool,
        /// Which compile attempt succeeded; empty for the first (`default`).
        compile_attempt: TextId,
        /// Where it was asked for (`file:line (function)`), empty if not known.
        site: TextId,
    },
    /// The program named last was compiled a second time with other choices, only to be measured.
    Variant {
        /// Its number.
        program: u32,
        /// How it was compiled, such as `without Triton GEMM`.
        name: TextId,
        /// Per-device sizes of what came out.
        sizes: ProgramSizes,
    },
    /// Routines of a library that the program named last calls take scratch memory that is in no
    /// plan: at least `low_bytes`, at most `high_bytes`. In an execution the run took the least.
    Scratch {
        /// Number of the program.
        program: u32,
        /// The library, such as `cuFFT`.
        library: TextId,
        /// The routine and its operand, such as `rfft f64[10,100000000]`.
        routine: TextId,
        /// The line that calls it, empty if not known.
        site: TextId,
        /// Bytes that it takes at least.
        low_bytes: u64,
        /// Bytes that it takes at most; meaningless for [`EstimateSource::Unknown`].
        high_bytes: u64,
        /// Where the range comes from.
        source: EstimateSource,
        /// When the bytes are taken.
        phase: ScratchPhase,
    },
    /// A program was dropped.
    Unload {
        /// Its number.
        program: u32,
    },
    /// An execution of a program begins; what is allocated until [`Event::End`] belongs to it.
    Begin {
        /// The program's number.
        program: u32,
        /// Where it was called from, empty if not known.
        site: TextId,
    },
    /// An argument of the execution that goes on. Told only when that execution reached a new peak, was
    /// refused a request, or is one of the first of a program with a backward pass, after its allocations.
    Argument {
        /// Number of the entry parameter.
        parameter: u32,
        /// The allocation it lies in.
        allocation: u64,
    },
    /// The execution begun last has ended.
    End,
    /// Bytes were allocated in a pool. The allocation's number is the count of these before it.
    Allocate {
        /// On which device.
        device: u32,
        /// Bytes requested (the allocator rounds up).
        bytes: u64,
        /// Alignment requested.
        alignment: u64,
        /// Which memory space.
        space: PoolSpace,
        /// Why.
        purpose: Purpose,
        /// Inside an execution, the index of the buffer allocation in XLA's assignment.
        slot: u32,
        /// Where it was asked for, empty if not known or inside an execution.
        site: TextId,
    },
    /// An allocation was freed.
    Free {
        /// The allocation's number.
        allocation: u64,
    },
    /// An output that is freed next, or kept to the end of the run, was never read: it was no argument of an execution, was not copied, and the
    /// host did not ask for it. Recorded only for outputs of
    /// [`MIN_UNREAD_BYTES`] and more.
    Unread {
        /// The allocation's number.
        allocation: u64,
    },
    /// An allocation was freed, and the real allocator would have aborted the process over it.
    /// What follows in the trace would not have happened on a real GPU.
    FreeAborts {
        /// The allocation's number.
        allocation: u64,
        /// What the process would have died of.
        message: TextId,
    },
    /// A request could not be met: out of memory.
    AllocationFailure {
        /// On which device.
        device: u32,
        /// Bytes requested.
        bytes: u64,
        /// Alignment requested.
        alignment: u64,
        /// Which memory space.
        space: PoolSpace,
        /// Why it was requested.
        purpose: Purpose,
        /// As in [`Event::Allocate`].
        slot: u32,
        /// As in [`Event::Allocate`].
        site: TextId,
        /// The message the program was given.
        message: TextId,
    },
    /// The driver was asked for memory by an allocator.
    Driver {
        /// On which device.
        device: u32,
        /// Bytes asked for.
        asked: u64,
        /// Address of what was granted; meaningless when `granted` is 0.
        address: u64,
        /// Bytes granted, 0 when refused.
        granted: u64,
    },
    /// Memory outside the pools changed (constants and machine code of programs).
    OutsidePool {
        /// On which device.
        device: u32,
        /// Bytes now held outside the pool by this process, context excluded.
        bytes: u64,
    },
    /// The peak of a device was set to what is in use, as a profiler may ask for.
    ClearPeak {
        /// On which device.
        device: u32,
    },
    /// The program read a value that a dry run cannot know.
    UnknownRead {
        /// Where.
        site: TextId,
        /// Bytes read.
        bytes: u64,
    },
    /// JAX read a value that a dry run cannot know, and made a shape of it: what follows has another
    /// size on a GPU.
    ShapeRead {
        /// Where.
        site: TextId,
        /// Bytes read.
        bytes: u64,
    },
    /// The program read a value that a dry run cannot know, and decides by it what it does next.
    DecisiveRead {
        /// Where.
        site: TextId,
        /// Bytes read.
        bytes: u64,
        /// The expression that reads, empty if not known.
        expression: TextId,
        /// What it reads, such as `0` or `false`.
        value: TextId,
    },
    /// An execution whose values are not computed called a Python function with placeholder values.
    Callback {
        /// The line that put the call into the program, empty if not known.
        site: TextId,
        /// How many times in this execution.
        calls: u64,
        /// How many of the calls raised an error.
        errors: u64,
        /// The last of these errors, empty without any.
        error: TextId,
    },
    /// An execution whose values are not computed did not call a Python function that it calls on a
    /// GPU.
    CallbackSkipped {
        /// The line that put the call into the program, empty if not known.
        site: TextId,
        /// How many times in this execution; 1 where it is not known.
        calls: u64,
        /// Why.
        reason: CallbackSkip,
    },
}

impl Event {
    /// Returns the event with the number of the allocation it names replaced by what `change` makes
    /// of it, or `None` where `change` gives `None`. Events that name none stay as they are.
    pub(super) fn renumbered(mut self, change: impl FnOnce(u64) -> Option<u64>) -> Option<Event> {
        if let Event::Free { allocation }
        | Event::Unread { allocation }
        | Event::FreeAborts { allocation, .. }
        | Event::Argument { allocation, .. } = &mut self
        {
            *allocation = change(*allocation)?;
        }
        Some(self)
    }
}
