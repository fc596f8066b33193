//! One row for each device, where there are several.

use crate::analysis::{DeviceSummary, RunSummary};
use crate::report::phrases::more_in_json;
use crate::report::{Content, Section, Table, Value};

/// Devices that are listed when they differ.
const MAX_SHOWN: usize = 16;

pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    if summary.devices.len() < 2 {
        return None;
    }
    let row = |device: &DeviceSummary| {
        vec![
            Value::bytes_or_none(device.limit()),
            Value::bytes_or_none(device.pool_bytes),
            Value::Bytes(device.peak_bytes),
            Value::Bytes(device.steady_state_bytes),
            Value::bytes_or_none(device.at_peak.largest_free_block_bytes),
            Value::Count(device.failures),
        ]
    };
    let mut rows: Vec<_> = summary.devices.iter().map(row).collect();
    let count = rows.len();
    let are_alike = rows.iter().all(|row| *row == rows[0]);
    rows.truncate(if are_alike { 1 } else { MAX_SHOWN });
    let more = if are_alike { 0 } else { count - rows.len() };
    let rows = rows.into_iter().enumerate().map(|(device, row)| {
        let name = if are_alike {
            format!("all {count}")
        } else {
            summary.header.gpu_of(device as u32).to_string()
        };
        [vec![Value::Text(name)], row].concat()
    });
    let columns = ["GPU", "limit", "pool", "peak", "steady state", "free block", "failures"];
    let note = more_in_json(more).unwrap_or_default();
    let table = Table::new(&columns, rows.collect(), note);
    Some(Section::new("devices", Content::Table(table)))
}
