//! How the rows of a file would be streamed, and in which memory.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use vramfit_base::Bytes;

use super::{Entry, OpenDataset};
use crate::load::{Loader, LoaderOptions};
use crate::order::Engine;
use crate::read::{Dataset, Storage};

/// The datasets that are read together, and how.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StreamingPlan {
    /// Their paths: those with the same number of rows that take the most memory together.
    pub datasets: Vec<String>,
    /// Rows of each.
    pub rows: u64,
    /// Their size in memory, loaded as a whole.
    pub memory_bytes: Bytes,
    /// Memory budget for streaming them.
    pub budget_bytes: Bytes,
    /// The order of a shuffled epoch: `global_shuffle`, `block_windows` or `chunk_windows`; none if the budget is
    /// too small.
    pub engine: Option<&'static str>,
    /// Rows of a block, if the order is one of windows.
    pub block_rows: Option<u64>,
    /// Why that engine, or why none.
    pub reason: String,
    /// Its drawback, and what would help.
    pub warning: Option<String>,
}

/// Returns how many rows must be read together, or `None` if each can be read by itself.
pub(super) fn band_rows(dataset: &Dataset) -> Option<u64> {
    match dataset.storage() {
        Storage::Compact(_) | Storage::Contiguous(_) => None,
        Storage::Chunked { grid, .. } => grid.chunk.first().copied(),
        Storage::Virtual(pieces) => {
            (pieces.iter()).filter_map(|piece| band_rows(&piece.dataset)).max()
        }
    }
}

/// Groups datasets by their number of rows; the group that takes the most memory comes first.
pub(super) fn groups(readable: &[OpenDataset]) -> Vec<Vec<&OpenDataset>> {
    let mut groups: BTreeMap<u64, Vec<&OpenDataset>> = BTreeMap::new();
    for open in readable.iter().filter(|open| !open.rows.is_empty()) {
        groups.entry(open.rows.len()).or_default().push(open);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(bytes(group.iter().copied())));
    groups
}

/// Returns the size in memory of datasets.
pub(super) fn bytes<'a>(datasets: impl IntoIterator<Item = &'a OpenDataset>) -> u64 {
    let datasets = datasets.into_iter();
    datasets.map(|open| open.rows.dataset().bytes()).sum()
}

/// Plans the streaming of the largest group.
pub(super) fn plan(
    path: &Path,
    entries: &[Entry],
    readable: &[OpenDataset],
    budget: Bytes,
) -> Option<StreamingPlan> {
    let groups = groups(readable);
    let group = groups.first()?;
    let rows = group.first()?.rows.len();
    let mut plan = StreamingPlan {
        datasets: group.iter().map(|open| entries[open.entry].path.clone()).collect(),
        rows,
        memory_bytes: Bytes(bytes(group.iter().copied())),
        budget_bytes: budget,
        ..StreamingPlan::default()
    };
    let options = LoaderOptions {
        budget,
        ..LoaderOptions::new(path, plan.datasets.iter().map(String::as_str))
    };
    match Loader::open(options) {
        Ok(loader) => {
            let choice = &loader.plan().choice;
            plan.engine = Some(match choice.engine {
                Engine::Sequential => "sequential",
                Engine::GlobalShuffle => "global_shuffle",
                Engine::BlockWindows(_) => "block_windows",
                Engine::ChunkWindows(_) => "chunk_windows",
            });
            plan.block_rows = choice.engine.window_size().map(|size| size.block_rows);
            plan.reason.clone_from(&choice.reason);
            plan.warning.clone_from(&choice.warning);
        }
        Err(error) => {
            plan.reason = error.message().to_owned();
            plan.warning = error.hint_text().map(str::to_owned);
        }
    }
    Some(plan)
}
