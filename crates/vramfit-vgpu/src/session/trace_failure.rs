//! Reports that the trace cannot be written: the program continues, and `vramfit dryrun` says so.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::session::log;

/// The file for the reason, in the folder of compiler logs. The dry run has allocated it before, since the
/// usual reason is a full disk.
const FILE_NAME: &str = "trace-failure";
/// The size of that file.
const FILE_BYTES: usize = 4096;

/// Reports that the trace is incomplete or missing, on standard error and to the dry run.
pub(crate) fn report(folder: Option<&Path>, reason: &str) {
    log::print_line(&format!("the trace is incomplete: {reason}"));
    if let Some(folder) = folder {
        write_reason(folder, reason);
    }
}

/// Writes the reason into the file that the dry run has created for it.
fn write_reason(folder: &Path, reason: &str) {
    let mut text = reason.as_bytes().to_vec();
    // The rest of the file stays zeros, including the last byte.
    text.truncate(FILE_BYTES - 1);
    let file = OpenOptions::new().write(true).open(folder.join(FILE_NAME));
    // No file: nobody reads the reason.
    let _ = file.and_then(|file| file.write_all_at(&text, 0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_written_into_the_existing_file_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        write_reason(folder, "nobody asked");
        assert!(!folder.join(FILE_NAME).exists(), "no file is created");
        std::fs::write(folder.join(FILE_NAME), [0; FILE_BYTES]).expect("written");
        write_reason(folder, &"x".repeat(2 * FILE_BYTES));
        let file = std::fs::read(folder.join(FILE_NAME)).expect("read");
        assert_eq!(file.len(), FILE_BYTES);
        assert_eq!(file[FILE_BYTES - 2..], [b'x', 0]);
    }
}
