//! Opening all files once: which datasets of which groups they have, and how these are stored.

use std::path::{Path, PathBuf};

use vramfit_base::{Error, Result};

use super::bounds::Bounds;
use super::column::Column;
use super::columns::max_reader_bytes;
use super::file_index::FileIndex;
use super::options::LoaderOptions;
use super::segments_builder::SegmentsBuilder;
use super::series;
use crate::hdf5::object::ObjectFinder;
use crate::hdf5::path::list_names;
use crate::hdf5::wildcard;
use crate::inspect;
use crate::read::{Dataset, Storage};

/// What the files of a loader have.
pub(super) struct FileScan {
    pub(super) builder: SegmentsBuilder,
    pub(super) columns: Vec<Column>,
    pub(super) bounds: Bounds,
    /// What a reader should know of files that were not closed.
    pub(super) unclosed: Vec<String>,
    /// What is kept of them for the next time, if the options name a file for it.
    pub(super) index: Option<FileIndex>,
}

impl FileScan {
    /// Opens the files, but those that the index of the options knows.
    ///
    /// # Errors
    /// `invalid-argument` when a dataset is not there; all that opening a file can fail with.
    pub(super) fn open(options: &LoaderOptions, files: &[PathBuf]) -> Result<FileScan> {
        let mut all = FileScan {
            builder: SegmentsBuilder::new(files, max_reader_bytes(options.budget.0))?,
            columns: Vec::new(),
            bounds: Bounds::new(options),
            unclosed: Vec::new(),
            index: FileIndex::open(options, files.len())?,
        };
        let mut pattern = None;
        for (number, file) in files.iter().enumerate() {
            if all.add_known(number)? {
                continue;
            }
            let container = inspect::open_unclosed(file, options.allow_unclosed)?;
            let mut finder = ObjectFinder::new(&container);
            if number == 0 {
                // The same for all files.
                pattern = find_wildcard(&mut finder, options)?;
            }
            all.add_file(number, &mut finder, pattern, options)
                .map_err(|error| if files.len() > 1 { in_file(error, file) } else { error })?;
            if let Some(index) = &mut all.index {
                index.add(&all.builder, &all.columns, &finder, pattern)?;
            }
            all.builder.end_file();
            all.columns.iter_mut().for_each(Column::end_file);
        }
        Ok(all)
    }

    /// Adds a file as the index knows it, and returns whether it does.
    fn add_known(&mut self, number: usize) -> Result<bool> {
        // The first file says what the others must be like.
        let Some(index) = self.index.as_mut().filter(|_| number > 0) else {
            return Ok(false);
        };
        index.find(number, &mut self.builder, &mut self.columns)
    }

    fn add_file(
        &mut self,
        number: usize,
        finder: &mut ObjectFinder,
        pattern: Option<&str>,
        options: &LoaderOptions,
    ) -> Result<()> {
        let container = finder.container().clone();
        for names in list_segments(finder, pattern)? {
            let datasets: Vec<Dataset> = if self.columns.is_empty() {
                let new = |wanted| Column::new(finder, wanted, &names, options);
                let found: Vec<_> = options.columns.iter().map(new).collect::<Result<_>>()?;
                let datasets;
                (self.columns, datasets) = found.into_iter().unzip();
                datasets
            } else {
                let find = |column: &Column| column.find(finder, &names);
                self.columns.iter().map(find).collect::<Result<_>>()?
            };
            for dataset in &datasets {
                note_unclosed(dataset, &mut self.unclosed);
            }
            let bounds = self.bounds.add(finder, &names, options.budget)?;
            let (columns, builder) = (&mut self.columns, &mut self.builder);
            let mut add = |datasets: Vec<Dataset>, series| {
                let readers = columns.iter_mut().zip(datasets);
                let readers = readers
                    .map(|(column, dataset)| column.add(dataset, &container, &builder.scratch))
                    .collect::<Result<Vec<_>>>()?;
                let names = (names.clone(), series);
                builder.push(number, &container, names, readers, bounds.as_ref())
            };
            match options.samples.has_series_in_rows() {
                false => add(datasets, None)?,
                true => {
                    for series in 0..series::count_series(&datasets)? {
                        let one = datasets.iter().map(|dataset| dataset.index_first_axis(series));
                        add(one.collect::<Result<_>>()?, Some(series))?;
                    }
                }
            }
        }
        Ok(())
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
