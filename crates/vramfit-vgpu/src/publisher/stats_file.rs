//! The file that a process writes its statistics to: mapped, so that writing is a few stores.

use std::fs::{self, OpenOptions};
use std::io::{Error, Result, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use vramfit_model::published::{Layout, LiveStats, StatsHeader};

/// A statistics file that this process writes; it is removed on drop.
pub(super) struct StatsFile {
    path: PathBuf,
    memory: NonNull<u8>,
    bytes: usize,
    layout: Layout,
    /// The words to write next; reused, so that a sample allocates nothing.
    words: Vec<u64>,
}

// SAFETY: the mapping is this value's own.
unsafe impl Send for StatsFile {}

impl StatsFile {
    /// Creates a file in a folder that only this user can write.
    pub(super) fn create(folder: &Path, header: &StatsHeader) -> Result<Self> {
        let (layout, first) = Layout::new_file(header).map_err(Error::other)?;
        let path = folder.join(header.file_name());
        // Readers look for the extension; the file gets it once its header is complete.
        let temporary = path.with_extension("new");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&temporary)?;
        let made = (|| {
            file.write_all(&first)?;
            // Allocates all blocks of the file now: on a full disk a store into a hole would be a SIGBUS
            // in the user's program.
            // SAFETY: the descriptor is open.
            match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, first.len() as libc::off_t) }
            {
                0 => {}
                error => return Err(Error::from_raw_os_error(error)),
            }
            let memory = map(&file, first.len())?;
            if let Err(error) = fs::rename(&temporary, &path) {
                unmap(memory, first.len());
                return Err(error);
            }
            Ok(memory)
        })();
        match made {
            Ok(memory) => Ok(StatsFile {
                path,
                memory,
                bytes: first.len(),
                layout,
                words: Vec::with_capacity(layout.live_words()),
            }),
            Err(error) => {
                let _ = fs::remove_file(&temporary);
                Err(error)
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a sample. Readers see all of it or nothing.
    pub(super) fn write(&mut self, live: &LiveStats) {
        self.layout.encode(live, &mut self.words);
        // SAFETY: the live part begins at a multiple of 64 of the mapped file and is as long as the
        // layout says; other processes read it, through the file.
        let slots = unsafe {
            let first = self.memory.as_ptr().add(self.layout.live_offset);
            slice::from_raw_parts(first.cast::<AtomicU64>(), self.layout.live_words())
        };
        let Some((sequence, values)) = slots.split_first() else {
            return;
        };
        let before = sequence.load(Ordering::Relaxed);
        sequence.store((before | 1).to_le(), Ordering::Relaxed);
        fence(Ordering::Release);
        for (slot, word) in values.iter().zip(self.words.iter().skip(1)) {
            slot.store(word.to_le(), Ordering::Relaxed);
        }
        sequence.store((before | 1).wrapping_add(1).to_le(), Ordering::Release);
    }
}

impl Drop for StatsFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        unmap(self.memory, self.bytes);
    }
}

fn map(file: &fs::File, bytes: usize) -> Result<NonNull<u8>> {
    // SAFETY: a new mapping of an open file, at an address of the kernel's choice.
    let memory = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if memory == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    NonNull::new(memory.cast()).ok_or_else(|| Error::other("the file was mapped at address 0"))
}

fn unmap(memory: NonNull<u8>, bytes: usize) {
    // SAFETY: the caller owns the mapping, and nothing points into it any more. It cannot fail.
    unsafe { libc::munmap(memory.as_ptr().cast(), bytes) };
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::AtomicBool;

    use vramfit_model::published::{DeviceSample, PublishedDevice, StatsStatus};

    use super::*;

    fn header(devices: usize) -> StatsHeader {
        StatsHeader {
            pid: 9,
            devices: vec![PublishedDevice::default(); devices],
            ..StatsHeader::default()
        }
    }

    fn live(value: u64, devices: usize) -> LiveStats {
        let sample = DeviceSample {
            status: StatsStatus::Available,
            in_use_bytes: Some(value),
            peak_bytes: Some(value),
            ..DeviceSample::default()
        };
        LiveStats {
            heartbeat_ns: value,
            samples: value,
            sampling_ns: value,
            devices: vec![sample; devices],
        }
    }

    #[test]
    fn what_is_written_is_in_the_file_which_is_removed_on_drop() {
        let root = tempfile::tempdir().expect("a folder");
        let mut stats_file = StatsFile::create(root.path(), &header(2)).expect("made");
        stats_file.write(&live(5, 2));
        let bytes = fs::read(stats_file.path()).expect("there");
        let (read, layout) = Layout::parse(&bytes).expect("a page");
        assert_eq!(read.pid, 9);
        assert_eq!(layout.decode(&bytes[layout.live_offset..]), live(5, 2));
        drop(stats_file);
        assert_eq!(fs::read_dir(root.path()).expect("there").count(), 0);
    }

    #[test]
    fn a_reader_sees_whole_samples() {
        const DEVICES: usize = 40;
        let root = tempfile::tempdir().expect("a folder");
        let mut stats_file = StatsFile::create(root.path(), &header(DEVICES)).expect("made");
        let file = fs::File::open(stats_file.path()).expect("there");
        let bytes = fs::read(stats_file.path()).expect("there");
        let (_, layout) = Layout::parse(&bytes).expect("a page");
        let done = AtomicBool::new(false);
        let reads = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut value = 0;
                while !done.load(Ordering::Relaxed) {
                    value += 1;
                    stats_file.write(&live(value, DEVICES));
                }
            });
            let mut reads = 0;
            let mut part = vec![0; layout.live_words() * 8];
            let mut sequence = [0; 8];
            while reads < 2_000 {
                let at = layout.live_offset as u64;
                file.read_exact_at(&mut sequence, at).expect("read");
                let before = u64::from_le_bytes(sequence);
                file.read_exact_at(&mut part, at).expect("read");
                file.read_exact_at(&mut sequence, at).expect("read");
                if before % 2 == 1 || before != u64::from_le_bytes(sequence) {
                    continue;
                }
                let sample = layout.decode(&part);
                if sample.samples > 0 {
                    assert_eq!(sample, live(sample.samples, DEVICES));
                }
                reads += 1;
            }
            done.store(true, Ordering::Relaxed);
            writer.join().expect("no panic");
            reads
        });
        assert_eq!(reads, 2_000);
    }
}
