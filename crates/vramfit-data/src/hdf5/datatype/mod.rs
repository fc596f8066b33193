//! The datatype message, which describes an element.
//!
//! Numbers are understood, and arrays and records of numbers, however they are nested. What else the format
//! has is recognized, so that the error can name it.

mod bits;
mod read;

use vramfit_base::Result;

use super::cursor::Cursor;
pub use bits::{Bits, FloatBits};
pub(crate) use read::bytes_for;

/// A number type of a file or an array.
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

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Scalar::Int8 | Scalar::Int16 | Scalar::Int32 | Scalar::Int64)
    }

    pub(crate) fn is_float(self) -> bool {
        use Scalar::{Bfloat16, Float16, Float32, Float64};
        matches!(self, Float16 | Bfloat16 | Float32 | Float64)
    }

    /// Returns the number type of that name.
    pub fn from_name(name: &str) -> Option<Scalar> {
        Scalar::ALL.into_iter().find(|scalar| scalar.name() == name)
    }
}

/// A number and how its bytes are to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Number {
    /// What it is.
    pub scalar: Scalar,
    /// Whether its most significant byte comes first.
    pub big_endian: bool,
    /// Where its bits are, if not those of all its bytes in the usual order are the number.
    pub bits: Option<Bits>,
}

impl Number {
    /// Returns its size in the file, in bytes.
    pub fn stored_size(&self) -> usize {
        self.bits.map_or(self.scalar.size(), |bits| bits.size)
    }

    /// Returns a number from its bytes in the file: what it is then, and its little-endian bytes.
    pub(crate) fn decode(&self, bytes: &[u8]) -> (Scalar, Vec<u8>) {
        let mut element = bytes[..self.stored_size()].to_vec();
        if let Some(bits) = self.bits {
            let scalar = bits.decoded_as(self.scalar);
            let mut decoded = vec![0; scalar.size()];
            bits.decode(&element, self.big_endian, scalar.is_signed(), &mut decoded);
            return (scalar, decoded);
        }
        if self.big_endian {
            element.reverse();
        }
        (self.scalar, element)
    }
}

/// One axis of numbers inside an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// How many there are.
    pub length: usize,
    /// Bytes from one to the next.
    pub stride: usize,
}

/// The numbers of an element that belong together: a single one, or an array of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// What each is.
    pub number: Number,
    /// Where in the element the first begins, in bytes.
    pub offset: usize,
    /// The axes of the array, the outermost first; none for a single number.
    pub axes: Vec<Axis>,
}

impl Numbers {
    /// Returns how many numbers there are.
    pub fn count(&self) -> usize {
        self.axes.iter().map(|axis| axis.length).product()
    }

    /// Returns the type of one number, and the shape where there are several: `float32`,
    /// `(2, 3) float32, big-endian`.
    pub fn describe(&self) -> String {
        let bits = self.number.bits.map(|bits| format!(" of {} bits", bits.precision));
        let order = match self.number.big_endian && self.number.stored_size() > 1 {
            true => ", big-endian",
            false => "",
        };
        let order = bits.unwrap_or_default() + order;
        let name = self.number.scalar.name();
        let lengths: Vec<_> = (self.axes.iter()).map(|axis| axis.length.to_string()).collect();
        match lengths.as_slice() {
            [] => format!("{name}{order}"),
            [length] => format!("({length},) {name}{order}"),
            lengths => format!("({}) {name}{order}", lengths.join(", ")),
        }
    }
}

/// Numbers inside a record. What is in a record inside a record has both names, with a dot between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name in the file: `a`, or `outer.inner`.
    pub name: String,
    /// What it is.
    pub numbers: Numbers,
}

/// The datatype of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Datatype {
    /// A number, or an array of numbers, whose axes are further axes of the dataset.
    Numbers {
        /// Its length in bytes.
        size: usize,
        /// What it is.
        numbers: Numbers,
    },
    /// A record of numbers, or an array of such records.
    Compound {
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
        /// A description.
        what: String,
        /// Where its bytes are, if it is text or bytes.
        bytes: Option<ByteStorage>,
    },
}

/// Where the bytes of an element are that is text or bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteStorage {
    /// In the element, which is text, padded with zeros.
    Text,
    /// In the element.
    Opaque,
    /// In a global heap: the element has their number and where they are.
    Variable,
}

impl Datatype {
    /// Returns its size in the file, in bytes.
    pub fn size(&self) -> usize {
        match self {
            Datatype::Numbers { size, .. }
            | Datatype::Compound { size, .. }
            | Datatype::Other { size, .. } => *size,
        }
    }

    /// Returns a description: `float32`, `(3,) float32`, `record of 3 fields`, `variable-length strings`.
    pub fn describe(&self) -> String {
        match self {
            Datatype::Numbers { numbers, .. } => numbers.describe(),
            Datatype::Compound { fields, others, .. } => {
                format!("record of {} fields", fields.len() + others.len())
            }
            Datatype::Other { what, .. } => what.clone(),
        }
    }

    /// Reads the message.
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Datatype> {
        let datatype = read::read_type(cursor, read::MAX_TYPE_DEPTH)?;
        if datatype.size() == 0 {
            return Err(cursor.damaged("the size of a datatype is zero"));
        }
        Ok(datatype)
    }
}
