//! What the kernels that autotuning chooses on a GPU may change.

use super::programs::MAX_PROGRAMS_SHOWN;
use crate::analysis::{AutotuneRange, DeviceSummary, RunSummary};
use crate::bytes::Bytes;
use crate::report::phrases::more_in_json;
use crate::report::{Content, Metric, Section, Table, Value};

/// Between which peaks the choice of kernels may put the run.
pub(super) fn peak_range(summary: &RunSummary, device: &DeviceSummary) -> Option<Metric> {
    let range = summary.autotune_range.as_ref()?;
    let (label, variant) = ("peak range", &range.variant);
    let small = small_programs(range);
    if range.measured == 0 {
        let note = format!("no program that needs 1 % of the pool compiles differently{small}");
        return Some(Metric::new(label, Value::Missing("none"), note));
    }
    let other = range.peak_bytes.get(device.device as usize).copied()?;
    let (low, high) = (device.peak_bytes.min(other), device.peak_bytes.max(other));
    let ends = [low, high].map(|end| Bytes(end).to_string());
    let value =
        if ends[0] == ends[1] { Value::Bytes(high) } else { Value::Text(ends.join(" to ")) };
    let effect = match range.fits {
        Some(false) if !summary.is_refused() => format!("does not fit {variant}"),
        None => format!("{variant}, the failed request would succeed"),
        _ if low == high => format!("the same {variant}"),
        _ if other == high => format!("{} more {variant}", Bytes(high - low)),
        _ => format!("{} less {variant}", Bytes(high - low)),
    };
    let note = format!("{effect}; on a GPU, autotuning decides{small}");
    Some(Metric::new(label, value, note))
}

/// How many small programs the range leaves out, and what they could change.
fn small_programs(range: &AutotuneRange) -> String {
    let programs = match range.small {
        0 => return String::new(),
        1 => "1 program below 1 % of the pool is".to_owned(),
        count => format!("{count} programs below 1 % of the pool are"),
    };
    let temporaries = Bytes(range.small_temp_bytes);
    format!("; {programs} not included, with {temporaries} of temporaries")
}

/// The programs that need other temporaries when compiled for other kernels.
pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let range = summary.autotune_range.as_ref()?;
    let changed = summary.programs.iter().filter_map(|program| {
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
    if rows.is_empty() {
        return None;
    }
    let note = more_in_json(rows.len().saturating_sub(MAX_PROGRAMS_SHOWN));
    rows.truncate(MAX_PROGRAMS_SHOWN);
    let columns = ["program", "default", &range.variant];
    let table = Table::new(&columns, rows, note.unwrap_or_default());
    let title = "temporaries by choice of kernels, per device";
    Some(Section::new(title, Content::Table(table)))
}

/// What is unknown of the kernels that autotuning would choose.
pub(super) fn caveat(summary: &RunSummary) -> String {
    let kernels = if summary.header.run.autotune_results.is_some() {
        "autotuning: kernels without autotuning results are the compiler's defaults"
    } else {
        "autotuning: without a GPU, the compiler uses its default kernels"
    };
    match &summary.autotune_range {
        None => format!(
            "{kernels}; on an H100, others raised the peak of six recorded programs by 1 to 21 %. \
             `--autotune-range` measures one kind of them on this program"
        ),
        Some(range) => {
            let unmeasured = match range.unmeasured {
                0 => String::new(),
                count => format!(", nor {count} large programs that compile only one way"),
            };
            format!("{kernels}; the peak range does not cover convolutions{unmeasured}")
        }
    }
}
