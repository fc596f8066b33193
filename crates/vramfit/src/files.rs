//! Files that a command writes: refused before the work is done, and never overwritten unless told.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use vramfit_core::{Error, ErrorKind, Result};

/// Says whether `-` was given in the place of a file: standard output.
pub(crate) fn is_standard_output(path: Option<&Path>) -> bool {
    path == Some(Path::new("-"))
}

/// Refuses a file that would be overwritten, or that cannot be written, before the program runs.
///
/// # Errors
/// `io` when it exists and `--force` was not given, or when its directory does not exist.
pub(crate) fn writable(path: &Path, force: bool) -> Result<PathBuf> {
    let shown = path.display();
    let absolute = std::path::absolute(path).map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot write `{shown}`")).cause(error)
    })?;
    if absolute.is_dir() {
        return Err(Error::new(
            ErrorKind::Io,
            format!("cannot write `{shown}`: it is a directory"),
        ));
    }
    if absolute.exists() && !force && !is_special(&absolute) {
        return Err(Error::new(
            ErrorKind::Io,
            format!("`{shown}` exists and will not be overwritten"),
        )
        .hint("add `--force`, or name another file"));
    }
    match absolute.parent() {
        Some(parent) if !parent.is_dir() => Err(Error::new(
            ErrorKind::Io,
            format!("cannot write `{shown}`: its directory does not exist"),
        )
        .hint(format!("make it first: `mkdir -p {}`", parent.display()))),
        _ => Ok(absolute),
    }
}

/// Says whether a path is a device, a pipe or the like: writing there overwrites nothing.
pub(crate) fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| !data.is_file() && !data.is_dir())
}

/// Writes a file that was free when the command started, and may not be free any more. It ends in a
/// line feed.
///
/// # Errors
/// `io`.
pub(crate) fn write(path: &Path, text: &str, force: bool) -> Result<()> {
    let mut options = File::options();
    options.write(true);
    if force || is_special(path) {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let written = options.open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        match text.ends_with('\n') {
            true => Ok(()),
            false => file.write_all(b"\n"),
        }
    });
    written.map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot write `{}`", path.display())).cause(error)
    })
}
