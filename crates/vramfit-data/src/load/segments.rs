//! The datasets that rows come from, one after the other: those of each group that a wildcard means, of each file.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use vramfit_base::{Error, ErrorKind, Result};

use super::objects::read_objects;
use super::open_files::{OpenFiles, SegmentReaders, reader_bytes};
use crate::digest::digest;
use crate::hdf5::Container;
use crate::inspect;
use crate::order;
use crate::read::{Dataset, RowReader, ScratchPool, Storage};
use crate::sample::RowRanges;
use crate::source::FileFingerprint;
use crate::splitmix::MixKey;

use super::column::Column;

/// The rows of all columns in one group of one file.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) file: u32,
    /// What stands for the wildcards in paths.
    pub(super) names: Box<[String]>,
    /// The rows of each column.
    pub(super) lengths: Box<[u64]>,
    /// Where the header of each dataset is; none where it is in another file.
    addresses: Box<[Option<u64>]>,
    /// Files besides its own that rows come from.
    other_files: Box<[u32]>,
}

/// Numbers of files whose rows were read.
pub(super) type TouchedFiles = HashSet<u32>;

/// All segments, in the order of their rows.
#[derive(Debug)]
pub(super) struct Segments {
    pub(super) segments: Vec<Segment>,
    /// Every file that rows come from, as it was when its structure was read.
    files: Vec<(PathBuf, FileFingerprint)>,
    /// Chunks of all datasets, and a hash of where they are.
    chunks: u64,
    index_hash: u64,
    /// How many rows of each column come before each segment, and then the total: one list for all columns, unless
    /// some have a row for each sample.
    row_starts: Vec<u64>,
    sample_starts: Option<Vec<u64>>,
    open_files: OpenFiles,
    scratch: ScratchPool,
    allow_unclosed: bool,
}

/// Adds segments one by one.
#[derive(Debug)]
pub(super) struct SegmentsBuilder {
    segments: Vec<Segment>,
    files: Vec<(PathBuf, FileFingerprint)>,
    chunks: u64,
    index_hash: u64,
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
            chunks: 0,
            index_hash: 0,
            open_files: OpenFiles::new(files.len(), max_bytes),
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
        names: Vec<String>,
        readers: Vec<RowReader>,
        bounds: Option<&Dataset>,
    ) -> Result<()> {
        let own = container.source().path().to_owned();
        let mut other_files = Vec::new();
        for dataset in readers.iter().map(RowReader::dataset).chain(bounds) {
            self.add_files(dataset, &own, &mut other_files)?;
            hash_index(dataset, &mut self.chunks, &mut self.index_hash);
            let parts = [self.index_hash, digest(dataset.path().trim_matches('/').as_bytes())];
            let shape = dataset.shape().iter().copied();
            let parts: Vec<u64> = parts.into_iter().chain(shape).collect();
            self.index_hash = MixKey::new(&parts).at(0);
        }
        let address = |reader: &RowReader| {
            let dataset = reader.dataset();
            (dataset.container().source().path() == own).then(|| dataset.address())
        };
        let number = self.segments.len() as u32;
        self.segments.push(Segment {
            file: file as u32,
            names: names.into(),
            lengths: readers.iter().map(RowReader::len).collect(),
            addresses: readers.iter().map(address).collect(),
            other_files: other_files.into(),
        });
        let others = self.segments[number as usize].other_files.len();
        let place = (file as u32, number);
        self.open_files.insert(place, others, container.clone(), &readers.into());
        Ok(())
    }

    /// Adds a hash of the bounds of ragged samples to the fingerprint.
    pub(super) fn hash_bounds(&mut self, bounds: Option<u64>) {
        if let Some(bounds) = bounds {
            self.index_hash = MixKey::new(&[self.index_hash, bounds]).at(0);
        }
    }

    fn add_files(&mut self, dataset: &Dataset, own: &Path, others: &mut Vec<u32>) -> Result<()> {
        let path = dataset.container().source().path();
        if path != own {
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
        }
        if let Storage::Virtual(pieces) = dataset.storage() {
            for piece in pieces.iter() {
                self.add_files(&piece.dataset, own, others)?;
            }
        }
        Ok(())
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

impl Segments {
    /// Returns the rows of a segment, in columns whose rows are not those of samples.
    pub(super) fn rows_of(&self, segment: usize) -> Range<u64> {
        self.row_starts[segment]..self.row_starts[segment + 1]
    }

    /// Returns the rows of all segments, in columns whose rows are not those of samples.
    pub(super) fn rows(&self) -> u64 {
        self.row_starts[self.segments.len()]
    }

    /// Returns the bytes of memory of the index: of chunks, and of segments where there are several.
    pub(super) fn index_bytes(&self, columns: usize, max_bytes: u64) -> u64 {
        if self.segments.len() == 1 {
            return reader_bytes(0, self.chunks);
        }
        let fixed = size_of::<Segment>() + columns * 24 + 16;
        let names = self.segments.iter().flat_map(|segment| segment.names.iter());
        let names: usize = names.map(|name| name.len() + size_of::<String>()).sum();
        let table = self.segments.len() * fixed + names;
        let readers = reader_bytes((self.segments.len() * columns) as u64, self.chunks);
        table as u64 + readers.min(max_bytes)
    }

    /// Reads rows of a column into `out`, one range after the other.
    ///
    /// # Errors
    /// All that reading can fail with.
    pub(super) fn read(
        &self,
        columns: &[Column],
        column: usize,
        rows: &RowRanges,
        out: &mut [u8],
        touched: &mut TouchedFiles,
    ) -> Result<()> {
        let row_bytes = columns[column].row_bytes();
        let mut rest = out;
        let mut take = |rows: u64| {
            let (here, behind) = std::mem::take(&mut rest).split_at_mut(rows as usize * row_bytes);
            rest = behind;
            here
        };
        let mut parts = Vec::new();
        for range in rows.iter() {
            let mut start = range.start;
            while start < range.end {
                let (segment, first) = self.segment_at(columns[column].span().per_sample, start);
                let end = range.end.min(first + self.segments[segment].lengths[column]);
                parts.push((segment, start - first..end - first, take(end - start)));
                start = end;
            }
        }
        // Ranges of one segment are read together, so that no chunk is decoded twice.
        for parts in parts.chunk_by_mut(|(one, ..), (next, ..)| one == next) {
            let readers = self.readers(columns, parts[0].0, touched)?;
            let reader = &readers[column];
            if let [(_, rows, out)] = parts {
                reader.read(rows.clone(), out)?;
                continue;
            }
            let rows = parts
                .iter_mut()
                .flat_map(|(_, rows, out)| rows.clone().zip(out.chunks_exact_mut(row_bytes)));
            reader.gather_into(&mut rows.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Reads rows of a column in any order into `out`.
    ///
    /// # Errors
    /// All that reading can fail with.
    pub(super) fn gather(
        &self,
        columns: &[Column],
        column: usize,
        rows: &[u64],
        out: &mut [u8],
        touched: &mut TouchedFiles,
    ) -> Result<()> {
        if self.segments.len() == 1 {
            return self.readers(columns, 0, touched)?[column].gather(rows, out);
        }
        let per_sample = columns[column].span().per_sample;
        let places = out.chunks_exact_mut(columns[column].row_bytes());
        let mut wanted: Vec<(usize, u64, &mut [u8])> = (rows.iter().zip(places))
            .map(|(row, out)| {
                let (segment, first) = self.segment_at(per_sample, *row);
                (segment, row - first, out)
            })
            .collect();
        wanted.sort_unstable_by_key(|(segment, row, _)| (*segment, *row));
        for wanted in wanted.chunk_by_mut(|(one, ..), (next, ..)| one == next) {
            let readers = self.readers(columns, wanted[0].0, touched)?;
            let rows = wanted.iter_mut().map(|(_, row, out)| (*row, &mut **out));
            readers[column].gather_into(&mut rows.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Returns the segment of a row, and its first row.
    pub(super) fn segment_at(&self, per_sample: bool, row: u64) -> (usize, u64) {
        let starts = match &self.sample_starts {
            Some(starts) if per_sample => starts,
            _ => &self.row_starts,
        };
        let segment = starts.partition_point(|&start| start <= row) - 1;
        (segment, starts[segment])
    }

    /// Returns the readers of a segment.
    pub(super) fn readers(
        &self,
        columns: &[Column],
        number: usize,
        touched: &mut TouchedFiles,
    ) -> Result<SegmentReaders> {
        let segment = &self.segments[number];
        touched.insert(segment.file);
        touched.extend(&segment.other_files);
        let open_file = || {
            self.ensure_file_unchanged(segment.file)?;
            inspect::open_unclosed(&self.files[segment.file as usize].0, self.allow_unclosed)
        };
        let open = |container: &Container| {
            let readers = columns.iter().zip(&segment.addresses).map(|(column, address)| {
                let path = column.path_of(&segment.names);
                let dataset = match address {
                    Some(address) => Dataset::open_at(container, *address, &path)?,
                    None => Dataset::open_in(container, &path)?,
                };
                column.open_rows(dataset, &self.scratch)
            });
            Ok(readers.collect::<Result<Vec<_>>>()?.into())
        };
        let others = segment.other_files.len();
        self.open_files.readers((segment.file, number as u32), others, open_file, open)
    }

    /// Returns what elements of a column refer to. `elements` has one for each of `rows`.
    ///
    /// # Errors
    /// All that reading can fail with.
    pub(super) fn read_objects(
        &self,
        columns: &[Column],
        column: usize,
        rows: &[u64],
        elements: &[u8],
        touched: &mut TouchedFiles,
    ) -> Result<Vec<Vec<u8>>> {
        let row_bytes = columns[column].row_bytes();
        let per_sample = columns[column].span().per_sample;
        let mut objects = Vec::with_capacity(rows.len());
        let mut rest = elements;
        let segment = |row: &u64| self.segment_at(per_sample, *row).0;
        for run in rows.chunk_by(|one, next| segment(one) == segment(next)) {
            let readers = self.readers(columns, segment(&run[0]), touched)?;
            let (here, behind) = rest.split_at(run.len() * row_bytes);
            rest = behind;
            let container = readers[column].dataset().container();
            let elements = here.chunks_exact(row_bytes);
            objects.extend(read_objects(&columns[column], container, elements)?);
        }
        Ok(objects)
    }

    /// Returns the files that rows come from; those of the options come first, in their order.
    pub(super) fn files(&self) -> impl ExactSizeIterator<Item = (&Path, &FileFingerprint)> {
        self.files.iter().map(|(path, file)| (path.as_path(), file))
    }

    /// Checks that no file was written to, truncated or replaced.
    ///
    /// # Errors
    /// `file-changed`; `io` when a file no longer exists.
    pub(super) fn ensure_unchanged(&self) -> Result<()> {
        (0..self.files.len() as u32).try_for_each(|file| self.ensure_file_unchanged(file))
    }

    /// Checks that none of some files was written to, truncated or replaced.
    ///
    /// # Errors
    /// As [`Segments::ensure_unchanged`].
    pub(super) fn ensure_touched_unchanged(&self, touched: &TouchedFiles) -> Result<()> {
        touched.iter().try_for_each(|file| self.ensure_file_unchanged(*file))
    }

    fn ensure_file_unchanged(&self, file: u32) -> Result<()> {
        let (path, was) = &self.files[file as usize];
        let now = FileFingerprint::of(path)?;
        if now == *was {
            return Ok(());
        }
        let (old, new) = (was.length, now.length);
        let what = match old == new {
            true => "it was written to".to_owned(),
            false => format!("its size was {old} bytes and is now {new}"),
        };
        let path = path.display();
        let message = format!("`{path}` changed while it was being read: {what}");
        Err(Error::new(ErrorKind::FileChanged, message)
            .hint("open it again after the program that writes it has finished"))
    }

    /// Returns the fingerprint of the files without their content. `main` is how many of them the options name.
    pub(super) fn fingerprint(&self, main: usize) -> order::DataFingerprint {
        let mut hash = self.index_hash;
        let (path, first) = &self.files[0];
        if main > 1 {
            let name = path.file_name().unwrap_or_default();
            hash = MixKey::new(&[hash, digest(name.as_encoded_bytes())]).at(0);
        }
        let mut modified = first.modified_ns as i64;
        let mut bytes = first.length;
        for (number, (_, other)) in self.files.iter().enumerate().skip(1) {
            hash = MixKey::new(&[hash, other.length]).at(0);
            // Directories may be moved, but the files in them are in this order.
            let name = self.files[number].0.file_name().unwrap_or_default();
            hash = MixKey::new(&[hash, digest(name.as_encoded_bytes())]).at(0);
            modified = MixKey::new(&[modified as u64, other.modified_ns as u64]).at(0) as i64;
            if number < main {
                bytes += other.length;
            }
        }
        order::DataFingerprint {
            bytes,
            modified_ns: modified,
            chunks: self.chunks,
            index_hash: hash,
            contents: None,
        }
    }
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
