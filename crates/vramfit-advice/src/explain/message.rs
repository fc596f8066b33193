//! What a message in a log says.

use super::ListedBuffer;
use super::dump_line::DumpLine;
use super::number::Size;
use super::other_allocator::{AllocatorOwner, OtherAllocator};
use crate::allocator::PoolEnd;

/// A message that is about memory, or about what failed instead.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Message {
    /// A pool refused a request for good: `Allocator (GPU_0_bfc) ran out of memory trying to allocate …`.
    PoolRefusal {
        size: Size,
        rounded: Option<u64>,
        end: Option<PoolEnd>,
        /// The number of the GPU, where the pool's name has it.
        device: Option<u32>,
    },
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
    DriverOutOfMemory {
        call: DriverCall,
        /// The function that the message names in front of the error.
        function: Option<String>,
        /// Whether the message is read from its beginning, so that it is certain what failed.
        is_certain: bool,
    },
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
    /// JAX's plugin for the GPU and jaxlib are of different releases.
    PluginMismatch,
    /// A kernel needs more shared memory, or other resources, than a multiprocessor has.
    KernelResources,
    /// The allocator of another framework in the process found no GPU memory.
    OtherAllocator(OtherAllocator),
    /// A routine of jaxlib found no room in the pool: `Unable to allocate workspace for syevd`.
    Workspace { routine: String },
    /// The compiler found no memory, or no address, for one more compiled program on the host.
    CompiledPrograms,
    /// The end of the log cuts off the message about a request that failed.
    CutOff,
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
    /// The kernel killed a program for the host's memory, and names it.
    KilledByName { program: String },
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
    /// A kernel needs more memory inside of a TPU's core than there is: VMEM or SMEM.
    TpuOnChip,
    /// The GPU is none of NVIDIA's.
    OtherPlatform(Platform),
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
    /// The program says that it has come to its end: `training finished`, `final loss: 0.1`.
    Ended,
    /// Checkpoints are copied to pinned memory of the host.
    PinnedTransfers,
    /// Something of JAX, so that JAX runs in this process.
    JaxNamed,
    /// The plugin for CUDA 13, or its packages.
    Cuda13Named,
    /// The Linux of Windows, in which the driver is that of Windows.
    Wsl,
    /// A disk is full.
    DiskFull,
    /// A release of JAX.
    Jax { version: (u32, u32, u32) },
    /// A GPU of the catalog, by its name there.
    Gpu { name: &'static str },
    /// A slice of a GPU, by its profile, such as `1g.10gb`; empty where the message does not name it.
    MigSlice { profile: String },
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

impl Message {
    /// Returns the refusal by another framework of which only the size is known.
    pub(super) fn other_allocator(owner: AllocatorOwner, size: Option<Size>) -> Message {
        Message::OtherAllocator(OtherAllocator { size, ..OtherAllocator::new(owner) })
    }
}

/// The reason of a failure, as far as a message names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    Memory,
    /// None, or one that a lack of memory also shows as.
    Unknown,
    /// A kernel that was running: lack of memory is one of many reasons for that.
    Execution,
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

/// What JAX computes on where that is no GPU of NVIDIA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Platform {
    /// GPUs of AMD.
    Rocm,
    /// GPUs of Apple.
    Metal,
}

impl Platform {
    pub(super) fn label(self) -> &'static str {
        match self {
            Platform::Rocm => "GPUs of AMD (ROCm)",
            Platform::Metal => "GPUs of Apple (Metal)",
        }
    }
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
    /// The kernel looked for a process to kill, and the line does not say which it took.
    KillerRan,
    /// A process of the job was killed that is in none of its steps, such as one of a login.
    KilledBesideSteps,
    /// The process was killed, and nobody says why.
    KilledSilently,
    /// XLA's pool of pinned memory is full.
    PinnedPool,
    /// The driver refused pinned memory to XLA, which can go on without.
    PinnedRefused,
    /// The driver refused unified memory, which is that of the GPU and of the host together.
    UnifiedRefused,
    /// The compiler found no memory for a program, or no address.
    Compiler,
    /// The system refused memory: there is none, or a limit of the process is reached.
    System,
    /// Memory that processes share, `/dev/shm`, is full.
    SharedSegment,
    /// That is the usual reason of what happened to the process.
    SharedSegmentProbably,
}

impl HostFailure {
    /// Returns `true` if a process was killed, or one was looked for to be killed.
    pub(super) fn is_kill(self) -> bool {
        use HostFailure::{Killed, KilledBesideSteps, KilledSilently, KillerRan};
        matches!(self, Killed | KilledSilently | KilledBesideSteps | KillerRan)
    }
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

/// What one compiled program needs, by the kind of buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LoggedProgramNeed {
    pub(super) arguments: Size,
    /// Outputs; donated arguments are among them.
    pub(super) live_out: Size,
    pub(super) temporaries: Size,
    pub(super) total: Size,
}
