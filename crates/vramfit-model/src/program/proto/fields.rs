//! The fields of a serialized message whose type is not known here, or of which only some count.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// One field as it is serialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field<'m> {
    /// Its number in the message.
    pub(crate) number: u32,
    /// Whether the content may be a message, a text or packed numbers.
    pub(crate) is_length_delimited: bool,
    /// Its value, without number and length.
    pub(crate) content: &'m [u8],
}

/// The fields of a message in the order in which they are serialized. Ends where the bytes are no message any more.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'m>(&'m [u8]);

impl<'m> Fields<'m> {
    pub(crate) fn of(message: &'m [u8]) -> Self {
        Fields(message)
    }
}

impl<'m> Iterator for Fields<'m> {
    type Item = Field<'m>;

    fn next(&mut self) -> Option<Field<'m>> {
        let mut rest = std::mem::take(&mut self.0);
        if rest.is_empty() {
            return None;
        }
        let (number, wire_type) = decode_key(&mut rest).ok()?;
        let is_length_delimited = wire_type == WireType::LengthDelimited;
        let (content, rest) = if is_length_delimited {
            let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
            rest.split_at_checked(length)?
        } else {
            let value = rest;
            skip_field(wire_type, number, &mut rest, DecodeContext::default()).ok()?;
            (&value[..value.len() - rest.len()], rest)
        };
        self.0 = rest;
        Some(Field { number, is_length_delimited, content })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_up_to_what_is_none() {
        let message = [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i', 0x1d, 1, 2, 3, 4, 0x12, 0x7f, 0];
        let read: Vec<_> = Fields::of(&message).map(|it| (it.number, it.content)).collect();
        assert_eq!(read, [(1, &[0x96, 0x01][..]), (2, b"hi"), (3, &[1, 2, 3, 4])]);
    }
}
