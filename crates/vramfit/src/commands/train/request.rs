//! The request for `vramfit.train.cli`, and its outcome: two JSON files in one temporary directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use vramfit_analysis::{Error, Result};
use vramfit_runner::python_child::PythonFailure;
use vramfit_runner::scratch::TempDirectory;
use vramfit_train::Config;

use super::ProgressMode;
use super::datasets::DatasetInfo;
use super::processes::ProcessInfo;

/// A run to start.
#[derive(Serialize)]
pub(super) struct Request<'a> {
    /// What is to be done: `train`.
    pub(super) action: &'static str,
    /// The command line.
    pub(super) command: String,
    pub(super) config: &'a Config,
    pub(super) data: &'a DatasetInfo,
    /// The values saved with each checkpoint, which must be the same to resume.
    pub(super) checkpoint_config: Map<String, Json>,
    pub(super) resume: Resume,
    pub(super) force_resume: bool,
    pub(super) progress: ProgressMode,
    /// This process among several that train together.
    pub(super) processes: Option<ProcessInfo>,
    /// Whether to run only a few steps on synthetic batches, and write nothing.
    pub(super) dry_run: bool,
    /// The process on whose death the run saves its state and stops.
    pub(super) parent_pid: Option<u32>,
}

/// Whether to resume from a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Resume {
    /// If there is one.
    Auto,
    /// There must be one.
    Require,
    /// Start over; the files of an earlier run are moved away.
    Never,
}

/// The outcome of a run.
#[derive(Debug, Deserialize)]
pub(super) struct Outcome {
    #[serde(rename = "outcome")]
    pub(super) kind: OutcomeKind,
    #[serde(default)]
    pub(super) error: Option<PythonFailure>,
    #[serde(default)]
    pub(super) result: Json,
    /// The number of the signal that stopped it.
    #[serde(default)]
    pub(super) signal: Option<u8>,
    /// Number of steps in all sessions.
    #[serde(default)]
    pub(super) step: u64,
    /// Why the checkpoint of the final state could not be saved.
    #[serde(default)]
    pub(super) save_error: Option<String>,
    /// The likely cause of a loss that is not finite.
    #[serde(default)]
    pub(super) nan: Option<NonFiniteCause>,
}

/// The likely cause of a loss that is not finite.
#[derive(Debug, Deserialize)]
pub(super) struct NonFiniteCause {
    /// Whether the data has values that are not finite; none if it could not be read again.
    pub(super) in_data: Option<bool>,
    /// The cause as one clause.
    pub(super) text: String,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OutcomeKind {
    /// All epochs are finished.
    Finished,
    /// The validation loss stopped improving.
    Early,
    /// A loss was NaN or infinite.
    Nan,
    /// A signal stopped it.
    Signal,
    /// Memory of the device or the host was not enough.
    OutOfMemory,
    /// It could not start or resume.
    Rejected,
    /// A file could not be written, or the data not be read to its end.
    Failed,
}

/// A temporary directory with a request and, later, its outcome; removed when dropped.
pub(super) struct RequestDir {
    folder: TempDirectory,
}

impl RequestDir {
    /// Writes a request.
    ///
    /// # Errors
    /// `io` when temporary files cannot be written.
    pub(super) fn new(request: &impl Serialize) -> Result<RequestDir> {
        let failed = |error: std::io::Error| {
            Error::io("cannot write a temporary file")
                .cause(error)
                .hint("set `TMPDIR` to a writable directory")
        };
        let folder = TempDirectory::create()?;
        let text = serde_json::to_string(request).expect("a request has text keys");
        std::fs::write(folder.path().join("request.json"), text).map_err(failed)?;
        Ok(RequestDir { folder })
    }

    /// Returns the arguments of the Python interpreter.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        // `-P`: a file `flax.py` in the current directory must not be imported as the package.
        let mut arguments: Vec<OsString> = ["-P", "-m", "vramfit.train.cli"].map(Into::into).into();
        arguments.push(self.file("request.json").into());
        arguments
    }

    /// Returns the outcome; none if the process ended without writing one.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let text = std::fs::read_to_string(self.file("outcome.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Returns the path of a file in the directory.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        let folder: &Path = self.folder.path();
        folder.join(name)
    }
}
