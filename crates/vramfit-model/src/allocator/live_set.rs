//! What every allocator does alike, over the allocations that are live.

use super::config::JaxVersion;
use super::{Chunk, Fidelity, Region, Stats};

/// The live allocations of an allocator. [`super::Allocator`] has its default methods from them.
pub trait LiveSet {
    /// Returns the name in XLA's log lines, such as `GPU_0_bfc`.
    fn name(&self) -> &str;

    /// Returns the release of JAX whose texts are wanted.
    fn jax_version(&self) -> JaxVersion;

    /// Returns what is counted at every allocation; figures of the pool and limits are not in it.
    fn usage(&self) -> &Stats;

    /// Returns the same, to be changed.
    fn usage_mut(&mut self) -> &mut Stats;

    /// Returns the chunks in address order, free ones included where they are kept.
    fn chunks(&self) -> Vec<Chunk>;

    /// Returns the regions that the pool has from the GPU, by address; none where nothing is pooled.
    fn regions(&self) -> Vec<Region> {
        Vec::new()
    }

    /// Sets the label of the following allocations.
    fn set_label(&mut self, text: Option<&str>);

    /// Says how far the answers can be trusted.
    fn fidelity(&self) -> Fidelity;
}
