//! What a search may change.

/// What a search may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moves {
    /// What is recomputed in the backward pass.
    pub remat: bool,
    /// How much of what is mapped by `jax.vmap` is computed at a time.
    pub chunk: bool,
    /// Settings of the compiler.
    pub compiler: bool,
    /// Whether XLA's latency-hiding scheduler, which takes memory to overlap transfers and computation, is
    /// on and may be turned off.
    pub scheduler: bool,
    /// Whether the pool grows on demand and may be preallocated.
    pub preallocation: bool,
    /// Whether another allocator may be used.
    pub allocator: bool,
    /// What is kept in host memory: a transfer takes longer than most computations.
    pub offload: When,
    /// Short loops whose iterations are compiled one after the other, which takes long.
    pub unroll: When,
    /// What the pool may have with [`MAX_FRACTION`] of the GPU, in bytes; `None` where its size is given.
    pub larger_pool_bytes: Option<u64>,
}

/// When a change is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Not at all.
    Never,
    /// Only where no plan fits without.
    NothingFits,
    /// Also where something fits.
    Always,
}

impl When {
    /// Returns `true` if the change is to be tried where a plan fits without, or none does.
    pub(super) fn is_wanted(self, is_met: bool) -> bool {
        match self {
            When::Never => false,
            When::NothingFits => !is_met,
            When::Always => true,
        }
    }
}
