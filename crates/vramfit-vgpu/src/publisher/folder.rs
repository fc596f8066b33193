//! The folder of statistics files, which only its user can write.

use std::fs::{self, DirBuilder};
use std::io::{Error, Result};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use vramfit_model::published::{self, FILE_SUFFIX};

use crate::process::start_ticks;

/// Returns the folder for this process's file, creating it if necessary, and removes files in it whose
/// processes have ended.
pub(super) fn prepare_folder() -> Result<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR");
    let mut last_error = Error::other("there is no directory for the statistics");
    for folder in published::stats_directories(runtime.as_deref(), user()) {
        match ensure_private(&folder) {
            Ok(()) => {
                remove_stale(&folder);
                return Ok(folder);
            }
            Err(error) => {
                last_error = Error::new(error.kind(), format!("{}: {error}", folder.display()));
            }
        }
    }
    Err(last_error)
}

fn user() -> u32 {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::geteuid() }
}

/// Creates a folder, or checks that the existing one can be trusted: in a directory that is writable for
/// everyone, another user could have created a folder or a link before.
fn ensure_private(folder: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        result => return result,
    }
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() {
        return Err(Error::other("it is not a directory"));
    }
    if metadata.uid() != user() {
        return Err(Error::other("it belongs to another user"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(Error::other("other users can access it"));
    }
    Ok(())
}

/// Removes the files of processes that were killed. Files that cannot be read stay.
fn remove_stale(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let here = pid_namespace();
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_stats_file = path.as_os_str().as_bytes().ends_with(FILE_SUFFIX.as_bytes());
        // Statistics files are small; a large file is another one.
        let small = fs::metadata(&path)
            .is_ok_and(|metadata| metadata.is_file() && metadata.len() < 1 << 20);
        if !is_stats_file || !small {
            continue;
        }
        let Ok((header, _)) = fs::read(&path)
            .map_or(Err(()), |stats_file| published::Layout::parse(&stats_file).map_err(|_| ()))
        else {
            continue;
        };
        let gone = header.boot_id != boot_id()
            || header.pid_namespace == here
                && start_ticks(header.pid) != Some(header.started_ticks);
        if gone {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Returns the inode of this process's PID namespace; 0 if it is not known.
pub(super) fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// Returns the kernel's id of the current boot.
pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| String::new(), |text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_folder_is_created_for_its_user_alone_and_found_again() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("vramfit");
        ensure_private(&folder).expect("made");
        let mode = fs::metadata(&folder).expect("there").mode() & 0o777;
        assert_eq!(mode, 0o700);
        ensure_private(&folder).expect("found");
    }

    #[test]
    fn a_folder_that_others_can_access_a_link_and_a_file_are_rejected() {
        let root = tempfile::tempdir().expect("a folder");
        let open = root.path().join("open");
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).expect("changed");
        let link = root.path().join("link");
        symlink("/root", &link).expect("made");
        let file = root.path().join("file");
        fs::write(&file, "").expect("written");
        for (path, why) in [
            (&open, "other users can access it"),
            (&link, "it is not a directory"),
            (&file, "it is not a directory"),
        ] {
            assert_eq!(ensure_private(path).unwrap_err().to_string(), why);
        }
    }

    #[test]
    fn files_of_ended_processes_are_removed_and_others_stay() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |change: &dyn Fn(&mut published::StatsHeader)| {
            let mut header = published::StatsHeader {
                pid: std::process::id(),
                started_ticks: start_ticks(std::process::id()).expect("this process"),
                pid_namespace: pid_namespace(),
                boot_id: boot_id(),
                ..Default::default()
            };
            change(&mut header);
            let path = root.path().join(header.file_name());
            let (_, stats_file) = published::Layout::new_file(&header).expect("small");
            fs::write(&path, stats_file).expect("written");
            path
        };
        let alive = write(&|_| {});
        let gone = write(&|header| header.started_ticks += 1);
        let rebooted = write(&|header| {
            header.boot_id = "earlier".to_owned();
            header.client = 1;
        });
        let elsewhere = write(&|header| {
            header.pid_namespace += 1;
            header.started_ticks += 2;
        });
        let other = root.path().join("notes.stats");
        fs::write(&other, "mine").expect("written");
        remove_stale(root.path());
        let there = [&alive, &gone, &rebooted, &elsewhere, &other].map(|path| path.exists());
        assert_eq!(there, [true, false, false, true, true]);
    }
}
