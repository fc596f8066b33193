//! The allocators of a traced run, driven by its events: as they were in the run, or with other settings.
//!
//! [`Replay`] applies events one by one.
//!
//! | file | content |
//! | --- | --- |
//! | `engine.rs` | pools of all devices and what is allocated in them |
//! | `effect.rs`, `bounds.rs` | what an event does to the pools, what a trace may hold at most |
//! | `pool.rs`, `recorded_device.rs`, `recorded_options.rs` | the allocator of one device, the driver calls of the run, the options in the header |
//! | `autotune_range.rs` | the same run with the temporaries of other kernels |
//! | `total_range.rs` | a refused request at the highest total that drivers report, or without other processes |

mod autotune_range;
mod bounds;
mod effect;
mod engine;
mod pool;
mod recorded_device;
mod recorded_options;
mod total_range;

pub(crate) use autotune_range::{VariantReplay, insert_device};
pub use effect::{Block, Divergence, EventEffect};
pub use engine::Replay;
pub use pool::PoolState;
pub(crate) use pool::{PoolLevel, corrupt_trace, replay_mismatch};
pub(crate) use recorded_options::allocatable_bytes;
pub use total_range::{TotalRangeSummary, is_met_alone, replay_at_max_total};
