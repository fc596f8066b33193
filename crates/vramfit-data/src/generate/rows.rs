//! The rows of each kind, and what is known of the best that a model can do.
//!
//! Each is a rule with noise of known size on top, so the loss of a perfect model is known, too, and a
//! training run can be judged against it. `docs/commands/data.md` tells the rules; a change of one
//! needs another [`RULES`].

use half::f16;

use super::draw::{Draws, UNIT, walsh};
use super::options::{CLASSES, GenerateOptions, Kind};
use crate::write::Number;

/// The version of the rules, noted in each file.
pub(super) const RULES: i64 = 1;

/// Units of a target: 1/1024 of 1/1024.
const FIXED_POINT_BITS: f64 = (UNIT * UNIT) as f64;

/// Appends the numbers of one row to the buffers of the datasets.
pub(super) fn append(
    options: &GenerateOptions,
    row: u64,
    out: &mut [Vec<u8>],
    memory: &mut Vec<i64>,
) {
    let number = options.number();
    let [main, rest @ ..] = out else { return };
    match options.kind {
        Kind::Sequences { length, features, targets } => {
            let mut draws = Draws::new(options.seed, 1, row);
            sequence(&mut draws, number, length, features, memory, main);
            let (last, sums) = memory.split_at(features as usize);
            for target in 0..targets {
                let value = expected(target, last, sums, length) + draws.normal() * UNIT / 8;
                put(number, value as f64 / FIXED_POINT_BITS, &mut rest[0]);
            }
        }
        Kind::Tabular { features } => {
            let mut draws = Draws::new(options.seed, 2, row);
            let class = label(&mut draws, options, row, &mut rest[0]);
            for feature in 0..features {
                let value = walsh(class, feature) * UNIT + draws.normal() / 2;
                put(number, value as f64 / UNIT as f64, main);
            }
        }
        Kind::Images { size } => {
            let mut draws = Draws::new(options.seed, 3, row);
            let class = label(&mut draws, options, row, &mut rest[0]);
            for y in 0..size {
                for x in 0..size {
                    // Sixteen fields of one brightness each.
                    let field = y * 4 / size * 4 + x * 4 / size;
                    let bright = 128 + 40 * walsh(class, field);
                    for _ in 0..3 {
                        let value = (bright + (draws.normal() >> 5)).clamp(0, 255);
                        match number {
                            Number::U8 => main.push(value as u8),
                            _ => put(number, value as f64 / 256.0, main),
                        }
                    }
                }
            }
        }
        Kind::Tokens { length, vocabulary } => {
            let mut draws = Draws::new(options.seed, 4, row);
            let mut token = draws.below(vocabulary);
            for at in 0..length {
                if at > 0 {
                    token = match draws.bernoulli_90() {
                        true => (5 * token + 17) % vocabulary,
                        false => draws.below(vocabulary),
                    };
                }
                put(number, token as f64, main);
            }
        }
    }
}

/// Appends a series: each number is seven eighths of the one before plus noise, of variance 1. `memory`
/// is left with the last step and then with the sums over all steps.
fn sequence(
    draws: &mut Draws,
    number: Number,
    length: u64,
    features: u64,
    memory: &mut Vec<i64>,
    out: &mut Vec<u8>,
) {
    memory.clear();
    memory.resize(2 * features as usize, 0);
    let (last, sums) = memory.split_at_mut(features as usize);
    let value = |number: i64| number as f64 / UNIT as f64;
    match number {
        Number::F32 => {
            steps(draws, length, last, sums, out, |number| (value(number) as f32).to_le_bytes());
        }
        Number::F16 => steps(draws, length, last, sums, out, |number| {
            f16::from_f32(value(number) as f32).to_le_bytes()
        }),
        // Series come in `float64` and in no other type.
        _ => steps(draws, length, last, sums, out, |number| value(number).to_le_bytes()),
    }
}

/// Draws the steps of a series, and adds the bytes of each number to a buffer.
#[inline]
fn steps<const SIZE: usize>(
    draws: &mut Draws,
    length: u64,
    last: &mut [i64],
    sums: &mut [i64],
    out: &mut Vec<u8>,
    bytes: impl Fn(i64) -> [u8; SIZE],
) {
    // Room for all of them at once: asking for it number by number takes as long as drawing them.
    let start = out.len();
    out.resize(start + length as usize * last.len() * SIZE, 0);
    let mut out = out[start..].as_chunks_mut().0.iter_mut();
    for step in 0..length {
        for ((last, sum), out) in last.iter_mut().zip(sums.iter_mut()).zip(&mut out) {
            let fresh = draws.normal();
            *last = match step {
                0 => fresh,
                // 496² + 896² = 1024², nearly.
                _ => (896 * *last + 496 * fresh + 512) >> 10,
            };
            *sum += *last;
            *out = bytes(*last);
        }
    }
}

/// Returns what the best model predicts for a target: a sum of the last step with signs, over the root
/// of the number of features, plus the distance from 0 of the mean of one feature.
fn expected(target: u64, last: &[i64], sums: &[i64], length: u64) -> i64 {
    let features = last.len() as u64;
    let scale = ((UNIT * UNIT) as u64 / features).isqrt() as i64;
    let signed: i64 =
        last.iter().enumerate().map(|(at, value)| walsh(target + 1, at as u64) * value).sum();
    let mean = sums[(target % features) as usize] * UNIT / length as i64;
    signed * scale + mean.abs()
}

/// Appends the label of a row and returns the class that its numbers show: the label itself nine times
/// out of ten, else any class.
fn label(draws: &mut Draws, options: &GenerateOptions, row: u64, out: &mut Vec<u8>) -> u64 {
    let drawn = draws.below(CLASSES);
    let label = match options.sort_by_label {
        true => (u128::from(row) * u128::from(CLASSES) / u128::from(options.samples)) as u64,
        false => drawn,
    };
    out.extend((label as i32).to_le_bytes());
    match draws.bernoulli_90() {
        true => label,
        false => draws.below(CLASSES),
    }
}

/// Appends a number. All values are exact in `f64`, so each machine rounds them alike.
#[inline]
fn put(number: Number, value: f64, out: &mut Vec<u8>) {
    match number {
        Number::F32 => out.extend((value as f32).to_le_bytes()),
        Number::F64 => out.extend(value.to_le_bytes()),
        Number::F16 => out.extend(f16::from_f32(value as f32).to_le_bytes()),
        Number::I32 => out.extend((value as i32).to_le_bytes()),
        Number::U16 => out.extend((value as u16).to_le_bytes()),
        Number::I64 => out.extend((value as i64).to_le_bytes()),
        Number::U32 => out.extend((value as u32).to_le_bytes()),
        Number::U64 => out.extend((value as u64).to_le_bytes()),
        Number::I16 => out.extend((value as i16).to_le_bytes()),
        Number::U8 => out.push(value as u8),
        Number::I8 => out.extend((value as i8).to_le_bytes()),
    }
}

/// Returns the loss of the best possible model and its name, to four digits behind the point so that
/// every machine writes the same.
pub(super) fn best_loss(kind: &Kind) -> (&'static str, f64) {
    // One choice out of `n` that comes up nine times out of ten, else any of them.
    let entropy = |n: f64| {
        let (right, wrong) = (0.9 + 0.1 / n, 0.1 / n);
        -(right * right.ln() + (n - 1.0) * wrong * wrong.ln())
    };
    let (name, loss) = match *kind {
        // Noise of deviation 1/8.
        Kind::Sequences { .. } => ("mean squared error", 1.0 / 64.0),
        Kind::Tabular { .. } | Kind::Images { .. } => {
            ("cross-entropy in nats", entropy(CLASSES as f64))
        }
        Kind::Tokens { vocabulary: 1, .. } => ("cross-entropy in nats a token", 0.0),
        Kind::Tokens { vocabulary, .. } => {
            ("cross-entropy in nats a token", entropy(vocabulary as f64))
        }
    };
    (name, (loss * 1e4).round() / 1e4)
}
