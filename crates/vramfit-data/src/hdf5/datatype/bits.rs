//! Numbers that do not have the bits of a machine's type: integers and floats of another precision.

use super::Scalar;

/// The NaN that libhdf5 makes of every one.
const NAN: u64 = u64::MAX >> 1;

/// Where in the bytes of a number its bits are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bits {
    /// Bytes of the number in the file, at most 8.
    pub size: usize,
    /// The lowest bit of the value. Bits outside of the value are padding, and may be anything.
    pub offset: u32,
    /// How many bits the value has. Of a float only its parts are looked at.
    pub precision: u32,
    /// Its parts, if it is a float.
    pub float: Option<FloatBits>,
}

/// Where the parts of a float are, counted from the lowest bit of its bytes. The mantissa has an implied leading one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the format's specification")]
pub struct FloatBits {
    pub sign_location: u32,
    pub exponent_location: u32,
    pub exponent_size: u32,
    pub exponent_bias: u32,
    pub mantissa_location: u32,
    pub mantissa_size: u32,
}

impl FloatBits {
    /// Whether all its parts are in a number of `size` bytes.
    pub(super) fn is_inside(&self, size: usize) -> bool {
        let parts = [
            (self.sign_location, 1),
            (self.exponent_location, self.exponent_size),
            (self.mantissa_location, self.mantissa_size),
        ];
        parts.iter().all(|(location, bits)| *bits > 0 && (location + bits) as usize <= size * 8)
    }

    /// Returns the smallest type that has all its values; none if there is none.
    pub(super) fn scalar(&self) -> Option<Scalar> {
        if self.exponent_size > 11 || self.mantissa_size > 52 {
            return None;
        }
        let (bias, mantissa) = (i64::from(self.exponent_bias), i64::from(self.mantissa_size));
        let largest = (1_i64 << self.exponent_size) - 2 - bias;
        let smallest = 1 - bias;
        let holds =
            |bits: i64, min: i64, max: i64| mantissa <= bits && smallest >= min && largest <= max;
        // Mantissa bits and exponents of normal numbers.
        match () {
            () if holds(10, -14, 15) => Some(Scalar::Float16),
            () if holds(23, -126, 127) => Some(Scalar::Float32),
            () if holds(52, -1022, 1023) => Some(Scalar::Float64),
            () => None,
        }
    }

    /// Returns the number that a value is. No type is read of which it would have to be rounded.
    fn decode(&self, bits: u64) -> f64 {
        let part = |location: u32, size: u32| (bits >> location) & mask(size);
        let exponent = part(self.exponent_location, self.exponent_size);
        let mantissa = part(self.mantissa_location, self.mantissa_size);
        let is_negative = part(self.sign_location, 1) == 1;
        let magnitude = if exponent == mask(self.exponent_size) {
            if mantissa == 0 { f64::INFINITY } else { f64::from_bits(NAN) }
        } else {
            let leading = u64::from(exponent > 0) << self.mantissa_size;
            let power =
                exponent.max(1) as i32 - self.exponent_bias as i32 - self.mantissa_size as i32;
            // In two steps, as the power alone may be too small for a normal number.
            let half = power / 2;
            (leading | mantissa) as f64 * 2_f64.powi(half) * 2_f64.powi(power - half)
        };
        if is_negative { -magnitude } else { magnitude }
    }
}

impl Bits {
    /// Returns what its numbers are once they are decoded: `scalar`, or doubles.
    pub(crate) fn decoded_as(&self, scalar: Scalar) -> Scalar {
        match self.float {
            Some(_) => Scalar::Float64,
            None => scalar,
        }
    }

    /// Decodes a number into the little-endian bytes of one that fills them.
    pub(crate) fn decode(&self, bytes: &[u8], big_endian: bool, is_signed: bool, out: &mut [u8]) {
        let mut little = [0; 8];
        little[..self.size].copy_from_slice(&bytes[..self.size]);
        if big_endian {
            little[..self.size].reverse();
        }
        let all = u64::from_le_bytes(little);
        let value = || (all >> self.offset) & mask(self.precision);
        let number = match self.float {
            Some(float) => float.decode(all).to_bits(),
            None if is_signed => {
                let unused = 64 - self.precision;
                (((value() << unused) as i64) >> unused) as u64
            }
            None => value(),
        };
        let length = out.len();
        out.copy_from_slice(&number.to_le_bytes()[..length]);
    }
}

/// Returns a number of which the lowest `size` bits are set, of which there are up to 64.
fn mask(size: u32) -> u64 {
    u64::MAX.checked_shr(64 - size).unwrap_or(0)
}
