//! The lock with which HDF5 programs keep each other away from a file: `flock(2)`, exclusive while it is open for
//! writing and shared while it is read (`H5FD_sec2`, since HDF5 1.10).

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FlockOperation, flock, major, minor};
use rustix::io::Errno;

/// Who writes to a file, as its lock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Nobody who takes the lock.
    None,
    /// A process has it open, of the number where that can be found out.
    Process(Option<u32>),
    /// The file system has no locks, or the user does not want them to be looked at.
    Unknown,
}

/// Asks who has a file open for writing.
///
/// The lock is taken as a reader takes it, and given back at once: that is all there is to ask with. An HDF5
/// program that opens the file for writing in just those microseconds is refused by its library, as it is
/// by any reader that has the file open.
///
/// As in libhdf5, `HDF5_USE_FILE_LOCKING=FALSE` leaves locks alone.
pub(super) fn find_writer(file: &File) -> Writer {
    let setting = std::env::var_os("HDF5_USE_FILE_LOCKING");
    if setting.is_some_and(|text| text == "FALSE" || text == "0") {
        return Writer::Unknown;
    }
    match flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            let _ = flock(file, FlockOperation::Unlock);
            Writer::None
        }
        Err(Errno::WOULDBLOCK) => Writer::Process(find_holder(file)),
        // Read-only media and network file systems need not have locks.
        Err(_) => Writer::Unknown,
    }
}

/// Looks for the process in the kernel's list, which has those of this container only.
fn find_holder(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let device = metadata.dev();
    let (major, minor, inode) = (major(device), minor(device), metadata.ino());
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| parse_holder(line, &place))
}

/// Reads one line of `/proc/locks`: `1: FLOCK  ADVISORY  WRITE 4711 fe:00:5457749 0 EOF`.
fn parse_holder(line: &str, place: &str) -> Option<u32> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [_, "FLOCK", _, "WRITE", process, held, ..] if *held == place => process.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_by_device_and_inode() {
        let line = "1: FLOCK  ADVISORY  WRITE 4711 fe:00:5457749 0 EOF";
        assert_eq!(parse_holder(line, "fe:00:5457749"), Some(4711));
        assert_eq!(parse_holder(line, "fe:01:5457749"), None);
        let waits = "1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:5457749 0 EOF";
        assert_eq!(parse_holder(waits, "fe:00:5457749"), None);
        assert_eq!(parse_holder(&line.replace("WRITE", "READ"), "fe:00:5457749"), None);
    }

    #[test]
    fn readers_are_nobody_and_writers_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let writer = File::create(&path).unwrap();
        let file = File::open(&path).unwrap();
        flock(&writer, FlockOperation::LockShared).unwrap();
        assert_eq!(find_writer(&file), Writer::None);
        flock(&writer, FlockOperation::LockExclusive).unwrap();
        assert!(matches!(find_writer(&file), Writer::Process(_)));
        drop(writer);
        assert_eq!(find_writer(&file), Writer::None);
    }
}
