//! What a message in a log says.

use serde::Serialize;

use super::number::Size;
use super::{ListedBuffer, LoggedChunk};
use crate::allocator::PoolEnd;

/// A message that is about memory, or about what failed instead.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    /// A pool refused a request for good: `Allocator (GPU_0_bfc) ran out of memory trying to allocate …`.
    PoolRefusal { size: Size, rounded: Option<u64>, end: Option<PoolEnd> },
    /// A pool refused a request that its caller can do without.
    PoolWarning { size: Size },
    /// The status of a failed request: `Out of memory while trying to allocate …`.
    OutOfMemory {
        size: Size,
        /// The compiled program, where the status names it.
        program: Option<String>,
    },
    /// An allocator without a pool passed the driver's refusal on: `Failed to allocate request for …`.
    DirectRefusal { size: Size },
    /// CUDA's own pool refused: `cuMemAllocAsync failed to allocate …`.
    AsyncRefusal { size: Size },
    /// The allocator of virtual memory refused: `Not enough PA budget …`.
    BudgetRefusal { size: Size, budget: u64 },
    /// The driver refused memory: `failed to allocate 1.00GiB (… bytes) from device: CUDA_ERROR_OUT_OF_MEMORY`.
    DriverRefusal { size: Size, pinned_host: bool },
    /// The driver had no memory for something that is no array.
    DriverOutOfMemory { call: DriverCall },
    /// A library did not start or failed.
    Library {
        library: Library,
        /// The reason that the message itself names.
        reason: Reason,
    },
    /// The driver reports an error that is not lack of memory, such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
    DriverError,
    /// The driver, a library or JAX itself is missing, or does not match the others.
    Installation,
    /// Two libraries are not of the releases that they were compiled for.
    VersionMismatch,
    /// A kernel needs more shared memory, or other resources, than a multiprocessor has.
    KernelResources,
    /// The allocator of another framework in the process found no GPU memory.
    OtherAllocator(OtherAllocator),
    /// A routine of jaxlib found no room in the pool: `Unable to allocate workspace for syevd`.
    Workspace { routine: String },
    /// The compiler found no memory, or no address, for one more compiled program on the host.
    CompiledPrograms,
    /// Words about memory that are no message known here.
    MemoryNamed,
    /// The autotuner, or a candidate that it tried, failed.
    Autotuning {
        /// Whether the message itself says that memory is the reason.
        out_of_memory: bool,
    },
    /// `Memory usage: X bytes free, Y bytes total.`
    GpuMemory {
        free: u64,
        total: u64,
        /// Whether XLA says so when something fails; a table of `nvidia-smi` may be of any time.
        at_failure: bool,
    },
    /// How much the pool of a client takes, or may take.
    PoolPlanned { bytes: u64, preallocated: bool },
    /// Part of the dump of a pool.
    Dump(DumpLine),
    /// Figures of `Device.memory_stats()`, as a program has printed them.
    MemoryStat { name: StatName, bytes: u64 },
    /// `BufferAssignment stats`: what a program needs.
    ProgramNeed(LoggedProgramNeed),
    /// One of the largest buffers of a program.
    PeakBuffer(ListedBuffer),
    /// `Can't reduce memory use below … by rematerialization`.
    Rematerialization { target: i64, reached: u64, before: Option<u64> },
    /// `The byte size of input/output arguments (…) exceeds the base limit (…)`.
    ArgumentsExceedLimit { arguments: u64, limit: Option<u64> },
    /// Memory of the host ran out.
    Host { how: HostFailure, size: Option<Size> },
    /// Addresses ran out.
    AddressSpace { limit_named: bool },
    /// JAX, XLA or the plugin rejected a setting.
    SettingRejected {
        /// Whether the message is about a setting. JAX's about a plugin that cannot be loaded is about whatever follows.
        is_named: bool,
    },
    /// JAX continues on the CPU.
    CpuFallback,
    /// A variable and its value, as the user has set it.
    Setting { name: String, value: String },
    /// Autotuning is turned off: `--xla_gpu_autotune_level=0`.
    AutotuningOff,
    /// A release before jaxlib 0.4.14, by the names of its source files.
    OldRelease,
    /// XLA's advice to set `TF_GPU_ALLOCATOR`, which nothing reads.
    AllocatorHint,
    /// A TPU has no memory for a program that is to be loaded: `Error loading program`.
    TpuProgramLoad,
    /// A TPU is the device.
    Tpu { out_of_memory: bool },
    /// Another process of the job is gone, or does not answer.
    PeerFailure,
    /// Arrays that a function takes from its surroundings, not as arguments: `A large amount of constants were captured
    /// during lowering (8.00GB total)`.
    CapturedConstants { size: Size },
    /// `The jitted function f includes a pmap`: its inputs and outputs are collected on one device.
    JitOfPmap,
    /// A batch, by its size.
    Batch,
    /// The script that Python runs, by a traceback.
    Script { path: String },
    /// The command that started the program, as the log shows it.
    Command { line: String },
    /// Memory that TensorFlow has taken in this process: `Created device … with 14643 MB memory`.
    TensorflowPool { bytes: u64 },
    /// Donated buffers that were not usable: a warning.
    DonationWarning,
    /// A buffer was used after it was donated, or donated twice.
    DonationError,
    /// An exception of Python, by its class.
    Exception { class: String, subject: Subject },
    /// The process aborted.
    Abort,
    /// The reporter calls it fragmentation.
    FragmentationNamed,
    /// The program saves or restores a checkpoint, or evaluates: it runs other programs than the step.
    OtherPhase,
    /// A program was compiled.
    Compilation { program: String },
    /// The number of a step.
    Step { number: u64, is_last: bool },
    /// Checkpoints are copied to pinned memory of the host.
    PinnedTransfers,
    /// Something of JAX, so that JAX runs in this process.
    JaxNamed,
    /// A disk is full.
    DiskFull,
    /// A release of JAX.
    Jax { version: (u32, u32, u32) },
    /// A GPU of the catalog, by its name there.
    Gpu { name: &'static str },
    /// What a program needs, by what XLA has dumped of it: not that it failed.
    DumpedProgram { need: LoggedProgramNeed },
    /// The map of a pool, without the request that failed.
    MemoryMap,
    /// Arrays that stay allocated after each step, as a recorded run shows them.
    Leak {
        /// How much and when, such as `4.0 MiB more in every step`.
        growth: String,
        site: String,
    },
    /// What `vramfit dryrun` has found.
    Dryrun {
        fits: bool,
        short: Option<Size>,
        program: Option<String>,
        /// Whether free memory would have sufficed in one piece.
        fragmented: bool,
    },
}

/// A refusal by the allocator of another framework, with the figures that it prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherAllocator {
    pub(super) owner: AllocatorOwner,
    pub(super) size: Option<Size>,
    /// What the framework holds itself.
    pub(super) held: Option<Size>,
    /// What the whole process holds, JAX and contexts included.
    pub(super) process: Option<Size>,
    /// What is free of the GPU, and what it has in all.
    pub(super) free: Option<Size>,
    pub(super) total: Option<Size>,
}

/// A framework that allocates GPU memory beside JAX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum AllocatorOwner {
    Cupy,
    Pytorch,
    Rmm,
    TensorFlow,
    Warp,
    /// One that the message does not name.
    Unknown,
}

impl AllocatorOwner {
    pub(super) fn label(self) -> &'static str {
        match self {
            AllocatorOwner::Cupy => "CuPy",
            AllocatorOwner::Pytorch => "PyTorch",
            AllocatorOwner::Rmm => "RAPIDS (RMM)",
            AllocatorOwner::TensorFlow => "TensorFlow",
            AllocatorOwner::Warp => "Warp",
            AllocatorOwner::Unknown => "something beside JAX",
        }
    }
}

impl Message {
    /// Returns the refusal by another framework of which only the size is known.
    pub(super) fn other_allocator(owner: AllocatorOwner, size: Option<Size>) -> Message {
        Message::OtherAllocator(OtherAllocator {
            owner,
            size,
            held: None,
            process: None,
            free: None,
            total: None,
        })
    }
}

/// The reason of a failure, as far as a message names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    Memory,
    /// None, or one that a lack of memory also shows as.
    Unknown,
    /// Another than memory.
    Other,
}

/// What an exception is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    Memory,
    /// The driver, a library or JAX itself.
    Installation,
    /// The program.
    Program,
    /// Nobody knows: its words are those of errors of many kinds.
    Unknown,
}

/// What the driver was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum DriverCall {
    /// Creating the context of the process.
    Context,
    /// Loading compiled kernels.
    Module,
    /// Instantiating a CUDA graph.
    Graph,
    /// Something that the message does not say.
    Unknown,
}

/// A library beside XLA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Library {
    Cublas,
    Cudnn,
    Cufft,
    Curand,
    Cusolver,
    Cusparse,
    Nccl,
    /// Those of AMD.
    Rocm,
}

impl Library {
    pub(super) fn label(self) -> &'static str {
        match self {
            Library::Cublas => "cuBLAS",
            Library::Cudnn => "cuDNN",
            Library::Cufft => "cuFFT",
            Library::Curand => "cuRAND",
            Library::Cusolver => "cuSOLVER",
            Library::Cusparse => "cuSPARSE",
            Library::Nccl => "NCCL",
            Library::Rocm => "a library of ROCm",
        }
    }
}

/// How it is known that host memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum HostFailure {
    /// NumPy or Python could not allocate.
    Python,
    /// A C++ allocation failed.
    Cpp,
    /// JAX's backend for the CPU could not allocate.
    CpuBackend,
    /// The kernel or a job manager killed the process for its use of memory.
    Killed,
    /// The process was killed, and nobody says why.
    KilledSilently,
    /// XLA's pool of pinned memory is full.
    PinnedPool,
    /// The driver refused pinned memory to XLA, which can go on without.
    PinnedRefused,
    /// The compiler found no memory for a program, or no address.
    Compiler,
    /// The system refused memory: there is none, or a limit of the process is reached.
    System,
    /// Memory that processes share, `/dev/shm`, is full.
    SharedSegment,
    /// That is the usual reason of what happened to the process.
    SharedSegmentProbably,
}

/// A figure of `Device.memory_stats()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StatName {
    BytesInUse,
    PeakBytesInUse,
    BytesLimit,
    PoolBytes,
    LargestFreeBlock,
}

/// A line of the dump that a BFC pool logs when a request fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DumpLine {
    /// `BFCAllocator dump for GPU_0_bfc`
    Begin,
    /// `Bin (256): Total Chunks: 3, Chunks in use: 2. …`
    Bin(BinFigures),
    /// `Next region of size 63707234304`
    Region { bytes: u64 },
    /// `InUse at 7f0000000000 of size 256 next 1`
    Chunk(LoggedChunk),
    /// `Sum Total of in-use chunks: 54.10GiB`
    InUse { size: Size },
    /// The pool's own figures, in one of three wordings.
    Pool(PoolFigures),
    /// `Stats:` and the lines below it.
    Stats(PoolStats),
    /// The map of 100 characters.
    Map { cells: String },
}

/// What a dump says of the whole pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolFigures {
    pub(super) pool: Size,
    pub(super) limit: Size,
    /// The size of the next region that the pool would ask for.
    pub(super) next_region: Option<Size>,
    /// The largest free chunk that the request could have.
    pub(super) largest_usable: Option<Size>,
    /// Free chunks together.
    pub(super) free: Option<Size>,
    /// Whether the pool grows; older releases do not say it.
    pub(super) grows: Option<bool>,
}

/// The statistics of a pool, as its dump shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PoolStats {
    pub(super) limit: Option<Size>,
    pub(super) in_use: Option<Size>,
    pub(super) peak_in_use: Option<Size>,
    pub(super) largest_free_block: Option<Size>,
}

/// What one compiled program needs, by the kind of buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LoggedProgramNeed {
    pub(super) arguments: Size,
    /// Outputs; donated arguments are among them.
    pub(super) live_out: Size,
    pub(super) temporaries: Size,
    pub(super) total: Size,
}

/// What a size class of the pool has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BinFigures {
    /// The smallest size in it.
    pub min_bytes: u64,
    /// Chunks in it.
    pub chunks: u64,
    /// Those in use.
    pub chunks_in_use: u64,
    /// Their bytes, as precise as the log shows them.
    pub bytes: u64,
    /// Bytes of those in use.
    pub bytes_in_use: u64,
}
