//! How the rows of a file would be streamed, and in which memory.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use vramfit_core::Bytes;

use super::{Entry, Open};
use crate::load::{Loader, Request};
use crate::order::Engine;
use crate::read::{Dataset, Storage};

/// The datasets that are read together, and how.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Their paths: those with equally many rows that take most memory together.
    pub datasets: Vec<String>,
    /// Rows of each.
    pub rows: u64,
    /// What they take in memory, loaded as a whole.
    pub memory_bytes: Bytes,
    /// What streaming them may take.
    pub budget_bytes: Bytes,
    /// The order of a shuffled epoch: `gather`, `block_pool` or `chunk_pool`; none where the budget is
    /// too small.
    pub engine: Option<&'static str>,
    /// Rows that are read together, where the order is one of blocks.
    pub block_rows: Option<u64>,
    /// Why that one, or why none.
    pub reason: String,
    /// What is lost by it, and what would help.
    pub warning: Option<String>,
}

/// Returns how many rows have to be read together, or `None` where each can be read alone.
pub(super) fn band_rows(dataset: &Dataset) -> Option<u64> {
    match dataset.storage() {
        Storage::Compact(_) | Storage::Contiguous(_) => None,
        Storage::Chunked { grid, .. } => grid.chunk().first().copied(),
        Storage::Virtual(pieces) => {
            let bands = pieces.iter().filter_map(|piece| band_rows(&piece.dataset));
            bands.max()
        }
    }
}

/// Returns the datasets that have equally many rows, those first that take most memory together.
pub(super) fn groups(readable: &[Open]) -> Vec<Vec<&Open>> {
    let mut groups: BTreeMap<u64, Vec<&Open>> = BTreeMap::new();
    for open in readable.iter().filter(|open| !open.rows.is_empty()) {
        groups.entry(open.rows.len()).or_default().push(open);
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(bytes(group)));
    groups
}

fn bytes(group: &[&Open]) -> u64 {
    group.iter().map(|open| open.rows.dataset().bytes()).sum()
}

/// Plans the streaming of the largest group.
pub(super) fn plan(
    path: &Path,
    entries: &[Entry],
    readable: &[Open],
    budget: Bytes,
) -> Option<Plan> {
    let groups = groups(readable);
    let group = groups.first()?;
    let rows = group.first()?.rows.len();
    let mut plan = Plan {
        datasets: group
            .iter()
            .map(|open| entries[open.entry].path.clone())
            .collect(),
        rows,
        memory_bytes: Bytes(bytes(group)),
        budget_bytes: budget,
        engine: None,
        block_rows: None,
        reason: String::new(),
        warning: None,
    };
    let wanted = Request {
        budget,
        ..Request::of(path, plan.datasets.iter().map(String::as_str))
    };
    match Loader::open(wanted) {
        Ok(loader) => {
            let choice = &loader.plan().choice;
            plan.engine = Some(match choice.engine {
                Engine::Sequential => "sequential",
                Engine::Gather => "gather",
                Engine::BlockPool(_) => "block_pool",
                Engine::ChunkPool(_) => "chunk_pool",
            });
            plan.block_rows = choice.engine.pools().map(|pools| pools.block_rows);
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
