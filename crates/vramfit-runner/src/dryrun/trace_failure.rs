//! Why the virtual GPU could not write its trace completely.
//!
//! The disk is usually full then, so the file is allocated before the program starts. The virtual GPU
//! writes the reason over its zeros (`trace_failure.rs` there).

use std::fs;
use std::path::Path;

use vramfit_base::Result;

use crate::files::cannot_write;

/// The name of the file in the folder that `VRAMFIT_COMPILER_LOG` names.
const NAME: &str = "trace-failure";
/// Reasons are shorter.
const FILE_BYTES: usize = 4096;

/// Creates the file.
///
/// # Errors
/// `io` when there is no space for it.
pub(super) fn prepare(folder: &Path) -> Result<()> {
    let path = folder.join(NAME);
    fs::write(&path, [0; FILE_BYTES]).map_err(|error| cannot_write(&path, error))
}

/// Returns why the trace could not be written completely; `None` where it was.
pub(super) fn read(folder: &Path) -> Option<String> {
    let bytes = fs::read(folder.join(NAME)).ok()?;
    let reason = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    (!reason.is_empty()).then(|| String::from_utf8_lossy(reason).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_read_back_and_none_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(read(folder.path()), None);
        prepare(folder.path()).expect("there is space");
        assert_eq!(read(folder.path()), None);
        let mut file = fs::read(folder.path().join(NAME)).expect("it was made");
        file[..4].copy_from_slice(b"full");
        fs::write(folder.path().join(NAME), file).expect("there is space");
        assert_eq!(read(folder.path()).as_deref(), Some("full"));
    }
}
