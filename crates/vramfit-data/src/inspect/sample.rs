//! Statistics of a stratified sample of rows: one row of each stretch of the file, chosen by a seed.

use std::collections::BTreeMap;

use half::{bf16, f16};
use serde::{Serialize, Serializer};
use vramfit_base::Result;

use crate::hdf5::Scalar;
use crate::read::RowReader;
use crate::splitmix::{MixKey, below};

/// Read size.
const READ_BYTES: usize = 8 << 20;
/// Distinct values of a label; a column with more is not one.
const MAX_LABELS: usize = 64;
/// Makes the sum of any numbers finite: 2^-64.
const SCALE: f64 = 1.0 / (1_u128 << 64) as f64;

/// One number, without loss. In JSON non-finite numbers are strings: `"NaN"`, `"Infinity"`, `"-Infinity"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An integer or a boolean.
    Integer(i128),
    /// A floating-point number.
    Real(f64),
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match *self {
            Value::Integer(integer) => integer.serialize(serializer),
            Value::Real(real) if real.is_finite() => real.serialize(serializer),
            Value::Real(real) if real.is_nan() => "NaN".serialize(serializer),
            Value::Real(real) if real > 0.0 => "Infinity".serialize(serializer),
            Value::Real(_) => "-Infinity".serialize(serializer),
        }
    }
}

/// A value and its frequency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LabelCount {
    /// The value.
    pub value: i128,
    /// How many of the sampled rows have it.
    pub rows: u64,
}

/// Statistics of the sampled rows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Statistics {
    /// Rows that were read.
    pub rows: u64,
    /// Numbers in them.
    pub values: u64,
    /// The smallest finite number; none if there is none.
    pub min: Option<f64>,
    /// The largest finite number.
    pub max: Option<f64>,
    /// The mean of the finite numbers.
    pub mean: Option<f64>,
    /// How many are NaN.
    pub nan: u64,
    /// How many are infinite.
    pub infinite: u64,
    /// The frequency of each value, in order of value, if a row is one integer and there are few values.
    pub labels: Option<Vec<LabelCount>>,
}

/// Reads `count` rows, or all if there are fewer.
///
/// # Errors
///
/// As [`RowReader::gather`].
pub(super) fn statistics(rows: &RowReader, count: u64, seed: u64) -> Result<Option<Statistics>> {
    let (total, row_bytes) = (rows.len(), rows.row_bytes());
    if total == 0 || row_bytes == 0 || count == 0 || row_bytes > 1 << 30 {
        return Ok(None);
    }
    let count = count.min(total);
    let key = MixKey::new(&[seed, total, count]);
    let start = |stretch: u64| (u128::from(total) * u128::from(stretch) / u128::from(count)) as u64;
    let row = |stretch: u64| {
        let (first, end) = (start(stretch), start(stretch + 1));
        first + below(key.at(stretch), end - first)
    };
    let mut accumulator = Accumulator::default();
    let rows_per_read = (READ_BYTES / row_bytes).max(1) as u64;
    let mut buffer = Vec::new();
    let mut next = 0;
    while next < count {
        let end = (next + rows_per_read).min(count);
        let chosen: Vec<u64> = (next..end).map(row).collect();
        buffer.resize(chosen.len() * row_bytes, 0);
        rows.gather(&chosen, &mut buffer)?;
        for number in buffer.chunks_exact(rows.scalar().size()) {
            accumulator.add(value(rows.scalar(), number));
        }
        next = end;
    }
    let is_label = row_bytes == rows.scalar().size();
    Ok(Some(accumulator.statistics(count, is_label)))
}

#[derive(Default)]
struct Accumulator {
    /// As far as they are known while numbers are added.
    statistics: Statistics,
    finite: u64,
    sum: f64,
    /// The sum of all numbers times 2^-64, for where that of the numbers is infinite.
    scaled_sum: f64,
    counts: BTreeMap<i128, u64>,
    has_many_values: bool,
}

impl Accumulator {
    fn add(&mut self, value: Value) {
        let statistics = &mut self.statistics;
        statistics.values += 1;
        let number = match value {
            Value::Integer(integer) => {
                if !self.has_many_values {
                    *self.counts.entry(integer).or_default() += 1;
                    self.has_many_values = self.counts.len() > MAX_LABELS;
                }
                integer as f64
            }
            Value::Real(number) if number.is_nan() => return statistics.nan += 1,
            Value::Real(number) if number.is_infinite() => return statistics.infinite += 1,
            Value::Real(number) => number,
        };
        self.finite += 1;
        self.sum += number;
        self.scaled_sum += number * SCALE;
        statistics.min = Some(statistics.min.map_or(number, |min| min.min(number)));
        statistics.max = Some(statistics.max.map_or(number, |max| max.max(number)));
    }

    fn statistics(self, rows: u64, is_label: bool) -> Statistics {
        let labels = is_label && !self.has_many_values && !self.counts.is_empty();
        Statistics {
            rows,
            mean: (self.finite > 0).then(|| match self.sum.is_finite() {
                true => self.sum / self.finite as f64,
                false => self.scaled_sum / self.finite as f64 / SCALE,
            }),
            labels: labels.then(|| {
                let counts = self.counts.into_iter();
                counts.map(|(value, rows)| LabelCount { value, rows }).collect()
            }),
            ..self.statistics
        }
    }
}

/// Decodes a little-endian number.
pub(crate) fn value(scalar: Scalar, bytes: &[u8]) -> Value {
    let mut wide = [0; 8];
    let size = scalar.size().min(bytes.len());
    wide[..size].copy_from_slice(&bytes[..size]);
    let bits = u64::from_le_bytes(wide);
    match scalar {
        Scalar::Bool | Scalar::Uint8 | Scalar::Uint16 | Scalar::Uint32 | Scalar::Uint64 => {
            Value::Integer(bits.into())
        }
        Scalar::Int8 => Value::Integer((bits as i8).into()),
        Scalar::Int16 => Value::Integer((bits as i16).into()),
        Scalar::Int32 => Value::Integer((bits as i32).into()),
        Scalar::Int64 => Value::Integer((bits as i64).into()),
        Scalar::Float16 => Value::Real(f16::from_bits(bits as u16).to_f64()),
        Scalar::Bfloat16 => Value::Real(bf16::from_bits(bits as u16).to_f64()),
        Scalar::Float32 => Value::Real(f32::from_bits(bits as u32).into()),
        Scalar::Float64 => Value::Real(f64::from_bits(bits)),
    }
}
