//! An error as a Python module of ours hands it over, in JSON.

use serde::Deserialize;
use vramfit_core::{Error, ErrorKind};

/// What could not be done, as an [`Error`] would say it.
#[derive(Debug, Deserialize)]
pub(crate) struct Failure {
    id: String,
    message: String,
    cause: Option<String>,
    hint: Option<String>,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let known = ErrorKind::ALL.iter().find(|kind| kind.id() == failure.id);
        let mut error = Error::new(*known.unwrap_or(&ErrorKind::Internal), failure.message);
        if let Some(cause) = failure.cause {
            error = error.cause(cause);
        }
        match failure.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}
