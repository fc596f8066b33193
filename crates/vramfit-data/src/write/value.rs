//! Values of attributes.

/// An attribute's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text in UTF-8.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number.
    Real(f64),
}

/// A named value.
pub type Attribute = (String, Value);
