//! Finding the segments of a loader, and what tells later whether their files are still the same.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vramfit_base::Result;

use super::column::Column;
use super::column_reader::ColumnReader;
use super::growing_files::GrowingFiles;
use super::open_files::OpenFiles;
use super::segments::{Segment, Segments};
use crate::digest::digest;
use crate::hdf5::Container;
use crate::read::{Dataset, ScratchPool, Storage};
use crate::source::FileFingerprint;
use crate::splitmix::MixKey;

/// Chunks of the datasets of a file, and a hash of where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileStructure {
    chunks: u64,
    hash: u64,
}

impl FileStructure {
    /// Whether a file can have so many chunks.
    pub(super) fn is_possible(&self) -> bool {
        self.chunks <= 1 << 50
    }
}

/// Adds segments one by one.
#[derive(Debug)]
pub(super) struct SegmentsBuilder {
    segments: Vec<Segment>,
    files: Vec<(PathBuf, FileFingerprint)>,
    missing: Vec<PathBuf>,
    growing: GrowingFiles,
    chunks: u64,
    index_hash: u64,
    /// What the file that is being opened adds to these, and whether it has virtual datasets.
    file: FileStructure,
    is_virtual: bool,
    open_files: OpenFiles,
    pub(super) scratch: ScratchPool,
}

impl SegmentsBuilder {
    /// Begins with `files`, whose readers may take `max_bytes` together while they are open.
    ///
    /// # Errors
    /// `io` when a file does not exist.
    pub(super) fn new(files: &[PathBuf], max_bytes: u64) -> Result<SegmentsBuilder> {
        // Taken before anything is read, so that no change goes unnoticed.
        let prints = files.iter().map(|path| Ok((path.clone(), FileFingerprint::of(path)?)));
        Ok(SegmentsBuilder {
            segments: Vec::new(),
            files: prints.collect::<Result<_>>()?,
            missing: Vec::new(),
            growing: GrowingFiles::default(),
            chunks: 0,
            index_hash: 0,
            file: FileStructure::default(),
            is_virtual: false,
            open_files: OpenFiles::new(max_bytes),
            scratch: ScratchPool::default(),
        })
    }

    /// Adds a segment of a file, with the readers of its columns, and the dataset of the bounds of its samples.
    ///
    /// # Errors
    /// `io` when a file that its datasets refer to does not exist.
    pub(super) fn push(
        &mut self,
        file: usize,
        container: &Container,
        (names, series): (Vec<String>, Option<u64>),
        readers: Vec<ColumnReader>,
        bounds: Option<&Dataset>,
    ) -> Result<()> {
        let own = container.source().path().to_owned();
        if container.is_swmr() {
            self.growing.add(file as u32);
        }
        let mut other_files = Vec::new();
        for dataset in readers.iter().map(|reader| reader.dataset()).chain(bounds) {
            self.is_virtual |= matches!(dataset.storage(), Storage::Virtual(_));
            self.add_files(dataset, &own, &mut other_files)?;
            hash_index(dataset, &mut self.file.chunks, &mut self.file.hash);
            let parts = [self.file.hash, digest(dataset.path().trim_matches('/').as_bytes())];
            let shape = dataset.shape().iter().copied();
            let parts: Vec<u64> = parts.into_iter().chain(shape).collect();
            self.file.hash = MixKey::new(&parts).at(0);
        }
        let address = |reader: &ColumnReader| {
            let dataset = reader.dataset();
            (dataset.container().source().path() == own).then(|| dataset.address())
        };
        let number = self.segments.len() as u32;
        self.segments.push(Segment {
            file: file as u32,
            names: names.into(),
            series,
            lengths: readers.iter().map(|reader| reader.len()).collect(),
            addresses: readers.iter().map(address).collect(),
            other_files: other_files.into(),
            is_unverified: false,
        });
        self.open_files.insert((file as u32, number), container.clone(), &readers.into());
        Ok(())
    }

    /// Ends a file whose segments were added, before those of the next one.
    pub(super) fn end_file(&mut self) {
        let file = std::mem::take(&mut self.file);
        self.is_virtual = false;
        self.chunks = self.chunks.saturating_add(file.chunks);
        self.index_hash = match self.index_hash {
            // A single file has the hash of its own.
            0 => file.hash,
            hash => MixKey::new(&[hash, file.hash]).at(0),
        };
    }

    /// Adds the segments of a file that is known, instead of opening it.
    pub(super) fn add_known(&mut self, structure: FileStructure, segments: Vec<Segment>) {
        self.segments.extend(segments);
        self.file = structure;
        self.end_file();
    }

    /// Returns the structure of the file that is being opened.
    pub(super) fn file_structure(&self) -> FileStructure {
        self.file
    }

    /// Returns a file of the options as it was before it was opened.
    pub(super) fn file(&self, number: usize) -> (&Path, &FileFingerprint) {
        let (path, print) = &self.files[number];
        (path, print)
    }

    /// Returns the segments of the file that was added last.
    pub(super) fn segments_of(&self, number: usize) -> &[Segment] {
        let others = self.segments.partition_point(|segment| (segment.file as usize) < number);
        &self.segments[others..]
    }

    /// Whether nothing but the file that was added last decides what its segments are.
    pub(super) fn is_plain(&self, number: usize) -> bool {
        let is_own = |segment: &Segment| {
            segment.other_files.is_empty() && segment.addresses.iter().all(Option::is_some)
        };
        let has_others = self.is_virtual || self.growing.has(number as u32);
        !has_others && self.segments_of(number).iter().all(is_own)
    }

    /// Adds a hash of the bounds of ragged samples to the fingerprint.
    pub(super) fn hash_bounds(&mut self, bounds: Option<u64>) {
        if let Some(bounds) = bounds {
            self.index_hash = MixKey::new(&[self.index_hash, bounds]).at(0);
        }
    }

    fn add_files(&mut self, dataset: &Dataset, own: &Path, others: &mut Vec<u32>) -> Result<()> {
        let file = dataset.container();
        if let Some(number) = self.add_file(file.source().path(), own, others)?
            && file.is_swmr()
        {
            self.growing.add(number);
        }
        for missing in dataset.missing_sources() {
            let name = missing.file_name().unwrap_or_default();
            let parts = [self.file.hash, digest(name.as_encoded_bytes())];
            self.file.hash = MixKey::new(&parts).at(0);
            match missing.exists() {
                // Its dataset is missing.
                true => {
                    self.add_file(missing, own, others)?;
                }
                false if self.missing.contains(missing) => {}
                false => self.missing.push(missing.clone()),
            }
        }
        if let Storage::Virtual(pieces) = dataset.storage() {
            for piece in pieces.iter() {
                self.add_files(&piece.dataset, own, others)?;
            }
        }
        Ok(())
    }

    /// Adds a file unless it is the segment's own, and returns its number.
    fn add_file(&mut self, path: &Path, own: &Path, others: &mut Vec<u32>) -> Result<Option<u32>> {
        if path == own {
            return Ok(None);
        }
        let known = self.files.iter().position(|(known, _)| known == path);
        let number = match known {
            Some(number) => number,
            None => {
                self.files.push((path.to_owned(), FileFingerprint::of(path)?));
                self.files.len() - 1
            }
        } as u32;
        if !others.contains(&number) {
            others.push(number);
        }
        Ok(Some(number))
    }

    /// Ends with the last segment. `sample_rows` has the rows of the columns that have one for each sample, in each
    /// segment.
    pub(super) fn finish(
        self,
        columns: &[Column],
        sample_rows: Option<Vec<u64>>,
        allow_unclosed: bool,
    ) -> Segments {
        let rows = |segment: &Segment| {
            let lengths = segment.lengths.iter().zip(columns);
            let lengths = lengths.filter(|(_, column)| !column.span().per_sample);
            lengths.map(|(length, _)| *length).max().unwrap_or(0)
        };
        Segments {
            row_starts: starts(self.segments.iter().map(rows)),
            sample_starts: sample_rows.map(|rows| starts(rows.into_iter())),
            segments: self.segments,
            files: self.files,
            missing: self.missing,
            growing: self.growing,
            chunks: self.chunks,
            index_hash: self.index_hash,
            open_files: self.open_files,
            scratch: self.scratch,
            allow_unclosed,
        }
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }
}

fn starts(lengths: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut end = 0;
    let ends = lengths.map(|length| {
        end += length;
        end
    });
    std::iter::once(0).chain(ends).collect()
}

/// Adds the offsets of the chunks of a dataset to a hash.
fn hash_index(dataset: &Dataset, chunks: &mut u64, hash: &mut u64) {
    match dataset.storage() {
        Storage::Compact(_) => {}
        Storage::Contiguous(address) => *hash = MixKey::new(&[*hash, address.unwrap_or(0)]).at(0),
        Storage::Chunked { table, .. } => {
            *chunks += table.len();
            for chunk in table.iter() {
                let parts = [*hash, chunk.address, chunk.size, chunk.filter_mask.into()];
                *hash = MixKey::new(&parts).at(0);
            }
        }
        Storage::Virtual(pieces) => {
            for piece in pieces.iter() {
                hash_index(&piece.dataset, chunks, hash);
            }
        }
    }
}
