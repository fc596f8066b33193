//! Values that are known before the file is written: attributes, scalars, strings.

use super::datatype::EncodedDatatype;

/// An attribute's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text in UTF-8.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number.
    Real(f64),
    /// What another file has.
    Raw(RawValue),
}

/// A named value.
pub type Attribute = (String, Value);

/// A value as another file has it.
#[derive(Clone, Debug, PartialEq)]
pub struct RawValue {
    /// What an element is.
    pub datatype: EncodedDatatype,
    /// The length of each axis; none for a single value. `None` where there is no value at all.
    pub shape: Option<Vec<u64>>,
    /// The elements.
    pub data: Data,
}

/// The elements of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// As they are in the file.
    Plain(Vec<u8>),
    /// Texts or sequences, each as long as it wants; `None` where a reference leads nowhere.
    VarLen(Vec<Option<VarLenElement>>),
}

/// A text or a sequence of variable length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VarLenElement {
    /// How many elements it has; of a text, how many bytes.
    pub count: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// An object whose content is known before the file is written.
#[derive(Clone, Debug, PartialEq)]
pub struct InlineObject {
    /// Its path.
    pub path: String,
    /// What it is.
    pub what: InlineKind,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
}

/// The kinds of [`InlineObject`].
#[derive(Clone, Debug, PartialEq)]
pub enum InlineKind {
    /// A dataset.
    Dataset(RawValue),
    /// A type that has a name.
    Type(EncodedDatatype),
}

/// The size of what stands for a text or sequence: its length, and where in which heap it is.
pub(super) const REFERENCE_BYTES: usize = 16;
