//! What events do to the pools of a replay.

use crate::allocator::AllocError;

/// Why a replay elsewhere does not follow the run any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Divergence {
    /// A request was refused that the run had met.
    Refused,
    /// A request was met that the run had refused.
    Granted,
}

/// Something allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its number in the trace.
    pub number: u64,
    /// On which device.
    pub device: u32,
    /// What the caller of [`super::Replay::apply`] gave it.
    pub owner: u32,
    /// Where it lies.
    pub address: u64,
    /// What was asked for.
    pub requested_bytes: u64,
    /// By how much it raised `bytes_in_use`: rounding included where the allocator counts it, 0
    /// where its pool is not the one that is counted.
    pub allocated_bytes: u64,
}

/// What an event did to the pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventEffect {
    /// Nothing was allocated, freed or refused.
    None,
    /// Bytes were given out.
    Allocated(Block),
    /// Bytes came back.
    Freed(Block),
    /// Bytes came back, and the allocator would have aborted the process with this message.
    Aborted(Block, String),
    /// A request on a device was refused.
    Refused(u32, AllocError),
}
