//! What an element is, as the file is to describe it.

use super::number::Number;

/// A type of element: a number, or what another file has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datatype {
    size: usize,
    name: String,
    message: Vec<u8>,
}

impl Datatype {
    /// Takes over the description that another file has: its bytes, the size of an element that they
    /// tell, and its name in words.
    pub(crate) fn copied(message: Vec<u8>, size: usize, name: String) -> Self {
        Datatype {
            size,
            name,
            message,
        }
    }

    /// Returns the bytes of one element.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the name that NumPy gives it, or what it is in words.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the datatype message.
    pub(crate) fn message(&self) -> &[u8] {
        &self.message
    }
}

impl From<Number> for Datatype {
    fn from(number: Number) -> Self {
        Datatype {
            size: number.size(),
            name: number.name().into(),
            message: number.datatype(),
        }
    }
}
