//! Where something was written: a line of the file, or an option of the command line.

use std::fmt;
use std::path::Path;

use crate::error::{Error, ErrorKind};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A line of a file, counted from 1.
    Line(String, usize),
    /// `--set`, with what was written behind it.
    Option(String),
}

impl Place {
    /// Returns the place of a byte of a text.
    pub(super) fn of(file: &Path, text: &str, byte: usize) -> Place {
        let before = text.get(..byte).unwrap_or(text);
        Place::Line(file.display().to_string(), before.matches('\n').count() + 1)
    }

    /// Returns what is refused there.
    pub(super) fn refuse(&self, what: &str) -> Error {
        Error::new(ErrorKind::InvalidArgument, format!("{self}: {what}"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(file, line) => write!(f, "`{file}:{line}`"),
            Place::Option(text) => write!(f, "`--set {text}`"),
        }
    }
}
