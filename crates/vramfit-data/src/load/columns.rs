//! The columns of a loader: which datasets, and which of their rows a sample has.

use std::ops::Range;
use std::path::{Path, PathBuf};

use vramfit_base::{Error, Result};

use super::bounds::Bounds;
use super::column::Column;
use super::derived::DerivedColumn;
use super::file_contents::FileContents;
use super::options::LoaderOptions;
use super::samples;
use super::segments::{Segments, TouchedFiles};
use super::segments_builder::SegmentsBuilder;
use super::series;
use crate::hdf5::object::ObjectFinder;
use crate::hdf5::path::list_names;
use crate::hdf5::wildcard;
use crate::inspect;
use crate::order;
use crate::read::{Dataset, Storage};
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
        let mut builder = SegmentsBuilder::new(&files, max_reader_bytes(options.budget.0))?;
        let mut columns: Vec<Column> = Vec::new();
        let mut bounds = Bounds::new(options);
        let mut unclosed = Vec::new();
        let mut pattern = None;
        for (number, file) in files.iter().enumerate() {
            let container = inspect::open_unclosed(file, options.allow_unclosed)?;
            let mut finder = ObjectFinder::new(&container);
            if number == 0 {
                // The same for all files.
                pattern = find_wildcard(&mut finder, options)?;
            }
            for names in list_segments(&mut finder, pattern)? {
                let datasets: Vec<Dataset> = if columns.is_empty() {
                    let new = |wanted| Column::new(&mut finder, wanted, &names, options);
                    let found: Vec<_> = options.columns.iter().map(new).collect::<Result<_>>()?;
                    let datasets;
                    (columns, datasets) = found.into_iter().unzip();
                    datasets
                } else {
                    let find = |column: &Column| column.find(&mut finder, &names);
                    columns.iter().map(find).collect::<Result<_>>()?
                };
                for dataset in &datasets {
                    note_unclosed(dataset, &mut unclosed);
                }
                let bounds = bounds.add(&mut finder, &names, options.budget)?;
                let mut add = |datasets: Vec<Dataset>, series| {
                    let readers = columns.iter_mut().zip(datasets);
                    let readers = readers
                        .map(|(column, dataset)| column.add(dataset, &container, &builder.scratch))
                        .collect::<Result<Vec<_>>>()?;
                    let names = (names.clone(), series);
                    builder.push(number, &container, names, readers, bounds.as_ref())
                };
                let added = match options.samples.has_series_in_rows() {
                    false => add(datasets, None),
                    true => series::count_series(&datasets).and_then(|count| {
                        (0..count).try_for_each(|series| {
                            let one =
                                datasets.iter().map(|dataset| dataset.index_first_axis(series));
                            add(one.collect::<Result<_>>()?, Some(series))
                        })
                    }),
                };
                added
                    .map_err(|error| if files.len() > 1 { in_file(error, file) } else { error })?;
            }
        }
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
            contents: FileContents::new(files.len()),
        };
        // The structure of a file that is being written is not consistent.
        columns.ensure_unchanged()?;
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

/// Returns the dataset whose wildcards say which groups there are: the first one that has some. The others must have the
/// same groups.
///
/// # Errors
/// All that opening a file can fail with.
fn find_wildcard<'o>(
    finder: &mut ObjectFinder,
    options: &'o LoaderOptions,
) -> Result<Option<&'o str>> {
    for column in &options.columns {
        if wildcard::has_wildcard(finder, &column.name)? {
            return Ok(Some(&column.name));
        }
    }
    Ok(None)
}

/// Returns what stands for wildcards in each segment of a file.
fn list_segments(finder: &mut ObjectFinder, pattern: Option<&str>) -> Result<Vec<Vec<String>>> {
    let Some(pattern) = pattern else {
        return Ok(vec![Vec::new()]);
    };
    let found = wildcard::expand(finder, pattern)?;
    if found.is_empty() {
        let file = finder.container().source().path().display().to_string();
        let parent = pattern.split('*').next().unwrap_or_default();
        let group = parent.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
        let members = finder.members(&group)?;
        let error = Error::invalid_argument(format!("nothing in `{file}` matches `{pattern}`"));
        let names = members.iter().map(|member| member.name.as_str());
        return Err(match list_names(names, 8) {
            Some(names) => {
                error.hint(format!("members of `/{}`: {names}", group.trim_start_matches('/')))
            }
            None => error.hint("`vramfit data inspect` lists what is in a file"),
        });
    }
    Ok(found)
}

/// Returns how many bytes the readers of datasets may take that are open at a time, where there are several.
fn max_reader_bytes(budget: u64) -> u64 {
    budget / 8
}

/// Names the file that an error is about, unless it does so already.
fn in_file(error: Error, file: &Path) -> Error {
    let name = file.display().to_string();
    if error.message().contains(&name) { error } else { error.context(format_args!("`{name}`")) }
}

/// Adds what a reader should know of the files that a dataset is in, if they were not closed.
fn note_unclosed(dataset: &Dataset, unclosed: &mut Vec<String>) {
    if let Some(note) = dataset.container().unclosed()
        && unclosed.iter().all(|known| known != note)
    {
        unclosed.push(note.to_owned());
    }
    if let Storage::Virtual(pieces) = dataset.storage() {
        pieces.iter().for_each(|piece| note_unclosed(&piece.dataset, unclosed));
    }
}

fn show_files(files: &[PathBuf]) -> String {
    match files {
        [one] => one.display().to_string(),
        [first, ..] => format!("{} and {} more files", first.display(), files.len() - 1),
        [] => String::new(),
    }
}
