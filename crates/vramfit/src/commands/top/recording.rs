//! Recordings: a line of JSON for every look.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use vramfit_analysis::{Error, ErrorKind, Result};
use vramfit_base::files::cannot_read;

use super::sample::{SCHEMA, Sample};

/// A recording that is being made.
pub(super) struct Recorder {
    file: File,
    shown: String,
}

impl Recorder {
    /// Begins a recording.
    ///
    /// # Errors
    /// `io` when the file cannot be made.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let shown = path.display().to_string();
        let file = File::create(path).map_err(|error| cannot_write(&shown, error))?;
        Ok(Recorder { file, shown })
    }

    /// Adds a sample. Each is in the file when this returns, since recordings are made to see what precedes a failure.
    ///
    /// # Errors
    /// `io` when it cannot be written.
    pub(super) fn write(&mut self, sample: &Sample) -> Result<()> {
        let mut line = serde_json::to_vec(sample).map_err(|error| {
            Error::new(ErrorKind::Internal, "cannot serialize a sample").cause(error)
        })?;
        line.push(b'\n');
        let written = self.file.write_all(&line);
        written.map_err(|error| cannot_write(&self.shown, error))
    }
}

fn cannot_write(shown: &str, error: std::io::Error) -> Error {
    Error::io(format!("cannot write `{shown}`")).cause(error)
}

/// Reads a recording.
///
/// # Errors
/// `io` when it cannot be read, `invalid-file` when it is no recording; the line is named.
pub(super) fn read(path: &Path) -> Result<Vec<Sample>> {
    let shown = path.display();
    let io = |error| cannot_read(path, error);
    let lines = BufReader::new(File::open(path).map_err(io)?).lines();
    let mut samples = Vec::new();
    for (number, line) in (1..).zip(lines) {
        let line = line.map_err(io)?;
        let invalid = |cause: String| {
            let message = format!(
                "`{shown}` is not a recording of `vramfit top`: line {number} \
                                   is invalid"
            );
            Error::invalid_file(message).cause(cause)
        };
        let sample: Sample =
            serde_json::from_str(&line).map_err(|error| invalid(error.to_string()))?;
        if sample.schema != SCHEMA {
            return Err(invalid(format!("unsupported version {}", sample.schema)));
        }
        samples.push(sample);
    }
    if samples.is_empty() {
        let message = format!("`{shown}` is empty: there is nothing to replay");
        return Err(Error::invalid_file(message));
    }
    Ok(samples)
}
