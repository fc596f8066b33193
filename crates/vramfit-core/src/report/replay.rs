//! From a comparison to its report: what a run would have come to under other settings.

use serde::Serialize;

use super::coverage::not_replayed;
use super::dryrun::{bar, figure, refused, section, sentence, when};
use super::record::{OutOfMemory, out_of_memory};
use super::{Body, Figure, Report, Section, Table, Value, run};
use crate::analysis::{AbortInfo, Comparison, DeviceSummary, PeakContext, RunSummary};
use crate::bytes::Bytes;
use crate::trace::Header;

/// Version of the JSON object; it changes when a key changes its meaning or goes away.
const SCHEMA: u32 = 1;

/// Makes the report of a replay.
pub(super) fn report(comparison: &Comparison) -> Report {
    let not_covered = not_replayed(comparison);
    let after = &comparison.after;
    let mut sections = Vec::new();
    if let Some(device) = after.worst_device() {
        sections.push(section("", Body::Bars(vec![bar(after, device)])));
    }
    sections.push(section("", Body::Table(table(comparison))));
    sections.extend(refusals(comparison));
    if !comparison.notes.is_empty() {
        let notes = Body::Text(comparison.notes.clone());
        sections.push(section("about these settings", notes));
    }
    sections.push(section(
        "not covered by these figures",
        Body::Text(not_covered.clone()),
    ));
    sections.extend(run::details(after));
    Report {
        title: "vramfit replay".to_owned(),
        good: comparison.fits(),
        answer: answer(comparison),
        sections,
        facts: facts(comparison),
        record: record(comparison, &not_covered),
    }
}

fn answer(comparison: &Comparison) -> String {
    match &comparison.met {
        Some(met) if comparison.fits().is_none() => {
            let bytes = Bytes(met.requested_bytes);
            format!(
                "not known: {bytes} that the run was refused {} can be had, and how the program \
                 would go on is not in the trace",
                when(met)
            )
        }
        _ => sentence(&comparison.after),
    }
}

/// Every figure that settings can change, before and after.
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
    row("limit", &|of| bytes(of, DeviceSummary::limit));
    row("pool", &|of| bytes(of, |device| device.pool_bytes));
    row("peak in use", &|of| {
        bytes(of, |device| Some(device.peak_bytes))
    });
    row("largest free block at the peak", &|of| {
        bytes(of, |device| device.at_peak.largest_free_block_bytes)
    });
    row("fragmented at the peak", &|of| {
        let share = of.worst_device().and_then(|d| d.at_peak.fragmentation());
        share.map_or(Value::Missing("none"), Value::Share)
    });
    row("requests refused", &|of| Value::Count(of.refusal_count));
    row("events", &|of| Value::Count(of.events));
    let fits = |fits: Option<bool>| {
        Value::Text(
            fits.map_or("not known", |fits| if fits { "yes" } else { "no" })
                .to_owned(),
        )
    };
    let mut first = vec![Value::Text("fits".to_owned())];
    first.extend(before.map(|before| fits(before.fits())));
    first.push(fits(comparison.fits()));
    rows.insert(0, first);
    let mut columns = vec![String::new()];
    columns.extend(before.map(|_| "in the run".to_owned()));
    columns.push("after".to_owned());
    Table {
        columns,
        rows,
        note: match after.header.devices {
            0 | 1 => String::new(),
            _ => "of the GPU that decides in each".to_owned(),
        },
    }
}

fn bytes(answer: &RunSummary, of: impl Fn(&DeviceSummary) -> Option<u64>) -> Value {
    let bytes = answer.worst_device().and_then(of);
    bytes.map_or(Value::Missing("none"), Value::Bytes)
}

/// Which request was refused first: in the run, and after.
fn refusals(comparison: &Comparison) -> Vec<Section> {
    let of = |title: &str, answer: &RunSummary| {
        let refusal = answer.out_of_memory()?;
        let mut figures = refused(answer, refusal);
        if comparison.before.is_none() {
            // A list of requests does not say what they are for.
            if let Some(asked) = figures.first_mut() {
                asked.note.clear();
            }
        }
        let event = Value::Count(refusal.moment.event);
        figures.push(figure("event", event, "in the trace, from 0"));
        Some(section(title, Body::Figures(figures)))
    };
    let before = comparison.before.as_ref();
    let before = before.and_then(|before| of("refused first in the run", before));
    let after = of("refused first after the change", &comparison.after);
    before.into_iter().chain(after).collect()
}

fn facts(comparison: &Comparison) -> Vec<Figure> {
    let header = &comparison.after.header;
    let mut facts = Vec::new();
    if !header.command.is_empty() {
        let command = Value::Text(header.command.join(" "));
        facts.push(figure("command of the run", command, ""));
    }
    if let Some(before) = &comparison.before {
        facts.push(figure("settings in the run", settings(&before.header), ""));
    }
    facts.push(figure("settings after", settings(header), ""));
    facts.push(figure("jax", Value::Text(header.jax.clone()), ""));
    facts
}

fn settings(header: &Header) -> Value {
    let how = match header.preallocate {
        true => "preallocated",
        false => "growing",
    };
    let taken = match header.occupied_bytes {
        0 => String::new(),
        taken => format!(", {} taken by others", Bytes(taken)),
    };
    // It is a 32-bit number that was widened; 0.9 would be shown as 0.8999999761581421.
    let fraction = header.memory_fraction as f32;
    Value::Text(format!(
        "{} x {}, {}, fraction {fraction}, {how}{taken}",
        header.devices, header.gpu, header.allocator
    ))
}

#[derive(Serialize)]
struct Record<'a> {
    schema: u32,
    fits: Option<bool>,
    before: Option<Side<'a>>,
    after: Side<'a>,
    met: Option<&'a PeakContext>,
    ends_at_refusal: bool,
    notes: &'a [String],
    not_covered: &'a [String],
    command: &'a [String],
}

#[derive(Serialize)]
struct Side<'a> {
    fits: Option<bool>,
    gpu: &'a str,
    gpu_count: u32,
    total_memory_bytes: u64,
    allocator: &'a str,
    memory_fraction: f64,
    preallocate: bool,
    occupied_bytes: u64,
    limit_bytes: Option<u64>,
    capacity_bytes: Option<u64>,
    pool_bytes: Option<u64>,
    peak_bytes: u64,
    peak: Option<&'a PeakContext>,
    largest_free_block_bytes: Option<u64>,
    fragmentation: Option<f64>,
    oom: Option<OutOfMemory<'a>>,
    oom_count: u64,
    abort: Option<&'a AbortInfo>,
    allocator_model: Option<&'a str>,
    executions: u64,
    events: u64,
}

fn record(comparison: &Comparison, not_covered: &[String]) -> serde_json::Value {
    let before = comparison.before.as_ref();
    let record = Record {
        schema: SCHEMA,
        fits: comparison.fits(),
        before: before.map(|before| side(before, before.fits())),
        after: side(&comparison.after, comparison.fits()),
        met: comparison.met.as_ref(),
        ends_at_refusal: comparison.ends_at_refusal,
        notes: &comparison.notes,
        not_covered,
        command: &comparison.after.header.command,
    };
    serde_json::to_value(record).expect("the keys are texts and no map is in it")
}

fn side(answer: &RunSummary, fits: Option<bool>) -> Side<'_> {
    let header = &answer.header;
    let worst = answer.worst_device();
    let at_peak = worst.map(|device| device.at_peak).unwrap_or_default();
    Side {
        fits,
        gpu: &header.gpu,
        gpu_count: header.devices,
        total_memory_bytes: header.total_memory_bytes,
        allocator: &header.allocator,
        memory_fraction: header.memory_fraction,
        preallocate: header.preallocate,
        occupied_bytes: header.occupied_bytes,
        limit_bytes: worst.and_then(|device| device.limit_bytes),
        capacity_bytes: worst.map(|device| device.capacity_bytes),
        pool_bytes: worst.and_then(|device| device.pool_bytes),
        peak_bytes: worst.map_or(0, |device| device.peak_bytes),
        peak: worst.and_then(|device| device.peak.as_ref()),
        largest_free_block_bytes: at_peak.largest_free_block_bytes,
        fragmentation: at_peak.fragmentation(),
        oom: answer.out_of_memory().map(out_of_memory),
        oom_count: answer.refusal_count,
        abort: answer.abort.as_ref(),
        allocator_model: answer.allocator_model,
        executions: answer.executions,
        events: answer.events,
    }
}
