//! The report of a replay: what a run would have come to under other settings.

use super::phrases::time_phrase;
use super::sections::{address_map, arrays, caveats, failure, headline, overview, timeline};
use super::{Content, Metric, Report, Section, Table, Value, json};
use crate::analysis::{Comparison, DeviceSummary, RunSummary};
use crate::bytes::Bytes;
use crate::trace::Header;

pub(super) fn report(comparison: &Comparison) -> Report {
    let caveats = caveats::of_replay(comparison);
    let after = &comparison.after;
    let before = comparison.before.as_ref();
    let sections = [
        overview::usage(after),
        Some(Section::new("", Content::Table(table(comparison)))),
        before.and_then(|before| first_failure("first failure in the recorded run", before, true)),
        first_failure("first failure in the replay", after, before.is_some()),
        Section::list("notes on these settings", comparison.notes.clone()),
        Section::list("not included", caveats.clone()),
        timeline::section(after),
        arrays::section(after),
        address_map::at_peak(after),
        address_map::at_end(after),
    ];
    Report {
        title: "vramfit replay".to_owned(),
        outcome: comparison.fits().into(),
        headline: headline(comparison),
        short_headline: (!is_newly_granted(comparison)).then(|| headline::short(after)),
        cause: Vec::new(),
        sections: sections.into_iter().flatten().collect(),
        metadata: metadata(comparison),
        json: json::replay(comparison, &caveats),
        ..Report::default()
    }
}

fn headline(comparison: &Comparison) -> String {
    match &comparison.newly_granted {
        Some(request) if is_newly_granted(comparison) => {
            let bytes = Bytes(request.requested_bytes);
            format!(
                "unknown: the {bytes} request that failed {} in the recorded run succeeds here; the trace \
                 does not show what would follow",
                time_phrase(request)
            )
        }
        _ => headline::headline(&comparison.after),
    }
}

/// Returns `true` if the trace ends with a request that succeeds here.
fn is_newly_granted(comparison: &Comparison) -> bool {
    comparison.newly_granted.is_some() && comparison.fits().is_none()
}

/// Every value that settings can change, before and after.
fn table(comparison: &Comparison) -> Table {
    let after = &comparison.after;
    let before = comparison.before.as_ref();
    let mut rows = Vec::new();
    let mut row = |name: &str, value: &dyn Fn(&RunSummary) -> Value| {
        let mut cells = vec![Value::Text(name.to_owned())];
        cells.extend(before.map(value));
        cells.push(value(after));
        rows.push(cells);
    };
    row("limit", &|it| bytes(it, DeviceSummary::limit));
    row("pool", &|it| bytes(it, |device| device.pool_bytes));
    row("peak in use", &|it| bytes(it, |device| Some(device.peak_bytes)));
    row("largest free block at peak", &|it| {
        bytes(it, |device| device.at_peak.largest_free_block_bytes)
    });
    row("fragmentation at peak", &|it| {
        let device = it.critical_device();
        let fragmentation = device.and_then(|device| device.at_peak.fragmentation());
        fragmentation.map_or(Value::Missing("none"), Value::Fraction)
    });
    row("failed requests", &|it| Value::Count(it.failure_count));
    row("events", &|it| Value::Count(it.events));
    let fits = |fits: Option<bool>| {
        let word = fits.map_or("unknown", |fits| if fits { "yes" } else { "no" });
        Value::Text(word.to_owned())
    };
    let mut first = vec![Value::Text("fits".to_owned())];
    first.extend(before.map(|before| fits(before.fits())));
    first.push(fits(comparison.fits()));
    rows.insert(0, first);
    let mut columns = vec![""];
    columns.extend(before.map(|_| "recorded"));
    columns.push("replay");
    let note = match after.header.devices {
        0 | 1 => "",
        _ => "of the critical GPU in each",
    };
    Table::new(&columns, rows, note)
}

fn bytes(summary: &RunSummary, of: impl Fn(&DeviceSummary) -> Option<u64>) -> Value {
    Value::bytes_or_none(summary.critical_device().and_then(of))
}

fn first_failure(title: &str, summary: &RunSummary, has_purposes: bool) -> Option<Section> {
    let failure = summary.out_of_memory()?;
    let mut metrics = failure::metrics(summary, failure);
    if !has_purposes {
        // A list of requests does not say what they are for.
        if let Some(requested) = metrics.first_mut() {
            requested.note.clear();
        }
    }
    let event = Value::Count(failure.context.event);
    metrics.push(Metric::new("event", event, "index in the trace, from 0"));
    Some(Section::new(title, Content::Metrics(metrics)))
}

fn metadata(comparison: &Comparison) -> Vec<Metric> {
    let header = &comparison.after.header;
    let mut metadata = Vec::new();
    if !header.command.is_empty() {
        metadata.push(Metric::text("recorded command", header.command.join(" ")));
    }
    if let Some(before) = &comparison.before {
        metadata.push(Metric::text("recorded settings", settings(&before.header)));
    }
    metadata.push(Metric::text("replay settings", settings(header)));
    metadata.push(Metric::text("jax", header.jax.clone()));
    metadata
}

fn settings(header: &Header) -> String {
    let how = if header.preallocate { "preallocated" } else { "growing" };
    let occupied = match header.run.occupied_bytes {
        0 => String::new(),
        bytes => format!(", {} used by others", Bytes(bytes)),
    };
    // It is a 32-bit number that was widened; 0.9 would be shown as 0.8999999761581421.
    let fraction = header.memory_fraction as f32;
    format!(
        "{} x {}, {}, fraction {fraction}, {how}{occupied}",
        header.devices,
        header.gpu().name,
        header.allocator
    )
}
