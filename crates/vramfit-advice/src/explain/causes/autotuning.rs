use super::Judgement;
use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::log::Event;
use crate::explain::message::Message;

pub(super) fn find(facts: &Facts<'_>) -> Option<Judgement> {
    let is_autotuning = |message: &Message| matches!(message, Message::Autotuning { .. });
    let tried = || facts.log.all(is_autotuning);
    let (first, last) = (tried().next()?, tried().last()?);
    // A candidate that is left out is no failure, where the program goes on.
    if facts.requests.is_empty() && facts.goes_on_after(last) {
        return None;
    }
    // Nor where it went on to its steps, or to an evaluation, before a request failed for good.
    let goes_on_to = |request: &Event| {
        let has_begun = request.step_lines_before > last.step_lines_before
            || (request.in_other_phase && !last.in_other_phase);
        has_begun && request.order > last.order && request.source == last.source
    };
    if facts.request_event().is_some_and(goes_on_to) {
        return None;
    }
    let is_memory = |event: &&Event| event.message == Message::Autotuning { out_of_memory: true };
    let for_memory = tried().filter(is_memory).count();
    let other = tried().count() - for_memory;
    // A request that failed beside it may be the reason by itself, unless the figures of the pool tell of that.
    let is_other_known = facts.log.dump().is_some_and(|dump| dump.in_use_bytes().is_some());
    let is_alone = facts.requests.is_empty() || is_other_known;
    // An engine that fails for another reason may be why none was found.
    let confidence = match (for_memory, other) {
        _ if facts.is_after_failure(first) => Confidence::Possible,
        (0, _) if facts.log.has_memory_failure() || !facts.log.buffers.is_empty() => {
            Confidence::Likely
        }
        (0, _) => Confidence::Possible,
        (_, 0) if is_alone => Confidence::Sure,
        (_, _) => Confidence::Likely,
    };
    let summary = match for_memory {
        0 => {
            "the autotuner found no algorithm for a convolution or matrix product; too little memory for \
              their workspaces is the usual reason"
        }
        _ => {
            "while compiling, XLA tries kernels with copies of their operands in memory, and candidates \
              failed for lack of it"
        }
    };
    let memory_first = tried().filter(is_memory).chain(tried());
    Some(Judgement::new(confidence, summary, facts.quote_all(memory_first)))
}
