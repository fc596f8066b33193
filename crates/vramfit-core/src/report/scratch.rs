//! What library routines take beside the plans of the programs, in words.

use super::{Body, Figure, Section, Value, dryrun};
use crate::analysis::{DeviceSummary, RunSummary, ScratchNeedSummary, ScratchSummary};
use crate::bytes::Bytes;
use crate::program::{EstimateSource, ScratchPhase};

/// More than these would hide the rest of the report; JSON has them all.
const MAX_LINES: usize = 5;
/// Routines that may take less than this share of the GPU's memory are not told one by one.
const MIN_SHARE: u64 = 100;

/// Tells what the largest routine takes; `None` where no routine may take 1 % of the memory.
pub(super) fn figure(answer: &RunSummary, device: &DeviceSummary) -> Option<Figure> {
    let scratch = answer.scratch.as_ref()?;
    let need = told(scratch, device.capacity_bytes)
        .into_iter()
        .find(|need| need.high_bytes.is_some())?;
    let peak = scratch.peak_bytes.get(device.device as usize).copied();
    let peak = peak.filter(|peak| *peak > device.peak_bytes);
    let peak = peak.map_or(String::new(), |peak| {
        format!("; at most, the peak is {}", Bytes(peak))
    });
    let note = format!("{}{}{peak}", name(need), at(need));
    let value = match need.high_bytes {
        Some(high) if high == need.low_bytes => Value::Bytes(high),
        _ => Value::Text(range(need)),
    };
    Some(dryrun::figure("library scratch", value, note))
}

/// Tells of each routine that matters; `None` without any.
pub(super) fn section(answer: &RunSummary) -> Option<Section> {
    let scratch = answer.scratch.as_ref()?;
    let capacity = answer
        .worst_device()
        .map_or(0, |device| device.capacity_bytes);
    let needs = told(scratch, capacity);
    let mut lines: Vec<String> = needs
        .iter()
        .take(MAX_LINES)
        .map(|need| line(need))
        .collect();
    match needs.len().saturating_sub(MAX_LINES) {
        0 => {}
        more => lines.push(format!("{more} more; `--json` has them all")),
    }
    let title = "scratch memory of library routines, beside the plans";
    (!lines.is_empty()).then(|| dryrun::section(title, Body::Text(lines)))
}

/// Says what is not known of routines that were executed.
pub(super) fn not_covered(answer: &RunSummary) -> Vec<String> {
    let Some(scratch) = &answer.scratch else {
        return Vec::new();
    };
    let mut points = Vec::new();
    let unknown: Vec<_> = scratch
        .needs
        .iter()
        .filter(|need| need.high_bytes.is_none())
        .collect();
    if let Some(first) = unknown.first() {
        let more = match unknown.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        let from = match first.phase {
            ScratchPhase::OutsidePool => "outside the pool",
            _ => "from the pool",
        };
        points.push(format!(
            "scratch memory of {}{}{more}: it may take any amount {from}, no bound is known",
            name(first),
            at(first)
        ));
    }
    let capacity = answer
        .worst_device()
        .map_or(0, |device| device.capacity_bytes);
    let is_open =
        |need: &&ScratchNeedSummary| need.high_bytes.is_some_and(|high| high > need.low_bytes);
    if let Some(need) = told(scratch, capacity).into_iter().find(is_open) {
        points.push(format!(
            "scratch memory of library routines above what they take at least: up to {} for {}; the \
             verdict counts it, the peak does not",
            Bytes(need.high_bytes.unwrap_or(0)),
            name(need)
        ));
    }
    points
}

/// Returns the routines worth telling, the one that may take most first: those without a bound, with
/// 1 % of the memory, and the one that could not have its most. What the autotuner takes is told only
/// in that case.
fn told(scratch: &ScratchSummary, capacity_bytes: u64) -> Vec<&ScratchNeedSummary> {
    let short = scratch.shortage.as_ref().map(|shortage| shortage.need);
    let needs = scratch.needs.iter().enumerate();
    let told = needs.filter(|(number, need)| {
        let is_large = need
            .high_bytes
            .is_none_or(|high| high >= (capacity_bytes / MIN_SHARE).max(1));
        Some(*number) == short || is_large && need.phase != ScratchPhase::Compilation
    });
    told.map(|(_, need)| need).collect()
}

fn line(need: &ScratchNeedSummary) -> String {
    let when = match need.phase {
        ScratchPhase::Execution => "while it runs",
        ScratchPhase::Plan => "in the temporaries, once compiled on a GPU",
        ScratchPhase::Compilation => "while the program is compiled on a GPU",
        ScratchPhase::OutsidePool => "outside the pool",
    };
    let from = match need.source {
        EstimateSource::Documented => "documented",
        EstimateSource::Published => "from figures of real GPUs",
        EstimateSource::Estimated => "estimated: no figures are published",
        EstimateSource::Unknown => "no bound is known",
    };
    format!(
        "{}{}: {} {when} ({from})",
        name(need),
        at(need),
        range(need)
    )
}

/// Returns the library with the routine, such as `cuFFT rfft f64[10,100000000]`.
pub(super) fn name(need: &ScratchNeedSummary) -> String {
    format!("{} {}", need.library, need.routine)
}

fn at(need: &ScratchNeedSummary) -> String {
    match need.site.is_empty() {
        true => format!(" in `{}`", need.program),
        false => format!(", at {}", need.site),
    }
}

fn range(need: &ScratchNeedSummary) -> String {
    let low = Bytes(need.low_bytes);
    match need.high_bytes {
        None => "any amount".to_owned(),
        Some(high) if high == need.low_bytes => low.to_string(),
        Some(high) if need.low_bytes == 0 => format!("up to {}", Bytes(high)),
        Some(high) => format!("{low} to {}", Bytes(high)),
    }
}
