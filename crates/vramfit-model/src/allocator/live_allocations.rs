//! The live allocations of everything but BFC, which has chunks.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::chunk_table::ChunkTag;
use super::config::JaxVersion;
use super::live_set::LiveSet;
use super::{Chunk, Fidelity, Stats};
use crate::error::{Error, ErrorKind, Result};

/// What is given out, and the statistics over it.
#[derive(Debug)]
pub(super) struct LiveAllocations {
    name: String,
    jax_version: JaxVersion,
    fidelity: Fidelity,
    by_address: BTreeMap<u64, Allocation>,
    label: Option<Arc<str>>,
    usage: Stats,
    stats_count_cost: bool,
}

#[derive(Debug)]
struct Allocation {
    requested: u64,
    cost: u64,
    label: Option<Arc<str>>,
}

impl LiveAllocations {
    pub(super) fn new(name: String, jax_version: JaxVersion, fidelity: Fidelity) -> Self {
        LiveAllocations {
            name,
            jax_version,
            fidelity,
            by_address: BTreeMap::new(),
            label: None,
            usage: Stats::default(),
            stats_count_cost: false,
        }
    }

    /// Makes the statistics count what allocations take from the GPU instead of what was requested.
    pub(super) fn with_cost_in_stats(self) -> Self {
        LiveAllocations { stats_count_cost: true, ..self }
    }

    /// Returns the bytes of an allocation in the statistics.
    fn bytes_in_stats(&self, requested: u64, cost: u64) -> u64 {
        if self.stats_count_cost { cost } else { requested }
    }

    /// Adds an allocation: what was requested, and what it takes from the GPU.
    pub(super) fn insert(&mut self, address: u64, requested: u64, cost: u64) {
        self.by_address.insert(address, Allocation { requested, cost, label: self.label.clone() });
        self.usage.count_allocation(self.bytes_in_stats(requested, cost));
    }

    /// Removes an allocation and returns what it took from the GPU.
    pub(super) fn remove(&mut self, address: u64) -> Result<u64> {
        let Some(allocation) = self.by_address.remove(&address) else {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("`{}` has no allocation at address {address:#x}", self.name),
            ));
        };
        self.usage.bytes_in_use -= self.bytes_in_stats(allocation.requested, allocation.cost);
        Ok(allocation.cost)
    }

    /// Removes everything and returns addresses and costs.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (u64, u64)> {
        self.usage.bytes_in_use = 0;
        std::mem::take(&mut self.by_address)
            .into_iter()
            .map(|(address, allocation)| (address, allocation.cost))
    }

    /// Returns the statistics.
    pub(super) fn stats(&self, bytes_limit: Option<u64>) -> Stats {
        Stats { bytes_limit, ..self.usage }
    }
}

impl LiveSet for LiveAllocations {
    fn name(&self) -> &str {
        &self.name
    }

    fn jax_version(&self) -> JaxVersion {
        self.jax_version
    }

    fn usage(&self) -> &Stats {
        &self.usage
    }

    fn usage_mut(&mut self) -> &mut Stats {
        &mut self.usage
    }

    fn set_label(&mut self, text: Option<&str>) {
        self.label = text.map(Arc::from);
    }

    fn fidelity(&self) -> Fidelity {
        self.fidelity
    }

    fn chunks(&self) -> Vec<Chunk> {
        self.by_address
            .iter()
            .map(|(&address, allocation)| Chunk {
                address,
                bytes: allocation.cost,
                requested_bytes: allocation.requested,
                in_use: true,
                tag: ChunkTag::Lower,
                bin: None,
                label: allocation.label.clone(),
            })
            .collect()
    }
}
