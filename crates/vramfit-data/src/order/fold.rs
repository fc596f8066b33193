//! Folds of a cross-validation: every row is held out by exactly one of them.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use vramfit_base::{Error, Result};

use super::Purpose;
use crate::splitmix::{MixKey, below};

/// One of several folds, whose rows are held out for validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fold {
    fold: u64,
    folds: u64,
}

impl Fold {
    /// Returns fold `fold` of `folds`, counted from 0.
    ///
    /// # Errors
    /// `invalid-argument` when there is no such fold, or fewer than two.
    pub fn new(fold: u64, folds: u64) -> Result<Fold> {
        if folds < 2 {
            return Err(Error::invalid_argument(format!("{folds} folds are not two or more"))
                .hint("use `KFold(5, 0)` for the first of five folds"));
        }
        if fold >= folds {
            return Err(Error::invalid_argument(format!(
                "fold {fold} is not one of {folds} folds, which are counted from 0"
            ))
            .hint(format!("use a fold from 0 to {}", folds - 1)));
        }
        Ok(Fold { fold, folds })
    }

    /// Checks that it has some of `rows` rows, as each of the other folds.
    ///
    /// # Errors
    /// `invalid-argument` when it does not.
    pub(super) fn ensure_fits(&self, rows: u64) -> Result<()> {
        Fold::new(self.fold, self.folds)?;
        if rows < self.folds {
            return Err(Error::invalid_argument(format!(
                "{rows} rows cannot be divided into {} folds",
                self.folds
            ))
            .hint("use fewer folds"));
        }
        Ok(())
    }

    /// Returns the rows of a fold that is a block of rows.
    pub(crate) fn block(&self, rows: u64) -> Range<u64> {
        let bound =
            |fold: u64| (u128::from(fold) * u128::from(rows) / u128::from(self.folds)) as u64;
        bound(self.fold)..bound(self.fold + 1)
    }

    /// Returns the row of one of the stretches that rows are divided into, each as long as there are folds, of
    /// which every fold has one row.
    pub(super) fn row(&self, stretch: u64, seed: u64) -> u64 {
        stretch * self.folds + self.place(stretch, seed)
    }

    /// Returns how many rows of the fold come before a row.
    pub(super) fn rows_before(&self, row: u64, seed: u64) -> u64 {
        let (stretch, within) = (row / self.folds, row % self.folds);
        stretch + u64::from(self.place(stretch, seed) < within)
    }

    /// Returns the row with so many rows of other folds before it that is of another fold itself.
    pub(super) fn other_row(&self, rank: u64, seed: u64) -> u64 {
        let (stretch, within) = (rank / (self.folds - 1), rank % (self.folds - 1));
        stretch * self.folds + within + u64::from(within >= self.place(stretch, seed))
    }

    /// Returns the place of its row in a stretch; the last stretch may end before it.
    fn place(&self, stretch: u64, seed: u64) -> u64 {
        let key = MixKey::new(&[seed, Purpose::Folds as u64, self.folds]);
        let first = u128::from(below(key.at(stretch), self.folds));
        ((first + u128::from(self.fold)) % u128::from(self.folds)) as u64
    }
}
