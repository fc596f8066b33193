//! How the rows of a file would be streamed, and in which memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::Serialize;
use vramfit_base::Bytes;

use super::alike::AlikeMembers;
use super::{Entry, InspectOptions, OpenDataset};
use crate::load::{Loader, LoaderOptions};
use crate::order::Engine;
use crate::read::{Dataset, Storage};

/// The datasets that are read together, and how.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StreamingPlan {
    /// Their paths: those with the same number of rows that take the most memory together. A path with a wildcard is
    /// that of a dataset in each of several members that are alike.
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
        Storage::Virtual(pieces) => (pieces.iter())
            .filter_map(|piece| Some(piece.rows_of(band_rows(&piece.dataset)?)))
            .max(),
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

/// Whether most datasets of a group are in members that are alike.
fn is_hidden(group: &[&OpenDataset], alike: &[AlikeMembers]) -> bool {
    let ranges: Vec<&Range<usize>> = alike.iter().flat_map(|members| &members.hidden).collect();
    let mut starts: Vec<(usize, usize)> = ranges.iter().map(|it| (it.start, it.end)).collect();
    starts.sort_unstable();
    let is_in = |entry: usize| {
        let place = starts.partition_point(|(start, _)| *start <= entry);
        place > 0 && entry < starts[place - 1].1
    };
    2 * group.iter().filter(|open| is_in(open.entry)).count() > group.len()
}

/// Returns the datasets with the same number of rows, in each of members that are alike, that take the most memory.
fn plan_patterns(
    members: &AlikeMembers,
    entries: &[Entry],
    readable: &[OpenDataset],
) -> Option<StreamingPlan> {
    let of = |member: &Range<usize>| {
        let start = readable.partition_point(|open| open.entry < member.start);
        let end = readable.partition_point(|open| open.entry < member.end);
        &readable[start..end]
    };
    let first = of(&members.shown);
    let chosen = groups(first).into_iter().next()?;
    let places: Vec<usize> = chosen.iter().map(|open| open.entry - members.shown.start).collect();
    let prefix = entries[members.shown.start].path.len();
    let pattern = |place: &usize| {
        format!("{}{}", members.pattern, &entries[members.shown.start + place].path[prefix..])
    };
    let (mut rows, mut memory) = (0, 0);
    for member in members.hidden.iter().chain([&members.shown]) {
        let own = of(member).iter().filter(|open| places.contains(&(open.entry - member.start)));
        let own: Vec<&OpenDataset> = own.collect();
        rows += own.first().map_or(0, |open| open.rows.len());
        memory += bytes(own);
    }
    Some(StreamingPlan {
        datasets: places.iter().map(pattern).collect(),
        rows,
        memory_bytes: Bytes(memory),
        ..StreamingPlan::default()
    })
}

/// Plans the streaming of the largest group of datasets, or of members that are alike if they take more memory.
pub(super) fn plan(
    path: &Path,
    entries: &[Entry],
    readable: &[OpenDataset],
    alike: &[AlikeMembers],
    options: &InspectOptions,
) -> Option<StreamingPlan> {
    let groups = groups(readable);
    let group = groups.first()?;
    let rows = group.first()?.rows.len();
    let single = StreamingPlan {
        datasets: group.iter().map(|open| entries[open.entry].path.clone()).collect(),
        rows,
        memory_bytes: Bytes(bytes(group.iter().copied())),
        ..StreamingPlan::default()
    };
    let patterns = alike.iter().filter_map(|members| plan_patterns(members, entries, readable));
    let largest = patterns.max_by_key(|plan| plan.memory_bytes);
    let largest = largest.filter(|plan| {
        // One of the members is part of the group, too.
        group.len() > 1 && is_hidden(group, alike) || plan.memory_bytes > single.memory_bytes
    });
    // A pattern may match what is not alike, which cannot be streamed with the others.
    let open = |plan| open_plan(path, plan, options);
    let with_patterns = largest.map(open).filter(StreamingPlan::is_possible);
    Some(with_patterns.unwrap_or_else(|| open(single)))
}

impl StreamingPlan {
    fn is_possible(&self) -> bool {
        self.engine.is_some()
    }
}

/// Completes a plan with how a loader of its datasets would read them.
fn open_plan(path: &Path, mut plan: StreamingPlan, options: &InspectOptions) -> StreamingPlan {
    plan.budget_bytes = options.budget;
    let options = LoaderOptions {
        budget: options.budget,
        allow_unclosed: options.allow_unclosed,
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
    plan
}
