//! The columns of a loader: which datasets, and which of their rows a sample has.

use std::ops::Range;
use std::path::PathBuf;

use vramfit_base::{Error, Result};

use super::column::Column;
use super::derived::DerivedColumn;
use super::file_contents::FileContents;
use super::file_scan::FileScan;
use super::options::LoaderOptions;
use super::samples;
use super::segments::{Segments, TouchedFiles};
use crate::order;
use crate::sample::{RowRanges, SampleIndex};
use crate::source::list_files;

/// All columns of a loader.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) columns: Vec<Column>,
    /// Columns that say something about samples; they come after the others.
    pub(super) derived: Vec<DerivedColumn>,
    pub(super) samples: SampleIndex,
    /// What a reader should know of files that were not closed.
    pub(super) unclosed: Vec<String>,
    segments: Segments,
    /// What the files are called in messages.
    pub(super) shown: String,
    /// The fingerprint of the files without their content.
    pub(super) fingerprint: order::DataFingerprint,
    /// A number for what a sample is, if it is not a row.
    pub(super) sample_hash: Option<u64>,
    pub(super) contents: FileContents,
}

impl Columns {
    /// Opens the datasets.
    ///
    /// # Errors
    /// `invalid-argument` when a dataset is not there, has no rows, or they have different numbers of them;
    /// all that opening a file can fail with.
    pub(super) fn open(options: &LoaderOptions) -> Result<Columns> {
        let files = list_files(&options.files)?;
        if options.columns.is_empty() {
            return Err(Error::invalid_argument("no dataset was given")
                .hint("name at least one, such as `x`"));
        }
        for (place, column) in options.columns.iter().enumerate() {
            if options.columns[..place].iter().any(|other| other.is_same(column)) {
                return Err(Error::invalid_argument(format!(
                    "dataset `{}` was given twice",
                    column.name
                ))
                .hint("list it once, and use its rows twice"));
            }
        }
        let FileScan { mut builder, mut columns, mut bounds, unclosed, index } =
            FileScan::open(options, &files)?;
        builder.hash_bounds(bounds.hash());
        let (derived, samples) =
            samples::index_samples(options, &mut columns, builder.segments(), &mut bounds)?;
        let segments = builder.finish(&columns, bounds.into_samples(), options.allow_unclosed);
        let fingerprint = segments.fingerprint(files.len());
        let columns = Columns {
            sample_hash: samples::hash(options),
            shown: show_files(&files),
            columns,
            unclosed,
            derived,
            samples,
            segments,
            fingerprint,
            contents: FileContents::new(files.len(), index.as_ref()),
        };
        // The structure of a file that is being written is not consistent.
        columns.ensure_unchanged()?;
        if let Some(index) = index {
            index.save()?;
        }
        Ok(columns)
    }

    /// Returns the number of samples, which is above zero.
    pub(super) fn len(&self) -> u64 {
        self.samples.len()
    }

    /// Returns the bytes of one sample of all columns, as it is handed out.
    pub(super) fn sample_bytes(&self) -> u64 {
        self.sample_lengths().map(|bytes| bytes as u64).fold(0, u64::saturating_add)
    }

    /// Returns the bytes of a sample of each column, as they are handed out.
    pub(super) fn sample_lengths(&self) -> impl Iterator<Item = usize> + '_ {
        let derived = self.derived.iter().map(DerivedColumn::sample_bytes);
        self.columns.iter().map(Column::sample_bytes).chain(derived)
    }

    /// Returns the bytes that an epoch reads, as they are in memory, for each sample: rows that samples share count once.
    pub(super) fn read_bytes(&self) -> u64 {
        let columns = self.columns.iter().enumerate();
        let bytes = columns.map(|(number, column)| {
            u128::from(self.samples.distinct_rows(number)) * column.row_bytes() as u128
        });
        let each = bytes.sum::<u128>().div_ceil(u128::from(self.len().max(1)));
        u64::try_from(each).unwrap_or(u64::MAX).max(1)
    }

    /// Returns bytes that the rows of no `samples` consecutive samples exceed.
    pub(super) fn block_bytes(&self, samples: u64) -> u64 {
        let columns = self.columns.iter().enumerate();
        let bytes = columns.map(|(number, column)| {
            self.samples.max_rows_of(samples, number).saturating_mul(column.row_bytes() as u64)
        });
        bytes.fold(0, u64::saturating_add)
    }

    /// Returns how many samples begin in this many consecutive rows, on average.
    pub(super) fn samples_of_rows(&self, rows: u64) -> u64 {
        let (samples, all) = (u128::from(self.len()), u128::from(self.segments.rows().max(1)));
        ((u128::from(rows) * samples).div_ceil(all) as u64).max(1)
    }

    /// Whether blocks of samples begin in the middle of chunks.
    pub(super) fn is_unaligned(&self) -> bool {
        !self.samples.is_rows() || self.segments.segments.len() > 1
    }

    /// Returns the samples that belong together: those of each series, or of each segment.
    pub(super) fn sample_groups(&self) -> Vec<Range<u64>> {
        if let Some(series) = self.samples.series() {
            return (0..series.series().len()).map(|number| series.samples_of(number)).collect();
        }
        if let Some(first_samples) = self.samples.ragged_segments() {
            return first_samples.windows(2).map(|pair| pair[0]..pair[1]).collect();
        }
        (0..self.segments.segments.len()).map(|number| self.segments.rows_of(number)).collect()
    }

    /// Returns the bytes of memory of the index of chunks and samples with a budget.
    pub(super) fn index_bytes(&self, budget: u64) -> u64 {
        let segments = self.segments.index_bytes(self.columns.len(), max_reader_bytes(budget));
        self.samples.bytes().saturating_add(segments)
    }

    /// Returns the bytes of each column in a batch of this process.
    pub(super) fn batch_lengths(&self, options: &LoaderOptions) -> Vec<usize> {
        let shard_size = options.batch_size / options.shard.count.max(1);
        let samples = (shard_size * options.stacked_batches.unwrap_or(1)) as usize;
        self.sample_lengths().map(|bytes| samples.saturating_mul(bytes)).collect()
    }

    /// Reads rows of a column, one range after the other.
    ///
    /// # Errors
    /// All that reading can fail with.
    pub(super) fn read(
        &self,
        column: usize,
        rows: &RowRanges,
        out: &mut [u8],
        touched: &mut TouchedFiles,
    ) -> Result<()> {
        self.segments.read(&self.columns, column, rows, out, touched)
    }

    /// Reads rows of a column in any order.
    ///
    /// # Errors
    /// All that reading can fail with.
    pub(super) fn gather(
        &self,
        column: usize,
        rows: &[u64],
        out: &mut [u8],
        touched: &mut TouchedFiles,
    ) -> Result<()> {
        self.segments.gather(&self.columns, column, rows, out, touched)
    }

    /// Returns what elements of a column refer to, if it is text or bytes of variable length. `elements` has one for each
    /// of `samples`.
    ///
    /// # Errors
    /// All that reading can fail with.
    pub(super) fn read_objects(
        &self,
        column: usize,
        samples: &[u64],
        elements: &[u8],
        touched: &mut TouchedFiles,
    ) -> Result<Vec<Vec<u8>>> {
        let rows = samples.iter().map(|sample| self.samples.span(*sample, column).rows.start);
        let rows: Vec<u64> = rows.collect();
        self.segments.read_objects(&self.columns, column, &rows, elements, touched)
    }

    /// Returns the bytes that the elements of a sample refer to, on average.
    pub(super) fn object_bytes(&self) -> u64 {
        let all = self.columns.iter().map(Column::object_bytes).fold(0, u64::saturating_add);
        all.div_ceil(self.segments.rows().max(1))
    }

    /// Returns how many rows of a column are decoded together, and the rows around row `row` that are; `None` where rows
    /// are stored as they are.
    ///
    /// # Errors
    /// All that opening a file can fail with.
    pub(super) fn decoded_rows(&self, column: usize, row: u64) -> Result<Option<Range<u64>>> {
        let per_sample = self.columns[column].span().per_sample;
        let (segment, first) = self.segments.segment_at(per_sample, row);
        let rows = self.segments.segments[segment].lengths[column];
        let readers = self.segments.readers(&self.columns, segment, &mut TouchedFiles::new())?;
        Ok(readers[column].rows().rows_per_decode().map(|band| {
            let start = (row - first) / band * band;
            first + start..first + (start + band).min(rows)
        }))
    }

    /// Adds to an error about changed files that a program appends to them, and how many samples there were.
    pub(super) fn name_growth(&self, error: Error, were: u64) -> Error {
        if !self.segments.is_growing() {
            return error;
        }
        let (message, now) = (error.message(), self.len());
        Error::new(
            error.kind(),
            format!("{message}; a program appends to it (SWMR): there were {were} samples, and there are {now} now"),
        )
        .hint("samples that were added change the order of all: start over with them, or train on a copy that does not grow")
    }

    /// Checks that no file was written to, truncated or replaced.
    ///
    /// # Errors
    /// `file-changed`; `io` when a file no longer exists.
    pub(super) fn ensure_unchanged(&self) -> Result<()> {
        self.segments.ensure_unchanged()
    }

    /// Checks that none of some files was written to, truncated or replaced.
    ///
    /// # Errors
    /// As [`Columns::ensure_unchanged`].
    pub(super) fn ensure_touched_unchanged(&self, touched: &TouchedFiles) -> Result<()> {
        self.segments.ensure_touched_unchanged(touched)
    }

    pub(super) fn segments(&self) -> &Segments {
        &self.segments
    }
}

/// Returns how many bytes the readers of datasets may take that are open at a time, where there are several.
pub(super) fn max_reader_bytes(budget: u64) -> u64 {
    budget / 8
}

fn show_files(files: &[PathBuf]) -> String {
    match files {
        [one] => one.display().to_string(),
        [first, ..] => format!("{} and {} more files", first.display(), files.len() - 1),
        [] => String::new(),
    }
}
