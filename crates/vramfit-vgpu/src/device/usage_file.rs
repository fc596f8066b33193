//! The file that says how much of shared GPUs each process uses: a small text under an advisory lock;
//! [`vramfit_model::shared_gpus`] has its format. Lines of processes that have ended are dropped when it
//! matters, so the memory of a killed process is free again.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;

use vramfit_model::shared_gpus::{Holding, SharedGpuUsage};

use crate::pjrt::status::{Status, StatusCode};
use crate::process::start_ticks;

/// Returns the error for a file that cannot be locked or written.
pub(super) fn usage_file_error(error: &std::io::Error) -> Status {
    Status::new(
        StatusCode::Unavailable,
        format!(
            "vramfit cannot lock or write the file of shared GPUs: {error}; set `TMPDIR` to a directory on a \
             local disk"
        ),
    )
}

/// The locked file, with its content.
pub(super) struct LockedUsageFile<'a> {
    file: &'a mut File,
    pub(super) usage: SharedGpuUsage,
}

impl LockedUsageFile<'_> {
    pub(super) fn new(file: &mut File) -> std::io::Result<LockedUsageFile<'_>> {
        // SAFETY: the descriptor is open.
        while unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let mut text = String::new();
        let read = |file: &mut File, text: &mut String| {
            file.seek(SeekFrom::Start(0))?;
            file.read_to_string(text)
        };
        let result = read(file, &mut text);
        let usage = SharedGpuUsage::parse(&text);
        let locked = LockedUsageFile { file, usage };
        result.map(|_| locked)
    }

    /// Drops the lines of processes that have ended.
    pub(super) fn drop_ended_processes(&mut self) {
        self.usage.holdings.retain(is_running);
    }

    pub(super) fn write(self) -> std::io::Result<()> {
        let text = self.usage.to_text();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(text.len() as u64)
    }
}

impl Drop for LockedUsageFile<'_> {
    fn drop(&mut self) {
        // SAFETY: the descriptor is open; unlocking cannot fail then.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
    }
}

fn is_running(holding: &Holding) -> bool {
    start_ticks(holding.process) == Some(holding.started)
}
