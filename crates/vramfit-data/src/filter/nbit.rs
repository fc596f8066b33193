//! N-bit: of each number only the bits that its datatype says it has, one number behind the other.

use super::DecodeError;
use super::bit_reader::BitReader;

/// An array in a record in an array … no deeper than this.
const MAX_DEPTH: usize = 8;

/// What the filter's parameters say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NBit {
    /// Whether numbers have all bits, so that chunks are stored as they are.
    is_whole: bool,
    /// Elements in a chunk, and what each is.
    count: usize,
    element: Part,
}

/// An element, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// Its bytes once it is decoded.
    size: usize,
    /// How many bits are stored of it.
    bits: u64,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// A number of which `precision` bits are stored.
    Number { big_endian: bool, precision: u32, offset: u32 },
    /// Bytes as they are.
    Bytes,
    /// Parts of one kind, one behind the other.
    Array(Box<Part>),
    /// Parts, and where in the record each begins.
    Record(Vec<(usize, Part)>),
}

impl NBit {
    /// Understands the parameters; `None` where they are not those of the filter, or of numbers of more than 64 bits.
    pub(super) fn new(parameters: &[u32], element: usize) -> Option<NBit> {
        let &[length, is_whole, count, ref parts @ ..] = parameters else {
            return None;
        };
        if length as usize != parameters.len() {
            return None;
        }
        let mut parts = parts.iter().map(|&number| number as usize);
        let part = Part::new(&mut parts, MAX_DEPTH)?;
        let count = count as usize;
        (part.size == element).then_some(NBit { is_whole: is_whole != 0, count, element: part })
    }

    /// Unpacks the elements and returns how many bytes were made.
    pub(super) fn decode(&self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        if self.is_whole {
            let Some(out) = out.get_mut(..input.len()) else {
                return Err(DecodeError::damaged("it is longer than one chunk"));
            };
            out.copy_from_slice(input);
            return Ok(out.len());
        }
        let length = self.count.checked_mul(self.element.size);
        let Some(out) = length.and_then(|length| out.get_mut(..length)) else {
            return Err(DecodeError::damaged(format!(
                "its header gives {} elements, which is too many",
                self.count
            )));
        };
        let bits = self.element.bits.checked_mul(self.count as u64);
        if bits.is_none_or(|bits| bits.div_ceil(8) > input.len() as u64) {
            return Err(DecodeError::damaged("it is truncated"));
        }
        // What is between the parts, and bits that are not stored.
        out.fill(0);
        let mut reader = BitReader::new(input);
        for element in out.chunks_exact_mut(self.element.size) {
            self.element.decode(&mut reader, element);
        }
        Ok(out.len())
    }
}

impl Part {
    fn new(parameters: &mut impl Iterator<Item = usize>, depth: usize) -> Option<Part> {
        let depth = depth.checked_sub(1)?;
        let class = parameters.next()?;
        let size = parameters.next().filter(|size| *size > 0)?;
        let (bits, content) = match class {
            1 => {
                let big_endian = match parameters.next()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                };
                let (precision, offset) = (parameters.next()?, parameters.next()?);
                if size > 8 || precision == 0 || precision.checked_add(offset)? > size * 8 {
                    return None;
                }
                let (precision, offset) = (precision as u32, offset as u32);
                (precision.into(), Content::Number { big_endian, precision, offset })
            }
            2 => {
                let item = Part::new(parameters, depth)?;
                if !size.is_multiple_of(item.size) {
                    return None;
                }
                (item.bits.checked_mul((size / item.size) as u64)?, Content::Array(item.into()))
            }
            3 => {
                let (mut members, mut bits) = (Vec::new(), 0_u64);
                for _ in 0..parameters.next()? {
                    let begin = parameters.next()?;
                    let member = Part::new(parameters, depth)?;
                    if begin.checked_add(member.size)? > size {
                        return None;
                    }
                    bits = bits.checked_add(member.bits)?;
                    members.push((begin, member));
                }
                (bits, Content::Record(members))
            }
            4 => (size as u64 * 8, Content::Bytes),
            _ => return None,
        };
        Some(Part { size, bits, content })
    }

    fn decode(&self, reader: &mut BitReader<'_>, out: &mut [u8]) {
        match &self.content {
            Content::Number { big_endian, precision, offset } => {
                let number = reader.take(*precision) << offset;
                out.copy_from_slice(&number.to_le_bytes()[..out.len()]);
                if *big_endian {
                    out.reverse();
                }
            }
            Content::Bytes => out.iter_mut().for_each(|byte| *byte = reader.take(8) as u8),
            Content::Array(item) => {
                out.chunks_exact_mut(item.size).for_each(|out| item.decode(reader, out));
            }
            Content::Record(members) => members
                .iter()
                .for_each(|(begin, part)| part.decode(reader, &mut out[*begin..][..part.size])),
        }
    }
}
