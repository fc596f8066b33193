//! Files that cannot be written.

use std::io::{ErrorKind as IoErrorKind, Write};
use std::path::Path;

use vramfit_base::{Error, Result};

/// The error for a file that could not be written.
pub fn cannot_write(path: &Path, error: std::io::Error) -> Error {
    let hint = match error.kind() {
        IoErrorKind::StorageFull => {
            Some("the disk is full; free some space, or name another place")
        }
        IoErrorKind::ReadOnlyFilesystem => Some("the disk is read-only; name another place"),
        _ => None,
    };
    let refused = Error::io(format!("cannot write `{}`", path.display()));
    let refused = refused.cause(error);
    match hint {
        Some(hint) => refused.hint(hint),
        None => refused,
    }
}

/// Rejects a place without space for a file of `bytes`, or where none may be created, before the work
/// whose result goes there starts.
///
/// # Errors
/// `io`.
pub fn check_space(path: &Path, bytes: usize) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let tried = tempfile::tempfile_in(folder).and_then(|mut file| {
        file.write_all(&vec![b' '; bytes])?;
        file.sync_all()
    });
    tried.map_err(|error| cannot_write(path, error))
}
