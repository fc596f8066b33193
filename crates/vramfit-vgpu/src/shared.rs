//! The memory of a card as the driver hands it out: private to this process, or shared by name
//! with others on this machine, so that they collide as they would on a real card.
//!
//! A shared card is a small text file under an advisory lock; [`shared_card`] says what is in it. Lines
//! of processes that are gone are dropped by whoever looks next, so a killed process gives its memory
//! back.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

use vramfit_core::allocator::{CardMemory, DeviceMemory, Region};
use vramfit_core::shared_card::{self, Holding};

use crate::environment::Environment;
use crate::process::started;
use crate::status::{Answer, Code, Status};

/// The driver maps memory in pages of this size.
const PAGE: u64 = 2 << 20;

/// Returns the memory of one card: its total, less what others hold and the CUDA context.
///
/// # Errors
/// When a shared card cannot be opened, or is another card than the one asked for.
pub(crate) fn device_memory(
    environment: &Environment,
    ordinal: u32,
) -> Answer<Box<dyn DeviceMemory>> {
    let total = environment.gpu.total_memory_bytes;
    let free = total.saturating_sub(environment.taken_bytes);
    let Some(name) = &environment.shared else {
        return Ok(Box::new(CardMemory::new(
            free.saturating_sub(environment.context_bytes),
        )));
    };
    let mut card = SharedCard {
        file: open(name)?,
        first_line: format!("{} {} {}", environment.gpu.name, environment.devices, total),
        device: ordinal,
        free_bytes: free,
        // Addresses are each process's own; the books in the file decide what is granted.
        addresses: CardMemory::new(u64::MAX / 4),
    };
    card.check_first_line()?;
    if !card.reserve(environment.context_bytes) {
        return Err(Status::new(
            Code::FailedPrecondition,
            format!(
                "vramfit: the shared card `{name}` has no room for another CUDA context; \
                 on a real card JAX would find no usable GPU"
            ),
        ));
    }
    Ok(Box::new(card))
}

/// A card whose memory several processes draw on.
struct SharedCard {
    file: File,
    first_line: String,
    device: u32,
    /// The card's memory before any of the sharing processes.
    free_bytes: u64,
    addresses: CardMemory,
}

fn open(name: &str) -> Answer<File> {
    let sane = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(sane) {
        return Err(Status::new(
            Code::InvalidArgument,
            format!(
                "vramfit: `{name}` is no name for a shared card; use letters, digits and `-_.`"
            ),
        ));
    }
    let cannot = |error: std::io::Error| {
        Status::new(
            Code::Unavailable,
            format!("vramfit cannot open the shared card: {error}"),
        )
    };
    let folder = folder();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(cannot)?;
    // In a place where everybody may write, somebody else's folder is not to be trusted.
    // SAFETY: takes no argument and cannot fail.
    let user = unsafe { libc::geteuid() };
    if fs::metadata(&folder).map_err(cannot)?.uid() != user {
        return Err(Status::new(
            Code::FailedPrecondition,
            format!("vramfit: `{}` belongs to another user", folder.display()),
        ));
    }
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(folder.join(name))
        .map_err(cannot)
}

fn folder() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // SAFETY: takes no argument and cannot fail.
    let user = unsafe { libc::geteuid() };
    shared_card::folder(runtime.as_deref(), &std::env::temp_dir(), user)
}

/// Holds the lock on the file; the books are read, changed and written inside.
struct Books<'a> {
    card: &'a mut SharedCard,
    shares: Vec<Holding>,
}

impl SharedCard {
    /// Locks the books and drops the lines of processes that are gone.
    fn books(&mut self) -> std::io::Result<(Books<'_>, String)> {
        // SAFETY: the descriptor is open.
        if unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let mut text = String::new();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.read_to_string(&mut text)?;
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default().to_owned();
        let shares = lines.filter_map(Holding::parse).filter(is_alive).collect();
        Ok((Books { card: self, shares }, first))
    }

    fn check_first_line(&mut self) -> Answer {
        let wanted = self.first_line.clone();
        let cannot = |error: std::io::Error| Status::internal(format!("shared card: {error}"));
        let (books, first) = self.books().map_err(cannot)?;
        if !books.shares.is_empty() && first != wanted {
            return Err(Status::new(
                Code::FailedPrecondition,
                format!(
                    "vramfit: the shared card is in use as `{first}` (card, count, bytes), and \
                     `{wanted}` was asked for; give it another name"
                ),
            ));
        }
        books.write().map_err(cannot)
    }

    /// Adds to what this process holds, if the card has that much left.
    fn reserve(&mut self, bytes: u64) -> bool {
        let (device, free) = (self.device, self.free_bytes);
        let Ok((mut books, _)) = self.books() else {
            return false;
        };
        let held: u64 = books
            .shares
            .iter()
            .filter(|s| s.device == device)
            .map(|s| s.bytes)
            .sum();
        if held.saturating_add(bytes) > free {
            return false;
        }
        books.own(device).bytes += bytes;
        books.write().is_ok()
    }

    fn give_back(&mut self, bytes: u64) {
        let device = self.device;
        if let Ok((mut books, _)) = self.books() {
            let own = books.own(device);
            own.bytes = own.bytes.saturating_sub(bytes);
            // If the disk is full the line stays too high until this process ends.
            let _ = books.write();
        }
    }
}

impl Books<'_> {
    /// Returns this process's line for a card.
    fn own(&mut self, device: u32) -> &mut Holding {
        let process = std::process::id();
        let found = self
            .shares
            .iter()
            .position(|s| s.process == process && s.device == device);
        let at = found.unwrap_or_else(|| {
            let started = started(process).unwrap_or(0);
            self.shares.push(Holding {
                process,
                started,
                device,
                bytes: 0,
            });
            self.shares.len() - 1
        });
        &mut self.shares[at]
    }

    fn write(self) -> std::io::Result<()> {
        let mut text = format!("{}\n", self.card.first_line);
        for share in &self.shares {
            text.push_str(&share.line());
        }
        self.card.file.seek(SeekFrom::Start(0))?;
        self.card.file.set_len(0)?;
        self.card.file.write_all(text.as_bytes())
    }
}

impl Drop for Books<'_> {
    fn drop(&mut self) {
        // SAFETY: the descriptor is open; unlocking cannot fail then.
        unsafe { libc::flock(self.card.file.as_raw_fd(), libc::LOCK_UN) };
    }
}

fn is_alive(holding: &Holding) -> bool {
    started(holding.process) == Some(holding.started)
}

impl DeviceMemory for SharedCard {
    fn allocate(&mut self, alignment: u64, bytes: u64) -> Option<Region> {
        let cost = bytes.checked_next_multiple_of(PAGE)?;
        if bytes == 0 || !self.reserve(cost) {
            return None;
        }
        let region = self.addresses.allocate(alignment, bytes);
        if region.is_none() {
            self.give_back(cost);
        }
        region
    }

    fn free(&mut self, region: Region) {
        self.addresses.free(region);
        self.give_back(region.bytes.next_multiple_of(PAGE));
    }

    fn free_bytes(&self) -> u64 {
        let Ok(file) = self.file.try_clone() else {
            return 0;
        };
        let mut view = SharedCard {
            file,
            first_line: self.first_line.clone(),
            device: self.device,
            free_bytes: self.free_bytes,
            addresses: CardMemory::new(0),
        };
        let held: u64 = view.books().map_or(u64::MAX, |(books, _)| {
            books
                .shares
                .iter()
                .filter(|s| s.device == self.device)
                .map(|s| s.bytes)
                .sum()
        });
        self.free_bytes.saturating_sub(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(file: &std::path::Path, device: u32, free_bytes: u64) -> SharedCard {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(file)
            .expect("a file in the temporary folder");
        SharedCard {
            file,
            first_line: "t4 1 100".to_owned(),
            device,
            free_bytes,
            addresses: CardMemory::new(u64::MAX / 4),
        }
    }

    #[test]
    fn two_users_of_a_card_share_its_memory_and_a_dead_one_gives_its_part_back() {
        let path = std::env::temp_dir().join(format!("vramfit-test-{}", std::process::id()));
        let mut first = card(&path, 0, 10 * PAGE);
        let mut second = card(&path, 0, 10 * PAGE);
        let region = first.allocate(256, 6 * PAGE).expect("room for six pages");
        assert_eq!(second.allocate(256, 6 * PAGE), None, "four are left");
        assert_eq!(second.free_bytes(), 4 * PAGE);
        assert!(second.allocate(256, 4 * PAGE).is_some());
        first.free(region);
        assert!(second.allocate(256, 6 * PAGE).is_some());

        // A process that is gone: its number exists no more.
        let (mut books, _) = first.books().expect("the file is there");
        books.shares = vec![Holding {
            process: u32::MAX,
            started: 1,
            device: 0,
            bytes: 10 * PAGE,
        }];
        books.write().expect("room on the disk");
        assert_eq!(first.free_bytes(), 10 * PAGE);
        fs::remove_file(path).expect("it was there");
    }

    #[test]
    fn this_process_is_alive() {
        assert!(started(std::process::id()).is_some());
        assert_eq!(started(u32::MAX), None);
    }
}
