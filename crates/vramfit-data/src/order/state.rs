//! What a run saves to resume where it stopped: a few numbers, less than a kilobyte of JSON.
//!
//! The order itself is in it, so a machine with more memory, whose choice of engine would be another,
//! continues the order that was started.

use serde::{Deserialize, Serialize};
use vramfit_base::{Bytes, Error, ErrorKind, Result};

use super::{FileDigests, Order};

/// The version of the format of a state. Other versions are rejected.
pub const STATE_SCHEMA: u32 = 1;

/// Identifies the data that a run started with, in the file itself or a copy of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataFingerprint {
    /// Its size.
    pub bytes: u64,
    /// When it was last written, in nanoseconds since 1970; a hash of several times, where rows come from several
    /// files.
    pub modified_ns: i64,
    /// Chunks of the datasets that are read.
    pub chunks: u64,
    /// A hash of where those chunks are, their sizes and filters.
    pub index_hash: u64,
    /// A hash of the content, whole or sampled; none where it could not be read.
    #[serde(default)]
    pub contents: Option<u64>,
}

/// The position of a run in its data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderState {
    schema: u32,
    /// What decides the order.
    pub order: Order,
    /// The epoch, from 0.
    pub epoch: u64,
    /// How many rows of the epoch were handed out, to all processes together.
    pub position: u64,
    /// The file that the rows are in, or all of them together.
    pub file: DataFingerprint,
    /// What tells which of several files differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FileDigests>,
    /// A number for what a sample is, if it is not a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
}

impl LoaderState {
    /// Returns the state at a position of an epoch.
    pub fn new(order: Order, epoch: u64, position: u64, file: DataFingerprint) -> Self {
        LoaderState {
            schema: STATE_SCHEMA,
            order,
            epoch,
            position,
            file,
            files: None,
            samples: None,
        }
    }

    /// Returns the state as JSON, in one line of less than 1 KB.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a state is made of numbers and names")
    }

    /// Reads a state again.
    ///
    /// # Errors
    /// `invalid-file` when the text is no state, is of another version, or contradicts itself.
    pub fn parse_json(text: &str) -> Result<Self> {
        let invalid =
            |what: &str| Error::invalid_file(format!("this is not a loader state: {what}"));
        let value: serde_json::Value = serde_json::from_str(text)
            .map_err(|error| invalid("it is not valid JSON").cause(error))?;
        match value.get("schema").and_then(serde_json::Value::as_u64) {
            Some(schema) if schema == u64::from(STATE_SCHEMA) => {}
            Some(schema) => {
                return Err(invalid(&format!(
                    "its format version is {schema}, and this vramfit reads version {STATE_SCHEMA}"
                )));
            }
            None => return Err(invalid("the field `schema` is missing")),
        }
        let state: LoaderState = serde_json::from_value(value)
            .map_err(|error| invalid("a field is missing or invalid").cause(error))?;
        let order = &state.order;
        order.ensure_valid().map_err(|error| invalid("its order is not valid").cause(error))?;
        if state.epoch == u64::MAX {
            return Err(invalid("there is no such epoch"));
        }
        if state.position > order.len() {
            return Err(invalid(&format!(
                "its position {} is beyond the {} rows of the epoch",
                state.position,
                order.len()
            )));
        }
        Ok(state)
    }

    /// Checks that the file is the one that the state was made with, or a copy of it.
    ///
    /// # Arguments
    /// `path` names the file, or `several` of them; `contents` returns the hash of the current content.
    ///
    /// # Errors
    /// `file-changed`, naming what differs.
    pub fn ensure_matches(
        &self,
        path: &str,
        several: bool,
        file: &DataFingerprint,
        contents: impl FnOnce() -> Option<u64>,
    ) -> Result<()> {
        let was = &self.file;
        let (its, it) = if several { ("their", "they") } else { ("its", "it") };
        let difference = if was.bytes != file.bytes {
            format!(
                "{its} size was {} ({} bytes) and is now {} ({} bytes)",
                Bytes(was.bytes),
                was.bytes,
                Bytes(file.bytes),
                file.bytes
            )
        } else if was.chunks != file.chunks {
            format!(
                "{it} had {} chunks and now {}",
                was.chunks,
                match several {
                    true => format!("have {}", file.chunks),
                    false => format!("has {}", file.chunks),
                }
            )
        } else if was.index_hash != file.index_hash {
            match several {
                true => "their names, or the offsets of their chunks, are others".into(),
                false => "its chunks are at other offsets".into(),
            }
        } else {
            // Whether it was touched, copied or written to, the content decides: times are often copied, too.
            match (was.contents, contents()) {
                (Some(was), Some(now)) if was == now => return Ok(()),
                (None, _) | (_, None) if was.modified_ns == file.modified_ns => return Ok(()),
                (Some(_), Some(_)) => {
                    format!("{its} values differ, although {its} size and chunks are the same")
                }
                _ => format!(
                    "{it} {} written to or copied since, and {its} contents cannot be compared",
                    if several { "were" } else { "was" }
                ),
            }
        };
        Err(Error::new(
            ErrorKind::FileChanged,
            match several {
                true => {
                    format!("`{path}` are not the files that this run started with: {difference}")
                }
                false => {
                    format!("`{path}` is not the file that this run started with: {difference}")
                }
            },
        )
        .hint("restore the original file or a copy of it, or start over"))
    }
}
