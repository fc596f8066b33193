//! Is there host memory enough for what the GPU exchanges with it?

use super::super::check::Check;
use super::super::system_info::SystemInfo;
use crate::Bytes;
use crate::settings::PluginSettings;

const ID: &str = "host-memory";

/// What Docker gives a container as `/dev/shm` unless told otherwise. NCCL keeps a buffer there for
/// each pair of GPUs, and does not start when they do not fit.
const DOCKER_DEFAULT_SHM_BYTES: u64 = 64 << 20;

pub(super) fn check(info: &SystemInfo) -> Vec<Check> {
    let mut checks = Vec::new();
    let pinned = PluginSettings::read(|name| info.environment.get(name).cloned())
        .map(|settings| settings.host_limit_bytes);
    let limit = info.host_environment.host_memory.as_ref();
    let shared = info.shared_memory_bytes;
    let gpus = info.gpus().len();
    let shared_told = shared.map(|bytes| format!("/dev/shm: {}", Bytes(bytes)));
    let tight = shared.filter(|shared| gpus > 1 && *shared <= DOCKER_DEFAULT_SHM_BYTES);
    if let Some(shared) = tight {
        checks.push(Check::warn(
            ID,
            format!("/dev/shm has only {}, too little for NCCL with {gpus} GPUs", Bytes(shared)),
            "start the container with `--shm-size=1g`, or `--ipc=host`",
        ));
    }
    checks.push(match limit {
        None => Check::pass(ID, "host memory is not limited").evidence_lines(shared_told),
        Some(limit) => {
            let used =
                limit.used_bytes.map(|used| format!("{} used now, including caches", Bytes(used)));
            let evidence = [Some(format!("read from {}", limit.source)), used, shared_told];
            let limit_text = Bytes(limit.limit_bytes);
            match pinned {
                // The plugin takes pinned memory as it needs it, up to its own limit; what the group
                // does not grant ends the process without a word.
                Ok(pinned) if pinned > limit.limit_bytes && gpus > 0 => Check::warn(
                    ID,
                    format!(
                        "host memory is limited to {limit_text}, but XLA's pinned memory to {}: a \
                         program that offloads to the host is killed before it reaches XLA's limit",
                        Bytes(pinned)
                    ),
                    format!(
                        "set `XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB={}`",
                        (limit.limit_bytes >> 31).max(1)
                    ),
                ),
                _ => Check::pass(ID, format!("host memory is limited to {limit_text}")),
            }
            .evidence_lines(evidence.into_iter().flatten())
        }
    });
    checks
}
