//! The arrays on the critical device, by the line that made them.

use crate::analysis::{ArraySummary, DeviceSummary, RunSummary};
use crate::bytes::Bytes;
use crate::report::phrases::{gpu_suffix, line_or_unknown};
use crate::report::{Content, Section, Table, Value};

/// Groups of arrays that are listed.
const MAX_SHOWN: usize = 20;

pub(in crate::report) fn at_peak(summary: &RunSummary) -> Option<Section> {
    section(summary, "at the peak", |device| &device.arrays_at_peak)
}

pub(in crate::report) fn between_steps(summary: &RunSummary) -> Option<Section> {
    section(summary, "at the start of the last step", |device| {
        &device.arrays_between_steps
    })
}

pub(in crate::report) fn at_end(summary: &RunSummary) -> Option<Section> {
    section(summary, "at the end", |device| &device.arrays_at_end)
}

fn section(
    summary: &RunSummary,
    when: &str,
    arrays: impl Fn(&DeviceSummary) -> &[ArraySummary],
) -> Option<Section> {
    let device = summary.critical_device()?;
    let arrays = arrays(device);
    let gpu = gpu_suffix(summary, device.device);
    let title = format!("arrays {when}, by allocation site{gpu}");
    (!arrays.is_empty()).then(|| Section::detail(title, Content::Table(table(arrays))))
}

fn table(arrays: &[ArraySummary]) -> Table {
    let rows = arrays.iter().take(MAX_SHOWN).map(|array| {
        let line = line_or_unknown(&array.site);
        let purpose = array.purpose.label();
        let origin = match &array.program {
            Some(program) => format!("{purpose} of {program}, {line}"),
            None => format!("{purpose}, {line}"),
        };
        // One column, which is the one that is cut to the width of a terminal.
        vec![
            Value::Text(origin),
            Value::Count(array.count),
            Value::Bytes(array.bytes),
            Value::Bytes(array.held_bytes),
        ]
    });
    let rest = arrays.get(MAX_SHOWN..).unwrap_or_default();
    let more = match rest.len() {
        0 => String::new(),
        more => {
            let bytes: u64 = rest.iter().map(|array| array.held_bytes).sum();
            format!("{more} more with {}; ", Bytes(bytes))
        }
    };
    Table::new(
        &["allocation site", "arrays", "requested", "allocated"],
        rows.collect(),
        format!("{more}the last column includes rounding and adds up to the bytes in use"),
    )
}
