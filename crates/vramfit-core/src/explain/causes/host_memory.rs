use super::Judgement;
use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::message::{HostFailure, Message};

pub(super) fn find(facts: &Facts<'_>) -> Option<Judgement> {
    let is_host = |message: &Message| match message {
        Message::Host { .. } | Message::CompiledPrograms => true,
        Message::DriverRefusal { pinned_host, .. } => *pinned_host,
        _ => false,
    };
    let first = facts.log.first(is_host)?;
    // A job manager knows why; the shell that says the same before it does not.
    let killed = facts.log.find(|message| match message {
        Message::Host { how: HostFailure::Killed, .. } => Some(HostFailure::Killed),
        _ => None,
    });
    let named = killed.or_else(|| {
        facts.log.find(|message| match message {
            Message::Host { how, .. } => Some(*how),
            Message::DriverRefusal { .. } => Some(HostFailure::PinnedPool),
            _ => None,
        })
    });
    let how = named.map_or(HostFailure::Compiler, |(_, how)| how);
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
        HostFailure::System => {
            "the system refused memory to the process: the host has too little, or a limit of the process is \
             reached"
        }
        HostFailure::SharedSegment => {
            "the memory that processes share, `/dev/shm`, is full; a container has 64 MB of it by default"
        }
        HostFailure::SharedSegmentProbably => {
            "memory that processes share could not be had: `/dev/shm` is probably full, of which a container has \
             64 MB by default"
        }
        HostFailure::Compiler => {
            "the compiler could not allocate on the host, or the process has as many mappings as it may"
        }
    };
    // What fails after a GPU request was refused may be a consequence: the traceback of the first failure.
    let confidence = match how {
        _ if facts.is_after_failure(first) => Confidence::Possible,
        HostFailure::Compiler => Confidence::Possible,
        HostFailure::Cpp
        | HostFailure::KilledSilently
        | HostFailure::PinnedRefused
        | HostFailure::SharedSegmentProbably
        | HostFailure::System => Confidence::Likely,
        HostFailure::Python
        | HostFailure::CpuBackend
        | HostFailure::Killed
        | HostFailure::PinnedPool
        | HostFailure::SharedSegment => Confidence::Sure,
    };
    Some(Judgement::new(confidence, summary, facts.quote_all(facts.log.all(is_host))))
}
