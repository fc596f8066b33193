//! One row for each device, where there are several.

use super::advice::operations::SPLITTING_PROGRAM;
use crate::analysis::{DeviceSummary, RunSummary};
use crate::report::phrases::more_in_json;
use crate::report::{Content, Section, Table, Value};

/// Devices that are listed when they differ.
const MAX_SHOWN: usize = 16;

/// What the fullest device has at least where another counts as not used.
const MIN_USED_BYTES: u64 = 64 << 20;
/// A device with less than one in this many bytes of the fullest one is not used.
const MIN_USED_FRACTION: u64 = 1000;

/// Returns the GPUs on which the program has put nothing, though it has on others; in words.
pub(super) fn unused(summary: &RunSummary) -> Option<String> {
    // Another process or host may use them.
    if summary.processes.len() > 1 || summary.hosts.is_some() {
        return None;
    }
    // What failed is just that which puts parts of an array on them.
    let failure = summary.out_of_memory();
    if failure.is_some_and(|it| it.context.program.as_deref() == Some(SPLITTING_PROGRAM)) {
        return None;
    }
    let numbers = unused_devices(&summary.devices).map(|device| summary.header.gpu_of(device));
    let numbers: Vec<u32> = numbers.collect();
    match &numbers[..] {
        [] => None,
        [only] => Some(format!("GPU {only}")),
        _ => Some(format!("GPUs {}", ranges(&numbers))),
    }
}

/// Returns how many GPUs have nothing, if any.
pub(super) fn unused_count(summary: &RunSummary) -> Option<usize> {
    unused(summary).map(|_| unused_devices(&summary.devices).count())
}

fn unused_devices(devices: &[DeviceSummary]) -> impl Iterator<Item = u32> + '_ {
    let fullest = devices.iter().map(|device| device.peak_bytes).max().unwrap_or(0);
    let is_unused = move |device: &&DeviceSummary| {
        fullest >= MIN_USED_BYTES && device.peak_bytes < fullest / MIN_USED_FRACTION
    };
    devices.iter().filter(is_unused).map(|device| device.device)
}

/// Lists ascending numbers, such as `1 to 3, 5`.
fn ranges(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match parts.last_mut().filter(|(_, last)| *last + 1 == number) {
            Some((_, last)) => *last = number,
            None => parts.push((number, number)),
        }
    }
    let parts = parts.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    });
    parts.collect::<Vec<_>>().join(", ")
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn with_peaks(peaks: &[u64]) -> Vec<u32> {
        let devices = peaks.iter().zip(0..).map(|(&peak_bytes, device)| DeviceSummary {
            device,
            peak_bytes,
            ..DeviceSummary::default()
        });
        unused_devices(&devices.collect::<Vec<_>>()).collect()
    }

    #[test]
    fn devices_that_hold_nothing_are_found() {
        const GIB: u64 = 1 << 30;
        assert_eq!(with_peaks(&[GIB, 0, 0, 0]), [1, 2, 3]);
        assert_eq!(with_peaks(&[0, GIB, 0, 0, GIB, 256]), [0, 2, 3, 5]);
        // All are used, or next to nothing is there.
        assert!(with_peaks(&[GIB, GIB / 8]).is_empty());
        assert!(with_peaks(&[4096, 0]).is_empty());
        assert!(with_peaks(&[GIB]).is_empty());
    }

    #[test]
    fn numbers_that_follow_each_other_are_a_range() {
        assert_eq!(ranges(&[1, 2, 3]), "1 to 3");
        assert_eq!(ranges(&[0, 2, 3, 5]), "0, 2, 3, 5");
        assert_eq!(ranges(&[0, 4, 5, 6, 7]), "0, 4 to 7");
    }
}
