//! Who holds what, in a file that all processes share.
//!
//! One line a change: process, position of the GPU, bytes more or less. Lines are appended whole,
//! and those of a process that is gone do not count: a GPU gets its memory back however the
//! process ended.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::description::{own_path, sibling_path};

/// The file beside the library, with `.allocations` at its end.
#[derive(Clone, Debug)]
pub struct DeviceAllocations {
    path: PathBuf,
}

impl DeviceAllocations {
    /// The allocations that belong to a copy of the library.
    pub fn of(library: &Path) -> DeviceAllocations {
        DeviceAllocations { path: sibling_path(library, ".allocations") }
    }

    /// The allocations of this library.
    pub(crate) fn own() -> DeviceAllocations {
        DeviceAllocations::of(&own_path())
    }

    pub(crate) fn add(&self, position: usize, bytes: i64) {
        let line = format!("{} {position} {bytes}\n", std::process::id());
        let file = OpenOptions::new().create(true).append(true).open(&self.path);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
    }

    /// Every change so far: process, position of the GPU, bytes.
    pub fn changes(&self) -> Vec<(u32, usize, i64)> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        text.lines()
            .filter_map(|line| {
                let mut words = line.split(' ');
                Some((
                    words.next()?.parse().ok()?,
                    words.next()?.parse().ok()?,
                    words.next()?.parse().ok()?,
                ))
            })
            .collect()
    }

    /// What each process that still lives holds of a GPU.
    pub(crate) fn process_usage(&self, position: usize) -> BTreeMap<u32, u64> {
        let mut sums: BTreeMap<u32, i64> = BTreeMap::new();
        for (pid, _, bytes) in self.changes().iter().filter(|(_, at, _)| *at == position) {
            *sums.entry(*pid).or_default() += bytes;
        }
        sums.into_iter()
            .filter(|(pid, bytes)| *bytes > 0 && Path::new(&format!("/proc/{pid}")).exists())
            .map(|(pid, bytes)| (pid, bytes.unsigned_abs()))
            .collect()
    }
}
