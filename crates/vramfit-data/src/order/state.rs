//! What has to be kept to go on from where a run stopped: a few numbers, below a kilobyte of JSON.
//!
//! The order itself is in it, so a machine with more memory, whose choice of engine would be another,
//! continues the order that was begun.

use serde::{Deserialize, Serialize};
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::Order;

/// The form of a state. A state of another form is refused.
pub const STATE_SCHEMA: u32 = 1;

/// What tells whether a file, or a copy of it, still has the rows that a run began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Its size.
    pub bytes: u64,
    /// When it was last written, in nanoseconds since 1970; a hash of several times, where rows come from several
    /// files.
    pub modified_ns: i64,
    /// Chunks of the datasets that are read.
    pub chunks: u64,
    /// A hash of where those chunks are, their sizes and filters.
    pub index_hash: u64,
    /// A hash of the content, whole or sampled; none where it could not be read, or in states of old.
    #[serde(default)]
    pub contents: Option<u64>,
}

/// Where a run is in its data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    schema: u32,
    /// What decides the order.
    pub order: Order,
    /// The epoch, from 0.
    pub epoch: u64,
    /// How many rows of the epoch were given out, to all processes together.
    pub position: u64,
    /// The file that the order is of.
    pub file: Fingerprint,
}

impl State {
    /// Returns the state at a position of an epoch.
    pub fn new(order: Order, epoch: u64, position: u64, file: Fingerprint) -> Self {
        State {
            schema: STATE_SCHEMA,
            order,
            epoch,
            position,
            file,
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
        let refuse = |what: &str| {
            Error::new(
                ErrorKind::InvalidFile,
                format!("this is no state of a loader: {what}"),
            )
        };
        let value: serde_json::Value = serde_json::from_str(text)
            .map_err(|error| refuse("it cannot be read as JSON").cause(error))?;
        match value.get("schema").and_then(serde_json::Value::as_u64) {
            Some(schema) if schema == u64::from(STATE_SCHEMA) => {}
            Some(schema) => {
                return Err(refuse(&format!(
                    "its form is number {schema}, and this version knows number {STATE_SCHEMA}"
                )));
            }
            None => return Err(refuse("it has no `schema`")),
        }
        let state: State = serde_json::from_value(value)
            .map_err(|error| refuse("a field is missing or wrong").cause(error))?;
        let Order {
            rows,
            seed,
            engine,
            part,
        } = state.order;
        let order = Order::new(rows, seed, engine, part)
            .map_err(|error| refuse("its order cannot be").cause(error))?;
        if state.position > order.len() {
            return Err(refuse(&format!(
                "it is at row {} of an epoch of {}",
                state.position,
                order.len()
            )));
        }
        Ok(state)
    }

    /// Refuses to go on when the file is not the one that the state was made with, nor a copy of it.
    ///
    /// # Arguments
    /// `contents` returns the hash of the content of the file now; asked only when its time is another.
    ///
    /// # Errors
    /// `file-changed`, naming what differs.
    pub fn must_be_of(
        &self,
        path: &str,
        file: &Fingerprint,
        contents: impl FnOnce() -> Option<u64>,
    ) -> Result<()> {
        let was = &self.file;
        let difference = if was.bytes != file.bytes {
            format!(
                "it had {} ({} bytes) and has {} ({} bytes)",
                Bytes(was.bytes),
                was.bytes,
                Bytes(file.bytes),
                file.bytes
            )
        } else if was.chunks != file.chunks {
            format!("it had {} chunks and has {}", was.chunks, file.chunks)
        } else if was.index_hash != file.index_hash {
            "its chunks lie elsewhere".into()
        } else if was.modified_ns == file.modified_ns {
            return Ok(());
        } else {
            // Touched, copied, or written to: the content decides.
            match (was.contents, contents()) {
                (Some(was), Some(now)) if was == now => return Ok(()),
                (Some(_), Some(_)) => {
                    "values in it are others, though its size and its chunks are the same".into()
                }
                _ => "it was written to or copied since, and its content cannot be compared".into(),
            }
        };
        Err(Error::new(
            ErrorKind::FileChanged,
            format!("`{path}` is not the file that this run began with: {difference}"),
        )
        .hint("bring the old file or a copy of it back, or begin anew"))
    }
}
