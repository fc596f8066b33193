//! Reading the datatype message. Each function consumes all of what it reads, also of what it does not
//! understand, so that what follows in a record is found.

use vramfit_base::{Error, Result};

use super::{Axis, Bits, ByteStorage, Datatype, Field, FloatBits, Number, Numbers, Scalar};
use crate::hdf5::cursor::Cursor;
use crate::hdf5::dataspace::MAX_AXES;

/// A record in a record in a record … no deeper than this.
pub(super) const MAX_TYPE_DEPTH: usize = 8;
/// More fields than any record that trains a model has.
const MAX_FIELDS: usize = 4096;

/// Reads a type and all that are in it, at most `depth` levels.
pub(super) fn read_type(cursor: &mut Cursor<'_>, depth: usize) -> Result<Datatype> {
    let depth = depth.checked_sub(1).ok_or_else(|| {
        Error::unsupported_feature(format!(
            "datatypes nested more than {MAX_TYPE_DEPTH} levels deep are not supported"
        ))
    })?;
    let first = cursor.u8()?;
    let (version, class) = (first >> 4, first & 0xf);
    if !(1..=5).contains(&version) {
        return Err(cursor.damaged(format_args!("datatype version {version} is not supported")));
    }
    let bits = cursor.uint(3)? as u32;
    let size = cursor.u32()? as usize;
    Ok(match class {
        0 => read_integer(cursor, bits, size)?,
        1 => read_float(cursor, bits, size)?,
        2 => {
            cursor.skip(2)?;
            other(size, "times")
        }
        3 => other_bytes(size, "fixed-length strings", ByteStorage::Text),
        // Bits without a meaning as a number, such as the `bool` of PyTables: unsigned, as h5py has them.
        4 => read_integer(cursor, bits & 1, size)?,
        5 => {
            // The tag that says what the bytes are, padded.
            cursor.skip((bits & 0xff) as usize)?;
            other_bytes(size, "opaque bytes", ByteStorage::Opaque)
        }
        6 => return read_record(cursor, version, bits as usize & 0xffff, size, depth),
        // References of HDF5 1.12 and later are told in the bits, too; nothing follows.
        7 => other(size, "references"),
        8 => return read_enumeration(cursor, version, bits as usize & 0xffff, size, depth),
        9 => {
            // What the characters or the elements of the sequence are.
            let element = read_type(cursor, depth)?;
            match bits & 0xf {
                1 => other_bytes(size, "variable-length strings", ByteStorage::Variable),
                _ if element.size() == 1 => {
                    other_bytes(size, "variable-length sequences of bytes", ByteStorage::Variable)
                }
                _ => other(size, "variable-length sequences"),
            }
        }
        10 => {
            let lengths = read_array_shape(cursor, version)?;
            let base = read_type(cursor, depth)?;
            make_array(cursor, base, &lengths, Some(size))?
        }
        11 => {
            read_type(cursor, depth)?;
            other(size, "complex numbers")
        }
        // Where it ends is not known, so nothing behind it could be read.
        class => {
            return Err(Error::unsupported_feature(format!(
                "datatype class {class} is not supported"
            )));
        }
    })
}

fn other(size: usize, what: impl Into<String>) -> Datatype {
    let what = what.into();
    Datatype::Other { size, what, bytes: None }
}

fn other_bytes(size: usize, what: &str, storage: ByteStorage) -> Datatype {
    Datatype::Other { size, what: what.to_owned(), bytes: Some(storage) }
}

fn make_number(scalar: Scalar, big_endian: bool, bits: Option<Bits>) -> Datatype {
    let number = Number { scalar, big_endian, bits };
    Datatype::Numbers {
        size: number.stored_size(),
        numbers: Numbers { number, offset: 0, axes: Vec::new() },
    }
}

fn read_integer(cursor: &mut Cursor<'_>, bits: u32, size: usize) -> Result<Datatype> {
    let (offset, precision) = (u32::from(cursor.u16()?), u32::from(cursor.u16()?));
    let scalar = match (size, bits & 8 != 0) {
        (1, true) => Scalar::Int8,
        (2, true) => Scalar::Int16,
        (3..=4, true) => Scalar::Int32,
        (5..=8, true) => Scalar::Int64,
        (1, false) => Scalar::Uint8,
        (2, false) => Scalar::Uint16,
        (3..=4, false) => Scalar::Uint32,
        (5..=8, false) => Scalar::Uint64,
        _ => return Ok(other(size, format!("integers of {size} bytes"))),
    };
    if !is_inside(offset, precision, size) {
        return Err(cursor.damaged(format_args!(
            "integers of {size} bytes have {precision} bits behind bit {offset}"
        )));
    }
    let is_usual = size == scalar.size() && (offset, precision) == (0, size as u32 * 8);
    let bits_used = (!is_usual).then_some(Bits { size, offset, precision, float: None });
    Ok(make_number(scalar, bits & 1 != 0, bits_used))
}

/// Whether bits are those of a number of `size` bytes.
fn is_inside(offset: u32, precision: u32, size: usize) -> bool {
    precision > 0 && (offset + precision) as usize <= size * 8
}

fn read_float(cursor: &mut Cursor<'_>, bits: u32, size: usize) -> Result<Datatype> {
    let (offset, precision) = (cursor.u16()?, cursor.u16()?);
    let (exponent_at, exponent) = (cursor.u8()?, cursor.u8()?);
    let (mantissa_at, mantissa) = (cursor.u8()?, cursor.u8()?);
    let bias = cursor.u32()?;
    let sign_at = (bits >> 8) & 0xff;
    let big_endian = bits & 1 != 0;
    // Bit 6 beside bit 0 means the order of the VAX; a mantissa that is normalized otherwise has no
    // implied leading one.
    let usual = bits & 0x40 == 0 && (bits >> 4) & 3 == 2;
    let places = (size, offset, precision, sign_at, exponent_at, exponent, mantissa_at, mantissa);
    let scalar = match (places, bias) {
        ((2, 0, 16, 15, 10, 5, 0, 10), 15) if usual => Scalar::Float16,
        ((2, 0, 16, 15, 7, 8, 0, 7), 127) if usual => Scalar::Bfloat16,
        ((4, 0, 32, 31, 23, 8, 0, 23), 127) if usual => Scalar::Float32,
        ((8, 0, 64, 63, 52, 11, 0, 52), 1023) if usual => Scalar::Float64,
        _ => {
            let float = FloatBits {
                sign_location: sign_at,
                exponent_location: exponent_at.into(),
                exponent_size: exponent.into(),
                exponent_bias: bias,
                mantissa_location: mantissa_at.into(),
                mantissa_size: mantissa.into(),
            };
            let (offset, precision) = (offset.into(), precision.into());
            let bits = Bits { size, offset, precision, float: Some(float) };
            let is_read = usual && size <= 8 && float.is_inside(size);
            return Ok(match float.scalar().filter(|_| is_read) {
                Some(scalar) => make_number(scalar, big_endian, Some(bits)),
                None => other(size, format!("non-IEEE floating-point numbers of {precision} bits")),
            });
        }
    };
    Ok(make_number(scalar, big_endian, None))
}

/// Reads the lengths of an array's axes. Version 2 also has a permutation, which was never used.
fn read_array_shape(cursor: &mut Cursor<'_>, version: u8) -> Result<Vec<usize>> {
    let axes = usize::from(cursor.u8()?);
    if axes > MAX_AXES {
        return Err(cursor.damaged(format_args!("an array has {axes} dimensions")));
    }
    if version < 3 {
        cursor.skip(3)?;
    }
    let lengths = (0..axes).map(|_| Ok(cursor.u32()? as usize)).collect();
    if version < 3 {
        cursor.skip(4 * axes)?;
    }
    lengths
}

/// Makes an array of elements. Its axes go in front of those that the elements have.
fn make_array(
    cursor: &Cursor<'_>,
    base: Datatype,
    lengths: &[usize],
    said: Option<usize>,
) -> Result<Datatype> {
    let mut axes = Vec::new();
    let mut size = base.size();
    for &length in lengths.iter().rev() {
        axes.push(Axis { length, stride: size });
        size = (size.checked_mul(length))
            .filter(|&size| size > 0 && size <= u32::MAX as usize)
            .ok_or_else(|| cursor.damaged("the size of an array is zero or out of range"))?;
    }
    axes.reverse();
    if said.is_some_and(|said| said != size) {
        return Err(cursor.damaged("the size of an array does not match its elements"));
    }
    if axes.is_empty() {
        return Ok(base);
    }
    let within = |mut numbers: Numbers| {
        numbers.axes.splice(0..0, axes.iter().copied());
        numbers
    };
    Ok(match base {
        Datatype::Numbers { numbers, .. } => Datatype::Numbers { size, numbers: within(numbers) },
        Datatype::Compound { fields, others, .. } => Datatype::Compound {
            size,
            fields: fields
                .into_iter()
                .map(|Field { name, numbers }| Field { name, numbers: within(numbers) })
                .collect(),
            others,
        },
        Datatype::Other { what, .. } => other(size, format!("arrays of {what}")),
    })
}

fn read_record(
    cursor: &mut Cursor<'_>,
    version: u8,
    count: usize,
    size: usize,
    depth: usize,
) -> Result<Datatype> {
    let too_many = |count: usize| {
        Error::unsupported_feature(format!(
            "a record of {count} fields exceeds the limit of {MAX_FIELDS}"
        ))
    };
    if count > MAX_FIELDS {
        return Err(too_many(count));
    }
    let (mut fields, mut others) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let name = read_name(cursor, version)?;
        let offset = match version {
            1 | 2 => cursor.u32()? as usize,
            _ => cursor.uint(bytes_for(size as u64))? as usize,
        };
        // The first version has arrays in records only.
        let lengths = match version {
            1 => read_member_shape(cursor)?,
            _ => Vec::new(),
        };
        let base = read_type(cursor, depth)?;
        let element = make_array(cursor, base, &lengths, None)?;
        let end = offset.checked_add(element.size());
        if end.is_none_or(|end| end > size) {
            return Err(cursor.damaged(format_args!("the field `{name}` lies outside its record")));
        }
        let keep = |mut numbers: Numbers| {
            numbers.offset += offset;
            numbers
        };
        match element {
            Datatype::Numbers { numbers, .. } => {
                fields.push(Field { name, numbers: keep(numbers) });
            }
            Datatype::Other { what, .. } => others.push((name, what)),
            Datatype::Compound { fields: inner, others: unread, .. } => {
                fields.extend(inner.into_iter().map(|field| Field {
                    name: format!("{name}.{}", field.name),
                    numbers: keep(field.numbers),
                }));
                others.extend(
                    unread.into_iter().map(|(field, what)| (format!("{name}.{field}"), what)),
                );
            }
        }
        if fields.len() + others.len() > MAX_FIELDS {
            return Err(too_many(fields.len() + others.len()));
        }
    }
    Ok(Datatype::Compound { size, fields, others })
}

/// Reads what the first version of a record says of each field: up to four axes of an array.
fn read_member_shape(cursor: &mut Cursor<'_>) -> Result<Vec<usize>> {
    let axes = usize::from(cursor.u8()?);
    if axes > 4 {
        return Err(cursor.damaged(format_args!("a field has {axes} dimensions")));
    }
    // Padding, and a permutation that was never used.
    cursor.skip(11)?;
    let mut lengths = Vec::new();
    for axis in 0..4 {
        let length = cursor.u32()? as usize;
        if axis < axes {
            lengths.push(length);
        }
    }
    Ok(lengths)
}

/// Numbers with names. What h5py writes for `bool` is one, and is known by its two names.
fn read_enumeration(
    cursor: &mut Cursor<'_>,
    version: u8,
    count: usize,
    size: usize,
    depth: usize,
) -> Result<Datatype> {
    let base = read_type(cursor, depth)?;
    if base.size() != size {
        return Err(cursor.damaged("the size of an enumeration does not match its base type"));
    }
    let mut is_bool = size == 1 && count == 2;
    for place in 0..count {
        let name = read_name(cursor, version)?;
        is_bool &= ["FALSE", "TRUE"].get(place) == Some(&name.as_str());
    }
    is_bool &= cursor.take(count * size)? == [0, 1];
    Ok(match base {
        Datatype::Numbers { numbers, .. } if numbers.axes.is_empty() => match is_bool {
            true => make_number(Scalar::Bool, false, None),
            false => Datatype::Numbers { size, numbers },
        },
        base => other(size, format!("enumerations of {}", base.describe())),
    })
}

/// Reads the name of a field or of a number; older versions fill it up to a multiple of 8 bytes.
fn read_name(cursor: &mut Cursor<'_>, version: u8) -> Result<String> {
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
