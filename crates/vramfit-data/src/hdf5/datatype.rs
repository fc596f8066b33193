//! The datatype message: what one element is.
//!
//! Numbers are understood, and records of numbers. What else the format has is recognised, so that
//! it can be refused by name.

use vramfit_core::{Error, ErrorKind, Result};

use super::cursor::Cursor;

/// A record in a record in a record … no deeper than this.
pub(crate) const DEEPEST: usize = 8;
/// More fields than any record that trains a model has.
const MOST_FIELDS: usize = 4096;

/// A number as the file or an array holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of NumPy's types")]
pub enum Scalar {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Float16,
    Bfloat16,
    Float32,
    Float64,
}

impl Scalar {
    /// Every one of them.
    pub const ALL: [Scalar; 13] = [
        Scalar::Bool,
        Scalar::Int8,
        Scalar::Int16,
        Scalar::Int32,
        Scalar::Int64,
        Scalar::Uint8,
        Scalar::Uint16,
        Scalar::Uint32,
        Scalar::Uint64,
        Scalar::Float16,
        Scalar::Bfloat16,
        Scalar::Float32,
        Scalar::Float64,
    ];

    /// Returns its size in bytes.
    pub fn size(self) -> usize {
        match self {
            Scalar::Bool | Scalar::Int8 | Scalar::Uint8 => 1,
            Scalar::Int16 | Scalar::Uint16 | Scalar::Float16 | Scalar::Bfloat16 => 2,
            Scalar::Int32 | Scalar::Uint32 | Scalar::Float32 => 4,
            Scalar::Int64 | Scalar::Uint64 | Scalar::Float64 => 8,
        }
    }

    /// Returns the name that NumPy (and for bfloat16, ml_dtypes) gives it.
    pub fn name(self) -> &'static str {
        match self {
            Scalar::Bool => "bool",
            Scalar::Int8 => "int8",
            Scalar::Int16 => "int16",
            Scalar::Int32 => "int32",
            Scalar::Int64 => "int64",
            Scalar::Uint8 => "uint8",
            Scalar::Uint16 => "uint16",
            Scalar::Uint32 => "uint32",
            Scalar::Uint64 => "uint64",
            Scalar::Float16 => "float16",
            Scalar::Bfloat16 => "bfloat16",
            Scalar::Float32 => "float32",
            Scalar::Float64 => "float64",
        }
    }

    /// Returns the number type of that name.
    pub fn from_name(name: &str) -> Option<Scalar> {
        Scalar::ALL.into_iter().find(|scalar| scalar.name() == name)
    }
}

/// A number and the order of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Number {
    /// What it is.
    pub scalar: Scalar,
    /// Whether its most significant byte comes first.
    pub big_endian: bool,
}

/// A number inside a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in the file.
    pub name: String,
    /// Where in the record it begins, in bytes.
    pub offset: usize,
    /// What it is.
    pub number: Number,
}

/// What one element of a dataset is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Element {
    /// A number.
    Number(Number),
    /// A record of numbers.
    Record {
        /// Its length in bytes, gaps included.
        size: usize,
        /// Its fields that are numbers.
        fields: Vec<Field>,
        /// Its other fields, with what they are; they cannot be read.
        others: Vec<(String, String)>,
    },
    /// Something that has no numbers to train with.
    Other {
        /// Its length in bytes.
        size: usize,
        /// What it is, in words.
        what: String,
    },
}

impl Element {
    /// Returns its size in the file, in bytes.
    pub fn size(&self) -> usize {
        match self {
            Element::Number(number) => number.scalar.size(),
            Element::Record { size, .. } | Element::Other { size, .. } => *size,
        }
    }

    /// Returns what it is, in words: `float32`, `record of 3 fields`, `strings of variable length`.
    pub fn describe(&self) -> String {
        match self {
            Element::Number(number) => {
                let order = if number.big_endian && number.scalar.size() > 1 {
                    ", big-endian"
                } else {
                    ""
                };
                format!("{}{order}", number.scalar.name())
            }
            Element::Record { fields, others, .. } => {
                format!("record of {} fields", fields.len() + others.len())
            }
            Element::Other { what, .. } => what.clone(),
        }
    }

    /// Reads the message.
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Element> {
        let element = read_type(cursor, DEEPEST)?;
        if element.size() == 0 {
            return Err(cursor.damaged("an element of no bytes"));
        }
        Ok(element)
    }
}

fn read_type(cursor: &mut Cursor<'_>, depth: usize) -> Result<Element> {
    let depth = one_deeper(depth)?;
    let first = cursor.u8()?;
    let (version, class) = (first >> 4, first & 0xf);
    if !(1..=5).contains(&version) {
        return Err(cursor.damaged(format_args!("a datatype of version {version} is not known")));
    }
    let bits = cursor.uint(3)? as u32;
    let size = cursor.u32()? as usize;
    let other = |what: &str| Element::Other {
        size,
        what: what.to_owned(),
    };
    Ok(match class {
        0 => read_integer(cursor, bits, size)?,
        1 => read_float(cursor, bits, size)?,
        2 => other("times"),
        3 => other("strings of fixed length"),
        4 => other("bit fields"),
        5 => other("opaque bytes"),
        6 => read_record(cursor, version, bits as usize & 0xffff, size, depth)?,
        7 => other("references"),
        8 => read_enumeration(cursor, version, bits as usize & 0xffff, size, depth)?,
        9 if bits & 0xf == 1 => other("strings of variable length"),
        9 => other("sequences of variable length"),
        10 => other("arrays as elements"),
        11 => other("complex numbers"),
        class => other(&format!("elements of class {class}")),
    })
}

fn read_integer(cursor: &mut Cursor<'_>, bits: u32, size: usize) -> Result<Element> {
    let (shift, precision) = (cursor.u16()?, usize::from(cursor.u16()?));
    let scalar = match (size, bits & 8 != 0) {
        (1, true) => Scalar::Int8,
        (2, true) => Scalar::Int16,
        (4, true) => Scalar::Int32,
        (8, true) => Scalar::Int64,
        (1, false) => Scalar::Uint8,
        (2, false) => Scalar::Uint16,
        (4, false) => Scalar::Uint32,
        (8, false) => Scalar::Uint64,
        _ => {
            return Ok(Element::Other {
                size,
                what: format!("integers of {size} bytes"),
            });
        }
    };
    if shift != 0 || precision != size * 8 {
        return Ok(Element::Other {
            size,
            what: format!("integers of {precision} bits"),
        });
    }
    Ok(Element::Number(Number {
        scalar,
        big_endian: bits & 1 != 0,
    }))
}

fn read_float(cursor: &mut Cursor<'_>, bits: u32, size: usize) -> Result<Element> {
    let (shift, precision) = (cursor.u16()?, cursor.u16()?);
    let (exponent_at, exponent) = (cursor.u8()?, cursor.u8()?);
    let (mantissa_at, mantissa) = (cursor.u8()?, cursor.u8()?);
    let bias = cursor.u32()?;
    let sign_at = (bits >> 8) & 0xff;
    // Bit 6 beside bit 0 means the order of the VAX; a mantissa that is normalised otherwise has no
    // implied leading one.
    let usual = bits & 0x40 == 0 && (bits >> 4) & 3 == 2 && shift == 0 && mantissa_at == 0;
    let layout = (
        size,
        precision,
        sign_at,
        exponent_at,
        exponent,
        mantissa,
        bias,
    );
    let scalar = match layout {
        (2, 16, 15, 10, 5, 10, 15) if usual => Scalar::Float16,
        (2, 16, 15, 7, 8, 7, 127) if usual => Scalar::Bfloat16,
        (4, 32, 31, 23, 8, 23, 127) if usual => Scalar::Float32,
        (8, 64, 63, 52, 11, 52, 1023) if usual => Scalar::Float64,
        _ => {
            return Ok(Element::Other {
                size,
                what: format!("floating-point numbers of {precision} bits that are not IEEE's"),
            });
        }
    };
    Ok(Element::Number(Number {
        scalar,
        big_endian: bits & 1 != 0,
    }))
}

fn read_record(
    cursor: &mut Cursor<'_>,
    version: u8,
    count: usize,
    size: usize,
    depth: usize,
) -> Result<Element> {
    if count > MOST_FIELDS {
        return Err(Error::new(
            ErrorKind::UnsupportedFeature,
            format!("a record of {count} fields is not supported, {MOST_FIELDS} are the most"),
        ));
    }
    let (mut fields, mut others) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let name = read_name(cursor, version)?;
        let offset = match version {
            1 | 2 => cursor.u32()? as usize,
            _ => cursor.uint(bytes_for(size as u64))? as usize,
        };
        let mut is_array = false;
        if version == 1 {
            is_array = cursor.u8()? != 0;
            cursor.skip(27)?;
        }
        let element = read_type(cursor, depth)?;
        if offset
            .checked_add(element.size())
            .is_none_or(|end| end > size)
        {
            return Err(cursor.damaged(format_args!("the field `{name}` is outside of its record")));
        }
        match element {
            Element::Number(number) if !is_array => fields.push(Field {
                name,
                offset,
                number,
            }),
            Element::Number(_) => others.push((name, "arrays as elements".to_owned())),
            other => others.push((name, other.describe())),
        }
    }
    Ok(Element::Record {
        size,
        fields,
        others,
    })
}

/// Numbers with names. What h5py writes for `bool` is one, and is known by its two names.
fn read_enumeration(
    cursor: &mut Cursor<'_>,
    version: u8,
    count: usize,
    size: usize,
    depth: usize,
) -> Result<Element> {
    let base = read_type(cursor, depth)?;
    let Element::Number(number) = base else {
        return Err(cursor.damaged("an enumeration of what is no number"));
    };
    if number.scalar.size() != size {
        return Err(cursor.damaged("an enumeration is not as long as its numbers"));
    }
    if size != 1 || count != 2 {
        return Ok(base);
    }
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(read_name(cursor, version)?);
    }
    let values = cursor.take(2)?;
    let is_bool = names == ["FALSE", "TRUE"] && values == [0, 1];
    Ok(match is_bool {
        true => Element::Number(Number {
            scalar: Scalar::Bool,
            big_endian: false,
        }),
        false => base,
    })
}

/// Returns how many more types may be inside the one that begins here.
pub(super) fn one_deeper(depth: usize) -> Result<usize> {
    depth.checked_sub(1).ok_or_else(|| {
        Error::new(
            ErrorKind::UnsupportedFeature,
            format!("types inside types, deeper than {DEEPEST}, are not supported"),
        )
    })
}

/// Reads the name of a field or of a number; older versions fill it up to a multiple of 8 bytes.
pub(super) fn read_name(cursor: &mut Cursor<'_>, version: u8) -> Result<String> {
    let begin = cursor.offset();
    let name = cursor.terminated_text()?;
    if version < 3 {
        let length = (cursor.offset() - begin) as usize;
        cursor.skip(length.next_multiple_of(8) - length)?;
    }
    Ok(name)
}

/// Returns how many bytes a number up to `most` needs.
pub(crate) fn bytes_for(most: u64) -> usize {
    ((64 - most.leading_zeros() as usize).div_ceil(8)).max(1)
}
