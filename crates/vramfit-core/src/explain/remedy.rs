//! What to do about a cause, with the bytes that it is about.

use super::cause::{Cause, CauseId, Confidence};
use super::facts::Facts;
use super::figures::FitFigures;
use super::message::{DriverCall, Message};
use crate::allocator::PoolOptions;
use crate::bytes::Bytes;
use crate::gpu;

/// Where the bytes of a remedy come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Basis {
    /// A dry run with the remedy applied.
    Dryrun,
    /// A replay of a recorded run with the remedy applied.
    Replay,
    /// Figures of the log.
    Log,
    /// They are not known.
    None,
}

impl Basis {
    /// Returns the word for it in JSON.
    pub fn label(self) -> &'static str {
        match self {
            Basis::Dryrun => "dryrun",
            Basis::Replay => "replay",
            Basis::Log => "log",
            Basis::None => "none",
        }
    }
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// Its stable id.
    pub id: &'static str,
    /// What to do, in one sentence.
    pub text: String,
    /// The command that does it, or shows how.
    pub command: String,
    /// The bytes that it saves, or makes available; `None` where that is not known.
    pub bytes: Option<u64>,
    /// Where they come from.
    pub basis: Basis,
    /// What was found when it was applied; empty where it was not.
    pub outcome: String,
}

impl Remedy {
    fn new(id: &'static str, text: impl Into<String>, command: impl Into<String>) -> Self {
        Remedy {
            id,
            text: text.into(),
            command: command.into(),
            bytes: None,
            basis: Basis::None,
            outcome: String::new(),
        }
    }

    fn with_log_bytes(self, bytes: Option<u64>) -> Self {
        let bytes = bytes.filter(|bytes| *bytes > 0);
        let basis = if bytes.is_some() {
            Basis::Log
        } else {
            Basis::None
        };
        Remedy {
            bytes,
            basis,
            ..self
        }
    }
}

/// Causes whose remedies are shown: the first, and others that are as likely.
const MAX_CAUSES: usize = 3;

/// Returns the remedies, those about most bytes first.
pub(super) fn remedies(facts: &Facts<'_>, causes: &[Cause]) -> Vec<Remedy> {
    let mut remedies: Vec<Remedy> = Vec::new();
    let first = causes
        .first()
        .map_or(Confidence::Possible, |cause| cause.confidence);
    let shown = causes
        .iter()
        .filter(|cause| cause.confidence == first || cause.confidence > Confidence::Possible);
    for cause in shown.take(MAX_CAUSES) {
        for remedy in of_cause(facts, cause.id) {
            if remedies.iter().all(|known| known.id != remedy.id) {
                remedies.push(remedy);
            }
        }
    }
    sort(&mut remedies);
    remedies
}

/// Sorts by bytes, the most first; those without stay in their order behind.
pub(super) fn sort(remedies: &mut [Remedy]) {
    remedies.sort_by_key(|remedy| std::cmp::Reverse(remedy.bytes));
}

pub(super) fn of_cause(facts: &Facts<'_>, cause: CauseId) -> Vec<Remedy> {
    let command = facts.command;
    let run = |options: &str| format!("vramfit run {options} -- {command}");
    match cause {
        CauseId::PoolTooSmall => {
            let mut remedies = vec![plan(facts), smaller_batch(facts)];
            remedies.extend(raise_fraction(facts));
            remedies.extend(larger_gpu(facts));
            remedies
        }
        CauseId::RequestLargerThanGpu => {
            vec![smaller_batch(facts), plan(facts), several_gpus(facts)]
        }
        CauseId::Fragmentation => fragmentation(facts),
        CauseId::PoolNotObtained => vec![
            free_gpu(facts),
            Remedy::new(
                "split-gpu",
                "give each of the processes that share the GPU a part that fits",
                run("--processes 2"),
            ),
        ],
        CauseId::MemoryTakenLater => vec![
            free_gpu(facts),
            Remedy::new(
                "preallocate",
                "take the pool's whole limit at startup, so that nobody else can",
                run("--preallocate"),
            ),
        ],
        CauseId::OutsidePool => outside_pool(facts),
        CauseId::AddressSpace => vec![Remedy::new(
            "raise-address-limit",
            "lift the limit of the address space",
            format!("ulimit -v unlimited; {command}"),
        )],
        CauseId::Autotuning => vec![
            Remedy::new(
                "disable-autotuning",
                "compile without trying kernels; the default ones may be slower",
                format!("XLA_FLAGS=--xla_gpu_autotune_level=0 {command}"),
            ),
            smaller_batch(facts),
        ],
        CauseId::Growth => vec![Remedy::new(
            "find-growth",
            "find the arrays that stay allocated, with the lines that make them",
            format!(
                "vramfit dryrun --gpu {} --steps 20 --full -- {command}",
                facts.gpu_name()
            ),
        )],
        CauseId::Recompilation => vec![Remedy::new(
            "pad-shapes",
            "pad inputs to a few fixed shapes, and pass changing numbers as arrays instead of static arguments; \
             the log then shows one compilation for each",
            format!("JAX_LOG_COMPILES=1 {command}"),
        )],
        CauseId::HostMemory => host_memory(facts),
        CauseId::WrongSetting => vec![Remedy::new(
            "correct-settings",
            "start with settings that this JAX version honors; wrong ones are corrected or reported",
            run("").replace("  ", " "),
        )],
        CauseId::Tpu => Vec::new(),
        CauseId::NotMemory => vec![Remedy::new(
            "check-installation",
            "check driver, libraries and JAX installation",
            "vramfit doctor",
        )],
    }
}

fn plan(facts: &Facts<'_>) -> Remedy {
    Remedy::new(
        "plan",
        "recompute or offload activations: measured without a GPU, applied without editing the script",
        format!(
            "vramfit plan --gpu {} -- {}",
            facts.gpu_name(),
            facts.command
        ),
    )
}

fn smaller_batch(facts: &Facts<'_>) -> Remedy {
    Remedy::new(
        "smaller-batch",
        "use the largest batch that fits",
        format!(
            "vramfit plan --gpu {} --vary batch=1..1024 -- {} --batch {{batch}}",
            facts.gpu_name(),
            facts.command
        ),
    )
}

fn raise_fraction(facts: &Facts<'_>) -> Option<Remedy> {
    let fraction = FitFigures::RAISED_FRACTION;
    let command = format!("vramfit run --fraction {fraction} -- {}", facts.command);
    let figures = &facts.figures;
    let (Some(total), Some(limit)) = (figures.gpu_total_bytes, figures.limit_bytes) else {
        return Some(Remedy::new(
            "raise-fraction",
            format!(
                "give the pool {:.0} % of the GPU instead of 75 %",
                fraction * 100.0
            ),
            command,
        ));
    };
    let raised = PoolOptions {
        total_memory_bytes: total,
        memory_fraction: FitFigures::raised_fraction(),
        ..PoolOptions::default()
    };
    let gained = raised
        .limit_bytes()
        .checked_sub(limit)
        .filter(|bytes| *bytes > 0)?;
    let short = facts
        .rounded_bytes()
        .zip(figures.in_use_bytes)
        .map(|(rounded, used)| (rounded.saturating_add(used)).saturating_sub(limit));
    let enough = match short {
        Some(short) if short > gained => {
            format!(", which is not enough: {} are missing", Bytes(short))
        }
        _ => String::new(),
    };
    let text = format!("give the pool {:.0} % of the GPU{enough}", fraction * 100.0);
    Some(Remedy::new("raise-fraction", text, command).with_log_bytes(Some(gained)))
}

fn larger_gpu(facts: &Facts<'_>) -> Option<Remedy> {
    let needed = facts
        .rounded_bytes()?
        .checked_add(facts.figures.in_use_bytes?)?;
    let fits =
        |gpu: &&gpu::Gpu| gpu.mig_parent.is_none() && gpu.total_memory_bytes / 4 * 3 >= needed;
    let smallest = gpu::all()
        .iter()
        .filter(fits)
        .min_by_key(|gpu| gpu.total_memory_bytes)?;
    let text = format!(
        "use a GPU whose pool has {} or more, such as {}",
        Bytes(needed),
        smallest.name
    );
    let command = format!(
        "vramfit dryrun --gpu {} -- {}",
        smallest.name, facts.command
    );
    Some(Remedy::new("larger-gpu", text, command))
}

fn several_gpus(facts: &Facts<'_>) -> Remedy {
    Remedy::new(
        "shard",
        "shard the array over several GPUs, and try the sharding on virtual ones",
        format!("vramfit dryrun --gpu h100-80gx8 -- {}", facts.command),
    )
}

fn fragmentation(facts: &Facts<'_>) -> Vec<Remedy> {
    let figures = &facts.figures;
    let command = facts.command;
    let scattered = figures.free_bytes.zip(figures.largest_free_bytes);
    let scattered = scattered.and_then(|(free, largest)| free.checked_sub(largest));
    let mut remedies = vec![
        Remedy::new(
            "cuda-async",
            "use CUDA's allocator, in which free memory need not be contiguous",
            format!("vramfit run --allocator cuda_async -- {command}"),
        )
        .with_log_bytes(scattered),
        Remedy::new(
            "donate",
            "donate what a step replaces, so that no gaps appear; restore checkpoints before other large \
             arrays exist",
            format!(
                "vramfit dryrun --gpu {} --full -- {command}",
                facts.gpu_name()
            ),
        ),
    ];
    let dump = facts.log.dump();
    if dump.and_then(|dump| dump.grows()) == Some(true) {
        remedies.push(Remedy::new(
            "preallocate",
            "preallocate the pool: the regions of a growing pool never merge",
            format!("vramfit run --preallocate -- {command}"),
        ));
    }
    if dump.is_some_and(|dump| dump.is_partitioned()) {
        remedies.push(Remedy::new(
            "one-ended-pool",
            "use a pool that is not partitioned into two ends",
            format!("XLA_FLAGS=--xla_gpu_enable_allocator_spatial_partitioning=false {command}"),
        ));
    }
    remedies
}

fn free_gpu(facts: &Facts<'_>) -> Remedy {
    let figures = &facts.figures;
    let missing = figures.limit_bytes.zip(figures.pool_bytes);
    let missing = missing.and_then(|(limit, pool)| limit.checked_sub(pool));
    Remedy::new(
        "free-gpu",
        "end the other processes on the GPU: a forgotten notebook, TensorFlow in the same program, a display",
        "vramfit top",
    )
    .with_log_bytes(missing)
}

fn outside_pool(facts: &Facts<'_>) -> Vec<Remedy> {
    const LOWER_FRACTION: f64 = 0.6;
    let command = facts.command;
    let gained = facts
        .figures
        .gpu_total_bytes
        .zip(facts.figures.limit_bytes)
        .map(|(total, limit)| limit.saturating_sub((total as f64 * LOWER_FRACTION) as u64));
    let mut remedies = vec![
        Remedy::new(
            "lower-fraction",
            "leave more of the GPU to libraries, kernels and graphs",
            format!("vramfit run --fraction {LOWER_FRACTION} -- {command}"),
        )
        .with_log_bytes(gained),
    ];
    let has = |is: fn(&Message) -> bool| facts.log.events.iter().any(|event| is(&event.message));
    if has(|message| {
        matches!(
            message,
            Message::DriverOutOfMemory {
                call: DriverCall::Graph
            }
        )
    }) {
        remedies.push(Remedy::new(
            "disable-graphs",
            "do not use CUDA graphs",
            format!("XLA_FLAGS=--xla_gpu_enable_command_buffer= {command}"),
        ));
    }
    let is_nccl = |message: &Message| {
        matches!(
            message,
            Message::Library {
                library: super::message::Library::Nccl,
                ..
            }
        )
    };
    if has(is_nccl) {
        remedies.push(Remedy::new(
            "smaller-nccl-buffers",
            "let NCCL use smaller buffers and fewer channels",
            format!("NCCL_BUFFSIZE=1048576 NCCL_MAX_NCHANNELS=4 {command}"),
        ));
    }
    remedies
}

fn host_memory(facts: &Facts<'_>) -> Vec<Remedy> {
    let command = facts.command;
    let mut remedies = vec![Remedy::new(
        "stream-data",
        "read data in batches instead of loading it whole, and give the job more memory",
        "vramfit data inspect FILE.h5",
    )];
    let pinned = facts.log.events.iter().any(|event| {
        matches!(
            event.message,
            Message::Host {
                how: super::message::HostFailure::PinnedPool,
                ..
            } | Message::DriverRefusal {
                pinned_host: true,
                ..
            }
        )
    });
    if pinned {
        remedies.insert(
            0,
            Remedy::new(
                "raise-pinned-limit",
                "allow a larger pool of pinned memory, or offload less",
                format!("XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB=128 {command}"),
            ),
        );
    }
    remedies
}
