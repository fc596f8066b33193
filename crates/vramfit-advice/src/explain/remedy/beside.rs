//! Remedies about what is beside the pool: other processes, libraries, the host.

use super::Remedy;
use super::pool::lower_fraction;
use crate::bytes::Bytes;
use crate::explain::causes::is_driver_call;
use crate::explain::causes::other_framework::{free_pieces, own_shortage};
use crate::explain::facts::Facts;
use crate::explain::message::{DriverCall, HostFailure, Library, Message, Reason};
use crate::explain::other_allocator::{AllocatorOwner, OtherAllocator};
use crate::explain::shares::Shares;

pub(super) fn free_gpu(facts: &Facts<'_>) -> Remedy {
    let figures = &facts.figures;
    let missing = figures.limit_bytes.zip(figures.pool_bytes);
    let missing = missing.and_then(|(limit, pool)| limit.checked_sub(pool));
    Remedy::new(
        "free-gpu",
        "end the other processes on the GPU, such as a forgotten notebook, and keep TensorFlow in the same program off \
         it: `tf.config.set_visible_devices([], \"GPU\")`",
        "vramfit top",
    )
    .with_log_bytes(missing)
}

/// Takes the GPU away from TensorFlow, where the log shows that it has taken memory.
pub(super) fn hide_from_tensorflow(facts: &Facts<'_>) -> Option<Remedy> {
    let bytes = facts.tensorflow_bytes()?;
    let text = "take the GPU from TensorFlow, which has a pool of its own in this process: \
                `tf.config.set_visible_devices([], \"GPU\")` before its first operation";
    Some(Remedy::new("hide-from-tensorflow", text, "").with_log_bytes(Some(bytes)))
}

/// A smaller pool, in bytes where the log tells how the GPU is divided. `None` where the pool leaves half of the GPU to
/// others already, or has no part in it.
pub(in crate::explain) fn smaller_pool(facts: &Facts<'_>) -> Option<Remedy> {
    const GIB: u64 = 1 << 30;
    let command = &facts.command;
    if let Some(shares) = Shares::find(facts) {
        // How much JAX needs, the message does not tell; half of the GPU is where to begin.
        let limit = shares.total / 2 / GIB;
        if limit == 0 || shares.jax <= limit * GIB || shares.is_of_other_processes() {
            return None;
        }
        let text = format!(
            "limit JAX's pool, so that {} has the rest: to half of the GPU at first, instead of up to {}",
            shares.owner.label(),
            Bytes(shares.jax)
        );
        let remedy = Remedy::new(
            "lower-fraction",
            text,
            format!("vramfit run --limit {limit}GiB -- {command}"),
        );
        return Some(remedy.with_log_bytes(Some(shares.jax - limit * GIB)));
    }
    let settings = &facts.settings;
    let fraction = lower_fraction(settings.fraction_in_force());
    if !settings.has_pool() || fraction <= 0.0 || settings.fraction.is_some_and(|it| it <= 0.5) {
        return None;
    }
    let figures = &facts.figures;
    let gained = figures
        .gpu_total_bytes
        .zip(figures.limit_bytes)
        .map(|(total, limit)| limit.saturating_sub(settings.limit_bytes(total, fraction)));
    let instead = match settings.fraction {
        Some(named) => format!(": a fraction of {fraction} instead of {named}"),
        None => String::new(),
    };
    let remedy = Remedy::new(
        "lower-fraction",
        format!("leave more of the GPU to libraries, kernels and graphs{instead}"),
        format!("vramfit run --fraction {fraction} -- {command}"),
    );
    Some(remedy.with_log_bytes(gained))
}

/// What a framework beside JAX can do to need less, where its own need is the reason.
fn less_of_framework(facts: &Facts<'_>, refused: &OtherAllocator) -> Vec<Remedy> {
    let owner = refused.owner.label();
    let less = Remedy::new(
        "less-in-framework",
        format!("let {owner} need less: a smaller batch, shorter inputs, or numbers of fewer bits"),
        "",
    );
    let pieces = free_pieces(refused).filter(|_| refused.owner == AllocatorOwner::Pytorch);
    let expandable = pieces.map(|bytes| {
        Remedy::new(
            "expandable-segments",
            "let PyTorch's allocator join its free pieces",
            format!("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True {}", facts.command),
        )
        .with_log_bytes(Some(bytes))
    });
    expandable.into_iter().chain([less, free_gpu(facts)]).collect()
}

pub(super) fn outside_pool(facts: &Facts<'_>) -> Vec<Remedy> {
    let command = &facts.command;
    if let Some(refused) = own_shortage(facts) {
        return less_of_framework(facts, refused);
    }
    let mut remedies: Vec<Remedy> = smaller_pool(facts).into_iter().collect();
    remedies.extend(hide_from_tensorflow(facts));
    let settings = &facts.settings;
    if settings.has_pool() && settings.preallocate != Some(false) {
        remedies.push(Remedy::new(
            "no-preallocation",
            "let the pool grow on demand, so that what JAX does not need is left to others",
            format!("vramfit run --no-preallocate -- {command}"),
        ));
    }
    remedies.push(free_gpu(facts));
    let is_unnamed =
        |message: &Message| matches!(message, Message::Library { reason: Reason::Unknown, .. });
    if facts.log.has(is_unnamed) {
        let text = "check that the library matches driver and JAX: its error names no reason";
        remedies.push(Remedy::new("check-installation", text, "vramfit doctor"));
    }
    if facts.log.has(|message| is_driver_call(message, &[DriverCall::Graph])) {
        remedies.insert(
            0,
            Remedy::new(
                "disable-graphs",
                "do not use CUDA graphs",
                format!("XLA_FLAGS=--xla_gpu_enable_command_buffer= {command}"),
            ),
        );
    }
    let is_nccl = |message: &Message| match message {
        Message::Library { library, .. } => *library == Library::Nccl,
        _ => false,
    };
    if facts.log.has(is_nccl) {
        remedies.insert(
            remedies.len().min(1),
            Remedy::new(
                "smaller-nccl-buffers",
                "let NCCL use smaller buffers and fewer channels",
                format!("NCCL_BUFFSIZE=1048576 NCCL_MAX_NCHANNELS=4 {command}"),
            ),
        );
    }
    remedies
}

/// What a TPU has too little of.
pub(super) fn tpu(facts: &Facts<'_>) -> Vec<Remedy> {
    let reserved = facts.log.has(|message| *message == Message::TpuProgramLoad);
    let mut remedies = Vec::new();
    if facts.log.has(|message| *message == Message::TpuOnChip) {
        let text = "use smaller blocks or fewer buffers in the kernel; of one of Pallas, the limit can be raised: \
                    `pltpu.CompilerParams(vmem_limit_bytes=...)`";
        return vec![Remedy::new("smaller-blocks", text, "")];
    }
    if reserved {
        remedies.push(Remedy::new(
            "reserve-less",
            "reserve less memory before programs are loaded: of a server, the part that it takes for its cache (such as \
             `--gpu-memory-utilization` of vLLM, which counts for TPUs as well)",
            "",
        ));
    }
    remedies.push(Remedy::new("shard", "shard the arrays over more TPUs, or do less at once", ""));
    remedies
}

pub(super) fn host_memory(facts: &Facts<'_>) -> Vec<Remedy> {
    let command = &facts.command;
    let has = |kinds: &[HostFailure]| {
        facts.log.has(|message| match message {
            Message::Host { how, .. } => kinds.contains(how),
            _ => false,
        })
    };
    if facts.is_shared_segment() {
        return vec![Remedy::new(
            "enlarge-shared-memory",
            "give the container more shared memory: `--shm-size=16g` for Docker and Podman, an `emptyDir` with \
             `medium: Memory` at `/dev/shm` for Kubernetes; remove what programs that were killed left there",
            "df -h /dev/shm",
        )];
    }
    let is_refused =
        |message: &Message| matches!(message, Message::DriverRefusal { pinned_host: true, .. });
    let mut remedies = Vec::new();
    if has(&[HostFailure::PinnedPool]) {
        remedies.push(Remedy::new(
            "raise-pinned-limit",
            "allow a larger pool of pinned memory, or offload less",
            format!("XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB=128 {command}"),
        ));
    } else if facts.log.has(is_refused) || has(&[HostFailure::PinnedRefused]) {
        remedies.push(Remedy::new(
            "allow-pinned-memory",
            "let the process pin more of the host's memory, or give the host more: under WSL2 all processes together \
             may pin half of what `memory=` in `.wslconfig` says",
            "ulimit -l",
        ));
    }
    if facts.log.has(|message| *message == Message::PinnedTransfers) {
        remedies.push(Remedy::new(
            "unpinned-checkpoints",
            "save checkpoints without pinned memory, by `enable_pinned_host_transfer=False`, or with a newer Orbax: \
             some releases keep the pinned copies",
            "pip install --upgrade orbax-checkpoint",
        ));
    }
    if has(&[HostFailure::CpuBackend]) {
        remedies.push(Remedy::new(
            "chunk",
            "compute in parts, such as `jax.lax.map(f, xs, batch_size=64)` in place of `jax.vmap(f)(xs)`; the \
             program runs on the CPU, so check that a GPU was meant",
            "vramfit doctor",
        ));
    } else {
        remedies.push(Remedy::new(
            "stream-data",
            "read data in batches instead of loading it whole, and give the job more memory",
            "vramfit data inspect FILE.h5",
        ));
    }
    remedies
}
