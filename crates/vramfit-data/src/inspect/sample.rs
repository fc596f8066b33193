//! Statistics of some rows: one of each stretch of the file, so that they are spread evenly, chosen by a
//! seed, so that they are the same again.

use std::collections::BTreeMap;

use half::{bf16, f16};
use serde::{Serialize, Serializer};
use vramfit_core::Result;

use crate::hdf5::Scalar;
use crate::mix::{Key, below};
use crate::read::Rows;

/// Rows are read in pieces of about this size.
const PIECE: usize = 8 << 20;
/// Different values that are counted; with more, a column is no label.
const MAX_VALUES: usize = 64;

/// One number, without loss. In JSON what is not finite is a text: `"NaN"`, `"Infinity"`, `"-Infinity"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An integer or a truth value.
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

/// How often a value was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    /// The value.
    pub value: i128,
    /// In how many of the sampled rows.
    pub rows: u64,
}

/// What the numbers of the sampled rows are like.
#[derive(Clone, Debug, Serialize)]
pub struct Statistics {
    /// Rows that were read; all where there are no more.
    pub rows: u64,
    /// Numbers in them.
    pub values: u64,
    /// The least number, as it is; none where there is none that is finite.
    pub min: Option<f64>,
    /// The largest number.
    pub max: Option<f64>,
    /// The mean of the finite numbers.
    pub mean: Option<f64>,
    /// How many are not a number.
    pub nan: u64,
    /// How many are infinite.
    pub infinite: u64,
    /// How often each value is there, where a row is one integer and there are not too many; by value.
    pub labels: Option<Vec<Count>>,
}

/// Reads about `wanted` rows.
///
/// # Errors
///
/// As [`Rows::gather`].
pub(super) fn statistics(rows: &Rows, wanted: u64, seed: u64) -> Result<Option<Statistics>> {
    let (total, row_bytes) = (rows.len(), rows.row_bytes());
    if total == 0 || row_bytes == 0 || wanted == 0 || row_bytes > 1 << 30 {
        return Ok(None);
    }
    let wanted = wanted.min(total);
    let key = Key::new(&[seed, total, wanted]);
    let start =
        |stretch: u64| (u128::from(total) * u128::from(stretch) / u128::from(wanted)) as u64;
    let row = |stretch: u64| {
        let (first, end) = (start(stretch), start(stretch + 1));
        first + below(key.at(stretch), end - first)
    };
    let mut collected = Collected::default();
    let together = (PIECE / row_bytes).max(1) as u64;
    let mut buffer = Vec::new();
    let mut next = 0;
    while next < wanted {
        let end = (next + together).min(wanted);
        let chosen: Vec<u64> = (next..end).map(row).collect();
        buffer.resize(chosen.len() * row_bytes, 0);
        rows.gather(&chosen, &mut buffer)?;
        for number in buffer.chunks_exact(rows.scalar().size()) {
            collected.add(value(rows.scalar(), number));
        }
        next = end;
    }
    let is_label = row_bytes == rows.scalar().size();
    Ok(Some(collected.statistics(wanted, is_label)))
}

#[derive(Default)]
struct Collected {
    values: u64,
    finite: u64,
    sum: f64,
    least: Option<f64>,
    most: Option<f64>,
    nan: u64,
    infinite: u64,
    counts: BTreeMap<i128, u64>,
    many: bool,
}

impl Collected {
    fn add(&mut self, value: Value) {
        self.values += 1;
        let number = match value {
            Value::Integer(integer) => {
                if !self.many {
                    *self.counts.entry(integer).or_default() += 1;
                    self.many = self.counts.len() > MAX_VALUES;
                }
                integer as f64
            }
            Value::Real(number) if number.is_nan() => return self.nan += 1,
            Value::Real(number) if number.is_infinite() => return self.infinite += 1,
            Value::Real(number) => number,
        };
        self.finite += 1;
        self.sum += number;
        self.least = Some(self.least.map_or(number, |least| least.min(number)));
        self.most = Some(self.most.map_or(number, |most| most.max(number)));
    }

    fn statistics(self, rows: u64, is_label: bool) -> Statistics {
        let labels = is_label && !self.many && !self.counts.is_empty();
        Statistics {
            rows,
            values: self.values,
            min: self.least,
            max: self.most,
            mean: (self.finite > 0).then(|| self.sum / self.finite as f64),
            nan: self.nan,
            infinite: self.infinite,
            labels: labels.then(|| {
                let counts = self.counts.into_iter();
                counts.map(|(value, rows)| Count { value, rows }).collect()
            }),
        }
    }
}

/// Returns the number of these bytes, which are in little-endian order.
pub(super) fn value(scalar: Scalar, bytes: &[u8]) -> Value {
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
