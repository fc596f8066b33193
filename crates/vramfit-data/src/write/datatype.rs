//! The datatype message of a file that is written.

use super::number::Number;

/// A datatype in its encoded form: of a number, or copied from another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedDatatype {
    /// Bytes of one element.
    pub(crate) size: usize,
    pub(crate) name: String,
    /// The datatype message.
    pub(crate) message: Vec<u8>,
}

impl EncodedDatatype {
    /// Returns its NumPy name, or a description.
    pub fn name(&self) -> &str {
        &self.name
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
