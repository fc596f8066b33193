//! Numbers as the file has them, to numbers as they are wanted, while they are copied.
//!
//! Nothing changes silently: an integer that does not fit is an error, and so is a finite number that would
//! become infinite.

use half::{bf16, f16};
use vramfit_base::{Error, Result};

use super::elements::{Load, StridedElements};
use super::overflow::{self, Overflow};
use crate::hdf5::{Axis, Bits, Number, Numbers, Scalar};

/// Copies the numbers of elements from a decoded chunk and makes them what is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Converter {
    /// Bytes of an element in the file.
    pub(super) stride: usize,
    /// Bytes of an element as it is wanted.
    pub(super) width: usize,
    placement: Placement,
    from: Number,
    to: Scalar,
    kernel: Kernel,
}

/// Where in an element its numbers are.
#[derive(Clone, Debug)]
enum Placement {
    /// Elements are nothing but numbers side by side.
    Dense,
    /// One number, this many bytes behind the start.
    Single(usize),
    /// Several: `run` of them side by side, repeated along further axes.
    Runs { offset: usize, run: usize, axes: Vec<Axis> },
}

#[derive(Clone, Debug)]
enum Kernel {
    /// The bytes are what is wanted.
    Copy,
    /// Each number by itself.
    Each(Conversion),
    /// Each number is decoded first, and then converted unless it is what is wanted.
    Decode { bits: Bits, decoded: Number, conversion: Option<Conversion> },
}

/// So many numbers are decoded at a time.
const DECODED_TOGETHER: usize = 128;

impl Converter {
    /// Prepares to copy the numbers of elements of `stride` bytes.
    ///
    /// # Errors
    ///
    /// `invalid-argument` when there is no such conversion.
    pub(crate) fn new(stride: usize, numbers: &Numbers, to: Scalar) -> Result<Converter> {
        let from = numbers.number;
        let placement = Placement::of(stride, numbers);
        let swapped = from.big_endian && from.scalar.size() > 1;
        let convert = |scalar: Scalar| {
            conversion(scalar, to).ok_or_else(|| {
                Error::invalid_argument(format!(
                    "cannot convert {} to {}",
                    from.scalar.name(),
                    to.name()
                ))
                .hint("floats convert to floats, and integers to integers or floats")
            })
        };
        let kernel = match (from.bits, from.scalar == to) {
            (Some(bits), _) => {
                let scalar = bits.decoded_as(from.scalar);
                let conversion = (scalar != to).then(|| convert(scalar)).transpose()?;
                let decoded = Number { scalar, big_endian: false, bits: None };
                Kernel::Decode { bits, decoded, conversion }
            }
            (None, true) if !swapped && !matches!(placement, Placement::Single(_)) => Kernel::Copy,
            (None, true) => Kernel::Each(match to.size() {
                1 => gather::<1>,
                2 => gather::<2>,
                4 => gather::<4>,
                _ => gather::<8>,
            }),
            (None, false) => Kernel::Each(convert(from.scalar)?),
        };
        Ok(Converter { stride, width: numbers.count() * to.size(), placement, from, to, kernel })
    }

    /// Copies elements of this many bytes as they are, whatever they are.
    pub(crate) fn identity(size: usize) -> Converter {
        let byte = Number { scalar: Scalar::Uint8, big_endian: false, bits: None };
        Converter {
            stride: size,
            width: size,
            placement: Placement::Dense,
            from: byte,
            to: byte.scalar,
            kernel: Kernel::Copy,
        }
    }

    /// Whether elements are copied as they are.
    pub(crate) fn is_copy(&self) -> bool {
        matches!((&self.kernel, &self.placement), (Kernel::Copy, Placement::Dense))
    }

    /// Fills `out` from as many elements at the beginning of `input`.
    ///
    /// # Errors
    ///
    /// `invalid-argument` when an integer does not fit.
    pub(crate) fn run(&self, input: &[u8], out: &mut [u8]) -> Result<()> {
        let input = &input[..out.len() / self.width * self.stride];
        let done = match &self.placement {
            Placement::Dense => self.run_numbers(input, out, self.from.stored_size(), 0),
            Placement::Single(offset) => self.run_numbers(input, out, self.stride, *offset),
            Placement::Runs { offset, run, axes } => {
                let elements = input.chunks_exact(self.stride);
                let mut elements = elements.zip(out.chunks_exact_mut(self.width));
                elements.try_for_each(|(element, out)| {
                    self.run_axes(&element[*offset..], out, *run, axes)
                })
            }
        };
        done.map_err(|Overflow(value)| {
            let (from, to) = (self.from.scalar.name(), self.to.name());
            let error = Error::invalid_argument(format!("the value {value} is out of range for {to}"));
            error.hint("store smaller numbers").python_hint(format!(
                "keep the datatype of the file, {from}: `dtype={{\"NAME\": \"{from}\"}}`, for 64 bits with `jax_enable_x64`"
            ))
        })
    }

    /// Goes through the axes of an array that is not in one piece.
    fn run_axes(
        &self,
        input: &[u8],
        out: &mut [u8],
        run: usize,
        axes: &[Axis],
    ) -> std::result::Result<(), Overflow> {
        let size = self.from.stored_size();
        let Some((axis, inner)) = axes.split_first() else {
            return self.run_numbers(&input[..run * size], out, size, 0);
        };
        let parts = out.chunks_exact_mut(out.len() / axis.length);
        for (place, part) in parts.enumerate() {
            self.run_axes(&input[place * axis.stride..], part, run, inner)?;
        }
        Ok(())
    }

    fn run_numbers(
        &self,
        input: &[u8],
        out: &mut [u8],
        stride: usize,
        offset: usize,
    ) -> std::result::Result<(), Overflow> {
        match self.kernel {
            Kernel::Copy => {
                out.copy_from_slice(input);
                Ok(())
            }
            Kernel::Each(kernel) => {
                let spacing = StridedElements { stride, offset, big_endian: self.from.big_endian };
                kernel(spacing, input, out)?;
                overflow::check_infinities(self.from, self.to, spacing, input, out)
            }
            Kernel::Decode { bits, decoded, conversion } => {
                let size = decoded.scalar.size();
                let is_signed = decoded.scalar.is_signed();
                let mut numbers = [0; DECODED_TOGETHER * 8];
                let inputs = input.chunks(DECODED_TOGETHER * stride);
                for (input, out) in inputs.zip(out.chunks_mut(DECODED_TOGETHER * self.to.size())) {
                    let count = out.len() / self.to.size();
                    let numbers = &mut numbers[..count * size];
                    let elements = input.chunks_exact(stride);
                    for (element, number) in elements.zip(numbers.chunks_exact_mut(size)) {
                        bits.decode(&element[offset..], self.from.big_endian, is_signed, number);
                    }
                    let Some(convert) = conversion else {
                        out.copy_from_slice(numbers);
                        continue;
                    };
                    let spacing = StridedElements { stride: size, offset: 0, big_endian: false };
                    convert(spacing, numbers, out)?;
                    overflow::check_infinities(decoded, self.to, spacing, numbers, out)?;
                }
                Ok(())
            }
        }
    }
}

impl Placement {
    /// Finds what of an array is in one piece.
    fn of(stride: usize, numbers: &Numbers) -> Placement {
        let size = numbers.number.stored_size();
        let (mut run, mut axes) = (1, numbers.axes.as_slice());
        while let Some((axis, outer)) = axes.split_last()
            && (axis.stride == run * size || axis.length == 1)
        {
            run *= axis.length;
            axes = outer;
        }
        match (run, axes) {
            (run, []) if numbers.offset == 0 && run * size == stride => Placement::Dense,
            (1, []) => Placement::Single(numbers.offset),
            (run, axes) => Placement::Runs { offset: numbers.offset, run, axes: axes.to_vec() },
        }
    }
}

/// Copies numbers that are not side by side, or whose bytes are in the other order.
fn gather<const SIZE: usize>(
    spacing: StridedElements,
    input: &[u8],
    out: &mut [u8],
) -> std::result::Result<(), Overflow> {
    let (numbers, _) = out.as_chunks_mut::<SIZE>();
    let reverse = spacing.big_endian;
    if spacing.stride == SIZE {
        let (elements, _) = input.as_chunks::<SIZE>();
        for (number, element) in numbers.iter_mut().zip(elements) {
            *number = *element;
            if reverse {
                number.reverse();
            }
        }
        return Ok(());
    }
    for (number, element) in numbers.iter_mut().zip(input.chunks_exact(spacing.stride)) {
        number.copy_from_slice(&element[spacing.offset..spacing.offset + SIZE]);
        if reverse {
            number.reverse();
        }
    }
    Ok(())
}

/// A number that can be written.
trait Store {
    fn store(self, bytes: &mut [u8]);
}

/// A conversion that may fail.
trait CastInto<T> {
    fn cast_into(self) -> std::result::Result<T, Overflow>;
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Load for $type {
            fn load(bytes: &[u8], big_endian: bool) -> Self {
                let mut array = [0; size_of::<$type>()];
                array.copy_from_slice(bytes);
                if big_endian { <$type>::from_be_bytes(array) } else { <$type>::from_le_bytes(array) }
            }
        }
        impl Store for $type {
            fn store(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
number!(i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64);

macro_rules! integers_to_integers {
    ($($from:ty => $($to:ty),*;)*) => {$($(
        impl CastInto<$to> for $from {
            fn cast_into(self) -> std::result::Result<$to, Overflow> {
                <$to>::try_from(self).map_err(|_| Overflow(self.to_string()))
            }
        }
    )*)*};
}
integers_to_integers! {
    i8 => i16, i32, i64, u8, u16, u32, u64;
    i16 => i8, i32, i64, u8, u16, u32, u64;
    i32 => i8, i16, i64, u8, u16, u32, u64;
    i64 => i8, i16, i32, u8, u16, u32, u64;
    u8 => i8, i16, i32, i64, u16, u32, u64;
    u16 => i8, i16, i32, i64, u8, u32, u64;
    u32 => i8, i16, i32, i64, u8, u16, u64;
    u64 => i8, i16, i32, i64, u8, u16, u32;
}

macro_rules! cast {
    ($($from:ty => $($to:ty: $how:expr),*;)*) => {$($(
        impl CastInto<$to> for $from {
            fn cast_into(self) -> std::result::Result<$to, Overflow> {
                let how: fn($from) -> $to = $how;
                Ok(how(self))
            }
        }
    )*)*};
}
cast! {
    f16 => bf16: |x| bf16::from_f32(x.to_f32()), f32: f16::to_f32, f64: f16::to_f64;
    bf16 => f16: |x| f16::from_f32(x.to_f32()), f32: bf16::to_f32, f64: bf16::to_f64;
    f32 => f16: f16::from_f32, bf16: bf16::from_f32, f64: f64::from;
    f64 => f16: to_f16, bf16: to_bf16, f32: |x| x as f32;
    i8 => f16: |x| f16::from_f32(x.into()), bf16: |x| bf16::from_f32(x.into()), f32: f32::from, f64: f64::from;
    // Truth values are stored as these.
    u8 => u8: |x| x, f16: |x| f16::from_f32(x.into()), bf16: |x| bf16::from_f32(x.into()), f32: f32::from, f64: f64::from;
    i16 => f16: |x| f16::from_f32(x.into()), bf16: |x| bf16::from_f32(x.into()), f32: f32::from, f64: f64::from;
    u16 => f16: |x| f16::from_f32(x.into()), bf16: |x| bf16::from_f32(x.into()), f32: f32::from, f64: f64::from;
    i32 => f16: |x| to_f16(x.into()), bf16: |x| to_bf16(x.into()), f32: |x| x as f32, f64: f64::from;
    u32 => f16: |x| to_f16(x.into()), bf16: |x| to_bf16(x.into()), f32: |x| x as f32, f64: f64::from;
    i64 => f16: |x| to_f16(signed_to_odd(x)), bf16: |x| to_bf16(signed_to_odd(x)), f32: |x| x as f32, f64: |x| x as f64;
    u64 => f16: |x| to_f16(to_odd(x)), bf16: |x| to_bf16(to_odd(x)), f32: |x| x as f32, f64: |x| x as f64;
}

/// Returns an integer rounded for [`to_f16`] and [`to_bf16`]: what a double has no digits for only makes its last one odd.
fn to_odd(number: u64) -> f64 {
    let lost = match number >> 53 {
        0 => 0,
        _ => number & ((1 << 11) - 1),
    };
    ((number - lost) | (u64::from(lost != 0) << 11)) as f64
}

fn signed_to_odd(number: i64) -> f64 {
    to_odd(number.unsigned_abs()).copysign(number as f64)
}

/// Returns the nearest number in half precision. (`f16::from_f64` decides ties without the low half of the double.)
pub(crate) fn to_f16(number: f64) -> f16 {
    f16::from_f32(round_to_odd(number))
}

/// The same in `bfloat16`.
pub(crate) fn to_bf16(number: f64) -> bf16 {
    bf16::from_f32(round_to_odd(number))
}

/// Rounds to the nearest number of single precision with an odd last digit, unless it is one: rounding that again, to 16
/// bits, gives what rounding at once would (Boldo and Melquiond, "When double rounding is odd").
fn round_to_odd(number: f64) -> f32 {
    let nearest = number as f32;
    let back = f64::from(nearest);
    if back == number || !nearest.is_finite() || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    // The neighbor on the other side of the number is odd.
    let bits = nearest.to_bits();
    let grows = (back.abs() < number.abs()) || nearest == 0.0;
    f32::from_bits(if grows { bits + 1 } else { bits - 1 })
}

fn each<F: Load + CastInto<T>, T: Store>(
    spacing: StridedElements,
    input: &[u8],
    out: &mut [u8],
) -> std::result::Result<(), Overflow> {
    let elements = input.chunks_exact(spacing.stride);
    let numbers = out.chunks_exact_mut(size_of::<T>());
    for (element, number) in elements.zip(numbers) {
        let bytes = &element[spacing.offset..spacing.offset + size_of::<F>()];
        F::load(bytes, spacing.big_endian).cast_into()?.store(number);
    }
    Ok(())
}

type Conversion = fn(StridedElements, &[u8], &mut [u8]) -> std::result::Result<(), Overflow>;

fn conversion(from: Scalar, to: Scalar) -> Option<Conversion> {
    macro_rules! table {
        ($($from:ident $from_type:ty => $($to:ident $to_type:ty),*;)*) => {
            match (from, to) {
                $($((Scalar::$from, Scalar::$to) => Some(each::<$from_type, $to_type>),)*)*
                _ => None,
            }
        };
    }
    table! {
        Bool u8 => Int8 i8, Int16 i16, Int32 i32, Int64 i64, Uint8 u8, Uint16 u16, Uint32 u32,
            Uint64 u64, Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64;
        Int8 i8 => Int16 i16, Int32 i32, Int64 i64, Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64;
        Int16 i16 => Int8 i8, Int32 i32, Int64 i64, Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64;
        Int32 i32 => Int8 i8, Int16 i16, Int64 i64, Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64;
        Int64 i64 => Int8 i8, Int16 i16, Int32 i32, Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64;
        Uint8 u8 => Int8 i8, Int16 i16, Int32 i32, Int64 i64, Uint16 u16, Uint32 u32, Uint64 u64,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64;
        Uint16 u16 => Int8 i8, Int16 i16, Int32 i32, Int64 i64, Uint8 u8, Uint32 u32, Uint64 u64,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64;
        Uint32 u32 => Int8 i8, Int16 i16, Int32 i32, Int64 i64, Uint8 u8, Uint16 u16, Uint64 u64,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64;
        Uint64 u64 => Int8 i8, Int16 i16, Int32 i32, Int64 i64, Uint8 u8, Uint16 u16, Uint32 u32,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64;
        Float16 f16 => Bfloat16 bf16, Float32 f32, Float64 f64;
        Bfloat16 bf16 => Float16 f16, Float32 f32, Float64 f64;
        Float32 f32 => Float16 f16, Bfloat16 bf16, Float64 f64;
        Float64 f64 => Float16 f16, Bfloat16 bf16, Float32 f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of 16 bits nearest to `x`, and the even one of two, by trying them all.
    fn nearest(x: f64, value: impl Fn(u16) -> f64) -> u16 {
        // Without what is infinite, or no number; the sign is in the first bit.
        let all = (0..=u16::MAX).filter(|bits| value(*bits).is_finite());
        let all = all.filter(|bits| (bits >> 15 == 1) == x.is_sign_negative());
        let distance = |bits: u16| (value(bits) - x).abs();
        all.min_by(|a, b| distance(*a).total_cmp(&distance(*b)).then((a & 1).cmp(&(b & 1))))
            .expect("some are finite")
    }

    #[test]
    fn doubles_are_rounded_once() {
        let ties =
            [1.0 + 2_f64.powi(-11), 3.0 + 2_f64.powi(-10), 1.0 + 2_f64.powi(-8), 2_f64.powi(-25)];
        let little = [0.0, 2_f64.powi(-30), -2_f64.powi(-30), 2_f64.powi(-52), -2_f64.powi(-52)];
        for tie in ties {
            for part in little {
                for x in [tie * (1.0 + part), -tie * (1.0 + part)] {
                    let half = to_f16(x).to_bits();
                    assert_eq!(half, nearest(x, |bits| f16::from_bits(bits).to_f64()), "{x:e}");
                    let brain = to_bf16(x).to_bits();
                    assert_eq!(brain, nearest(x, |bits| bf16::from_bits(bits).to_f64()), "{x:e}");
                }
            }
        }
        assert!(round_to_odd(f64::NAN).is_nan() && round_to_odd(f64::INFINITY).is_infinite());
        assert!(round_to_odd(-0.0).is_sign_negative() && round_to_odd(1e-300) > 0.0);
    }
}
