//! The types of numbers that can be written, and how HDF5 describes them.

/// A type of number. All are written in little-endian order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Number {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
}

impl Number {
    /// Every one of them.
    pub const ALL: [Number; 11] = [
        Number::I8,
        Number::U8,
        Number::I16,
        Number::U16,
        Number::I32,
        Number::U32,
        Number::I64,
        Number::U64,
        Number::F16,
        Number::F32,
        Number::F64,
    ];

    /// Returns the type that NumPy gives this name.
    pub fn from_name(name: &str) -> Option<Number> {
        Number::ALL.into_iter().find(|number| number.name() == name)
    }

    /// Returns the bytes of one number.
    pub fn size(self) -> usize {
        match self {
            Number::I8 | Number::U8 => 1,
            Number::I16 | Number::U16 | Number::F16 => 2,
            Number::I32 | Number::U32 | Number::F32 => 4,
            Number::I64 | Number::U64 | Number::F64 => 8,
        }
    }

    /// Returns the name that NumPy gives it.
    pub fn name(self) -> &'static str {
        match self {
            Number::I8 => "int8",
            Number::U8 => "uint8",
            Number::I16 => "int16",
            Number::U16 => "uint16",
            Number::I32 => "int32",
            Number::U32 => "uint32",
            Number::I64 => "int64",
            Number::U64 => "uint64",
            Number::F16 => "float16",
            Number::F32 => "float32",
            Number::F64 => "float64",
        }
    }

    /// Returns the datatype message (version 1), as the format specification lays it out.
    pub(super) fn datatype(self) -> Vec<u8> {
        let bits = (self.size() * 8) as u16;
        let signed = matches!(self, Number::I8 | Number::I16 | Number::I32 | Number::I64);
        // Where the exponent begins, its length and its bias.
        let float = match self {
            Number::F16 => Some((10, 5, 15_u32)),
            Number::F32 => Some((23, 8, 127)),
            Number::F64 => Some((52, 11, 1023)),
            _ => None,
        };
        let mut message = match float {
            // Class 1; the highest bit of the mantissa is implied; the sign is the last bit.
            Some(_) => vec![0x11, 0x20, bits as u8 - 1, 0],
            None => vec![0x10, if signed { 0x08 } else { 0 }, 0, 0],
        };
        message.extend((self.size() as u32).to_le_bytes());
        message.extend(0_u16.to_le_bytes());
        message.extend(bits.to_le_bytes());
        if let Some((exponent_at, exponent_bits, bias)) = float {
            message.extend([exponent_at, exponent_bits, 0, exponent_at]);
            message.extend(bias.to_le_bytes());
        }
        message
    }
}
