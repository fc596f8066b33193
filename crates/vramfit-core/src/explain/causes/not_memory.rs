use super::is_gpu_memory_failure;
use super::outside_pool::{PLENTY_BYTES, free_at_failure};
use crate::bytes::Bytes;
use crate::explain::cause::{Cause, CauseId, Confidence};
use crate::explain::facts::Facts;
use crate::explain::message::Message;

/// With so much of the GPU free, lack of memory is out of the question.
const MOSTLY_FREE: f64 = 0.5;
const MOSTLY_FREE_BYTES: u64 = 2 << 30;

/// `others` are the causes that were found.
pub(super) fn find(facts: &Facts<'_>, others: &[Cause]) -> Option<Cause> {
    let failed = facts
        .log
        .events
        .iter()
        .any(|event| is_gpu_memory_failure(&event.message));
    let elsewhere = others
        .iter()
        .any(|cause| !matches!(cause.id, CauseId::OutsidePool | CauseId::WrongSetting));
    let is_dump = |message: &Message| matches!(message, Message::DumpedProgram { .. });
    let only_dumped = facts.log.all(is_dump).next().is_some();
    if failed || elsewhere || (!facts.log.buffers.is_empty() && !only_dumped) {
        return None;
    }
    free_memory(facts)
        .or_else(|| other_error(facts, others))
        .or_else(|| only_warnings(facts))
}

/// A library failed beside plenty of free memory.
fn free_memory(facts: &Facts<'_>) -> Option<Cause> {
    let library = facts
        .log
        .all(|message| matches!(message, Message::Library { .. }))
        .next()?;
    let Some(free) = free_at_failure(facts) else {
        return Some(facts.cause(
            CauseId::NotMemory,
            Confidence::Possible,
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
    Some(facts.cause(
        CauseId::NotMemory,
        confidence,
        summary,
        facts.quote_all(lines),
    ))
}

/// The program failed with an error that is not about memory.
fn other_error(facts: &Facts<'_>, others: &[Cause]) -> Option<Cause> {
    let is_donation = |message: &Message| matches!(message, Message::DonationError);
    let is_other = |message: &Message| match message {
        Message::Exception { is_memory, .. } => !is_memory,
        Message::PeerFailure | Message::Abort | Message::SettingRejected | Message::Traceback => {
            true
        }
        _ => false,
    };
    let donation = facts.log.all(is_donation).next();
    let named = |message: &Message| is_other(message) && !matches!(message, Message::Traceback);
    let error = facts
        .log
        .all(named)
        .last()
        .or_else(|| facts.log.all(is_other).last());
    let event = donation.or(error)?;
    let (confidence, summary) = match &event.message {
        Message::DonationError => (
            Confidence::Sure,
            "a buffer was used after it was donated, or donated twice; no request for memory failed".to_owned(),
        ),
        Message::Exception { class, .. } => (
            Confidence::Likely,
            format!("the program ended with `{class}`, and no request for memory failed in this log"),
        ),
        Message::PeerFailure => (
            Confidence::Possible,
            "another process of the job failed first: its log tells the cause".to_owned(),
        ),
        Message::Traceback => (
            Confidence::Possible,
            "the program ended with an exception, and no request for memory failed in this log".to_owned(),
        ),
        _ => (
            Confidence::Likely,
            "no request for memory failed in this log".to_owned(),
        ),
    };
    // A library that failed is judged by what is known of memory.
    let doubt = !others.is_empty();
    let confidence = if doubt {
        Confidence::Possible
    } else {
        confidence
    };
    Some(facts.cause(
        CauseId::NotMemory,
        confidence,
        summary,
        vec![facts.quote(event)],
    ))
}

/// Warnings about memory, and no failure.
fn only_warnings(facts: &Facts<'_>) -> Option<Cause> {
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
        )
    };
    let warnings: Vec<_> = facts.log.all(is_warning).collect();
    let fits = |message: &Message| matches!(message, Message::Dryrun { fits: true, .. });
    let fitted = facts.log.all(fits).next();
    let dumped = |message: &Message| matches!(message, Message::DumpedProgram { .. });
    let dumped = facts
        .log
        .all(dumped)
        .next()
        .filter(|_| facts.figures.gpu_total_bytes.is_some());
    if let Some(event) = dumped {
        let summary = "each of the dumped programs fits into the GPU's pool by itself";
        let lines = vec![facts.quote(event)];
        return Some(facts.cause(CauseId::NotMemory, Confidence::Likely, summary, lines));
    }
    if warnings.is_empty() && fitted.is_none() {
        return None;
    }
    if let (Some(fitted), true) = (fitted, warnings.is_empty()) {
        let summary = "every request of the run was met";
        let lines = vec![facts.quote(fitted)];
        return Some(facts.cause(CauseId::NotMemory, Confidence::Likely, summary, lines));
    }
    let summary =
        "the log has warnings about memory, which runs that succeed print, too; no request failed";
    let lines = warnings.into_iter().chain(fitted);
    Some(facts.cause(
        CauseId::NotMemory,
        Confidence::Likely,
        summary,
        facts.quote_all(lines),
    ))
}
