//! The files that results of a dry run are written to.

use std::path::{Path, PathBuf};

use vramfit_analysis::analysis::trace_files;
use vramfit_analysis::{Error, Result};

use crate::files::{is_special, writable};

/// Where the results go besides the terminal.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResultFiles {
    pub(super) json: Option<PathBuf>,
    /// Whether the JSON goes to standard output, and nothing else is printed.
    pub(super) json_to_stdout: bool,
    /// Whether all of the report is printed, and not only what fits on a screen.
    pub(super) full_text: bool,
    /// The report as an HTML page.
    pub(super) html: Option<PathBuf>,
    /// Whether files that exist are overwritten.
    pub(super) force: bool,
}

/// As [`writable`], for a trace: traces of other processes of an older run may lie beside it.
///
/// # Errors
/// `io`.
pub(super) fn writable_trace(path: &Path, force: bool) -> Result<PathBuf> {
    let absolute = writable(path, force)?;
    // It is read back when the program has ended, and one of an older run is removed.
    if is_special(&absolute) {
        return Err(Error::io(format!(
            "cannot keep a trace in `{}`: it is not a regular file",
            path.display()
        ))
        .hint("name a file, or omit `--trace`"));
    }
    for old in trace_files(&absolute) {
        writable(&old, force)?;
    }
    Ok(absolute)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramfit_analysis::ErrorKind;

    #[test]
    fn special_files_are_written_to_but_never_replaced() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
        assert_eq!(writable(&socket, false).expect("nothing is lost"), socket);
        assert_eq!(writable_trace(&socket, true).unwrap_err().kind(), ErrorKind::Io);
        assert!(socket.exists());
    }

    #[test]
    fn files_are_not_overwritten_unless_forced() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let file = folder.path().join("answer.json");
        assert_eq!(writable(&file, false).expect("free"), file);
        std::fs::write(&file, "{}").expect("written");
        assert!(writable(&file, false).unwrap_err().hint_text().is_some());
        assert!(writable(&file, true).is_ok());
        let second = folder.path().join("answer.json.123");
        std::fs::write(&second, "").expect("written");
        assert_eq!(writable_trace(&file, true).expect("forced"), file);
        assert!(writable_trace(&file, false).is_err());
        assert!(writable(folder.path(), true).is_err());
        assert!(writable(&folder.path().join("no/answer.json"), true).is_err());
    }
}
