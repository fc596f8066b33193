//! What the kernels that autotuning chooses on a GPU may change (`--autotune-range`).

use serde_json::{Value as Json, json};

use crate::analysis::device_summary::DeviceSummary;
use crate::analysis::programs::Programs;
use crate::analysis::summary::ProgramSummary;
use crate::bytes::Bytes;
use crate::replay::VariantReplay;
use crate::section::phrases::more_in_json;
use crate::section::{Content, Metric, Section, Table, Value};
use crate::trace::TextId;

/// Programs that a report lists.
const MAX_SHOWN: usize = 10;

/// The same run once more, with the temporaries that its large programs need when they are
/// compiled another way. What a GPU's autotuner chooses lies at one of the ends, or in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AutotuneRange {
    /// The other way, such as `without Triton GEMM`; empty when no program was measured.
    pub variant: String,
    /// The highest number of bytes given out on each device, in order, as
    /// [`DeviceSummary::peak_bytes`]. Where it does not fit: until the first request that the
    /// run had met.
    pub peak_bytes: Vec<u64>,
    /// Whether every request would be met. `None` when a request that the run refused would be:
    /// how the program would have gone on is not known.
    pub fits: Option<bool>,
    /// How many different programs were measured.
    pub measured: u64,
    /// How many programs are large, took the compiler's default choices, and could not be
    /// compiled the other way.
    pub unmeasured: u64,
    /// How many programs took the compiler's default choices and were not compiled the other way
    /// because a call takes less than 1 % of the pool.
    pub small: u64,
    /// Their temporaries in the run, added up.
    pub small_temp_bytes: u64,
}

impl AutotuneRange {
    /// Returns the range of a run. Programs that take less than 1 % of the limit of the pool are small.
    pub(in crate::analysis) fn new(
        variant: &mut VariantReplay,
        programs: &Programs,
        limit_bytes: u64,
        text: &dyn Fn(TextId) -> String,
    ) -> Self {
        let entries = &programs.entries;
        let measured: Vec<_> = entries.iter().filter_map(|entry| entry.variant).collect();
        let (unmeasured, small): (Vec<_>, Vec<_>) = entries
            .iter()
            .filter(|entry| entry.variant.is_none() && entry.key.compile_attempt == TextId(0))
            .map(|entry| entry.key.sizes)
            .partition(|sizes| sizes.is_large(limit_bytes));
        AutotuneRange {
            variant: measured.first().map_or(String::new(), |(name, _)| text(*name)),
            peak_bytes: variant.peak_bytes(),
            fits: variant.fits(),
            measured: measured.len() as u64,
            unmeasured: unmeasured.len() as u64,
            small: small.len() as u64,
            small_temp_bytes: small
                .iter()
                .fold(0, |sum: u64, sizes| sum.saturating_add(sizes.temp_bytes)),
        }
    }

    /// Returns the peak of a device with the other choices; `None` where no program was measured.
    pub(crate) fn variant_peak(&self, device: &DeviceSummary) -> Option<u64> {
        let peak = self.peak_bytes.get(device.device as usize).copied();
        peak.filter(|_| self.measured > 0)
    }

    /// Returns the peaks of a device, that with the compiler's default choices first, with which a run `fits` or not.
    pub(crate) fn to_json(&self, device: &DeviceSummary, fits: Option<bool>) -> Json {
        let mut variants =
            vec![json!({"name": "default", "peak_bytes": device.peak_bytes, "fits": fits})];
        if self.measured > 0 {
            variants.push(json!({
                "name": self.variant,
                "peak_bytes": self.variant_peak(device).unwrap_or(0),
                "fits": self.fits,
            }));
        }
        json!({
            "variants": variants,
            "programs_measured": self.measured,
            "programs_not_measured": self.unmeasured,
            "small_programs": self.small,
            "small_programs_temp_bytes": self.small_temp_bytes,
        })
    }
}

/// Between which peaks the choice of kernels may put the run.
pub(crate) fn peak_metric(
    range: &AutotuneRange,
    device: &DeviceSummary,
    is_refused: bool,
) -> Option<Metric> {
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
        Some(false) if !is_refused => format!("does not fit {variant}"),
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
pub fn section(range: &AutotuneRange, programs: &[ProgramSummary]) -> Option<Section> {
    let changed = programs.iter().filter_map(|program| {
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
    let note = more_in_json(rows.len().saturating_sub(MAX_SHOWN));
    rows.truncate(MAX_SHOWN);
    let columns = ["program", "default", &range.variant];
    let table = Table::new(&columns, rows, note.unwrap_or_default());
    let title = "temporaries by choice of kernels, per device";
    Some(Section::new(title, Content::Table(table)))
}

/// What is unknown of the kernels that autotuning would choose.
pub(crate) fn caveat(range: Option<&AutotuneRange>, has_results: bool) -> String {
    let kernels = if has_results {
        "autotuning: kernels without autotuning results are the compiler's defaults"
    } else {
        "autotuning: without a GPU, the compiler uses its default kernels"
    };
    match range {
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
