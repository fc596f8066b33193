//! The books of allocators that count requested bytes: everything but BFC.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::chunk_table::Tag;
use super::{Chunk, State, Stats};
use crate::error::{Error, ErrorKind, Result};

/// What is given out, and the statistics over it.
#[derive(Debug, Default)]
pub(super) struct LiveAllocations {
    given: BTreeMap<u64, Allocation>,
    label: Option<Arc<str>>,
    num_allocs: u64,
    bytes_in_use: u64,
    peak_bytes_in_use: u64,
    largest_alloc_size: u64,
}

#[derive(Debug)]
struct Allocation {
    requested: u64,
    cost: u64,
    label: Option<Arc<str>>,
}

impl LiveAllocations {
    /// Enters a piece: what was requested, and what it takes from the GPU.
    pub(super) fn insert(&mut self, address: u64, requested: u64, cost: u64) {
        self.given.insert(
            address,
            Allocation {
                requested,
                cost,
                label: self.label.clone(),
            },
        );
        self.num_allocs += 1;
        self.bytes_in_use += requested;
        self.peak_bytes_in_use = self.peak_bytes_in_use.max(self.bytes_in_use);
        self.largest_alloc_size = self.largest_alloc_size.max(requested);
    }

    /// Strikes a piece out and returns what it took from the GPU.
    pub(super) fn remove(&mut self, address: u64, name: &str) -> Result<u64> {
        let Some(piece) = self.given.remove(&address) else {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("`{name}` has nothing allocated at address {address:#x}"),
            ));
        };
        self.bytes_in_use -= piece.requested;
        Ok(piece.cost)
    }

    /// Strikes everything out and returns the places and costs.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (u64, u64)> {
        self.bytes_in_use = 0;
        let given = std::mem::take(&mut self.given);
        given
            .into_iter()
            .map(|(address, piece)| (address, piece.cost))
    }

    pub(super) fn set_label(&mut self, text: Option<&str>) {
        self.label = text.map(Arc::from);
    }

    /// Returns the statistics in the sense of these allocators: no rounding is counted.
    pub(super) fn stats(&self, bytes_limit: Option<u64>) -> Stats {
        Stats {
            num_allocs: self.num_allocs,
            bytes_in_use: self.bytes_in_use,
            peak_bytes_in_use: self.peak_bytes_in_use,
            largest_alloc_size: self.largest_alloc_size,
            bytes_limit,
            ..Stats::default()
        }
    }

    /// Adds what is given out, and the statistics.
    pub(super) fn write_state(&self, state: &mut State) {
        state.add_all([
            self.bytes_in_use,
            self.peak_bytes_in_use,
            self.largest_alloc_size,
            self.given.len() as u64,
        ]);
        for (address, piece) in &self.given {
            state.add_all([*address, piece.requested, piece.cost]);
        }
    }

    /// Counts allocations that came and went.
    pub(super) fn add_allocations(&mut self, count: u64) {
        self.num_allocs += count;
    }

    pub(super) fn chunks(&self) -> Vec<Chunk> {
        let pieces = self.given.iter();
        pieces
            .map(|(&address, piece)| Chunk {
                address,
                bytes: piece.cost,
                requested_bytes: piece.requested,
                in_use: true,
                tag: Tag::Lower,
                bin: None,
                label: piece.label.clone(),
            })
            .collect()
    }
}
