//! The journal that a training run leaves in its directory.

use std::path::{Path, PathBuf};

use vramfit_core::train::Journal;
use vramfit_core::{Error, ErrorKind, Result};

/// The name of the journal in the directory of a run.
const NAME: &str = "metrics.jsonl";

/// Returns the journal that a path means: the file, or that of a directory; none where it means something
/// else.
pub(crate) fn journal(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path.join(NAME));
    }
    (path.file_name()? == NAME).then(|| path.to_owned())
}

/// Reads a journal.
///
/// # Errors
/// `io` when it cannot be read, `invalid-file` when no line of it is about a run.
pub(crate) fn read(path: &Path) -> Result<Journal> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot read `{shown}`"))
            .cause(error)
            .hint("name the directory of a run, which `vramfit train` writes it to")
    })?;
    // Something else may have written to it; lines that are none of a run are passed over.
    let journal = Journal::read(&String::from_utf8_lossy(&bytes));
    if journal.sittings == 0 {
        return Err(Error::new(
            ErrorKind::InvalidFile,
            format!("`{shown}` holds no training run"),
        )
        .hint("`vramfit train` and `vramfit.train.fit` write such files"));
    }
    Ok(journal)
}
