//! Readers of the datasets that are in use: of many files no more are open than the system and the budget allow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vramfit_base::Result;

use super::column_reader::ColumnReader;
use crate::hdf5::Container;

/// Files that the program itself may need besides those of a loader.
const OTHER_FILES: u64 = 256;

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

/// Files that are open, and the readers of their segments. Those of the file that was not used for longest are closed
/// first.
#[derive(Debug)]
pub(super) struct OpenFiles {
    max_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<u32, OpenFile>,
    uses: u64,
    bytes: u64,
    /// How many files are open, and may be.
    count: usize,
    max_count: usize,
}

#[derive(Debug)]
struct OpenFile {
    container: Container,
    segments: HashMap<u32, SegmentReaders>,
    bytes: u64,
    /// Files that are open for it: itself, and those that its datasets refer to.
    count: usize,
    last_use: u64,
}

impl OpenFiles {
    /// Readers of `files` files may take `max_bytes` together.
    pub(super) fn new(files: usize, max_bytes: u64) -> OpenFiles {
        let state = State { max_count: allow_open_files(files), ..State::default() };
        OpenFiles { max_bytes, state: Mutex::new(state) }
    }

    /// Returns the readers of a segment of a file, which refers to `others` other files; those that are not open are opened by `open` from the file that
    /// `open_file` opens.
    ///
    /// # Errors
    ///
    /// Those of `open_file` and `open`.
    pub(super) fn readers(
        &self,
        (file, segment): (u32, u32),
        others: usize,
        open_file: impl FnOnce() -> Result<Container>,
        open: impl FnOnce(&Container) -> Result<SegmentReaders>,
    ) -> Result<SegmentReaders> {
        let known = {
            let mut state = self.lock();
            state.uses += 1;
            let uses = state.uses;
            state.files.get_mut(&file).map(|known| {
                known.last_use = uses;
                (known.container.clone(), known.segments.get(&segment).cloned())
            })
        };
        let container = match known {
            Some((_, Some(readers))) => return Ok(readers),
            Some((container, None)) => container,
            None => open_file()?,
        };
        let readers = open(&container)?;
        self.insert((file, segment), others, container, &readers);
        Ok(readers)
    }

    /// Keeps the readers of a segment open, and closes others where there are too many.
    pub(super) fn insert(
        &self,
        (file, segment): (u32, u32),
        others: usize,
        container: Container,
        readers: &SegmentReaders,
    ) {
        let chunks = readers.iter().map(|reader| reader.dataset().chunk_count()).sum();
        let bytes = reader_bytes(readers.len() as u64, chunks);
        let mut state = self.lock();
        let wanted = state.count + others + 1;
        if wanted > state.max_count {
            state.max_count = allow_open_files(2 * wanted).max(state.max_count);
        }
        while !state.files.is_empty()
            && (state.count + others + 1 > state.max_count || state.bytes + bytes > self.max_bytes)
        {
            state.close_least_recently_used();
        }
        state.uses += 1;
        let uses = state.uses;
        let entry = state.files.entry(file).or_insert_with(|| OpenFile {
            container,
            segments: HashMap::new(),
            bytes: 0,
            count: 0,
            last_use: 0,
        });
        entry.last_use = uses;
        if entry.segments.insert(segment, Arc::clone(readers)).is_none() {
            let count = others + usize::from(entry.count == 0);
            entry.bytes += bytes;
            entry.count += count;
            state.bytes += bytes;
            state.count += count;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn close_least_recently_used(&mut self) {
        let oldest = self.files.iter().min_by_key(|(_, file)| file.last_use);
        if let Some(file) = oldest.map(|(file, _)| *file)
            && let Some(closed) = self.files.remove(&file)
        {
            self.bytes -= closed.bytes;
            self.count -= closed.count;
        }
    }
}

/// Returns how many of `files` files may be open at a time. The limit of the process is raised as far as the system
/// allows without privileges, where that is needed.
fn allow_open_files(files: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let wanted = files as u64 + OTHER_FILES;
    let mut current = limit.current.unwrap_or(u64::MAX);
    if current < wanted {
        let raised = limit.maximum.unwrap_or(u64::MAX).min(wanted);
        let limit = Rlimit { current: Some(raised), maximum: limit.maximum };
        if raised > current && setrlimit(Resource::Nofile, limit).is_ok() {
            current = raised;
        }
    }
    let allowed = current.saturating_sub(OTHER_FILES).max(current / 2).max(1);
    files.min(usize::try_from(allowed).unwrap_or(usize::MAX)).max(1)
}
