//! The datasets that rows come from, one after the other: those of each group that a wildcard means, of each file.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use vramfit_base::{Error, ErrorKind, Result};

use super::growing_files::GrowingFiles;
use super::objects::read_objects;
use super::open_files::{OpenFiles, SegmentReaders, reader_bytes};
use crate::digest::digest;
use crate::hdf5::Container;
use crate::inspect;
use crate::order;
use crate::read::{Dataset, ScratchPool};
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
    /// The index of its series on the first axis of each dataset, where that axis has series.
    pub(super) series: Option<u64>,
    /// The rows of each column.
    pub(super) lengths: Box<[u64]>,
    /// Where the header of each dataset is; none where it is in another file.
    pub(super) addresses: Box<[Option<u64>]>,
    /// Files besides its own that rows come from.
    pub(super) other_files: Box<[u32]>,
    /// Whether this is what an index says, which is compared with the file when it is opened.
    pub(super) is_unverified: bool,
}

/// Numbers of files whose rows were read.
pub(super) type TouchedFiles = HashSet<u32>;

/// All segments, in the order of their rows.
#[derive(Debug)]
pub(super) struct Segments {
    pub(super) segments: Vec<Segment>,
    /// Every file that rows come from, as it was when its structure was read.
    pub(super) files: Vec<(PathBuf, FileFingerprint)>,
    /// Files that did not exist then, so that virtual datasets have fill values instead of their elements.
    pub(super) missing: Vec<PathBuf>,
    /// Files to which a program appended when they were opened. Their rows are those that there were then.
    pub(super) growing: GrowingFiles,
    /// Chunks of all datasets, and a hash of where they are.
    pub(super) chunks: u64,
    pub(super) index_hash: u64,
    /// How many rows of each column come before each segment, and then the total: one list for all columns, unless
    /// some have a row for each sample.
    pub(super) row_starts: Vec<u64>,
    pub(super) sample_starts: Option<Vec<u64>>,
    pub(super) open_files: OpenFiles,
    pub(super) scratch: ScratchPool,
    pub(super) allow_unclosed: bool,
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
            let readers = self.readers(columns, 0, touched)?;
            return readers[column].gather(rows, out);
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
                let dataset = match address.filter(|_| !segment.is_unverified) {
                    Some(address) => Dataset::open_at(container, address, &path)?,
                    None => Dataset::open_in(container, &path)?,
                };
                if segment.is_unverified && *address != Some(dataset.address()) {
                    return Err(not_as_indexed(container));
                }
                let dataset = match segment.series {
                    Some(series) => dataset.index_first_axis(series)?,
                    None => dataset,
                };
                column.open_rows(dataset, &self.scratch)
            });
            let readers: Vec<_> = readers.collect::<Result<_>>()?;
            let lengths = readers.iter().map(|reader| reader.len());
            if segment.is_unverified && !lengths.eq(segment.lengths.iter().copied()) {
                return Err(not_as_indexed(container));
            }
            Ok(readers.into())
        };
        self.open_files.readers((segment.file, number as u32), open_file, open)
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
        self.ensure_missing()?;
        (0..self.files.len() as u32).try_for_each(|file| self.ensure_file_unchanged(file))
    }

    /// Checks that none of some files was written to, truncated or replaced.
    ///
    /// # Errors
    /// As [`Segments::ensure_unchanged`].
    pub(super) fn ensure_touched_unchanged(&self, touched: &TouchedFiles) -> Result<()> {
        self.ensure_missing()?;
        touched.iter().try_for_each(|file| self.ensure_file_unchanged(*file))
    }

    /// Checks that files which did not exist still do not.
    fn ensure_missing(&self) -> Result<()> {
        let Some(path) = self.missing.iter().find(|path| path.exists()) else {
            return Ok(());
        };
        Err(Error::new(
            ErrorKind::FileChanged,
            format!(
                "`{}` did not exist when a virtual dataset with elements of it was opened, and does now",
                path.display()
            ),
        )
        .hint("open the file again: elements that were fill values are those of the source now"))
    }

    fn ensure_file_unchanged(&self, file: u32) -> Result<()> {
        let (path, was) = &self.files[file as usize];
        let now = FileFingerprint::of(path)?;
        if now == *was || self.growing.has_only_grown(file, path, was, &now) {
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

    /// Whether no file was written to, not even appended to.
    pub(super) fn is_unchanged(&self) -> bool {
        self.ensure_missing().is_ok()
            && (self.files())
                .all(|(path, was)| FileFingerprint::of(path).is_ok_and(|now| now == *was))
    }

    /// Whether programs append to files.
    pub(super) fn is_growing(&self) -> bool {
        !self.growing.is_empty()
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

/// Returns the error of a file that is not what the index says.
fn not_as_indexed(container: &Container) -> Error {
    let path = container.source().path().display();
    Error::new(
        ErrorKind::FileChanged,
        format!("`{path}` is not as the index of files says, although its size and times are"),
    )
    .hint("delete the index that `index` names, which is made anew")
}
