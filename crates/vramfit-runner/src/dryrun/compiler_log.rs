//! The compiler's last output, when its process ended before that was forwarded.
//!
//! While XLA compiles, standard error goes through files in the folder of the run (`stderr_capture.rs` of
//! the virtual GPU). A process that crashes leaves its last output there, and that says why.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::messages::Messages;

/// Passes on the output that remains in the folder, or appends it to the program's log.
pub(super) fn pass_on_remaining(folder: &Path, log: Option<&Path>, messages: &dyn Messages) {
    let text = remaining(folder);
    let appended = log.map(|path| {
        let file = OpenOptions::new().append(true).open(path);
        file.and_then(|mut file| file.write_all(&text))
    });
    // On the terminal rather than nowhere.
    if !matches!(appended, Some(Ok(()))) {
        messages.program_output(&text);
    }
}

fn remaining(folder: &Path) -> Vec<u8> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut logs: Vec<_> = files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
        .collect();
    logs.sort();
    let rest = |path: &PathBuf| {
        let forwarded = fs::read(path.with_extension("passed")).unwrap_or_default();
        let log = fs::read(path).unwrap_or_default();
        let start = byte_count(&forwarded);
        log.get(start..).unwrap_or_default().to_vec()
    };
    logs.iter().flat_map(rest).collect()
}

fn byte_count(file: &[u8]) -> usize {
    let bytes = file.first_chunk().copied().unwrap_or_default();
    usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_output_is_not_printed_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, content: &[u8]| {
            fs::write(folder.path().join(name), content).expect("can be written");
        };
        write("compiler-2.log", b"old\nF check failed\n");
        write("compiler-2.passed", &4u64.to_le_bytes());
        write("compiler-1.log", b"died at once\n");
        write("compiler-3.log", b"short");
        write("compiler-3.passed", &9u64.to_le_bytes());
        write("run.trace", b"no log");
        let text = String::from_utf8(remaining(folder.path())).expect("is text");
        assert_eq!(text, "died at once\nF check failed\n");
    }

    #[test]
    fn a_count_is_eight_bytes_or_nothing() {
        assert_eq!(byte_count(&513u64.to_le_bytes()), 513);
        assert_eq!(byte_count(&[1, 2]), 0);
        assert_eq!(byte_count(&[]), 0);
    }
}
