//! Why a run does not fit, in one clause, and which chart shows it.

use super::{cause, devices};
use crate::analysis::{Cause, CauseGroup, Condition, EntryKind, RunSummary};
use crate::bytes::Bytes;
use crate::program::memory::Owner;
use crate::report::phrases::{line_or_unknown, part_of, short_line};
use crate::report::{Content, Section};

/// Why a run does not fit.
pub(super) struct MainCause {
    pub(super) kind: CauseKind,
    /// A clause of at most 17 words.
    pub(super) text: String,
    /// The sentence of [`cause::sentences`] that says no more.
    pub(super) cause_sentence: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CauseKind {
    Fragmentation,
    /// Memory that grows in every step, by more than what is missing.
    Leak,
    /// Values that a program computes.
    Values,
    /// Anything else that is allocated.
    Allocated,
}

/// Returns the cause that comes first; `None` where no request was refused, or nobody knows.
pub(super) fn main_cause(summary: &RunSummary) -> Option<MainCause> {
    let failure = summary.out_of_memory().filter(|failure| failure.short_bytes() > 0)?;
    let new = |kind, text| Some(MainCause { kind, text, cause_sentence: None });
    let blocks = failure.free_bytes().zip(failure.pool.largest_free_block_bytes);
    if let Some((free, largest)) = blocks.filter(|_| failure.fragmented()) {
        let text = format!(
            "{} are free but fragmented: {} requested, largest block {}",
            Bytes(free),
            Bytes(failure.context.requested_bytes),
            Bytes(largest)
        );
        let cause_sentence = cause::fragmentation(summary);
        return Some(MainCause { kind: CauseKind::Fragmentation, text, cause_sentence });
    }
    let mut leaks = summary.leaks.iter();
    if let Some(leak) = leaks.find(|leak| leak.allocated_bytes >= failure.short_bytes()) {
        let kind = if leak.is_training { "memory leak, " } else { "" };
        let text = format!(
            "{kind}{} from {}, {} after {} {}",
            leak.describe_growth(),
            short_line(line_or_unknown(&leak.site)),
            Bytes(leak.allocated_bytes),
            leak.steps * leak.every_steps,
            leak.unit()
        );
        let cause_sentence = Some(cause::leak(leak));
        return Some(MainCause { kind: CauseKind::Leak, text, cause_sentence });
    }
    if let Some(unused) = devices::unused_count(summary) {
        let (verb, count) = (if unused == 1 { "is" } else { "are" }, summary.devices.len());
        return new(CauseKind::Allocated, format!("{unused} of {count} GPUs {verb} not used"));
    }
    if cause::whole_batch(summary).is_some() {
        let text = "the batch does not stay divided among the GPUs";
        return new(CauseKind::Values, text.to_owned());
    }
    if let Some(batch) = cause::undivided_batch(summary) {
        let text = format!("all {} GPUs compute the same, the batch is not divided", batch.devices);
        return new(CauseKind::Values, text);
    }
    let attribution = summary.attribution.as_ref()?;
    if let Some(replicated) = &attribution.replicated {
        let (bytes, devices) = (Bytes(replicated.bytes), replicated.devices);
        let text = format!("{bytes} of arrays are whole on each of {devices} GPUs");
        return new(CauseKind::Allocated, text);
    }
    let cause = Cause::of(summary)?;
    let largest = cause.groups.first()?;
    let kind = if largest.is_values() { CauseKind::Values } else { CauseKind::Allocated };
    let share = part_of(largest.bytes, cause.total_bytes);
    new(kind, format!("{share} are {}", group(largest, summary)))
}

/// Names a group in few words.
fn group(group: &CauseGroup, summary: &RunSummary) -> String {
    let more = match group.lines.len() {
        0 | 1 => String::new(),
        2 => " and 1 more line".to_owned(),
        lines => format!(" and {} more lines", lines - 1),
    };
    if let Some(created) = cause::created(group, summary) {
        return created.describe(group.count, group.bytes);
    }
    let line = group.lines.first().map(|(line, _)| short_line(line));
    let from = line.map_or_else(String::new, |line| format!(" from {line}{more}"));
    match (group.workspace(), group.largest.kind) {
        _ if group.is_values() => format!("values{from}"),
        (Some(name), _) => format!("the {name}{from}"),
        (None, EntryKind::OtherArrays) if summary.script_keeps_arrays() => {
            format!("arrays that the script keeps{from}")
        }
        (None, EntryKind::Program(Owner::Outputs))
            if cause::undonated(summary).is_some()
                && cause::useless_donation(summary).is_none() =>
        {
            "outputs that replace arguments which are not donated".to_owned()
        }
        (None, kind) => kind.label().to_owned(),
    }
}

/// Puts the chart first that shows the cause.
pub(in crate::report) fn sort_charts(summary: &RunSummary, charts: &mut [Section]) {
    let kind = main_cause(summary).map(|cause| cause.kind);
    let conditions = summary.verdict().conditions;
    let grows = conditions.iter().any(|it| matches!(it, Condition::StillGrowing { .. }));
    charts.sort_by_key(|chart| !match (kind, &chart.content) {
        (Some(CauseKind::Fragmentation), content) => matches!(content, Content::AddressMap(_)),
        (Some(CauseKind::Leak), content) => matches!(content, Content::Timeline(_)),
        (Some(CauseKind::Values), content) => matches!(content, Content::BufferLifetimes(_)),
        (None, content) if grows => matches!(content, Content::Timeline(_)),
        (_, content) => matches!(content, Content::Tree(_)),
    });
}
