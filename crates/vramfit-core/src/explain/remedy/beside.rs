//! Remedies about what is beside the pool: other processes, libraries, the host.

use super::Remedy;
use crate::explain::facts::Facts;
use crate::explain::message::{DriverCall, HostFailure, Library, Message};

pub(super) fn free_gpu(facts: &Facts<'_>) -> Remedy {
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

pub(super) fn outside_pool(facts: &Facts<'_>) -> Vec<Remedy> {
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
    let graph = Message::DriverOutOfMemory { call: DriverCall::Graph };
    if facts.log.has(|message| *message == graph) {
        remedies.push(Remedy::new(
            "disable-graphs",
            "do not use CUDA graphs",
            format!("XLA_FLAGS=--xla_gpu_enable_command_buffer= {command}"),
        ));
    }
    let is_nccl = |message: &Message| match message {
        Message::Library { library, .. } => *library == Library::Nccl,
        _ => false,
    };
    if facts.log.has(is_nccl) {
        remedies.push(Remedy::new(
            "smaller-nccl-buffers",
            "let NCCL use smaller buffers and fewer channels",
            format!("NCCL_BUFFSIZE=1048576 NCCL_MAX_NCHANNELS=4 {command}"),
        ));
    }
    remedies
}

pub(super) fn host_memory(facts: &Facts<'_>) -> Vec<Remedy> {
    let command = facts.command;
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
    let is_pinned_pool = |message: &Message| match message {
        Message::Host { how, .. } => *how == HostFailure::PinnedPool,
        Message::DriverRefusal { pinned_host, .. } => *pinned_host,
        _ => false,
    };
    let mut remedies = Vec::new();
    if facts.log.has(is_pinned_pool) {
        remedies.push(Remedy::new(
            "raise-pinned-limit",
            "allow a larger pool of pinned memory, or offload less",
            format!("XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB=128 {command}"),
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
            "smaller-chunks",
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
