//! Numbers that do not fit into the type that is wanted: finding them, and saying where they are.

use std::ops::Range;

use half::bf16;
use vramfit_base::{Error, ErrorKind, Result};

use super::elements::{Load, StridedElements};
use crate::hdf5::{Number, Scalar};

/// A number does not fit into the type that is wanted: what it is.
pub(super) struct Overflow(pub(super) String);

/// Whether there are finite numbers of one type that are infinite in another.
fn may_become_infinite(from: Scalar, to: Scalar) -> bool {
    use Scalar::{Bfloat16, Float16, Float32, Float64, Int32, Int64, Uint16, Uint32, Uint64};
    matches!(
        (from, to),
        (Float64, Float32 | Float16 | Bfloat16)
            | (Float32, Float16 | Bfloat16)
            | (Bfloat16 | Int32 | Int64 | Uint16 | Uint32 | Uint64, Float16)
    )
}

/// Checks that numbers which are infinite in `out` were so before.
pub(super) fn check_infinities(
    from: Number,
    to: Scalar,
    spacing: StridedElements,
    input: &[u8],
    out: &[u8],
) -> std::result::Result<(), Overflow> {
    if !may_become_infinite(from.scalar, to) || !has_infinity(to, out) {
        return Ok(());
    }
    // Seldom: there are some.
    let elements = input.chunks_exact(spacing.stride);
    for (element, number) in elements.zip(out.chunks_exact(to.size())) {
        let bytes = &element[spacing.offset..spacing.offset + from.scalar.size()];
        let before = match from.scalar {
            Scalar::Float64 => f64::load(bytes, spacing.big_endian),
            Scalar::Float32 => f32::load(bytes, spacing.big_endian).into(),
            Scalar::Bfloat16 => bf16::load(bytes, spacing.big_endian).to_f64(),
            Scalar::Int32 => i32::load(bytes, spacing.big_endian).into(),
            Scalar::Uint32 => u32::load(bytes, spacing.big_endian).into(),
            Scalar::Int64 => i64::load(bytes, spacing.big_endian) as f64,
            Scalar::Uint64 => u64::load(bytes, spacing.big_endian) as f64,
            _ => u16::load(bytes, spacing.big_endian).into(),
        };
        if before.is_finite() && has_infinity(to, number) {
            return Err(Overflow(format!("{before:?}")));
        }
    }
    Ok(())
}

/// Whether one of these numbers is infinite. Written without a branch, so that the compiler makes vector instructions
/// of it.
fn has_infinity(scalar: Scalar, bytes: &[u8]) -> bool {
    let halves = |infinite: u16| {
        let (numbers, _) = bytes.as_chunks::<2>();
        let numbers = numbers.iter().map(|number| u16::from_le_bytes(*number));
        numbers.fold(false, |found, bits| found | (bits & 0x7fff == infinite))
    };
    match scalar {
        Scalar::Float16 => halves(0x7c00),
        Scalar::Bfloat16 => halves(0x7f80),
        Scalar::Float32 => {
            let (numbers, _) = bytes.as_chunks::<4>();
            let numbers = numbers.iter().map(|number| u32::from_le_bytes(*number));
            numbers.fold(false, |found, bits| found | (bits & 0x7fff_ffff == 0x7f80_0000))
        }
        _ => false,
    }
}

/// Adds dataset and row to an error about a number that does not fit. `again` reads a part of the `count` rows anew, half of
/// them at a time, and `row` says which row of the dataset is at a place.
pub(super) fn name_row(
    error: Error,
    path: &str,
    count: u64,
    again: &dyn Fn(Range<u64>) -> Result<()>,
    row: &dyn Fn(u64) -> u64,
) -> Error {
    // Arguments were checked before; the pieces of virtual datasets name the row themselves.
    if error.kind() != ErrorKind::InvalidArgument || error.message().starts_with("dataset `") {
        return error;
    }
    let fails = |part: Range<u64>| {
        let failed = again(part).err();
        failed.filter(|error| error.kind() == ErrorKind::InvalidArgument)
    };
    let (mut part, mut found) = (0..count, error);
    while part.end - part.start > 1 {
        let middle = part.start + (part.end - part.start) / 2;
        match fails(part.start..middle) {
            Some(earlier) => (part.end, found) = (middle, earlier),
            None => part.start = middle,
        }
    }
    // The first of several that do not fit, where threads found another one first.
    if let Some(first) = fails(part.clone()) {
        found = first;
    }
    let message = format!("dataset `{path}`, row {}: {}", row(part.start), found.message());
    found.with_message(message).replace_in_hints("NAME", path)
}
