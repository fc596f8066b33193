use super::Judgement;
use std::collections::BTreeMap;

use crate::bytes::Bytes;
use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::message::{Message, StatName};

/// Printed values of memory in use that make a trend.
const MIN_VALUES: u64 = 4;
/// Steps after which a program with fixed shapes has had its peak.
const MIN_STEPS: u64 = 10;
/// Steps after which that is most probably so.
const MANY_STEPS: u64 = 100;
/// Words in the names of programs that are not a training step.
const OTHER_PHASES: [&str; 9] =
    ["decode", "eval", "generat", "infer", "init", "predict", "restore", "sampl", "valid"];
/// Blocks of one size that are no layers of a model.
const MIN_EQUAL_CHUNKS: u64 = 400;

pub(super) fn find(facts: &Facts<'_>) -> Option<Judgement> {
    facts.request()?;
    leak(facts).or_else(|| rising_statistics(facts)).or_else(|| after_many_steps(facts))
}

/// A recorded run shows what stays allocated after each step.
fn leak(facts: &Facts<'_>) -> Option<Judgement> {
    let (event, (growth, site)) = facts.log.find(|message| match message {
        Message::Leak { growth, site } => Some((growth.clone(), site.clone())),
        _ => None,
    })?;
    let summary = format!("{growth} stay allocated, made at {site}");
    Some(Judgement::likely(summary, facts.quote_with_request(event)))
}

/// The program printed how much is in use, and that rose.
fn rising_statistics(facts: &Facts<'_>) -> Option<Judgement> {
    let series = facts.log.stat(StatName::BytesInUse)?;
    let rises = series.count >= MIN_VALUES
        && series.falls * 4 <= series.rises
        && series.rises + 1 >= series.count / 2
        && series.last / 5 > series.first / 4;
    let summary = format!(
        "memory in use rose from {} to {} over {} printed values",
        Bytes(series.first),
        Bytes(series.last),
        series.count
    );
    let stats = |message: &Message| matches!(message, Message::MemoryStat { .. });
    let lines = facts.log.all(stats).take(2).chain(facts.request_event());
    rises.then(|| Judgement::likely(summary, facts.quote_all(lines)))
}

/// The program had run many steps, so it did not fail for what one step needs.
fn after_many_steps(facts: &Facts<'_>) -> Option<Judgement> {
    let event = facts.request_event()?;
    let steps = facts.steps_before_failure();
    let equal = equal_chunks(facts);
    if steps < MIN_STEPS && equal.is_none() {
        return None;
    }
    // A checkpoint or an evaluation runs other programs, which may need more than the step.
    let program = facts.request().and_then(|request| request.program.as_deref()).unwrap_or("");
    let is_of_other_phase = OTHER_PHASES.iter().any(|word| program.contains(word));
    // What needs more than the pool has needs nothing else to fail.
    let needs = facts.figures.need.map(|need| need.total_bytes);
    let is_too_large =
        needs.zip(facts.figures.limit_bytes).is_some_and(|(need, limit)| need > limit);
    let is_late =
        steps >= MANY_STEPS && !event.in_other_phase && !is_of_other_phase && !is_too_large;
    let confidence = if is_late { Confidence::Likely } else { Confidence::Possible };
    let when = (steps > 0).then(|| {
        format!(
            "the request failed after some {steps} steps: a step of fixed shapes reaches its peak the first \
             time, so something was added since"
        )
    });
    let what = equal
        .map(|(count, bytes)| format!("{count} of the blocks in use have {} each", Bytes(bytes)));
    let summary: Vec<String> = when.into_iter().chain(what).collect();
    let first = facts.log.steps.first.iter().cloned();
    let evidence = first.chain(facts.quote_request().into_iter().take(1));
    Some(Judgement::new(confidence, summary.join("; "), evidence.collect()))
}

/// Returns how many blocks of one size make up most of what is in use, and that size: kept copies of one array.
fn equal_chunks(facts: &Facts<'_>) -> Option<(u64, u64)> {
    let dump = facts.log.dump()?;
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for chunk in dump.chunks().filter(|chunk| chunk.in_use) {
        *counts.entry(chunk.bytes).or_default() += 1;
    }
    let (bytes, count) =
        counts.into_iter().max_by_key(|(bytes, count)| bytes.saturating_mul(*count))?;
    let most = dump.in_use_bytes()? / 2;
    // The layers of a model have equal arrays too, but not by the hundreds.
    (count >= MIN_EQUAL_CHUNKS && bytes.saturating_mul(count) >= most).then_some((count, bytes))
}
