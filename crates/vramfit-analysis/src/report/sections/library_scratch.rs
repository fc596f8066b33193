//! What library routines allocate outside XLA's buffer assignment.

use crate::analysis::{DeviceSummary, RunSummary, ScratchNeedSummary, ScratchSummary};
use crate::bytes::Bytes;
use crate::program::{EstimateSource, ScratchPhase};
use crate::report::phrases::{at_line, more_in_json, range};
use crate::report::{Metric, Section, Value};

/// More than these would hide the rest of the report; the JSON has all.
const MAX_SHOWN: usize = 5;
/// Routines that may use less than one in this many of the GPU's memory are not shown.
const MIN_SHOWN_FRACTION: u64 = 100;

/// What the largest routine uses, where one may use 1 % of the memory.
pub(super) fn metric(summary: &RunSummary, device: &DeviceSummary) -> Option<Metric> {
    let scratch = summary.scratch.as_ref()?;
    let need = significant_needs(scratch, device.capacity_bytes)
        .into_iter()
        .find(|need| need.high_bytes.is_some())?;
    let peak = scratch.peak_bytes.get(device.device as usize).copied();
    // After a refusal it is not known what the program would have gone on to.
    let peak = peak.filter(|peak| *peak > device.peak_bytes && !summary.is_refused());
    let peak = peak
        .map_or(String::new(), |peak| format!("; with the maximum, the peak is {}", Bytes(peak)));
    let note = format!("{}{}{peak}", name(need), location(need));
    let value = match need.high_bytes {
        Some(high) if high == need.low_bytes => Value::Bytes(high),
        _ => Value::Text(amount(need)),
    };
    Some(Metric::new("library scratch", value, note))
}

/// Returns by how much the peak is higher if every routine uses as much as it may.
pub(in crate::report) fn uncertain_bytes(summary: &RunSummary, device: &DeviceSummary) -> u64 {
    // After a refusal it is not known what the program would have gone on to.
    let scratch = summary.scratch.as_ref().filter(|_| !summary.is_refused());
    let peaks = scratch.map(|scratch| &scratch.peak_bytes);
    let highest = peaks.and_then(|peaks| peaks.get(device.device as usize));
    highest.map_or(0, |highest| highest.saturating_sub(device.peak_bytes))
}

/// One point for each routine that matters; neighbors with the same need are one.
pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let needs = significant_needs(summary.scratch.as_ref()?, capacity_bytes(summary));
    let alike: Vec<_> =
        needs.chunk_by(|one, other| need_phrase(one) == need_phrase(other)).collect();
    let mut points: Vec<_> = alike.iter().copied().take(MAX_SHOWN).map(point).collect();
    let shown: usize = alike.iter().take(MAX_SHOWN).map(|needs| needs.len()).sum();
    points.extend(more_in_json(needs.len() - shown));
    let title = "scratch memory of library routines, outside XLA's buffer assignment";
    Section::list(title, points)
}

/// What is unknown of routines that were executed.
pub(super) fn caveats(summary: &RunSummary) -> Vec<String> {
    let Some(scratch) = &summary.scratch else {
        return Vec::new();
    };
    let mut points = Vec::new();
    let mut unbounded = scratch.needs.iter().filter(|need| need.high_bytes.is_none());
    if let Some(first) = unbounded.next() {
        let more = match unbounded.count() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        let from = match first.phase {
            ScratchPhase::OutsidePool => "outside the pool",
            _ => "in the pool",
        };
        points.push(format!(
            "scratch memory of {}{}{more}: it may use any amount {from}, since no upper bound is known",
            name(first),
            location(first)
        ));
    }
    let is_range =
        |need: &&ScratchNeedSummary| need.high_bytes.is_some_and(|high| high > need.low_bytes);
    let needs = significant_needs(scratch, capacity_bytes(summary));
    if let Some(need) = needs.into_iter().find(is_range) {
        points.push(format!(
            "scratch memory of library routines above their minimum: up to {} for {}; the result \
             accounts for it, the peak does not",
            Bytes(need.high_bytes.unwrap_or(0)),
            name(need)
        ));
    }
    points
}

fn capacity_bytes(summary: &RunSummary) -> u64 {
    let device = summary.critical_device();
    device.map_or(0, |device| device.capacity_bytes)
}

/// Returns the routines that matter, the one that may use most first: those without a bound, with 1 % of
/// the memory, and the one that could not get its maximum. What the autotuner uses counts only in the
/// last case.
fn significant_needs(scratch: &ScratchSummary, capacity_bytes: u64) -> Vec<&ScratchNeedSummary> {
    let short = scratch.shortage.as_ref().map(|shortage| shortage.need);
    let min_bytes = (capacity_bytes / MIN_SHOWN_FRACTION).max(1);
    let needs = scratch.needs.iter().enumerate();
    let significant = needs.filter(|(index, need)| {
        let is_large = need.high_bytes.is_none_or(|high| high >= min_bytes);
        Some(*index) == short || is_large && need.phase != ScratchPhase::Compilation
    });
    significant.map(|(_, need)| need).collect()
}

fn point(alike: &[&ScratchNeedSummary]) -> String {
    let names = alike.iter().take(MAX_SHOWN).map(|need| name(need) + &location(need));
    let (names, need) = (names.collect::<Vec<_>>(), need_phrase(alike[0]));
    match alike.len() {
        1 => format!("{}: {need}", names[0]),
        count if count > MAX_SHOWN => {
            format!("{count} routines, each {need}: {} and others", names.join("; "))
        }
        count => format!("{count} routines, each {need}: {}", names.join("; ")),
    }
}

/// Says how much a routine needs, when, and how that is known.
fn need_phrase(need: &ScratchNeedSummary) -> String {
    let when = match need.phase {
        ScratchPhase::Execution => "during execution",
        ScratchPhase::Plan => "as part of the temporaries when compiled on a GPU",
        ScratchPhase::Compilation => "during compilation on a GPU",
        ScratchPhase::OutsidePool => "outside the pool",
    };
    let source = match need.source {
        EstimateSource::Documented => "documented",
        EstimateSource::Published => "published measurements",
        EstimateSource::Estimated => "estimated; no measurements are published",
        EstimateSource::Unknown => "no upper bound is known",
    };
    format!("{} {when} ({source})", amount(need))
}

/// Returns the library with the routine, such as `cuFFT rfft f64[10,100000000]`.
fn name(need: &ScratchNeedSummary) -> String {
    format!("{} {}", need.library, need.routine)
}

fn location(need: &ScratchNeedSummary) -> String {
    if need.site.is_empty() { format!(" in `{}`", need.program) } else { at_line(&need.site) }
}

fn amount(need: &ScratchNeedSummary) -> String {
    match need.high_bytes {
        None => "any amount".to_owned(),
        Some(high) => range(need.low_bytes, high),
    }
}
