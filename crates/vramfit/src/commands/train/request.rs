//! What `vramfit.train._run` is handed, and what it hands back: two files of JSON beside each other.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use vramfit_core::train::Config;
use vramfit_core::{Error, ErrorKind, Result};

use super::ProgressMode;
use super::datasets::Look;
use super::processes::Processes;
use crate::python_child::PythonFailure;
use crate::scratch::ScratchFolder;

/// What to do.
#[derive(Serialize)]
pub(super) struct Request<'a> {
    pub(super) config: &'a Config,
    pub(super) data: &'a Look,
    /// What must not change between checkpoints: `--force-resume` goes on all the same.
    pub(super) fixed: Map<String, Json>,
    pub(super) resume: Resume,
    pub(super) force_resume: bool,
    pub(super) progress: ProgressMode,
    /// The processes that train together, where there are several.
    pub(super) processes: Option<Processes>,
    /// Only a few steps on made-up batches, and nothing is kept.
    pub(super) rehearsal: bool,
    /// The process with whose end the run saves its state and ends, too.
    pub(super) parent: Option<u32>,
}

/// Whether to go on from a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Resume {
    /// If there is one.
    Auto,
    /// There has to be one.
    Must,
    /// Anew; what there is of an earlier run is moved aside.
    Never,
}

/// What became of it.
#[derive(Debug, Deserialize)]
pub(super) struct Outcome {
    pub(super) ended: Ended,
    /// What could not be done.
    #[serde(default)]
    pub(super) error: Option<PythonFailure>,
    /// The final report, for programs; people have read it.
    #[serde(default)]
    pub(super) result: Json,
    /// The number of the signal that ended it.
    #[serde(default)]
    pub(super) signal: Option<u8>,
    /// Steps that were done in all.
    #[serde(default)]
    pub(super) step: u64,
    /// Why the checkpoint of the final state is not on disk; none if it is.
    #[serde(default)]
    pub(super) unsaved: Option<String>,
    /// What the data says of a loss that is not finite.
    #[serde(default)]
    pub(super) nan: Option<NanCause>,
}

/// What the data of a step says of its loss, which is not finite.
#[derive(Debug, Deserialize)]
pub(super) struct NanCause {
    /// Whether values of the data are not finite; none if it could not be read again.
    pub(super) in_data: Option<bool>,
    /// One clause about it.
    pub(super) text: String,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Ended {
    /// All epochs are done.
    Finished,
    /// The validation loss did not get better any more.
    Early,
    /// A loss was not a number.
    Nan,
    /// It was asked to end.
    Signal,
    /// The device, or the host, had not the memory.
    OutOfMemory,
    /// It could not begin, or not go on.
    Refused,
}

/// A request on disk, with room for the outcome; both are gone when it is dropped.
pub(super) struct Written {
    folder: ScratchFolder,
}

impl Written {
    /// Writes a request.
    ///
    /// # Errors
    /// `io` when there is no room for temporary files.
    pub(super) fn new(request: &Request<'_>) -> Result<Written> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Io, "cannot write a temporary file")
                .cause(error)
                .hint("name a folder that can be written with `TMPDIR=…`")
        };
        let folder = ScratchFolder::create().map_err(failed)?;
        let text = serde_json::to_string(request).expect("a request has text keys");
        std::fs::write(folder.path().join("request.json"), text).map_err(failed)?;
        Ok(Written { folder })
    }

    /// Returns the arguments that make a Python do it.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        // `-P`: a file of the user's called flax.py must not be taken for the package.
        let mut arguments: Vec<OsString> =
            ["-P", "-m", "vramfit.train._run"].map(Into::into).into();
        arguments.push(self.file("request.json").into());
        arguments
    }

    /// Returns what became of it; none where it ended without a word.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let text = std::fs::read_to_string(self.file("outcome.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Returns where something can be kept as long as the request.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        let folder: &Path = self.folder.path();
        folder.join(name)
    }
}
