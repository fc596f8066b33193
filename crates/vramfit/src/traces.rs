//! The traces that a run has left, and the answer among them that decides.

use std::fs::File;
use std::path::{Path, PathBuf};

use vramfit_core::trace::{self, Answer, Reader};
use vramfit_core::{Error, ErrorKind, Result};

/// Returns the traces that a run has left: a second process of it writes beside the first, with
/// its process number behind the name.
pub(crate) fn traces(path: &Path) -> Vec<PathBuf> {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let entries = path
        .parent()
        .and_then(|folder| std::fs::read_dir(folder).ok());
    let mut found: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|file| {
            let file = file.file_name().unwrap_or_default().to_string_lossy();
            file.strip_prefix(&name).is_some_and(|rest| {
                rest.is_empty()
                    || rest
                        .strip_prefix('.')
                        .is_some_and(|number| number.parse::<u32>().is_ok())
            })
        })
        .collect();
    found.sort();
    found
}

/// Returns the answer that decides: one that does not fit, else the one with the highest peak.
pub(crate) fn worst(answers: &[Answer]) -> Option<&Answer> {
    let peak = |answer: &Answer| answer.devices.iter().map(|device| device.peak_bytes).max();
    answers
        .iter()
        .max_by_key(|answer| (!answer.fits(), peak(answer)))
}

/// Reads the traces of the run that a trace belongs to, and returns the answer that decides.
///
/// # Errors
/// Those of [`read`], for each of them.
pub(crate) fn deciding(trace: &Path) -> Result<Answer> {
    let mut found = traces(&std::path::absolute(trace).unwrap_or_else(|_| trace.to_owned()));
    if !found
        .iter()
        .any(|path| path.file_name() == trace.file_name())
    {
        // Named, so that what it is refused for is said of it.
        found = vec![trace.to_owned()];
    }
    let mut answers = found
        .iter()
        .map(|path| read(path))
        .collect::<Result<Vec<_>>>()?;
    let decides = worst(&answers).expect("there is the named one at least");
    let at = answers
        .iter()
        .position(|answer| std::ptr::eq(answer, decides));
    Ok(answers.swap_remove(at.unwrap_or(0)))
}

/// Reads a trace into its answer.
///
/// # Errors
/// `io` when it cannot be read, `invalid-file` when it is no trace.
pub(crate) fn read(path: &Path) -> Result<Answer> {
    let file = File::open(path).map_err(|error| {
        Error::new(
            ErrorKind::Io,
            format!("cannot read the trace `{}`", path.display()),
        )
        .cause(error)
    })?;
    trace::summarise(Reader::new(file)?)
}
