//! The report of one function: what it needs, and whether that fits.
//!
//! The function was run with more memory than the GPU has, so that its peak is known also where it does not
//! fit. What the GPU says of the same requests is the other half of the comparison.

use serde_json::json;

use super::sections::{
    advice, buffer_lifetimes, cause, caveats, conditions, overview, owners, step_time,
};
use super::{Bar, Content, Metric, Report, Section, Value, json as formats};
use crate::analysis::{Comparison, Condition, DeviceSummary, RunSummary};
use crate::bytes::Bytes;

pub(super) fn report(needed: &RunSummary, comparison: &Comparison) -> Report {
    // Only the function ran, so that all of the run is its step.
    let needed = &RunSummary { step_time: needed.execution_time(), ..needed.clone() };
    let (after, fits) = (&comparison.after, comparison.fits());
    let caveats = caveats::of_dryrun(needed);
    let capacity_bytes = smallest_capacity(after);
    let peak_bytes = needed.critical_device().map_or(0, |it| it.peak_bytes);
    let bar = Bar {
        part_bytes: peak_bytes,
        whole_bytes: capacity_bytes,
        owners: owners::bytes_of_kinds(needed, peak_bytes),
        ..Bar::default()
    };
    let sections = [
        Some(Section::new("", Content::Bars(vec![bar]))),
        conditions::section(needed),
        advice::section(needed),
        Some(metrics(needed, after, capacity_bytes)),
        owners::by_kind(needed),
        step_time::section(needed),
        owners::tree(needed),
        buffer_lifetimes::section(needed),
        owners::entries(needed),
        Some(Section::new("not included", Content::List(caveats.clone()))),
    ];
    let mut json = formats::dryrun(needed, &caveats);
    json["fits"] = json!(fits);
    json["limit_bytes"] = json!(after.devices.first().and_then(DeviceSummary::limit));
    json["capacity_bytes"] = json!(capacity_bytes);
    json["spare_bytes"] = json!(signed_difference(capacity_bytes, peak_bytes));
    Report {
        title: "vramfit estimate".to_owned(),
        outcome: fits.into(),
        headline: headline(after, fits, (peak_bytes, capacity_bytes), &needed.verdict().conditions),
        cause: cause::sentences(needed),
        sections: sections.into_iter().flatten().collect(),
        metadata: overview::metadata(after)
            .into_iter()
            .filter(|metric| metric.label != "command")
            .collect(),
        json,
        ..Report::default()
    }
}

fn headline(
    after: &RunSummary,
    fits: Option<bool>,
    (peak, capacity): (u64, u64),
    conditions: &[Condition],
) -> String {
    let header = &after.header;
    let on = match header.devices {
        0 | 1 => format!("on {}", header.gpu().name),
        count => format!("on the fullest of {count} x {}", header.gpu().name),
    };
    let (shown_peak, shown_capacity) = (Bytes(peak), Bytes(capacity));
    match fits {
        None => format!("unknown: peak {shown_peak} of {shown_capacity} {on}"),
        Some(true) => {
            let spare = Bytes(capacity.saturating_sub(peak));
            let rest = format!("peak {shown_peak} of {shown_capacity} {on}, {spare} to spare");
            conditions::qualify("fits", &rest, conditions, "the dry run")
        }
        Some(false) if peak > capacity => {
            let excess = Bytes(peak - capacity);
            format!(
                "does not fit: peak {shown_peak} {on}, {excess} above the limit of {shown_capacity}"
            )
        }
        Some(false) => format!(
            "does not fit: peak {shown_peak} of {shown_capacity} {on}, but no free block is large enough for \
             one of the requests"
        ),
    }
}

fn metrics(needed: &RunSummary, after: &RunSummary, capacity_bytes: u64) -> Section {
    let header = &after.header;
    let share = capacity_bytes as f64 / header.total_memory_bytes().max(1) as f64;
    let (share, total) = (Value::Fraction(share), Bytes(header.total_memory_bytes()));
    let limit = Value::Bytes(capacity_bytes);
    let mut metrics = vec![Metric::new("limit", limit, format!("{share} of the GPU's {total}"))];
    if let Some(device) = needed.critical_device() {
        let peak = Value::Bytes(device.peak_bytes);
        metrics.push(Metric::new("peak in use", peak, "rounding of the allocator included"));
        let arguments = Value::Bytes(device.steady_state_bytes);
        metrics.push(Metric::new("before the call", arguments, "arguments"));
        metrics.push(overview::outside_the_pool(&needed.header, device));
    }
    metrics.extend(step_time::metric(needed));
    Section::new("", Content::Metrics(metrics))
}

/// Returns what the fullest pool may hold, in bytes.
fn smallest_capacity(after: &RunSummary) -> u64 {
    let capacities = after.devices.iter().map(|device| device.capacity_bytes);
    capacities.min().unwrap_or(0)
}

fn signed_difference(whole: u64, part: u64) -> i64 {
    i64::try_from(i128::from(whole) - i128::from(part)).unwrap_or(i64::MIN)
}
