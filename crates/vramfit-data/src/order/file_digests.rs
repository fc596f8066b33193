//! Which of several files differs from what a run started with.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::splitmix::MixKey;

/// As many as a state has room for.
const MAX_DIGESTS: usize = 16;

/// A short hash of each of several files; of many files, one of each run of consecutive files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDigests {
    count: usize,
    /// Six hexadecimal digits of each.
    digests: String,
}

impl FileDigests {
    /// Takes hashes of the files, in their order; `None` for a single file.
    pub fn new(files: &[u64]) -> Option<FileDigests> {
        let runs = files.chunks(run_length(files.len()));
        let digests = runs.map(|run| format!("{:06x}", MixKey::new(run).at(0) >> 40));
        (files.len() > 1).then(|| FileDigests { count: files.len(), digests: digests.collect() })
    }

    /// Returns how many files there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the first files of which at least one differs from what it was; `None` where none does, or the numbers
    /// of files differ.
    pub fn first_difference(&self, now: &FileDigests) -> Option<Range<usize>> {
        if self.count != now.count {
            return None;
        }
        let (was, now) = (self.digests.as_bytes().chunks(6), now.digests.as_bytes().chunks(6));
        let run = was.zip(now).position(|(was, now)| was != now)?;
        let length = run_length(self.count);
        Some(run * length..((run + 1) * length).min(self.count))
    }
}

/// Returns how many files have one hash.
fn run_length(files: usize) -> usize {
    files.div_ceil(MAX_DIGESTS).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_file_that_differs_is_found(
            files in prop::collection::vec(any::<u64>(), 2..200),
            changed in prop::collection::btree_set(0_usize..200, 0..4),
        ) {
            let mut now = files.clone();
            let changed: Vec<usize> = changed.into_iter().filter(|at| *at < now.len()).collect();
            for at in &changed {
                now[*at] ^= 1;
            }
            let digests = FileDigests::new(&files).unwrap();
            let found = digests.first_difference(&FileDigests::new(&now).unwrap());
            match changed.first() {
                None => prop_assert_eq!(found, None),
                Some(first) => {
                    let found = found.unwrap();
                    prop_assert!(found.contains(first));
                    prop_assert!(found.len() <= files.len().div_ceil(MAX_DIGESTS));
                }
            }
            let text = serde_json::to_string(&digests).unwrap();
            prop_assert!(text.len() <= 130, "{}", text);
            prop_assert_eq!(serde_json::from_str::<FileDigests>(&text).unwrap(), digests);
        }
    }

    #[test]
    fn one_file_needs_no_digests() {
        assert_eq!(FileDigests::new(&[1]), None);
        let digests = FileDigests::new(&[1, 2]).unwrap();
        assert_eq!(digests.first_difference(&FileDigests::new(&[1, 2, 3]).unwrap()), None);
    }
}
