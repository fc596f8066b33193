//! A file that is being written, under a hidden name until it is complete.
//!
//! The unfinished file begins with zeros, so no reader takes it for HDF5. After a kill it can be
//! resumed.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use vramfit_base::{Bytes, Error, Result};

use super::atomic_file::AtomicFile;
use super::content::{Content, Dataset};
use super::index::{Chunk, tree};
use super::journal::{Entry, Journal};
use super::metadata_block::{self, Offsets};
use super::options::WriteOptions;
use super::pipeline::EncodedChunk;
use super::sync_thread::SyncThread;

/// A file being written, piece by piece.
#[derive(Debug)]
pub(super) struct Writer {
    /// Before the file, which takes the journal away: it is dropped first.
    sync_thread: SyncThread,
    output: AtomicFile,
    content: Content,
    places: Offsets,
    sync_every: Bytes,
    done: Entry,
    chunks: Vec<Vec<Chunk>>,
    unsafe_bytes: u64,
    unsafe_chunks: Vec<u32>,
}

impl Writer {
    /// Begins a file, or goes on with one.
    ///
    /// `purpose` identifies what is written, such as all settings: an attempt with another purpose is not
    /// resumed.
    ///
    /// # Errors
    /// `io` when the file exists, when an unfinished one
    /// does, when there is not enough space, or when the disk fails.
    pub(super) fn open(
        path: &Path,
        content: Content,
        piece_rows: u64,
        purpose: &str,
        options: WriteOptions,
        expected: Bytes,
    ) -> Result<Self> {
        let output = AtomicFile::open(path, options)?;
        let places = metadata_block::places(&content);
        let found = match output.is_known && options.resume {
            true => Journal::open(&output.journal, purpose)?,
            false => None,
        };
        if found.is_none() && output.is_known && options.resume && !options.force {
            return Err(Error::io(format!(
                "the unfinished `{}` was written with different options",
                path.display()
            ))
            .hint("use the options of the first attempt, or `--force` to start over"));
        }
        let (journal, mut done) = match found {
            Some(found) => found,
            None => (Journal::create(&output.journal, purpose)?, Entry::default()),
        };
        if done.pieces == 0 {
            done.end = places.chunks;
        }
        let sync_thread =
            SyncThread::start(&output.file, journal).map_err(|error| output.failed(&error))?;
        let mut writer = Writer {
            sync_thread,
            chunks: content.datasets.iter().map(|_| Vec::new()).collect(),
            output,
            places,
            sync_every: options.sync_every,
            unsafe_bytes: 0,
            unsafe_chunks: Vec::new(),
            done,
            content,
        };
        writer.locate_chunks(piece_rows)?;
        // Data after the last sync point is written again; without one, all of it.
        let fresh = writer.done.pieces == 0;
        if fresh {
            let emptied = writer.output.file.set_len(0);
            emptied.map_err(|error| writer.output.failed(&error))?;
        }
        let ready = writer.output.check_space(path, expected).and_then(|()| {
            let sized = writer.output.file.set_len(writer.done.end);
            sized.map_err(|error| writer.output.failed(&error))
        });
        if ready.is_err() && fresh {
            writer.output.discard();
        }
        ready?;
        Ok(writer)
    }

    /// Returns how many pieces are there already.
    pub(super) fn pieces(&self) -> u64 {
        self.done.pieces
    }

    /// Adds the next piece: the stored bytes of each dataset, and the row at which they begin.
    ///
    /// # Errors
    /// `io` when the disk fails.
    pub(super) fn add(&mut self, first_row: u64, stored: &[EncodedChunk]) -> Result<()> {
        for (at, stored) in stored.iter().enumerate() {
            let address = match self.places.contiguous[at] {
                Some(start) => start + first_row * self.content.datasets[at].row_bytes(),
                None => {
                    let address = self.done.end;
                    for &bytes in &stored.chunks {
                        let address = self.done.end;
                        self.chunks[at].push(Chunk { address, bytes });
                        self.unsafe_chunks.push(bytes);
                        self.done.end += u64::from(bytes);
                    }
                    address
                }
            };
            self.output
                .file
                .write_all_at(&stored.bytes, address)
                .map_err(|error| self.output.failed(&error))?;
            self.unsafe_bytes += stored.bytes.len() as u64;
        }
        self.done.pieces += 1;
        if self.unsafe_bytes >= self.sync_every.0 {
            let safe = self.sync();
            safe.map_err(|error| self.output.failed(&error))?;
        }
        Ok(())
    }

    /// Writes the index and the metadata block, and publishes the file. Returns its size.
    ///
    /// # Errors
    /// `io` when the disk fails, or when the path was created in the meantime.
    pub(super) fn finish(mut self) -> Result<Bytes> {
        let kept = self.sync_thread.finish();
        kept.map_err(|error| self.output.failed(&error))?;
        let mut end = self.done.end.next_multiple_of(8);
        let mut addresses = Vec::new();
        for (at, dataset) in self.content.datasets.iter().enumerate() {
            let address = match self.places.contiguous[at] {
                Some(address) => address,
                None => {
                    let (nodes, root) = tree(dataset, &self.chunks[at], end);
                    let written = self.output.file.write_all_at(&nodes, end);
                    written.map_err(|error| self.output.failed(&error))?;
                    end += nodes.len() as u64;
                    root
                }
            };
            addresses.push(address);
        }
        let block = metadata_block::encode(&self.content, &addresses, end);
        let file = &self.output.file;
        let written = file
            .set_len(end)
            .and_then(|()| file.sync_data())
            // The superblock makes it HDF5, so it is written when all else is on disk.
            .and_then(|()| file.write_all_at(&block, 0))
            .and_then(|()| file.sync_all());
        written.map_err(|error| self.output.failed(&error))?;
        self.output.publish()?;
        Ok(Bytes(end))
    }

    /// Syncs all pieces so far to the disk and notes them in the journal, while further ones are written.
    fn sync(&mut self) -> std::io::Result<()> {
        self.unsafe_bytes = 0;
        self.sync_thread.submit(Entry {
            pieces: self.done.pieces,
            end: self.done.end,
            chunks: std::mem::take(&mut self.unsafe_chunks),
        })
    }

    /// Finds the chunks of an earlier attempt: they are stored one after the other, in the order
    /// of the pieces.
    fn locate_chunks(&mut self, piece_rows: u64) -> Result<()> {
        let mut address = self.places.chunks;
        let mut sizes = std::mem::take(&mut self.done.chunks).into_iter();
        let all_rows = self.content.datasets.first().map_or(0, Dataset::rows);
        for number in 0..self.done.pieces {
            let rows = piece(number, piece_rows, all_rows);
            for (dataset, chunks) in self.content.datasets.iter().zip(&mut self.chunks) {
                let Some(chunk_rows) = dataset.chunk_rows() else {
                    continue;
                };
                let count = (rows.end - rows.start).div_ceil(chunk_rows);
                for bytes in sizes.by_ref().take(count as usize) {
                    chunks.push(Chunk { address, bytes });
                    address += u64::from(bytes);
                }
            }
        }
        let len = self.output.file.metadata().map_or(0, |data| data.len());
        let missing = self.done.pieces > 0 && len < self.done.end;
        if address != self.done.end || missing || sizes.next().is_some() {
            return Err(Error::invalid_file(format!(
                "the unfinished `{}` does not match its journal",
                self.output.target.display()
            ))
            .hint("add `--force` to start over"));
        }
        Ok(())
    }
}

pub(super) fn piece(number: u64, piece_rows: u64, all_rows: u64) -> Range<u64> {
    let start = (number * piece_rows).min(all_rows);
    start..(start + piece_rows).min(all_rows)
}
