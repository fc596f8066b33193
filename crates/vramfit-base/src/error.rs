//! The one error type of vramfit: what could not be done, why, and one thing to do about it.
//!
//! A result is not an error: "it does not fit" is a result. Errors are for what could not be
//! done. [`ErrorKind`] decides the stable id (an anchor in `docs/reference/errors.md`) and the Python class.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The exit code of a command that ends with an error, of whatever kind.
pub const EXIT_CODE: u8 = 2;

/// Shorthand for results of this crate and its siblings.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What sort of thing went wrong. The id of a kind never changes once published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option, value or combination of them is not accepted.
    InvalidArgument,
    /// No GPU of that name is in the catalog.
    UnknownGpu,
    /// A file could not be read or written.
    Io,
    /// A file is not what it claims to be: truncated, corrupt, or another version.
    InvalidFile,
    /// A file is valid but uses a feature that vramfit does not support.
    UnsupportedFeature,
    /// A file changed while it was in use.
    FileChanged,
    /// A program has the file open for writing, or ended without closing it.
    FileNotClosed,
    /// Another process writes to the directory of a run.
    DirectoryInUse,
    /// The command to run does not exist or cannot be executed.
    CommandNotFound,
    /// JAX or its CUDA compiler wheels are not installed where the program runs.
    CompilerMissing,
    /// A required Python package is not installed where the program runs.
    PackageMissing,
    /// The program ended without ever using the virtual GPU.
    GpuNotUsed,
    /// The program ended with an error of its own before it was measured.
    ProgramFailed,
    /// XLA or the CUDA plugin failed in a way that is not the user's program's fault.
    CompilerFailed,
    /// XLA's own allocator would abort the process at this point.
    AllocatorAborts,
    /// NVIDIA's driver is not installed or does not respond.
    NoDriver,
    /// JAX has already been initialized and no longer reads settings.
    JaxAlreadyInitialized,
    /// JAX does not use the device, or hold the memory, that was requested.
    VerificationFailed,
    /// The requested memory is not available.
    InsufficientMemory,
    /// A program did not end in time.
    TimeLimit,
    /// A signal ended a command before it had a result.
    Interrupted,
    /// An internal error: a bug in vramfit.
    Internal,
}

impl ErrorKind {
    /// Every kind, for tests that walk over all of them.
    pub const ALL: &'static [ErrorKind] = &[
        ErrorKind::InvalidArgument,
        ErrorKind::UnknownGpu,
        ErrorKind::Io,
        ErrorKind::InvalidFile,
        ErrorKind::UnsupportedFeature,
        ErrorKind::FileChanged,
        ErrorKind::FileNotClosed,
        ErrorKind::DirectoryInUse,
        ErrorKind::CommandNotFound,
        ErrorKind::CompilerMissing,
        ErrorKind::PackageMissing,
        ErrorKind::GpuNotUsed,
        ErrorKind::ProgramFailed,
        ErrorKind::CompilerFailed,
        ErrorKind::AllocatorAborts,
        ErrorKind::NoDriver,
        ErrorKind::JaxAlreadyInitialized,
        ErrorKind::VerificationFailed,
        ErrorKind::InsufficientMemory,
        ErrorKind::TimeLimit,
        ErrorKind::Interrupted,
        ErrorKind::Internal,
    ];

    /// Returns the stable id, which is also the anchor in `docs/reference/errors.md`.
    pub fn id(self) -> &'static str {
        match self {
            ErrorKind::InvalidArgument => "invalid-argument",
            ErrorKind::UnknownGpu => "unknown-gpu",
            ErrorKind::Io => "io",
            ErrorKind::InvalidFile => "invalid-file",
            ErrorKind::UnsupportedFeature => "unsupported-feature",
            ErrorKind::FileChanged => "file-changed",
            ErrorKind::FileNotClosed => "file-not-closed",
            ErrorKind::DirectoryInUse => "directory-in-use",
            ErrorKind::CommandNotFound => "command-not-found",
            ErrorKind::CompilerMissing => "compiler-missing",
            ErrorKind::PackageMissing => "package-missing",
            ErrorKind::GpuNotUsed => "gpu-not-used",
            ErrorKind::ProgramFailed => "program-failed",
            ErrorKind::CompilerFailed => "compiler-failed",
            ErrorKind::AllocatorAborts => "allocator-aborts",
            ErrorKind::NoDriver => "no-driver",
            ErrorKind::JaxAlreadyInitialized => "jax-already-initialized",
            ErrorKind::VerificationFailed => "verification-failed",
            ErrorKind::InsufficientMemory => "insufficient-memory",
            ErrorKind::TimeLimit => "time-limit",
            ErrorKind::Interrupted => "interrupted",
            ErrorKind::Internal => "internal",
        }
    }
}

/// An error with its kind, a one-clause message, and where possible a hint and a cause.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    python_hint: Option<String>,
    cause: Option<Arc<str>>,
}

impl Error {
    /// Creates an error; `message` is one clause in lower case without a full stop.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), hint: None, python_hint: None, cause: None }
    }

    /// Creates an error of [`ErrorKind::InvalidArgument`].
    pub fn invalid_argument(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::InvalidArgument, message)
    }

    /// Creates an error of [`ErrorKind::InvalidFile`].
    pub fn invalid_file(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::InvalidFile, message)
    }

    /// Creates an error of [`ErrorKind::Io`].
    pub fn io(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Io, message)
    }

    /// Creates an error of [`ErrorKind::UnsupportedFeature`].
    pub fn unsupported_feature(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::UnsupportedFeature, message)
    }

    /// Adds one thing to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds another thing to do, which only a Python program can do: the command line does not show it.
    #[must_use]
    pub fn python_hint(mut self, hint: impl Into<String>) -> Self {
        self.python_hint = Some(hint.into());
        self
    }

    /// Adds what the system said, unchanged.
    #[must_use]
    pub fn cause(mut self, cause: impl fmt::Display) -> Self {
        self.cause = Some(cause.to_string().into());
        self
    }

    /// Puts what was being done, or to what, in front of the message.
    ///
    /// ```
    /// use vramfit_base::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::InvalidFile, "the checksum does not match").context("`run.trace`");
    /// assert_eq!(error.to_string(), "`run.trace`: the checksum does not match");
    /// ```
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Puts the file in front of an `invalid-file` message, which is only about what is in it.
    #[must_use]
    pub fn in_file(self, path: &Path) -> Self {
        match self.kind {
            ErrorKind::InvalidFile => self.context(format_args!("`{}`", path.display())),
            _ => self,
        }
    }

    /// Makes it an error of another kind.
    #[must_use]
    pub fn with_kind(self, kind: ErrorKind) -> Self {
        Error { kind, ..self }
    }

    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the message without hint and cause.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the hint, if there is one.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the hint for a Python program, if there is one: that of the command line, and what only Python can do.
    pub fn hint_in_python(&self) -> Option<String> {
        match (&self.hint, &self.python_hint) {
            (Some(hint), Some(other)) => Some(format!("{hint}, or {other}")),
            (hint, other) => hint.clone().or_else(|| other.clone()),
        }
    }

    /// Replaces a part of the hints.
    #[must_use]
    pub fn replace_in_hints(mut self, part: &str, with: &str) -> Self {
        for hint in [&mut self.hint, &mut self.python_hint].into_iter().flatten() {
            *hint = hint.replace(part, with);
        }
        self
    }

    /// Puts another message in the place of the first one.
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Self {
        Error { message: message.into(), ..self }
    }

    /// Returns the cause, if there is one.
    pub fn cause_text(&self) -> Option<&str> {
        self.cause.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(cause) = &self.cause {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
