//! What was asked for: the arguments of `vramfit dryrun`, checked and turned into plain values.

use std::path::{Path, PathBuf};

use vramfit_core::gpu::{self, Gpu};
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use crate::files::{is_special, writable};
use crate::traces::traces;

/// Reads `--steps`.
///
/// # Errors
/// `invalid-argument` for what is not a positive number.
pub(crate) fn steps(text: &str) -> Result<u64> {
    text.parse().ok().filter(|steps| *steps > 0).ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidArgument,
            format!("`{text}` is not a number of steps"),
        )
        .hint("write a whole number from 1, such as `3`")
    })
}

/// Which total memory a virtual GPU has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Total {
    /// The lowest that drivers report for such a GPU.
    Lowest,
    /// The highest that drivers report.
    Highest,
    /// What the driver at hand reports.
    Exactly(Bytes),
}

impl Total {
    /// Returns the GPU with this total.
    ///
    /// # Errors
    /// `invalid-argument` for bytes that no driver can report for it.
    pub(super) fn of(self, gpu: &Gpu) -> Result<Gpu> {
        match self {
            Total::Lowest => gpu.with_total(gpu.total_memory_bytes),
            Total::Highest => gpu.with_total(gpu.max_total_memory_bytes),
            Total::Exactly(bytes) => gpu.with_total(bytes.0),
        }
    }
}

/// Reads `--total`.
///
/// # Errors
/// `invalid-argument` for what is neither a word for one nor a number of bytes.
pub(crate) fn total(text: &str) -> Result<Total> {
    match text {
        "lowest" => Ok(Total::Lowest),
        "highest" => Ok(Total::Highest),
        _ => text.parse().map(Total::Exactly),
    }
}

/// Reads `--shared`.
///
/// # Errors
/// `invalid-argument` for what cannot be the name of a file everywhere.
pub(super) fn shared(text: &str) -> Result<String> {
    let sane = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.starts_with('.') || !text.chars().all(sane) {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("`{text}` is not a name for a shared card"),
        )
        .hint("write a word of letters, digits and `-_.`, such as `desk`"));
    }
    Ok(text.to_owned())
}

/// Reads `--autotune-results`, made to apply to the card.
///
/// # Errors
/// `io` when the file cannot be read, `invalid-file` when it holds nothing for such a card.
pub(super) fn autotune_results(path: &Path, gpu: &Gpu) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|error| {
        let message = format!("cannot read `{}`", path.display());
        Error::new(ErrorKind::Io, message)
            .cause(error)
            .hint("check the path; it is taken relative to the current directory")
    })?;
    gpu::fit_autotune_results(&String::from_utf8_lossy(&bytes), gpu)
}

/// As [`writable`], for a trace: traces of other processes of an older run may lie beside it.
///
/// # Errors
/// `io`.
pub(super) fn writable_trace(path: &Path, force: bool) -> Result<PathBuf> {
    let absolute = writable(path, force)?;
    // It is read back when the program has ended, and one of an older run is removed.
    if is_special(&absolute) {
        return Err(Error::new(
            ErrorKind::Io,
            format!(
                "a trace cannot be kept in `{}`: it is no file",
                path.display()
            ),
        )
        .hint("name a file; leave `--trace` away when you do not need it"));
    }
    for old in traces(&absolute) {
        writable(&old, force)?;
    }
    Ok(absolute)
}

/// Removes the traces of an older run, so that what lies there afterwards is of this one.
///
/// # Errors
/// `io` when one cannot be removed.
pub(super) fn remove_traces(path: &Path) -> Result<()> {
    for old in traces(path) {
        std::fs::remove_file(&old).map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot replace `{}`", old.display())).cause(error)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_one_of_the_known_ones_or_bytes() {
        let t4 = gpu::find("t4").expect("in the catalogue");
        for (text, bytes) in [
            ("lowest", 15_642_329_088),
            ("highest", 15_843_721_216),
            ("15109MiB", 15_842_934_784),
        ] {
            let gpu = total(text).and_then(|total| total.of(&t4)).expect(text);
            assert_eq!(gpu.total_memory_bytes, bytes, "{text}");
            assert_eq!(gpu.max_total_memory_bytes, bytes, "{text}");
        }
        for text in ["80GiB", "most", ""] {
            let error = total(text).and_then(|total| total.of(&t4)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
        }
    }

    #[test]
    fn what_is_no_file_is_written_to_but_never_replaced() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("bound");
        assert_eq!(writable(&socket, false).expect("nothing is lost"), socket);
        assert_eq!(
            writable_trace(&socket, true).unwrap_err().kind(),
            ErrorKind::Io
        );
        assert!(socket.exists());
    }

    #[test]
    fn files_are_not_overwritten_unless_told() {
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
        remove_traces(&file).expect("they can be removed");
        assert!(!file.exists() && !second.exists());
        assert!(writable(folder.path(), true).is_err());
        assert!(writable(&folder.path().join("no/answer.json"), true).is_err());
    }
}
