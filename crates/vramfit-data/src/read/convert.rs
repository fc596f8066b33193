//! Numbers as the file has them, to numbers as they are wanted, while they are copied.
//!
//! Nothing changes silently: an integer that does not fit is an error; a float that does not fit
//! becomes infinite, as everywhere else, and is counted as what was asked for.

use half::{bf16, f16};
use vramfit_core::{Error, ErrorKind, Result};

use crate::hdf5::{Number, Scalar};

/// Copies elements from a decoded chunk and makes them what is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Convert {
    /// Distance between elements in the file, and where in each the number begins.
    stride: usize,
    offset: usize,
    /// Bytes of an element as it is wanted.
    width: usize,
    from: Number,
    to: Scalar,
    kernel: Kernel,
}

#[derive(Clone, Debug)]
enum Kernel {
    /// The bytes are what is wanted.
    Copy,
    /// Each number by itself.
    Each(Conversion),
}

/// An integer does not fit into the type that is wanted.
struct Overflow(i128);

impl Convert {
    /// Prepares to copy numbers that lie `stride` bytes apart, each `offset` behind the start.
    ///
    /// # Errors
    ///
    /// `invalid-argument` when there is no such conversion.
    pub(crate) fn new(stride: usize, offset: usize, from: Number, to: Scalar) -> Result<Convert> {
        let plain = offset == 0 && stride == from.scalar.size();
        let swapped = from.big_endian && from.scalar.size() > 1;
        let kernel = match from.scalar == to {
            true if plain && !swapped => Kernel::Copy,
            true => Kernel::Each(match to.size() {
                1 => gather::<1>,
                2 => gather::<2>,
                4 => gather::<4>,
                _ => gather::<8>,
            }),
            false => Kernel::Each(conversion(from.scalar, to).ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidArgument,
                    format!("{} is not converted to {}", from.scalar.name(), to.name()),
                )
                .hint("floats become floats, and integers become integers or floats")
            })?),
        };
        Ok(Convert {
            stride,
            offset,
            width: to.size(),
            from,
            to,
            kernel,
        })
    }

    /// Copies elements of so many bytes as they are, whatever they are.
    pub(crate) fn as_it_is(size: usize) -> Convert {
        let byte = Number {
            scalar: Scalar::Uint8,
            big_endian: false,
        };
        Convert {
            stride: size,
            offset: 0,
            width: size,
            from: byte,
            to: byte.scalar,
            kernel: Kernel::Copy,
        }
    }

    /// Whether elements are copied as they are.
    pub(crate) fn is_copy(&self) -> bool {
        matches!(self.kernel, Kernel::Copy)
    }

    /// Returns the size of an element in the file.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// Returns the size of a number as it is wanted.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Fills `out` from as many elements at the beginning of `input`.
    ///
    /// # Errors
    ///
    /// `invalid-argument` when an integer does not fit.
    pub(crate) fn run(&self, input: &[u8], out: &mut [u8]) -> Result<()> {
        let input = &input[..out.len() / self.width() * self.stride];
        match self.kernel {
            Kernel::Copy => {
                out.copy_from_slice(input);
                Ok(())
            }
            Kernel::Each(kernel) => kernel(self, input, out).map_err(|Overflow(value)| {
                Error::new(
                    ErrorKind::InvalidArgument,
                    format!("the value {value} does not fit into {}", self.to.name()),
                )
                .hint("read it in the type that the file has")
            }),
        }
    }
}

/// Copies numbers that are not side by side, or whose bytes are in the other order.
fn gather<const SIZE: usize>(
    convert: &Convert,
    input: &[u8],
    out: &mut [u8],
) -> std::result::Result<(), Overflow> {
    let (numbers, _) = out.as_chunks_mut::<SIZE>();
    let reverse = convert.from.big_endian;
    if convert.stride == SIZE {
        let (elements, _) = input.as_chunks::<SIZE>();
        for (number, element) in numbers.iter_mut().zip(elements) {
            *number = *element;
            number.reverse();
        }
        return Ok(());
    }
    for (number, element) in numbers.iter_mut().zip(input.chunks_exact(convert.stride)) {
        number.copy_from_slice(&element[convert.offset..convert.offset + SIZE]);
        if reverse {
            number.reverse();
        }
    }
    Ok(())
}

/// A number as its bytes have it.
trait Load: Copy {
    fn load(bytes: &[u8], big_endian: bool) -> Self;
}

/// A number that can be written.
trait Store {
    fn store(self, bytes: &mut [u8]);
}

/// A conversion that may fail.
trait Into2<T> {
    fn into2(self) -> std::result::Result<T, Overflow>;
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
        impl Into2<$to> for $from {
            fn into2(self) -> std::result::Result<$to, Overflow> {
                <$to>::try_from(self).map_err(|_| Overflow(i128::from(self)))
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
        impl Into2<$to> for $from {
            fn into2(self) -> std::result::Result<$to, Overflow> {
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
    f64 => f16: f16::from_f64, bf16: bf16::from_f64, f32: |x| x as f32;
    i8 => f16: |x| f16::from_f32(x.into()), bf16: |x| bf16::from_f32(x.into()), f32: f32::from, f64: f64::from;
    u8 => f16: |x| f16::from_f32(x.into()), bf16: |x| bf16::from_f32(x.into()), f32: f32::from, f64: f64::from;
    i16 => f16: |x| f16::from_f32(x.into()), bf16: |x| bf16::from_f32(x.into()), f32: f32::from, f64: f64::from;
    u16 => f16: |x| f16::from_f32(x.into()), bf16: |x| bf16::from_f32(x.into()), f32: f32::from, f64: f64::from;
    i32 => f16: |x| f16::from_f64(x.into()), bf16: |x| bf16::from_f64(x.into()), f32: |x| x as f32, f64: f64::from;
    u32 => f16: |x| f16::from_f64(x.into()), bf16: |x| bf16::from_f64(x.into()), f32: |x| x as f32, f64: f64::from;
    i64 => f32: |x| x as f32, f64: |x| x as f64;
    u64 => f32: |x| x as f32, f64: |x| x as f64;
}

fn each<F: Load + Into2<T>, T: Store>(
    convert: &Convert,
    input: &[u8],
    out: &mut [u8],
) -> std::result::Result<(), Overflow> {
    let elements = input.chunks_exact(convert.stride);
    let numbers = out.chunks_exact_mut(size_of::<T>());
    for (element, number) in elements.zip(numbers) {
        let bytes = &element[convert.offset..convert.offset + size_of::<F>()];
        F::load(bytes, convert.from.big_endian)
            .into2()?
            .store(number);
    }
    Ok(())
}

type Conversion = fn(&Convert, &[u8], &mut [u8]) -> std::result::Result<(), Overflow>;

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
        Bool u8 => Int8 i8, Int16 i16, Int32 i32, Int64 i64, Uint16 u16, Uint32 u32, Uint64 u64,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64;
        Int8 i8 => Int16 i16, Int32 i32, Int64 i64, Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64;
        Int16 i16 => Int8 i8, Int32 i32, Int64 i64, Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64;
        Int32 i32 => Int8 i8, Int16 i16, Int64 i64, Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64;
        Int64 i64 => Int8 i8, Int16 i16, Int32 i32, Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64,
            Float32 f32, Float64 f64;
        Uint8 u8 => Int8 i8, Int16 i16, Int32 i32, Int64 i64, Uint16 u16, Uint32 u32, Uint64 u64,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64;
        Uint16 u16 => Int8 i8, Int16 i16, Int32 i32, Int64 i64, Uint8 u8, Uint32 u32, Uint64 u64,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64;
        Uint32 u32 => Int8 i8, Int16 i16, Int32 i32, Int64 i64, Uint8 u8, Uint16 u16, Uint64 u64,
            Float16 f16, Bfloat16 bf16, Float32 f32, Float64 f64;
        Uint64 u64 => Int8 i8, Int16 i16, Int32 i32, Int64 i64, Uint8 u8, Uint16 u16, Uint32 u32,
            Float32 f32, Float64 f64;
        Float16 f16 => Bfloat16 bf16, Float32 f32, Float64 f64;
        Bfloat16 bf16 => Float16 f16, Float32 f32, Float64 f64;
        Float32 f32 => Float16 f16, Bfloat16 bf16, Float64 f64;
        Float64 f64 => Float16 f16, Bfloat16 bf16, Float32 f32;
    }
}
