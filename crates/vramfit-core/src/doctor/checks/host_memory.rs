//! Is there host memory enough for what the GPU exchanges with it?

use super::super::check::Check;
use super::super::facts::Facts;
use crate::Bytes;
use crate::settings::PluginSettings;

const ID: &str = "host-memory";

/// What Docker gives a container as `/dev/shm` unless told otherwise. NCCL keeps a buffer there for
/// each pair of GPUs, and does not start when they do not fit.
const DOCKERS_SHARED_MEMORY_BYTES: u64 = 64 << 20;

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    let mut checks = Vec::new();
    let pinned = PluginSettings::read(|name| facts.environment.get(name).cloned())
        .map(|settings| settings.host_limit_bytes);
    let limit = facts.surroundings.host_memory.as_ref();
    let shared = facts.shared_memory_bytes;
    let gpus = facts.gpus().len();
    let shared_told = shared.map(|bytes| format!("/dev/shm: {}", Bytes(bytes)));
    let tight = shared.filter(|shared| gpus > 1 && *shared <= DOCKERS_SHARED_MEMORY_BYTES);
    if let Some(shared) = tight {
        checks.push(Check::warn(
            ID,
            format!(
                "/dev/shm has {}, too little for NCCL between {gpus} GPUs",
                Bytes(shared)
            ),
            "start the container with `--shm-size=1g`, or `--ipc=host`",
        ));
    }
    checks.push(match limit {
        None => Check::pass(ID, "no limit on host memory is set for this process")
            .because_of(shared_told),
        Some(limit) => {
            let used = limit
                .used_bytes
                .map(|used| format!("{} used now, caches included", Bytes(used)));
            let evidence = [
                Some(format!("read from {}", limit.source)),
                used,
                shared_told,
            ];
            let told = Bytes(limit.limit_bytes);
            match pinned {
                // The plugin takes pinned memory as it needs it, up to its own limit; what the group
                // does not grant ends the process without a word.
                Ok(pinned) if pinned > limit.limit_bytes && gpus > 0 => Check::warn(
                    ID,
                    format!(
                        "host memory is limited to {told}, and XLA's pinned memory only to {}: a \
                         program that offloads to the host is killed at the first",
                        Bytes(pinned)
                    ),
                    format!(
                        "export XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB={}",
                        (limit.limit_bytes >> 31).max(1)
                    ),
                ),
                _ => Check::pass(ID, format!("host memory is limited to {told}")),
            }
            .because_of(evidence.into_iter().flatten())
        }
    });
    checks
}
