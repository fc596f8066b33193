//! `run.json` in the directory of a run, as far as commands that use a trained model need it. It is written by
//! `python/vramfit/train/run_record.py`.

use serde::Deserialize;
use serde_json::Value as Json;
use vramfit_base::{Error, Result};

use super::config::Config;

/// The version of the format.
const SCHEMA: u64 = 1;

/// What is known of a run beside its checkpoints.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RunRecord {
    schema: u64,
    /// The whole configuration of `vramfit train`, or what a program passed to `fit`.
    pub config: Json,
    /// What `vramfit train` knew of the data; none for a program that called `fit`.
    pub data: Option<RecordedData>,
    /// All sessions, the latest last.
    pub sessions: Vec<Session>,
}

/// The data that a model was trained on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RecordedData {
    /// The inputs.
    pub inputs: RecordedColumn,
    /// The targets.
    pub targets: RecordedColumn,
    /// Number of classes; none for quantities.
    pub classes: Option<u64>,
    /// Number of different tokens; none if inputs are numbers.
    pub vocabulary: Option<u64>,
    /// The loss.
    pub loss: String,
}

/// A dataset that a model was trained on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RecordedColumn {
    /// Its path.
    pub dataset: String,
    /// Its shape; the first length counts rows.
    pub shape: Vec<u64>,
}

/// One start of a run, or resumption.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Session {
    /// When it began, in ISO 8601.
    pub started: String,
    /// The command line.
    pub command: String,
    /// Description of the devices.
    pub device: String,
}

impl RunRecord {
    /// Reads the text of the file.
    ///
    /// # Errors
    /// `invalid-file` when it is not such a file, or of another version.
    pub fn read(text: &str) -> Result<RunRecord> {
        let record: RunRecord = serde_json::from_str(text)
            .map_err(|error| Error::invalid_file("it is not the record of a run").cause(error))?;
        match record.schema {
            SCHEMA => Ok(record),
            other => Err(Error::invalid_file(format!(
                "its format version is {other}, but this version reads {SCHEMA}"
            ))),
        }
    }

    /// Returns the configuration of `vramfit train`; none of a program that called `fit`.
    pub fn train_config(&self) -> Option<Config> {
        self.data.as_ref()?;
        serde_json::from_value(self.config.clone()).ok()
    }
}
