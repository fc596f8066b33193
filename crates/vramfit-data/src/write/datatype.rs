//! The datatype message of a file that is written.

use super::number::Number;

/// A datatype in its encoded form: of a number, or copied from another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedDatatype {
    size: usize,
    name: String,
    message: Vec<u8>,
}

impl EncodedDatatype {
    /// Copies the datatype message of another file: its bytes, the size of an element that they
    /// describe, and its name.
    pub(crate) fn copied(message: Vec<u8>, size: usize, name: String) -> Self {
        EncodedDatatype {
            size,
            name,
            message,
        }
    }

    /// Returns the bytes of one element.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns its NumPy name, or a description.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the datatype message.
    pub(crate) fn message(&self) -> &[u8] {
        &self.message
    }
}

impl From<Number> for EncodedDatatype {
    fn from(number: Number) -> Self {
        EncodedDatatype {
            size: number.size(),
            name: number.name().into(),
            message: number.datatype(),
        }
    }
}
