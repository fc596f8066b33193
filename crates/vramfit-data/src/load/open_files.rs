//! Readers of the datasets that are in use, of all loaders: no more files are open than the system allows, and each
//! loader has no more than its budget does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use vramfit_base::Result;

use super::column_reader::ColumnReader;
use crate::hdf5::Container;
use crate::source::set_close_idle;

/// Bytes of memory of a reader, besides the index of its chunks.
const READER_BYTES: u64 = 1 << 10;
/// Bytes of memory of an entry in the index of chunks.
const CHUNK_BYTES: u64 = 32;

/// The readers of all columns of one segment.
pub(super) type SegmentReaders = Arc<[ColumnReader]>;

/// Returns the bytes of memory that readers take while they are open.
pub(super) fn reader_bytes(readers: u64, chunks: u64) -> u64 {
    readers.saturating_mul(READER_BYTES).saturating_add(chunks.saturating_mul(CHUNK_BYTES))
}

/// Files of one loader that are open, and the readers of their segments. Those of the file that was not used for longest
/// are closed first, whichever loader it is of.
#[derive(Debug)]
pub(super) struct OpenFiles {
    loader: u64,
    max_bytes: u64,
}

/// The open files of all loaders of a process. A forked copy of it has its own: a thread that does not exist there
/// may have held the lock.
#[derive(Debug)]
struct Process {
    id: u32,
    loaders: Mutex<Loaders>,
    forked: OnceLock<Box<Process>>,
}

#[derive(Debug, Default)]
struct Loaders {
    loaders: HashMap<u64, LoaderFiles>,
    uses: u64,
}

#[derive(Debug, Default)]
struct LoaderFiles {
    files: HashMap<u32, OpenFile>,
    /// Bytes of memory of all readers.
    bytes: u64,
}

#[derive(Debug)]
struct OpenFile {
    container: Container,
    /// Each with the bytes of memory that it takes.
    segments: HashMap<u32, (SegmentReaders, u64)>,
    last_use: u64,
}

impl OpenFiles {
    /// The readers may take `max_bytes` together.
    pub(super) fn new(max_bytes: u64) -> OpenFiles {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        set_close_idle(|| Loaders::lock().close_idle(None));
        OpenFiles { loader: NEXT.fetch_add(1, Ordering::Relaxed), max_bytes }
    }

    /// Returns the readers of a segment of a file; those that are not open are opened by `open` from the file that
    /// `open_file` opens.
    ///
    /// # Errors
    ///
    /// Those of `open_file` and `open`.
    pub(super) fn readers(
        &self,
        (file, segment): (u32, u32),
        open_file: impl FnOnce() -> Result<Container>,
        open: impl FnOnce(&Container) -> Result<SegmentReaders>,
    ) -> Result<SegmentReaders> {
        let known = Loaders::lock().find(self.loader, file).map(|known| {
            let readers = known.segments.get(&segment).map(|(readers, _)| Arc::clone(readers));
            (known.container.clone(), readers)
        });
        let container = match known {
            Some((_, Some(readers))) => return Ok(readers),
            Some((container, None)) => container,
            // Not under the lock: opening a file may close others.
            None => open_file()?,
        };
        let readers = open(&container)?;
        self.insert((file, segment), container, &readers);
        Ok(readers)
    }

    /// Keeps the readers of a segment open, and closes others of the loader where they exceed its budget.
    pub(super) fn insert(
        &self,
        (file, segment): (u32, u32),
        container: Container,
        readers: &SegmentReaders,
    ) {
        let chunks = readers.iter().map(|reader| reader.dataset().chunk_count()).sum();
        let bytes = reader_bytes(readers.len() as u64, chunks);
        let mut all = Loaders::lock();
        let own = |all: &Loaders| all.loaders.get(&self.loader).map_or(0, |own| own.bytes);
        while own(&all) + bytes > self.max_bytes && all.close_idle(Some(self.loader)) {}
        all.uses += 1;
        let last_use = all.uses;
        let own = all.loaders.entry(self.loader).or_default();
        let new = || OpenFile { container, segments: HashMap::new(), last_use };
        let known = own.files.entry(file).or_insert_with(new);
        known.last_use = last_use;
        if known.segments.insert(segment, (Arc::clone(readers), bytes)).is_none() {
            own.bytes += bytes;
        }
    }
}

impl Drop for OpenFiles {
    fn drop(&mut self) {
        let closed = Loaders::lock().loaders.remove(&self.loader);
        // Without the lock.
        drop(closed);
    }
}

impl Process {
    /// Returns the process that this is.
    fn current() -> &'static Process {
        static FIRST: OnceLock<Box<Process>> = OnceLock::new();
        let id = std::process::id();
        let mut place = &FIRST;
        loop {
            let new = || Process { id, loaders: Mutex::default(), forked: OnceLock::new() };
            let process = place.get_or_init(|| Box::new(new()));
            if process.id == id {
                return process;
            }
            place = &process.forked;
        }
    }
}

impl Loaders {
    fn lock() -> MutexGuard<'static, Loaders> {
        Process::current().loaders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an open file of a loader, and marks it as used.
    fn find(&mut self, loader: u64, file: u32) -> Option<&OpenFile> {
        self.uses += 1;
        let found = self.loaders.get_mut(&loader)?.files.get_mut(&file)?;
        found.last_use = self.uses;
        Some(found)
    }

    /// Closes what is not in use of the file that was not used for longest, of one loader or of all, and returns whether
    /// there was such a file.
    fn close_idle(&mut self, of: Option<u64>) -> bool {
        let is_idle = |readers: &SegmentReaders| Arc::strong_count(readers) == 1;
        let loaders = self.loaders.iter().filter(|(loader, _)| of.is_none_or(|of| of == **loader));
        let files = loaders.flat_map(|(loader, own)| own.files.iter().map(move |it| (*loader, it)));
        let idle = files
            .filter(|(_, (_, file))| file.segments.values().any(|(readers, _)| is_idle(readers)))
            .min_by_key(|(_, (_, file))| file.last_use)
            .map(|(loader, (number, _))| (loader, *number));
        if let Some((loader, number)) = idle
            && let Some(own) = self.loaders.get_mut(&loader)
            && let Some(file) = own.files.get_mut(&number)
        {
            let closed = file.segments.extract_if(|_, (readers, _)| is_idle(readers));
            own.bytes -= closed.map(|(_, (_, bytes))| bytes).sum::<u64>();
            if file.segments.is_empty() {
                own.files.remove(&number);
            }
        }
        idle.is_some()
    }
}
