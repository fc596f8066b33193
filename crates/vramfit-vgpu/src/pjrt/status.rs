//! What a function of the plugin can fail with: a code and a message, like XLA's status.

use std::ffi::c_int;
use std::fmt;

/// Error codes of the PJRT C API (those of `absl::StatusCode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "the names are the meaning")]
pub(crate) enum StatusCode {
    InvalidArgument = 3,
    NotFound = 5,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

/// The result of a function that only succeeds or fails.
pub(crate) type PjrtResult<T = ()> = Result<T, Status>;

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    code: c_int,
    message: String,
}

impl Status {
    /// Makes a failure of a known code.
    pub(crate) fn new(code: StatusCode, message: impl Into<String>) -> Self {
        Status { code: code as c_int, message: message.into() }
    }

    /// Makes a failure of any code.
    pub(crate) fn with_code(code: c_int, message: impl Into<String>) -> Self {
        Status { code, message: message.into() }
    }

    /// Makes a failure for a call with an invalid argument.
    pub(crate) fn invalid_argument(message: impl Into<String>) -> Self {
        Status::new(StatusCode::InvalidArgument, message)
    }

    /// Makes a failure for an internal error.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Status::new(StatusCode::Internal, message)
    }

    /// Makes a failure for a call that the present state does not allow.
    pub(crate) fn failed_precondition(message: impl Into<String>) -> Self {
        Status::new(StatusCode::FailedPrecondition, message)
    }

    /// Makes a failure for something that the virtual GPU does not have.
    pub(crate) fn unimplemented(what: &str) -> Self {
        Status::new(
            StatusCode::Unimplemented,
            format!("{what} is not available on vramfit's virtual GPU"),
        )
    }

    pub(crate) fn code(&self) -> c_int {
        self.code
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.code == StatusCode::ResourceExhausted as c_int
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<vramfit_model::Error> for Status {
    fn from(error: vramfit_model::Error) -> Self {
        let code = match error.kind() {
            vramfit_model::ErrorKind::InvalidArgument => StatusCode::InvalidArgument,
            vramfit_model::ErrorKind::UnknownGpu => StatusCode::NotFound,
            _ => StatusCode::Internal,
        };
        Status::new(code, format!("vramfit: {error}"))
    }
}
