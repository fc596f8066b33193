//! A note of the virtual GPU that it could not write its trace to the end.
//!
//! The disk is full then, as a rule, so the file has its room before the program starts. The virtual GPU
//! writes the reason over its zeros (`trace_failure.rs` there).

use std::fs;
use std::path::Path;

use vramfit_core::Result;

use crate::files::cannot_write;

/// The name of the file in the folder that `VRAMFIT_COMPILER_LOG` names.
const NAME: &str = "trace-failure";
/// Its size; reasons are shorter.
const ROOM_BYTES: usize = 4096;

/// Makes the file.
///
/// # Errors
/// `io` when there is no room for it.
pub(super) fn prepare(folder: &Path) -> Result<()> {
    let path = folder.join(NAME);
    fs::write(&path, [0; ROOM_BYTES]).map_err(|error| cannot_write(&path, error))
}

/// Returns why the trace could not be written to its end; `None` where it was.
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
        prepare(folder.path()).expect("there is room");
        assert_eq!(read(folder.path()), None);
        let mut file = fs::read(folder.path().join(NAME)).expect("it was made");
        file[..4].copy_from_slice(b"full");
        fs::write(folder.path().join(NAME), file).expect("there is room");
        assert_eq!(read(folder.path()).as_deref(), Some("full"));
    }
}
