use super::outside_pool::{
    PLENTY_BYTES, fails_otherwise, free_at_failure, is_execution, leaves_half,
};
use super::{Judgement, is_gpu_memory_failure};
use crate::bytes::Bytes;
use crate::explain::cause::{Cause, CauseId, Confidence};
use crate::explain::facts::Facts;
use crate::explain::figures::scale_budget;
use crate::explain::log::Event;
use crate::explain::message::{HostFailure, Message, Subject};
use crate::explain::remedy::Remedy;

/// With so much of the GPU free, lack of memory is out of the question.
const MOSTLY_FREE: f64 = 0.5;
const MOSTLY_FREE_BYTES: u64 = 2 << 30;

/// `others` are the causes that were found.
pub(super) fn find(facts: &Facts<'_>, others: &[Cause]) -> Option<Judgement> {
    let failed = facts.log.has(is_gpu_memory_failure);
    let elsewhere = others
        .iter()
        .any(|cause| !matches!(cause.id, CauseId::OutsidePool | CauseId::WrongSetting));
    let is_dump = |message: &Message| matches!(message, Message::DumpedProgram { .. });
    let only_dumped = facts.log.has(is_dump);
    if failed || elsewhere || (!facts.log.buffers.is_empty() && !only_dumped) {
        return None;
    }
    free_memory(facts)
        .or_else(|| kernel_of_library(facts))
        .or_else(|| other_error(facts, others))
        .or_else(|| only_warnings(facts))
}

fn is_library(message: &Message) -> bool {
    matches!(message, Message::Library { .. })
}

/// A library failed beside plenty of free memory.
fn free_memory(facts: &Facts<'_>) -> Option<Judgement> {
    let library = facts.log.first(|it| is_library(it) && !is_execution(it))?;
    let mismatch = facts.log.first(|message| *message == Message::VersionMismatch);
    if let Some(mismatch) = mismatch {
        let summary = "the library is of another release than the one it was compiled for";
        let lines = facts.quote_all([mismatch, library].into_iter());
        return Some(Judgement::likely(summary, lines));
    }
    if fails_otherwise(facts, library) {
        return Some(Judgement::likely(
            "the library names another reason than memory",
            vec![facts.quote(library)],
        ));
    }
    let Some(free) = free_at_failure(facts) else {
        if leaves_half(facts) {
            return Some(Judgement::likely(
                "the library fails although the pool leaves half of the GPU to it: it may be missing, of \
                 another version, or not match the driver",
                vec![facts.quote(library)],
            ));
        }
        return Some(Judgement::possible(
            "the library may also be missing, of another version, or not match the driver",
            vec![facts.quote(library)],
        ));
    };
    let total = facts.figures.gpu_total_bytes.unwrap_or(free);
    let confidence = if free as f64 >= total as f64 * MOSTLY_FREE && free >= MOSTLY_FREE_BYTES {
        Confidence::Sure
    } else if free >= PLENTY_BYTES {
        Confidence::Likely
    } else {
        return None;
    };
    let summary = format!(
        "{} of the GPU's {} were free when the library failed: it is missing, of another version, or does \
         not match the driver",
        Bytes(free),
        Bytes(total),
    );
    let memory = |message: &Message| matches!(message, Message::GpuMemory { .. });
    let lines = std::iter::once(library).chain(facts.log.all(memory));
    Some(Judgement::new(confidence, summary, facts.quote_all(lines)))
}

/// A kernel of a library failed, and no other error tells why.
fn kernel_of_library(facts: &Facts<'_>) -> Option<Judgement> {
    if !is_kernel_of_library(facts) {
        return None;
    }
    let event = facts.log.first(is_execution)?;
    let Message::Library { library, .. } = &event.message else {
        return None;
    };
    let free = free_at_failure(facts);
    let (confidence, rest) = match free {
        Some(free) if free >= PLENTY_BYTES => {
            (Confidence::Likely, format!("{} of the GPU were free", Bytes(free)))
        }
        _ => (
            Confidence::Possible,
            "its input, the library's release or too little memory beside the pool may be the reason"
                .to_owned(),
        ),
    };
    let summary = format!(
        "{} had started, and one of its kernels failed while it ran: {rest}",
        library.label()
    );
    Some(Judgement::new(confidence, summary, vec![facts.quote(event)]))
}

/// Returns `true` if all that is known is that a kernel of a library failed.
pub(super) fn is_kernel_of_library(facts: &Facts<'_>) -> bool {
    let starts = |message: &Message| is_library(message) && !is_execution(message);
    facts.log.has(is_execution) && !facts.log.has(starts) && naming_error(facts).is_none()
}

/// The program failed with an error that is not about memory.
fn other_error(facts: &Facts<'_>, others: &[Cause]) -> Option<Judgement> {
    let event = decisive_error(facts)?;
    let (confidence, summary) = match &event.message {
        Message::DonationError => (
            Confidence::Sure,
            "a buffer was used after it was donated, or donated twice; this log shows no failed allocation. Use the \
             arrays that the call returned in place of those"
                .to_owned(),
        ),
        Message::KernelResources => (
            Confidence::Sure,
            "a kernel needs more of a multiprocessor, such as its shared memory, than there is, which is no part \
             of the GPU's memory: smaller blocks or fewer stages of the kernel need less"
                .to_owned(),
        ),
        Message::PluginMismatch => (
            Confidence::Likely,
            "JAX's plugin for the GPU and jaxlib are of different releases, so JAX does not use the GPU".to_owned(),
        ),
        Message::VersionMismatch => (
            Confidence::Likely,
            "two libraries do not match: one was compiled for another release of the other".to_owned(),
        ),
        Message::DiskFull => (
            Confidence::Likely,
            "a disk is full, or a quota of it is used up".to_owned(),
        ),
        Message::DriverError if is_kernel_fault(event) => (
            Confidence::Likely,
            "a kernel did what it may not, such as to access memory that it does not own: a fault of the kernel or its \
             compiler, which another release of JAX or of the library that has the kernel may not have"
                .to_owned(),
        ),
        Message::DriverError => (
            Confidence::Likely,
            "the driver reports an error, and it is not lack of memory".to_owned(),
        ),
        Message::Installation => (
            Confidence::Likely,
            "the driver, a library or JAX's plugin is missing, or does not match the others".to_owned(),
        ),
        Message::Exception { class, .. } => (
            Confidence::Likely,
            format!("the program ended with `{class}`, and this log shows no failed allocation"),
        ),
        Message::PeerFailure => (
            Confidence::Possible,
            "another process of the job failed first: its log tells the cause".to_owned(),
        ),
        Message::Abort => (
            Confidence::Possible,
            "the process crashed, and this log shows no failed allocation".to_owned(),
        ),
        _ => (
            Confidence::Likely,
            "this log shows no failed allocation".to_owned(),
        ),
    };
    // A library that failed is judged by what is known of memory. Settings are in logs of all kinds.
    let doubt = others
        .iter()
        .any(|cause| cause.id != CauseId::WrongSetting || cause.confidence > Confidence::Possible);
    let is_named = |message: &Message| matches!(message, Message::MemoryNamed);
    let doubt = doubt || (confidence == Confidence::Likely && facts.log.has(is_named));
    let confidence = if doubt { Confidence::Possible } else { confidence };
    // What JAX says of the library is in several lines.
    let is_installation = |message: &Message| matches!(message, Message::Installation);
    let others =
        facts.log.all(is_installation).filter(|_| event.message == Message::VersionMismatch);
    let evidence = facts.quote_all(others.chain([event]));
    Some(Judgement::new(confidence, summary, evidence))
}

/// Returns `true` if the driver's error is that of a kernel that ran, not of what was around it.
fn is_kernel_fault(event: &Event) -> bool {
    const ERRORS: [&str; 5] = [
        "ILLEGAL_ADDRESS",
        "MISALIGNED_ADDRESS",
        "ILLEGAL_INSTRUCTION",
        "INVALID_PC",
        "LAUNCH_FAILED",
    ];
    ERRORS.iter().any(|error| event.text.contains(error))
}

/// Returns the error that tells most: the first that names what failed, else the exception that came last. None
/// where an error may be anything, or the log has words about memory that are no known message.
fn decisive_error<'a>(facts: &Facts<'a>) -> Option<&'a Event> {
    let named = |message: &Message| match message {
        Message::Exception { subject, .. } => *subject != Subject::Memory,
        Message::PeerFailure
        | Message::Abort
        | Message::SettingRejected { .. }
        | Message::DiskFull => true,
        _ => false,
    };
    if let Some(error) = naming_error(facts) {
        return Some(error);
    }
    if may_be_memory(facts) {
        return None;
    }
    facts.log.all(named).last()
}

/// Returns the first error that names what failed.
fn naming_error<'a>(facts: &Facts<'a>) -> Option<&'a Event> {
    const NAMING: [fn(&Message) -> bool; 6] = [
        |message| matches!(message, Message::DonationError),
        |message| matches!(message, Message::KernelResources),
        |message| matches!(message, Message::PluginMismatch),
        |message| matches!(message, Message::VersionMismatch),
        |message| matches!(message, Message::DriverError),
        |message| matches!(message, Message::Installation),
    ];
    NAMING.into_iter().find_map(|is| facts.log.first(is))
}

/// Returns `true` if an error may well be about memory, in words that nobody knows.
fn may_be_memory(facts: &Facts<'_>) -> bool {
    let is_of_peer = |event: &Event| {
        facts.log.events.iter().any(|other| {
            matches!(other.message, Message::PeerFailure)
                && other.source == event.source
                && other.line.abs_diff(event.line) <= 1
        })
    };
    facts.log.events.iter().any(|event| match &event.message {
        Message::MemoryNamed => true,
        Message::Exception { subject, .. } => {
            matches!(subject, Subject::Unknown | Subject::Memory) && !is_of_peer(event)
        }
        _ => false,
    })
}

/// Returns `true` if the driver, a library or the installation is at fault, so that looking at them helps.
pub(in crate::explain) fn is_about_installation(facts: &Facts<'_>) -> bool {
    let is = |message: &Message| {
        matches!(
            message,
            Message::Library { .. }
                | Message::DriverError
                | Message::VersionMismatch
                | Message::PluginMismatch
                | Message::Installation
                | Message::SettingRejected { .. }
                | Message::CpuFallback
                | Message::Exception { subject: Subject::Installation, .. }
        )
    };
    match decisive_error(facts).map(|event| &event.message) {
        Some(Message::DonationError | Message::KernelResources) => false,
        // The last exception decides: what a program has caught before is no longer of interest.
        Some(Message::Exception { subject, .. }) if *subject == Subject::Program => {
            facts.log.has(is_library)
        }
        Some(message) if is(message) || matches!(message, Message::Abort) => true,
        _ => facts.log.has(is),
    }
}

/// Returns `true` if another process failed first, whose log tells more.
pub(in crate::explain) fn is_about_peer(facts: &Facts<'_>) -> bool {
    decisive_error(facts).is_some_and(|event| matches!(event.message, Message::PeerFailure))
}

/// Warnings about memory, and no failure.
fn only_warnings(facts: &Facts<'_>) -> Option<Judgement> {
    let is_warning = |message: &Message| {
        matches!(
            message,
            Message::DonationWarning
                | Message::Rematerialization { .. }
                | Message::PoolWarning { .. }
                | Message::Autotuning { .. }
                | Message::ArgumentsExceedLimit { .. }
                | Message::CpuFallback
                | Message::Setting { .. }
                // XLA copies without pinned memory then.
                | Message::Host { how: HostFailure::PinnedRefused, .. }
                | Message::DriverRefusal { pinned_host: true, .. }
        )
    };
    if may_be_memory(facts) {
        return None;
    }
    let warnings: Vec<_> = facts.log.all(is_warning).collect();
    let fits = |message: &Message| matches!(message, Message::Dryrun { fits: true, .. });
    let fitted = facts.log.first(fits);
    let is_dump = |message: &Message| matches!(message, Message::DumpedProgram { .. });
    let dumped = facts.log.first(is_dump);
    let dumped = dumped.filter(|_| facts.figures.gpu_total_bytes.is_some());
    if let Some(event) = dumped {
        let summary = "each of the dumped programs fits into the GPU's pool by itself";
        let lines = vec![facts.quote(event)];
        return Some(Judgement::likely(summary, lines));
    }
    if warnings.is_empty() && fitted.is_none() {
        return None;
    }
    if let (Some(fitted), true) = (fitted, warnings.is_empty()) {
        let summary = "every request of the run was met";
        let lines = vec![facts.quote(fitted)];
        return Some(Judgement::likely(summary, lines));
    }
    let summary =
        "the log has warnings about memory, which runs that succeed print, too; no request failed";
    // So far beyond the budget few succeed.
    let confidence = match facts.log.has(is_far_beyond_budget) {
        true => Confidence::Possible,
        false => Confidence::Likely,
    };
    let lines = warnings.into_iter().chain(fitted);
    Some(Judgement::new(confidence, summary, facts.quote_all(lines)))
}

/// Returns `true` if the compiler says that a program takes a multiple of what it may.
fn is_far_beyond_budget(message: &Message) -> bool {
    match message {
        Message::Rematerialization { target, reached, .. } => {
            *reached / 2 > scale_budget(*target).max(0).unsigned_abs()
        }
        _ => false,
    }
}

/// Returns what to do, for the errors that are known.
pub(in crate::explain) fn remedies(facts: &Facts<'_>) -> Vec<Remedy> {
    let error = decisive_error(facts);
    let upgrade = match facts.log.has(|message| *message == Message::Cuda13Named) {
        true => "pip install --upgrade \"jax[cuda13]\"",
        // It runs on the drivers of both.
        false => "pip install --upgrade \"jax[cuda12]\"",
    };
    let specific = error.and_then(|event| match &event.message {
        Message::KernelResources => Some(Remedy::new(
            "smaller-blocks",
            "use smaller blocks, fewer stages or fewer warps in the kernel; a kernel of a library has options for them",
            "",
        )),
        Message::DriverError if is_kernel_fault(event) => Some(Remedy::new(
            "other-release",
            "upgrade JAX, and the library that has the kernel; `compute-sanitizer` names the kernel",
            upgrade,
        )),
        Message::VersionMismatch => Some(Remedy::new(
            "matching-libraries",
            "install the libraries that this release of JAX needs, and no others in front of them in `LD_LIBRARY_PATH`",
            upgrade,
        )),
        Message::PluginMismatch => Some(Remedy::new(
            "matching-plugin",
            "install jaxlib and the plugin of one release, together",
            upgrade,
        )),
        Message::DiskFull => Some(Remedy::new("free-disk", "make room on the disk, or use another one", "df -h")),
        _ => None,
    });
    let mut remedies = Vec::from_iter(specific);
    if is_about_installation(facts) {
        let text = "check driver, libraries and JAX installation";
        remedies.push(Remedy::new("check-installation", text, "vramfit doctor"));
    }
    if is_about_peer(facts) {
        let text =
            "another process of the job failed first: explain the logs of all of them together";
        remedies.push(Remedy::new("explain-all", text, "vramfit explain LOG..."));
    }
    remedies
}
