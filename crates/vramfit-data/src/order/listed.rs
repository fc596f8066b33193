//! Rows that a user has listed, as a set.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::sample::RowRanges;
use crate::splitmix::MixKey;

/// Listed rows. A saved one has their number and a hash of them, which tells whether others are the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListedRows {
    count: u64,
    hash: u64,
    #[serde(skip)]
    rows: Arc<RowRanges>,
}

impl ListedRows {
    /// Lists rows.
    pub fn new(rows: RowRanges) -> ListedRows {
        let hash =
            rows.iter().fold(0, |hash, range| MixKey::new(&[hash, range.start, range.end]).at(0));
        ListedRows { count: rows.len(), hash, rows: Arc::new(rows) }
    }

    /// Returns how many there are.
    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// Returns the last one.
    pub(super) fn last(&self) -> Option<u64> {
        self.rows.iter().next_back().map(|range| range.end - 1)
    }

    pub(super) fn rows(&self) -> &Arc<RowRanges> {
        &self.rows
    }
}

impl PartialEq for ListedRows {
    fn eq(&self, other: &Self) -> bool {
        (self.count, self.hash) == (other.count, other.hash)
    }
}

impl Eq for ListedRows {}
