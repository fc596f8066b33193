//! Which rows are for training and which for validation, without a list of them.
//!
//! The answer depends on the number of rows, the fraction and the seed, and on nothing else: not on the
//! memory available, not on chunks, not on the epoch. A validation row of one run never becomes a training row of the
//! next because a budget changed. Counting the chosen rows in any range costs the same for every file,
//! which is what allows an epoch to be entered anywhere.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use vramfit_base::{Error, Result};

use super::weights::Draws;
use super::{Fold, ListedRows, Purpose};
use crate::sample::RowRanges;
use crate::splitmix::{MixKey, below};

/// How the rows for validation are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SplitMode {
    /// One row out of every stretch of equal length, at a random place in it. This is also representative for a
    /// file that is sorted by label.
    Spread,
    /// The last rows of the file: for rows that resemble their neighbors, such as windows of one
    /// series, where a row between two training rows would prove nothing.
    Tail,
    /// One row out of every few, as many as there are folds, at a random place among them.
    SpreadFold(Fold),
    /// A block of rows, one of as many as there are folds: for rows that resemble their neighbors.
    BlockFold(Fold),
}

/// A split of a file's rows into a training and a validation set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    validation_rows: u64,
    mode: SplitMode,
    seed: u64,
}

impl Split {
    /// Returns the split that uses a `fraction` of `rows` for validation, rounded to whole rows.
    ///
    /// # Errors
    /// `invalid-argument` when the fraction is not between 0 and 1, or leaves one of the sets empty.
    pub fn new(rows: u64, fraction: f64, mode: SplitMode, seed: u64) -> Result<Self> {
        if !(fraction > 0.0 && fraction < 1.0) {
            return Err(Error::invalid_argument(format!(
                "a validation fraction of {fraction} is not between 0 and 1"
            ))
            .hint("write 10 % as `0.1`"));
        }
        let validation_rows = (rows as f64 * fraction).round() as u64;
        if validation_rows == 0 || validation_rows >= rows {
            return Err(Error::invalid_argument(format!("a validation fraction of {fraction} of {rows} rows leaves one of the two sets empty"))
            .hint("choose a fraction that gives each set at least one row"));
        }
        Ok(Split { validation_rows, mode, seed })
    }

    /// Returns the split that uses `count` rows for validation, which must leave both sets some.
    ///
    /// # Errors
    /// `invalid-argument` when one of the sets is empty.
    pub fn of_count(rows: u64, count: u64, mode: SplitMode, seed: u64) -> Result<Self> {
        let split = Split { validation_rows: count, mode, seed };
        split.ensure_matches(rows)?;
        Ok(split)
    }

    /// Returns the split that uses a fold for validation: `mode` has it.
    ///
    /// # Errors
    /// `invalid-argument` when there are fewer rows than folds.
    pub fn of_fold(rows: u64, fold: Fold, is_block: bool, seed: u64) -> Result<Self> {
        fold.ensure_fits(rows)?;
        Ok(match is_block {
            true => {
                let block = fold.block(rows);
                let validation_rows = block.end - block.start;
                Split { validation_rows, mode: SplitMode::BlockFold(fold), seed }
            }
            false => {
                let validation_rows = fold.rows_before(rows, seed);
                Split { validation_rows, mode: SplitMode::SpreadFold(fold), seed }
            }
        })
    }

    /// Rejects a split that was made for another number of rows.
    fn ensure_matches(&self, rows: u64) -> Result<()> {
        let is_block = matches!(self.mode, SplitMode::BlockFold(_));
        if let SplitMode::SpreadFold(fold) | SplitMode::BlockFold(fold) = self.mode
            && Split::of_fold(rows, fold, is_block, self.seed)? != *self
        {
            return Err(Error::invalid_argument(format!(
                "a fold of {rows} rows does not have {}",
                self.validation_rows
            )));
        }
        if self.validation_rows > 0 && self.validation_rows < rows {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "{} validation rows out of {rows} leave one of the two sets empty",
            self.validation_rows
        ))
        .hint("choose another fraction, or a file with more rows"))
    }
}

/// The rows of a file that an epoch has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowSubset {
    /// Every row.
    #[default]
    All,
    /// The training set.
    Train(Split),
    /// The validation set.
    Validation(Split),
    /// The training set of a split into three sets.
    TrainOfThree(ThreeWaySplit),
    /// The validation set of a split into three sets.
    ValidationOfThree(ThreeWaySplit),
}

/// A split into training, validation and test set: the test set is that of a split into two, and the rest is split again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreeWaySplit {
    /// The split of all rows into the test set and the others.
    pub test: Split,
    /// The split of the others.
    pub validation: Split,
}

impl RowSubset {
    /// Rejects a subset of another number of rows.
    pub(super) fn ensure_matches(&self, rows: u64) -> Result<()> {
        match self {
            RowSubset::All => Ok(()),
            RowSubset::Train(split) | RowSubset::Validation(split) => split.ensure_matches(rows),
            RowSubset::TrainOfThree(split) | RowSubset::ValidationOfThree(split) => {
                split.test.ensure_matches(rows)?;
                split.validation.ensure_matches(rows - split.test.validation_rows)
            }
        }
    }
}

/// A subset of rows as an ordered set with rank and select: a list of rows, parts of which splits take.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    /// How many rows are listed; all if there is no list.
    count: u64,
    listed: Option<Arc<RowRanges>>,
    /// The first one splits all rows, and the second what it takes of them.
    parts: [Option<SplitPart>; 2],
    /// Which of these are drawn, and how often; each once without.
    draws: Option<Draws>,
}

impl Selection {
    pub(super) fn new(rows: u64, subset: RowSubset, listed: Option<&ListedRows>) -> Self {
        let all = listed.map_or(rows, ListedRows::len);
        let part = |rows, split, is_validation| Some(SplitPart { rows, split, is_validation });
        let of_three = |split: ThreeWaySplit, is_validation| {
            let rest = all - split.test.validation_rows;
            [part(all, split.test, false), part(rest, split.validation, is_validation)]
        };
        let parts = match subset {
            RowSubset::All => [None, None],
            RowSubset::Train(split) => [part(all, split, false), None],
            RowSubset::Validation(split) => [part(all, split, true), None],
            RowSubset::TrainOfThree(split) => of_three(split, false),
            RowSubset::ValidationOfThree(split) => of_three(split, true),
        };
        let listed = listed.map(|listed| Arc::clone(listed.rows()));
        Selection { count: all, listed, parts, draws: None }
    }

    /// Returns the rows that are drawn from it, some of them several times: as many as it has.
    pub(super) fn with_draws(self, draws: Draws) -> Self {
        Selection { draws: Some(draws), ..self }
    }

    /// Returns how many rows are in the subset.
    pub(super) fn len(&self) -> u64 {
        self.parts.iter().flatten().last().map_or(self.count, SplitPart::len)
    }

    /// Returns how many rows of the subset come before `row`.
    pub(super) fn rank(&self, row: u64) -> u64 {
        let rank = self.listed.as_ref().map_or(row, |listed| listed.rank(row));
        let rank = self.parts.iter().flatten().fold(rank, |rank, part| part.rank(rank));
        self.draws.as_ref().map_or(rank, |draws| draws.rank(rank))
    }

    /// Returns the row of the subset that has `rank` others before it.
    #[inline]
    pub(super) fn select(&self, rank: u64) -> u64 {
        let rank = self.draws.as_ref().map_or(rank, |draws| draws.select(rank));
        let rank = self.parts.iter().rev().flatten().fold(rank, |rank, part| part.select(rank));
        match &self.listed {
            Some(listed) => listed.select(rank),
            None => rank,
        }
    }
}

/// One set of a split into two.
#[derive(Clone, Copy, Debug)]
struct SplitPart {
    rows: u64,
    split: Split,
    is_validation: bool,
}

impl SplitPart {
    fn len(&self) -> u64 {
        match self.is_validation {
            true => self.split.validation_rows,
            false => self.rows - self.split.validation_rows,
        }
    }

    fn rank(&self, row: u64) -> u64 {
        let validation_rows = self.validation_rows_before(row, self.split);
        if self.is_validation { validation_rows } else { row - validation_rows }
    }

    #[inline]
    fn select(&self, rank: u64) -> u64 {
        match (self.split.mode, self.is_validation) {
            (SplitMode::Tail, true) => self.rows - self.split.validation_rows + rank,
            (SplitMode::Spread, true) => self.validation_row(rank, self.split),
            (SplitMode::Tail, false) => rank,
            (SplitMode::Spread, false) => self.training_row(rank, self.split),
            (SplitMode::SpreadFold(fold), true) => fold.row(rank, self.split.seed),
            (SplitMode::SpreadFold(fold), false) => fold.other_row(rank, self.split.seed),
            (SplitMode::BlockFold(fold), true) => fold.block(self.rows).start + rank,
            (SplitMode::BlockFold(fold), false) => {
                let block = fold.block(self.rows);
                rank + if rank >= block.start { block.end - block.start } else { 0 }
            }
        }
    }

    fn validation_rows_before(&self, row: u64, split: Split) -> u64 {
        match split.mode {
            SplitMode::Tail => row.saturating_sub(self.rows - split.validation_rows),
            SplitMode::BlockFold(fold) => {
                let block = fold.block(self.rows);
                row.clamp(block.start, block.end) - block.start
            }
            _ if row >= self.rows => split.validation_rows,
            SplitMode::Spread => {
                let stretch = stretch_at(row, split.validation_rows, self.rows);
                stretch + u64::from(self.validation_row(stretch, split) < row)
            }
            SplitMode::SpreadFold(fold) => fold.rows_before(row, split.seed),
        }
    }

    /// Returns the validation row of one stretch; there are as many stretches as validation rows.
    fn validation_row(&self, stretch: u64, split: Split) -> u64 {
        let start = stretch_start(stretch, split.validation_rows, self.rows);
        let end = stretch_start(stretch + 1, split.validation_rows, self.rows);
        let key = MixKey::new(&[split.seed, Purpose::Split as u64]);
        start + below(key.at(stretch), end - start)
    }

    /// Returns the training row with `rank` others before it. Each stretch has one validation row,
    /// so the others are divided into stretches of their own by the same rule.
    fn training_row(&self, rank: u64, split: Split) -> u64 {
        let others = self.rows - split.validation_rows;
        let stretch = stretch_at(rank, split.validation_rows, others);
        let within = rank - stretch_start(stretch, split.validation_rows, others);
        let row = stretch_start(stretch, split.validation_rows, self.rows) + within;
        row + u64::from(row >= self.validation_row(stretch, split))
    }
}

/// Returns where a stretch starts when `len` is divided into `count` of nearly equal length.
fn stretch_start(stretch: u64, count: u64, len: u64) -> u64 {
    (u128::from(stretch) * u128::from(len) / u128::from(count)) as u64
}

/// Returns the stretch that `at` lies in: the last one that starts at or before it.
fn stretch_at(at: u64, count: u64, len: u64) -> u64 {
    (((u128::from(at) + 1) * u128::from(count) - 1) / u128::from(len)) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use vramfit_base::ErrorKind;

    fn error_of(rows: u64, fraction: f64) -> String {
        let error = Split::new(rows, fraction, SplitMode::Spread, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.message().to_owned()
    }

    #[test]
    fn impossible_fractions_are_errors() {
        assert_eq!(error_of(100, 10.0), "a validation fraction of 10 is not between 0 and 1");
        assert_eq!(error_of(100, f64::NAN), "a validation fraction of NaN is not between 0 and 1");
        assert_eq!(
            error_of(3, 0.01),
            "a validation fraction of 0.01 of 3 rows leaves one of the two sets empty"
        );
    }

    proptest! {
        #[test]
        fn the_two_sets_are_the_whole_and_can_be_counted(
            rows in 2_u64..400,
            fraction in 0.01_f64..0.99,
            seed: u64,
            tail: bool,
        ) {
            let mode = if tail { SplitMode::Tail } else { SplitMode::Spread };
            let Ok(split) = Split::new(rows, fraction, mode, seed) else { return Ok(()) };
            check_sets(rows, split, (rows as f64 * fraction).round() as u64)?;
        }

        #[test]
        fn every_row_is_held_out_by_one_fold(
            rows in 2_u64..400,
            folds in 2_u64..12,
            seed: u64,
            is_block: bool,
        ) {
            let mut held_out = vec![0; rows as usize];
            for number in 0..folds {
                let fold = Fold::new(number, folds).unwrap();
                let Ok(split) = Split::of_fold(rows, fold, is_block, seed) else {
                    prop_assert!(rows < folds);
                    return Ok(());
                };
                check_sets(rows, split, split.validation_rows)?;
                prop_assert!((rows / folds..=rows.div_ceil(folds)).contains(&split.validation_rows));
                let set = Selection::new(rows, RowSubset::Validation(split), None);
                (0..set.len()).for_each(|rank| held_out[set.select(rank) as usize] += 1);
                split.ensure_matches(rows).unwrap();
                prop_assert!(split.ensure_matches(rows + 2 * folds).is_err());
            }
            prop_assert!(held_out.iter().all(|count| *count == 1));
        }
    }

    fn check_sets(rows: u64, split: Split, validation_rows: u64) -> Result<(), TestCaseError> {
        let train = Selection::new(rows, RowSubset::Train(split), None);
        let validation = Selection::new(rows, RowSubset::Validation(split), None);
        prop_assert_eq!(validation.len(), validation_rows);

        let mut owner = vec![0; rows as usize];
        for (set, mark) in [(train, 1), (validation, 2)] {
            let mut last = None;
            for rank in 0..set.len() {
                let row = set.select(rank);
                prop_assert!(last < Some(row), "in the order of the file");
                prop_assert_eq!(set.rank(row), rank);
                prop_assert_eq!(set.rank(row + 1), rank + 1);
                prop_assert_eq!(std::mem::replace(&mut owner[row as usize], mark), 0);
                last = Some(row);
            }
        }
        prop_assert!(!owner.contains(&0));
        Ok(())
    }

    #[test]
    fn rows_are_spread_evenly_and_without_a_period() {
        let split = Split::new(1_000_000, 0.1, SplitMode::Spread, 5).unwrap();
        let set = Selection::new(1_000_000, RowSubset::Validation(split), None);
        assert_eq!(set.rank(500_000), 50_000);
        let mut places = [0_u32; 10];
        for rank in 0..100_000 {
            places[(set.select(rank) % 10) as usize] += 1;
        }
        // Ten thousand each are expected, with a standard deviation of 95.
        assert!(places.iter().all(|n| n.abs_diff(10_000) < 475), "{places:?}");
    }
}
