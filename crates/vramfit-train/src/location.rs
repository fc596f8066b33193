//! Where a value was set: a line of the configuration file, or an option.

use std::fmt;
use std::path::Path;

use vramfit_base::Error;

/// Where a value was set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SourceLocation {
    /// A line of a file, counted from 1.
    Line(String, usize),
    /// `--set`, with its argument.
    Option(String),
}

impl SourceLocation {
    /// Returns the line of a byte of the text of a file.
    pub(super) fn in_file(file: &Path, text: &str, byte: usize) -> SourceLocation {
        let before = text.get(..byte).unwrap_or(text);
        SourceLocation::Line(file.display().to_string(), before.matches('\n').count() + 1)
    }

    /// Returns an error about the value there.
    pub(super) fn error(&self, what: &str) -> Error {
        Error::invalid_argument(format!("{self}: {what}"))
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceLocation::Line(file, line) => write!(f, "`{file}:{line}`"),
            SourceLocation::Option(text) => write!(f, "`--set {text}`"),
        }
    }
}
