//! The tables of a dry run: devices, programs, reads of made-up values.

use super::dryrun::section;
use super::{Body, Section, Table, Value};
use crate::analysis::{DeviceSummary, ProgramSummary, RunSummary};
use crate::bytes::Bytes;
use crate::trace::CallbackSkip;

/// Programs that are listed at most; the others are summed up in one line.
const PROGRAMS_SHOWN: usize = 10;
/// Programs that are listed however little they need. Of the others, those that need less than
/// 1 % of the largest are not: eager code makes hundreds of them.
const PROGRAMS_SHOWN_ALWAYS: usize = 3;
/// Lines with reads of unknown values that are listed.
const READS_SHOWN: usize = 5;
/// Lines with host callbacks that are listed.
const CALLBACKS_SHOWN: usize = 10;
/// Devices that are listed when they differ.
const DEVICES_SHOWN: usize = 16;

/// One row a device, where there are several.
pub(super) fn devices(answer: &RunSummary) -> Option<Section> {
    if answer.devices.len() < 2 {
        return None;
    }
    let row = |device: &DeviceSummary| {
        let known = |bytes: Option<u64>| bytes.map_or(Value::Missing("none"), Value::Bytes);
        vec![
            known(device.limit()),
            known(device.pool_bytes),
            Value::Bytes(device.peak_bytes),
            Value::Bytes(device.steady_state_bytes),
            known(device.at_peak.largest_free_block_bytes),
            Value::Count(device.refusals),
        ]
    };
    let rows: Vec<_> = answer.devices.iter().map(row).collect();
    let alike = rows.iter().all(|row| *row == rows[0]);
    let shown = if alike { 1 } else { DEVICES_SHOWN };
    let count = rows.len();
    let named = rows
        .into_iter()
        .enumerate()
        .take(shown)
        .map(|(number, row)| {
            let name = match alike {
                true => format!("all {count}"),
                false => answer.header.gpu_of(number as u32).to_string(),
            };
            [vec![Value::Text(name)], row].concat()
        });
    let columns = [
        "GPU",
        "limit",
        "pool",
        "peak",
        "held",
        "free block",
        "refused",
    ];
    let table = Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows: named.collect(),
        note: match count.saturating_sub(shown) {
            _ if alike => String::new(),
            0 => String::new(),
            more => format!("{more} more in the JSON"),
        },
    };
    Some(section("devices", Body::Table(table)))
}

/// The programs that need most, and how many more there are.
pub(super) fn programs(answer: &RunSummary) -> Option<Section> {
    let need = |program: &ProgramSummary| program.sizes.needed_bytes();
    let least = answer.programs.first().map_or(0, need) / 100;
    let large = answer.programs.iter().filter(|p| need(p) >= least.max(1));
    let shown = large.count().clamp(PROGRAMS_SHOWN_ALWAYS, PROGRAMS_SHOWN);
    let rows = answer.programs.iter().take(shown).map(|program| {
        let sizes = &program.sizes;
        vec![
            Value::Text(program.name.clone()),
            Value::Count(program.calls),
            Value::Bytes(sizes.argument_bytes),
            Value::Bytes(sizes.output_bytes),
            Value::Bytes(sizes.alias_bytes),
            Value::Bytes(sizes.temp_bytes),
            Value::Bytes(sizes.constant_bytes),
        ]
    });
    let columns = [
        "program",
        "calls",
        "arguments",
        "outputs",
        "aliased",
        "temporary",
        "constants",
    ];
    let rest = answer.programs.get(shown..).unwrap_or_default();
    let note = rest.first().map_or_else(String::new, |largest| {
        let calls: u64 = rest.iter().map(|program| program.calls).sum();
        let most = Bytes(need(largest));
        format!(
            "{} more, called {calls} times, none of which needs more than {most}",
            rest.len()
        )
    });
    let table = Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
        note,
    };
    (!answer.programs.is_empty()).then(|| section("programs, per device", Body::Table(table)))
}

/// The programs that were compiled another way, too, and need other temporaries then.
pub(super) fn variants(answer: &RunSummary) -> Option<Section> {
    let autotune_range = answer.autotune_range.as_ref()?;
    let changed = answer.programs.iter().filter_map(|program| {
        let other = program.variant_temp_bytes?;
        (other != program.sizes.temp_bytes).then(|| {
            vec![
                Value::Text(program.name.clone()),
                Value::Bytes(program.sizes.temp_bytes),
                Value::Bytes(other),
            ]
        })
    });
    let mut rows: Vec<_> = changed.collect();
    let note = match rows.len().saturating_sub(PROGRAMS_SHOWN) {
        0 => String::new(),
        more => format!("{more} more in the JSON"),
    };
    rows.truncate(PROGRAMS_SHOWN);
    if rows.is_empty() {
        return None;
    }
    let columns = ["program", "by default", &autotune_range.variant];
    let table = Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows,
        note,
    };
    let title = "temporaries by choice of kernels, per device";
    Some(section(title, Body::Table(table)))
}

/// Python functions that programs called with made-up values, or that were not called.
pub(super) fn callbacks(answer: &RunSummary) -> Option<Section> {
    let rows = answer.callbacks.iter().take(CALLBACKS_SHOWN).map(|row| {
        let site = match row.site.is_empty() {
            true => "a line that is not known",
            false => &row.site,
        };
        let skipped = match row.skip_reason {
            None => Value::Count(row.skipped),
            Some(reason) => Value::Text(format!("{} ({})", row.skipped, reason_of(reason))),
        };
        vec![
            Value::Text(site.to_owned()),
            Value::Count(row.calls),
            Value::Count(row.errors),
            skipped,
        ]
    });
    let columns = ["line", "called", "errors", "not called"];
    let rest = answer.callbacks.len().saturating_sub(CALLBACKS_SHOWN);
    let failed = answer.callbacks.iter().find(|row| row.errors > 0);
    let mut notes = Vec::new();
    notes.extend((rest > 0).then(|| format!("{rest} more lines in the JSON")));
    notes.extend(failed.map(|row| {
        let error = row.error.lines().next().unwrap_or_default();
        format!(
            "the program was not told of errors; the last at {}: {error}",
            row.site
        )
    }));
    let table = Table {
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
        note: notes.join("; "),
    };
    let title = "host callbacks with made-up arguments";
    (!answer.callbacks.is_empty()).then(|| section(title, Body::Table(table)))
}

fn reason_of(reason: CallbackSkip) -> &'static str {
    match reason {
        CallbackSkip::Results => "result made up",
        CallbackSkip::Request => "as asked",
        CallbackSkip::Branch => "branch not taken",
        CallbackSkip::Bound => "too many",
    }
}

/// Where the program read values that the dry run does not know.
pub(super) fn unknown_reads(answer: &RunSummary) -> Option<Section> {
    let has_shapes = answer.unknown_reads.iter().any(|reads| reads.shapes > 0);
    let rows = answer.unknown_reads.iter().take(READS_SHOWN).map(|reads| {
        let site = match reads.site.is_empty() {
            true => "a line that is not known",
            false => &reads.site,
        };
        let mut row = vec![
            Value::Text(site.to_owned()),
            Value::Count(reads.reads),
            Value::Bytes(reads.bytes),
        ];
        row.extend(has_shapes.then_some(Value::Count(reads.shapes)));
        row
    });
    let mut columns = vec!["line", "reads", "bytes"];
    columns.extend(has_shapes.then_some("shapes"));
    let rest = answer.unknown_reads.get(READS_SHOWN..).unwrap_or_default();
    let table = Table {
        columns: columns.into_iter().map(str::to_owned).collect(),
        rows: rows.collect(),
        note: match rest.len() {
            0 => String::new(),
            lines => {
                let reads: u64 = rest.iter().map(|reads| reads.reads).sum();
                format!("{lines} more lines with {reads} reads")
            }
        },
    };
    let title = "made-up values that the program read (its path may depend on them)";
    (!answer.unknown_reads.is_empty()).then(|| section(title, Body::Table(table)))
}
