//! The causes of a failure, and what each is based on.

use serde::Serialize;

/// Why a program failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CauseId {
    /// The device is a TPU, which vramfit does not model.
    Tpu,
    /// One request is larger than the whole GPU.
    RequestLargerThanGpu,
    /// Addresses ran out, not memory.
    AddressSpace,
    /// Memory of the host ran out.
    HostMemory,
    /// A setting is wrong, or nothing reads it.
    WrongSetting,
    /// The pool was not obtained at the start, because others use the memory.
    PoolNotObtained,
    /// Memory that a growing pool counted on was taken by others later.
    MemoryTakenLater,
    /// Memory is free, but in pieces that are too small.
    Fragmentation,
    /// Memory outside the pool ran out: context, libraries, kernels, CUDA graphs.
    OutsidePool,
    /// The autotuner ran out of memory while compiling.
    Autotuning,
    /// The same function is compiled again and again.
    Recompilation,
    /// Memory in use grows from step to step.
    Leak,
    /// The pool is too small for the program.
    PoolTooSmall,
    /// Memory is not the reason.
    NotMemory,
}

impl CauseId {
    /// Every cause, the most specific first.
    pub const ALL: [CauseId; 14] = [
        CauseId::Tpu,
        CauseId::RequestLargerThanGpu,
        CauseId::AddressSpace,
        CauseId::HostMemory,
        CauseId::WrongSetting,
        CauseId::PoolNotObtained,
        CauseId::MemoryTakenLater,
        CauseId::Fragmentation,
        CauseId::OutsidePool,
        CauseId::Autotuning,
        CauseId::Recompilation,
        CauseId::Leak,
        CauseId::PoolTooSmall,
        CauseId::NotMemory,
    ];

    /// Returns the stable id, which is also the name of its page in `docs/causes`.
    pub fn id(self) -> &'static str {
        match self {
            CauseId::Tpu => "tpu",
            CauseId::RequestLargerThanGpu => "request-larger-than-gpu",
            CauseId::AddressSpace => "address-space",
            CauseId::HostMemory => "host-memory",
            CauseId::WrongSetting => "wrong-setting",
            CauseId::PoolNotObtained => "pool-not-obtained",
            CauseId::MemoryTakenLater => "memory-taken-later",
            CauseId::Fragmentation => "fragmentation",
            CauseId::OutsidePool => "outside-pool",
            CauseId::Autotuning => "autotuning",
            CauseId::Recompilation => "recompilation",
            CauseId::Leak => "leak",
            CauseId::PoolTooSmall => "pool-too-small",
            CauseId::NotMemory => "not-memory",
        }
    }

    /// Returns it as a sentence begins: what happened.
    pub fn title(self) -> &'static str {
        match self {
            CauseId::Tpu => "the device is a TPU",
            CauseId::RequestLargerThanGpu => "one request is larger than the GPU",
            CauseId::AddressSpace => "the process ran out of address space",
            CauseId::HostMemory => "the host ran out of memory",
            CauseId::WrongSetting => "a setting is wrong or has no effect",
            CauseId::PoolNotObtained => "the pool was not obtained at startup",
            CauseId::MemoryTakenLater => "others took the memory that the pool would grow into",
            CauseId::Fragmentation => "the pool is fragmented",
            CauseId::OutsidePool => "GPU memory outside JAX's pool ran out",
            CauseId::Autotuning => "the autotuner ran out of memory",
            CauseId::Recompilation => "a function is compiled again and again",
            CauseId::Leak => "memory in use grows from step to step",
            CauseId::PoolTooSmall => "the pool is too small for the program",
            CauseId::NotMemory => "memory is not the cause",
        }
    }

    /// Returns what it is, and how a log shows it, in a few sentences.
    pub fn meaning(self) -> &'static str {
        match self {
            CauseId::Tpu => {
                "The messages are those of a TPU, whose memory (HBM) is planned when a program is compiled. \
                 vramfit models NVIDIA GPUs; OpenXLA documents the errors of TPUs."
            }
            CauseId::RequestLargerThanGpu => {
                "One array or one block of temporaries is larger than the whole memory of the GPU. No restart and \
                 no setting changes that, but unified memory, which takes memory of the host as well, slowly. It is \
                 certain where the log names the GPU, or where no GPU has so much memory."
            }
            CauseId::AddressSpace => {
                "`CUDA_ERROR_OUT_OF_MEMORY` also means that addresses ran out. CUDA, and pools of virtual \
                 memory even more, reserve a multiple of the GPU's memory in addresses of the process. A limit \
                 such as `ulimit -v` makes that fail, however much memory is free."
            }
            CauseId::HostMemory => {
                "The memory of the machine ran out, not that of the GPU: in NumPy or Python, in a C++ library, \
                 in XLA's pool of pinned memory, in what processes share (`/dev/shm`), or the kernel or job \
                 manager killed the process."
            }
            CauseId::WrongSetting => {
                "JAX, XLA or the plugin rejected a setting, or the log shows one that has no effect. After a \
                 rejected setting JAX often continues on the CPU."
            }
            CauseId::PoolNotObtained => {
                "JAX takes its pool from the driver at the first operation. Where other processes use part of \
                 the GPU, the driver refuses; JAX then tries 10 % less, again and again, and continues with \
                 what it gets. `bytes_limit` still shows the full limit, and the program fails later."
            }
            CauseId::MemoryTakenLater => {
                "A pool that is not preallocated grows on demand. Where another process, or a library in the \
                 same process, has taken the memory meanwhile, the driver refuses although the limit of the \
                 pool would allow it."
            }
            CauseId::Fragmentation => {
                "The pool has more free bytes than were requested, but not in one piece. Blocks are never \
                 moved. In the partitioned pool of JAX 0.11 and later, a request of one end cannot use the \
                 free blocks of the other, either."
            }
            CauseId::OutsidePool => {
                "The CUDA context, cuBLAS, cuDNN, NCCL, compiled kernels and CUDA graphs take memory outside of \
                 the pool, and so do PyTorch, TensorFlow, CuPy, Warp and RAPIDS in the same process. Where the \
                 pool leaves too little, they fail with errors that often do not mention memory. A framework that \
                 has most of the GPU itself, or runs without JAX, is named with its own figures."
            }
            CauseId::Autotuning => {
                "While it compiles, XLA runs candidates of a kernel with copies of their operands. These copies \
                 come from the same memory, so a program can fail while it is compiled that would fit when it \
                 runs."
            }
            CauseId::Recompilation => {
                "A function is compiled for each new shape of its arguments, and for each new value of a static \
                 one. Each program stays in memory, with its constants and kernels, and in mappings of the \
                 process, of which the system allows some 65,000."
            }
            CauseId::Leak => {
                "Each step leaves something allocated: results in a Python list, a history of metrics, old \
                 copies of the state. The request that fails then is not the cause."
            }
            CauseId::PoolTooSmall => {
                "The program needs more memory than the pool has, at least at this moment. It is certain where \
                 the log shows the limit and what was in use."
            }
            CauseId::NotMemory => {
                "Nothing in the log shows that memory ran out: it has warnings only, an error that is certainly \
                 about something else, or plenty of free memory at the failure."
            }
        }
    }

    /// Returns what would show that it is not the cause.
    pub fn falsified_by(self) -> &'static str {
        match self {
            CauseId::Tpu => "`jax.devices()` lists a GPU",
            CauseId::RequestLargerThanGpu => {
                "`nvidia-smi` shows a GPU with more memory than the request"
            }
            CauseId::AddressSpace => "it also fails after `ulimit -v unlimited`",
            CauseId::HostMemory => {
                "the peak of the host's memory stays below its limit (`/usr/bin/time -v`, `memory.max` of the cgroup)"
            }
            CauseId::WrongSetting => "`vramfit doctor` finds nothing wrong with the settings",
            CauseId::PoolNotObtained => {
                "`memory_stats()` shows a `pool_bytes` equal to `bytes_limit` after the first operation"
            }
            CauseId::MemoryTakenLater => {
                "`nvidia-smi` shows as much free memory as was requested at the time of the failure"
            }
            CauseId::Fragmentation => {
                "the same request also fails with `XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async`"
            }
            CauseId::OutsidePool => "it also fails with a fraction of 0.5",
            CauseId::Autotuning => "it also fails with `XLA_FLAGS=--xla_gpu_autotune_level=0`",
            CauseId::Recompilation => "`JAX_LOG_COMPILES=1` shows each function compiled once",
            CauseId::Leak => {
                "memory in use is the same after each step (`vramfit top`, or `memory_stats()`)"
            }
            CauseId::PoolTooSmall => "a dry run with a pool of this size fits (`vramfit dryrun`)",
            CauseId::NotMemory => "an earlier line of the complete log reports a failed allocation",
        }
    }
}

/// How certain a cause is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// The log allows it, as well as others.
    Possible,
    /// The log speaks for it.
    Likely,
    /// It follows from the log.
    Sure,
}

impl Confidence {
    /// Returns the word for it in reports and JSON.
    pub fn label(self) -> &'static str {
        match self {
            Confidence::Possible => "possible",
            Confidence::Likely => "likely",
            Confidence::Sure => "sure",
        }
    }
}

/// A line of the log that a cause is based on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Which log, where there are several.
    #[serde(rename = "file")]
    pub source: Option<String>,
    /// Number of the line, from 1; of the event, in a trace.
    pub line: u64,
    /// Which process or container wrote it, as a prefix of the line names it.
    pub process: Option<String>,
    /// The line without prefixes, as it is in the log; from where it is of interest, if it is long.
    pub text: String,
}

/// A cause that the log speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Which it is.
    pub id: CauseId,
    /// What happened, as a sentence begins: that of the [id](CauseId::title), unless the settings say more.
    pub title: &'static str,
    /// How certain it is.
    pub confidence: Confidence,
    /// What happened, with figures, in one sentence.
    pub summary: String,
    /// The lines it is based on.
    pub evidence: Vec<Evidence>,
    /// What would show that it is not the cause.
    pub falsified_by: String,
    /// The command to go on with.
    pub next_command: String,
}

/// How certain a cause is, and why.
pub(super) struct Judgement {
    pub(super) confidence: Confidence,
    pub(super) summary: String,
    pub(super) evidence: Vec<Evidence>,
}

impl Judgement {
    pub(super) fn new(
        confidence: Confidence,
        summary: impl Into<String>,
        evidence: Vec<Evidence>,
    ) -> Self {
        Judgement { confidence, summary: summary.into(), evidence }
    }

    pub(super) fn sure(summary: impl Into<String>, evidence: Vec<Evidence>) -> Self {
        Judgement::new(Confidence::Sure, summary, evidence)
    }

    pub(super) fn likely(summary: impl Into<String>, evidence: Vec<Evidence>) -> Self {
        Judgement::new(Confidence::Likely, summary, evidence)
    }

    pub(super) fn possible(summary: impl Into<String>, evidence: Vec<Evidence>) -> Self {
        Judgement::new(Confidence::Possible, summary, evidence)
    }
}
