use super::Judgement;
use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::message::{HostFailure, Message};

pub(super) fn find(facts: &Facts<'_>) -> Option<Judgement> {
    let is_host = |message: &Message| match message {
        Message::Host { .. } => true,
        Message::DriverRefusal { pinned_host, .. } => *pinned_host,
        _ => false,
    };
    let first = facts.log.first(is_host)?;
    let how = match first.message {
        Message::Host { how, .. } => how,
        _ => HostFailure::PinnedPool,
    };
    // XLA copies without pinned memory then.
    if how == HostFailure::PinnedRefused && facts.goes_on_after(first) {
        return None;
    }
    let summary = match how {
        HostFailure::Python => "an allocation of host memory failed in Python or NumPy",
        HostFailure::Cpp => "a C++ library could not allocate host memory",
        HostFailure::Killed => {
            "the kernel or the job manager killed the process for its use of host memory"
        }
        HostFailure::CpuBackend => {
            "JAX's backend for the CPU could not allocate; the program does not run on a GPU"
        }
        HostFailure::KilledSilently => {
            "the process was killed; too much host memory is the usual reason, and the kernel's log tells"
        }
        HostFailure::PinnedPool => {
            "XLA's pool of pinned host memory is full (64 GB unless \
             XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB says otherwise), or the host has no more to pin"
        }
        HostFailure::PinnedRefused => {
            "the driver could not pin host memory: too little is free, or a limit of the process \
             (`ulimit -l`) forbids it"
        }
    };
    // What fails after a GPU request was refused may be a consequence: the traceback of the first failure.
    let confidence = match how {
        _ if facts.is_after_failure(first) => Confidence::Possible,
        HostFailure::Cpp | HostFailure::KilledSilently | HostFailure::PinnedRefused => {
            Confidence::Likely
        }
        HostFailure::Python
        | HostFailure::CpuBackend
        | HostFailure::Killed
        | HostFailure::PinnedPool => Confidence::Sure,
    };
    Some(Judgement::new(
        confidence,
        summary,
        facts.quote_all(facts.log.all(is_host)),
    ))
}
