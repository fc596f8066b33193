//! The arrays on the critical device at several moments, by the line that made them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::analysis::{ArraySummary, RunSummary};
use crate::bytes::Bytes;
use crate::report::phrases::{file_name, gpu_suffix, line_or_unknown};
use crate::report::{Content, Section, Table, Value};

/// Groups of arrays that are listed.
const MAX_SHOWN: usize = 20;
/// At the peak, at the start of the last step, at the end.
const MOMENTS: usize = 3;

pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let device = summary.critical_device()?;
    let moments = [&device.arrays_at_peak, &device.arrays_between_steps, &device.arrays_at_end];
    let mut rows: BTreeMap<String, (u64, [u64; MOMENTS])> = BTreeMap::new();
    for (moment, arrays) in moments.into_iter().enumerate() {
        for array in arrays {
            let row = rows.entry(origin(array)).or_default();
            row.0 = row.0.max(array.count);
            row.1[moment] = row.1[moment].saturating_add(array.allocated_bytes);
        }
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(_, (_, bytes))| Reverse(bytes.iter().copied().max()));
    let rest = rows.get(MAX_SHOWN..).unwrap_or_default();
    let more = match rest.len() {
        0 => String::new(),
        more => {
            let bytes: u64 = rest.iter().map(|(_, (_, bytes))| bytes[0]).sum();
            format!("{more} more with {} at the peak; ", Bytes(bytes))
        }
    };
    rows.truncate(MAX_SHOWN);
    let is_empty = rows.is_empty();
    // The site and what made it are one column, which is the one that is cut to the width of a terminal.
    let rows = rows.into_iter().map(|(origin, (count, bytes))| {
        let bytes = bytes.into_iter().map(Value::Bytes);
        let names = [Value::Text(origin), Value::Count(count)];
        names.into_iter().chain(bytes).collect()
    });
    let columns = ["allocation site", "arrays", "at peak", "last step", "at end"];
    let note = format!(
        "{more}`arrays` is the highest number, `last step` is when that begins; the bytes of a column \
         include rounding and add up to those in use"
    );
    let table = Table::new(&columns, rows.collect(), note);
    let gpu = gpu_suffix(summary, device.device);
    let title = format!("arrays by allocation site{gpu}");
    (!is_empty).then(|| Section::detail(title, Content::Table(table)))
}

fn origin(array: &ArraySummary) -> String {
    let line = file_name(line_or_unknown(&array.site));
    let purpose = array.purpose.label();
    match &array.program {
        Some(program) => format!("{purpose} of {program}, {line}"),
        None => format!("{purpose}, {line}"),
    }
}
