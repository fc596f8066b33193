use super::{Judgement, is_gpu_memory_failure};
use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::message::Message;

/// Compilations of one function that are no accident of a few shapes.
const MIN_COMPILATIONS: u64 = 8;
const MANY_COMPILATIONS: u64 = 20;

pub(super) fn find(facts: &Facts<'_>) -> Option<Judgement> {
    counted(facts).or_else(|| of_compiler(facts))
}

/// The compiler itself found no room for one more program on the host.
fn of_compiler(facts: &Facts<'_>) -> Option<Judgement> {
    let is = |message: &Message| matches!(message, Message::CompiledPrograms);
    facts.log.first(is)?;
    let summary = "the compiler found no memory, or no mapping (`vm.max_map_count`), for one more program: compiled \
                   programs stay in the process, so functions that are compiled again and again pile up";
    Some(Judgement::likely(summary, facts.quote_all(facts.log.all(is))))
}

/// The log shows the compilations.
fn counted(facts: &Facts<'_>) -> Option<Judgement> {
    let (program, counter) =
        facts.log.compilations.iter().max_by_key(|(_, counter)| counter.count)?;
    let is_failure = |message: &Message| {
        is_gpu_memory_failure(message) || matches!(message, Message::Host { .. })
    };
    let failed = facts.log.has(is_failure);
    if counter.count < MIN_COMPILATIONS || !failed {
        return None;
    }
    let confidence = match counter.count >= MANY_COMPILATIONS {
        true => Confidence::Likely,
        false => Confidence::Possible,
    };
    let summary = format!(
        "`{program}` was compiled {} times: each new shape or static argument adds a program, with its \
         constants and kernels, that stays in memory",
        counter.count
    );
    let evidence = counter.first.iter().cloned();
    let evidence = evidence.chain(facts.quote_request().into_iter().take(1));
    Some(Judgement::new(confidence, summary, evidence.collect()))
}
