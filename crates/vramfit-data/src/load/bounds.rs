//! The bounds of ragged samples, or of series: offsets, ends or lengths that a dataset has.

use std::cmp::Ordering;

use vramfit_base::{Bytes, Error, Result};

use super::column::fill_wildcards;
use super::options::LoaderOptions;
use crate::hdf5::Scalar;
use crate::hdf5::object::ObjectFinder;
use crate::read::{Dataset, RowOptions, RowReader};
use crate::sample::{RaggedBounds, SampleOptions};
use crate::splitmix::MixKey;

/// The bounds of ragged samples or series, as they are read segment by segment.
#[derive(Debug)]
pub(super) struct Bounds {
    source: Option<RaggedBounds>,
    /// Whether they are those of samples, and not of the series of windows.
    has_samples: bool,
    /// Those of each segment, counted from its first row, one after the other.
    pub(super) bounds: Vec<u64>,
    /// How many samples each segment has.
    pub(super) samples: Vec<u64>,
}

impl Bounds {
    pub(super) fn new(options: &LoaderOptions) -> Bounds {
        let source = options.samples.bounds().cloned();
        let has_samples = matches!(options.samples, SampleOptions::Ragged { .. });
        Bounds { source, has_samples, bounds: Vec::new(), samples: Vec::new() }
    }

    /// Reads the bounds of a segment, if samples are ragged, and returns the dataset that has them.
    ///
    /// # Errors
    /// `invalid-argument` when they are no integers in ascending order, or take more than a quarter of the budget;
    /// all that reading can fail with.
    pub(super) fn add(
        &mut self,
        finder: &mut ObjectFinder,
        names: &[String],
        budget: Bytes,
    ) -> Result<Option<Dataset>> {
        let Some(source) = &self.source else {
            return Ok(None);
        };
        let path = fill_wildcards(source.dataset(), names)?;
        let dataset = Dataset::find(finder, &path)?;
        let file = finder.container().source().path().display().to_string();
        let invalid = |what: String| {
            Error::invalid_argument(format!("`{path}` of `{file}` {what}")).hint(match source {
                RaggedBounds::Offsets(_) => {
                    "offsets are integers that never decrease, one more than there are samples"
                }
                RaggedBounds::Ends(_) => {
                    "ends are integers that never decrease, one for each sample"
                }
                RaggedBounds::Lengths(_) => {
                    "lengths are integers of at least 0, one for each sample"
                }
            })
        };
        if dataset.shape().len() != 1 {
            return Err(invalid(format!(
                "has {} dimensions, and {}s have one",
                dataset.shape().len(),
                source.noun()
            )));
        }
        let plain = RowReader::new(dataset.clone(), &RowOptions::default())?;
        if plain.scalar().is_float() || plain.scalar() == Scalar::Bool {
            let name = plain.scalar().name();
            return Err(invalid(format!("is {name}, and {}s are integers", source.noun())));
        }
        let count = plain.len();
        let is_lengths = matches!(source, RaggedBounds::Lengths(_));
        let has_first = matches!(source, RaggedBounds::Offsets(_));
        if count == 0 && has_first {
            return Err(invalid(
                "has no rows, and offsets are one more than there are samples".into(),
            ));
        }
        let bytes = (self.bounds.len() as u64 + count + 1).saturating_mul(8);
        if bytes > budget.0 / 4 {
            return Err(Error::invalid_argument(format!(
                "the offsets of {count} samples take {} of memory, more than a quarter of the memory budget of {budget}",
                Bytes(bytes)
            ))
            .hint(format!(
                "increase it to at least {} ({} bytes), or more if more groups or files follow",
                Bytes(bytes * 4),
                bytes * 4
            )));
        }
        let to = Some(Scalar::Int64);
        let rows = RowReader::new(dataset.clone(), &RowOptions { to, ..RowOptions::default() })?;
        let mut previous = 0_i64;
        if !has_first {
            self.bounds.push(0);
        }
        let bounds = &mut self.bounds;
        rows.for_each_row(|row, bytes| {
            let number = i64::from_le_bytes(bytes.try_into().unwrap_or_default());
            let bound = match is_lengths {
                true if number < 0 => None,
                true => previous.checked_add(number),
                false => Some(number).filter(|number| *number >= previous),
            };
            let Some(bound) = bound else {
                let what = format!("has the {} {number} in row {row}", source.noun());
                return Err(invalid(match is_lengths || number < 0 {
                    true => what,
                    false => format!("{what}, which is less than {previous} before it"),
                }));
            };
            previous = bound;
            bounds.push(bound as u64);
            Ok(())
        })?;
        self.samples.push(count - u64::from(has_first));
        Ok(Some(dataset))
    }

    /// Checks that each of the rows of a dataset is in a sample, as the bounds of its segment say.
    ///
    /// # Errors
    /// `invalid-argument` when some rows are in none, or samples have rows that there are not.
    pub(super) fn ensure_all_rows(
        &self,
        own: &[u64],
        rows: u64,
        path: &dyn Fn() -> String,
    ) -> Result<()> {
        let (first, last) = (own.first().copied().unwrap_or(0), own.last().copied().unwrap_or(0));
        let source = self.source.as_ref();
        let is_lengths = matches!(source, Some(RaggedBounds::Lengths(_)));
        let noun = source.map_or("offset", RaggedBounds::noun);
        let path = path();
        let (what, hint) = match last.cmp(&rows) {
            Ordering::Greater => (
                format!("`{path}` has {rows} rows, but its samples have {last}"),
                match is_lengths {
                    true => "lengths add up to the number of rows".to_owned(),
                    false => format!("the last {noun} is the number of rows"),
                } + &match self.has_samples {
                    true => format!(
                        "; datasets with one row for each sample are listed: `Ragged(..., per_sample=[\"{path}\"])`"
                    ),
                    false => String::new(),
                },
            ),
            Ordering::Less if is_lengths => (
                format!(
                    "{} of the {rows} rows of `{path}` are in no sample: the lengths add up to {last}",
                    rows - last
                ),
                "write a length for each sample, so that they add up to the number of rows".into(),
            ),
            Ordering::Less => (
                format!(
                    "{} of the {rows} rows of `{path}` are in no sample: the last {noun} is {last}",
                    rows - last
                ),
                format!(
                    "append the number of rows, {rows}, to the {noun}s: they say where the last sample ends"
                ),
            ),
            Ordering::Equal if first > 0 => (
                format!(
                    "the first {first} of the {rows} rows of `{path}` are in no sample: the first offset is {first}"
                ),
                "write 0 in front of the offsets: where each sample begins, and where the last one ends".into(),
            ),
            Ordering::Equal => return Ok(()),
        };
        Err(Error::invalid_argument(what).hint(hint))
    }

    /// Returns a hash of all bounds, if samples are ragged.
    pub(super) fn hash(&self) -> Option<u64> {
        let hash = |hash, bound: &u64| MixKey::new(&[hash, *bound]).at(0);
        self.source.as_ref().map(|_| self.bounds.iter().fold(self.samples.len() as u64, hash))
    }

    /// Returns the number of samples of each segment, if samples are ragged.
    pub(super) fn into_samples(self) -> Option<Vec<u64>> {
        self.source.is_some().then_some(self.samples)
    }
}
