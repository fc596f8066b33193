//! Which rows are for training and which for validation, without a list of them.
//!
//! The answer depends on the number of rows, the share and the seed, and on nothing else: not on the
//! memory at hand, not on chunks, not on the epoch. A row that validates in one run never trains in the
//! next because a budget changed. Counting the chosen rows in any range costs the same for every file,
//! which is what lets an epoch be entered anywhere.

use serde::{Deserialize, Serialize};
use vramfit_core::{Error, ErrorKind, Result};

use super::Purpose;
use crate::mix::{Key, below};

/// How the rows for validation are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Manner {
    /// One row out of every stretch of equal length, at a random place in it. Also fair for a file
    /// that is sorted by label.
    Spread,
    /// The last rows of the file: for rows that resemble their neighbours, such as windows of one
    /// series, where a row between two that were trained on would prove nothing.
    Tail,
}

/// A division of a file's rows into two sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    validation_rows: u64,
    manner: Manner,
    seed: u64,
}

impl Split {
    /// Returns the division that keeps `share` of `rows` for validation, rounded to whole rows.
    ///
    /// # Errors
    /// `invalid-argument` when the share is not between 0 and 1, or leaves one of the sets empty.
    pub fn new(rows: u64, share: f64, manner: Manner, seed: u64) -> Result<Self> {
        if !(share > 0.0 && share < 1.0) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{share} is not a share of the rows"),
            )
            .hint("write 10 percent as `0.1`"));
        }
        let validation_rows = (rows as f64 * share).round() as u64;
        if validation_rows == 0 || validation_rows >= rows {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("a share of {share} of {rows} rows leaves one of the two sets empty"),
            )
            .hint("take a share that gives each set at least one row"));
        }
        Ok(Split {
            validation_rows,
            manner,
            seed,
        })
    }

    /// Refuses a division that was made for another number of rows.
    pub(super) fn must_be_of(&self, rows: u64) -> Result<()> {
        if self.validation_rows > 0 && self.validation_rows < rows {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "{} rows for validation out of {rows} leave one of the two sets empty",
                self.validation_rows
            ),
        )
        .hint("take another share, or a file with more rows"))
    }
}

/// The part of a file's rows that an order goes through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Every row.
    #[default]
    All,
    /// The rows to train on.
    Train(Split),
    /// The rows to validate on.
    Validation(Split),
}

/// A part of so many rows, ready to be counted in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection {
    rows: u64,
    part: Part,
}

impl Selection {
    pub(super) fn new(rows: u64, part: Part) -> Self {
        Selection { rows, part }
    }

    /// Returns how many rows are in the part.
    pub(super) fn len(&self) -> u64 {
        self.rank(self.rows)
    }

    /// Returns how many rows of the part come before `row`.
    pub(super) fn rank(&self, row: u64) -> u64 {
        match self.part {
            Part::All => row,
            Part::Validation(split) => self.chosen_before(row, split),
            Part::Train(split) => row - self.chosen_before(row, split),
        }
    }

    /// Returns the row of the part that has `rank` others before it.
    #[inline]
    pub(super) fn select(&self, rank: u64) -> u64 {
        match self.part {
            Part::All => rank,
            Part::Validation(split) => match split.manner {
                Manner::Tail => self.rows - split.validation_rows + rank,
                Manner::Spread => self.chosen(rank, split),
            },
            Part::Train(split) => match split.manner {
                Manner::Tail => rank,
                Manner::Spread => self.not_chosen(rank, split),
            },
        }
    }

    fn chosen_before(&self, row: u64, split: Split) -> u64 {
        match split.manner {
            Manner::Tail => row.saturating_sub(self.rows - split.validation_rows),
            Manner::Spread if row >= self.rows => split.validation_rows,
            Manner::Spread => {
                let stretch = containing(row, split.validation_rows, self.rows);
                stretch + u64::from(self.chosen(stretch, split) < row)
            }
        }
    }

    /// Returns the chosen row of one stretch; there are as many stretches as chosen rows.
    fn chosen(&self, stretch: u64, split: Split) -> u64 {
        let start = bound(stretch, split.validation_rows, self.rows);
        let end = bound(stretch + 1, split.validation_rows, self.rows);
        let key = Key::new(&[split.seed, Purpose::Split as u64]);
        start + below(key.at(stretch), end - start)
    }

    /// Returns the row with `rank` rows before it that are not chosen. Each stretch has one chosen row,
    /// so the others are divided into stretches of their own by the same rule.
    fn not_chosen(&self, rank: u64, split: Split) -> u64 {
        let others = self.rows - split.validation_rows;
        let stretch = containing(rank, split.validation_rows, others);
        let within = rank - bound(stretch, split.validation_rows, others);
        let row = bound(stretch, split.validation_rows, self.rows) + within;
        row + u64::from(row >= self.chosen(stretch, split))
    }
}

/// Returns where a stretch begins when `len` is divided into `count` of nearly equal length.
fn bound(stretch: u64, count: u64, len: u64) -> u64 {
    (u128::from(stretch) * u128::from(len) / u128::from(count)) as u64
}

/// Returns the stretch that `at` lies in: the last one that begins at or before it.
fn containing(at: u64, count: u64, len: u64) -> u64 {
    (((u128::from(at) + 1) * u128::from(count) - 1) / u128::from(len)) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(rows: u64, share: f64) -> String {
        let error = Split::new(rows, share, Manner::Spread, 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.message().to_owned()
    }

    #[test]
    fn shares_that_are_none_are_refused() {
        assert_eq!(refused(100, 10.0), "10 is not a share of the rows");
        assert_eq!(refused(100, f64::NAN), "NaN is not a share of the rows");
        assert_eq!(
            refused(3, 0.01),
            "a share of 0.01 of 3 rows leaves one of the two sets empty"
        );
    }

    proptest! {
        #[test]
        fn the_two_sets_are_the_whole_and_can_be_counted(
            rows in 2_u64..400,
            share in 0.01_f64..0.99,
            seed: u64,
            tail: bool,
        ) {
            let manner = if tail { Manner::Tail } else { Manner::Spread };
            let Ok(split) = Split::new(rows, share, manner, seed) else { return Ok(()) };
            let train = Selection::new(rows, Part::Train(split));
            let validation = Selection::new(rows, Part::Validation(split));
            prop_assert_eq!(validation.len(), (rows as f64 * share).round() as u64);

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
        }
    }

    #[test]
    fn rows_are_spread_evenly_and_without_a_period() {
        let split = Split::new(1_000_000, 0.1, Manner::Spread, 5).unwrap();
        let set = Selection::new(1_000_000, Part::Validation(split));
        assert_eq!(set.rank(500_000), 50_000);
        let mut places = [0_u32; 10];
        for rank in 0..100_000 {
            places[(set.select(rank) % 10) as usize] += 1;
        }
        // Ten thousand each are expected, with a standard deviation of 95.
        assert!(
            places.iter().all(|n| n.abs_diff(10_000) < 475),
            "{places:?}"
        );
    }
}
