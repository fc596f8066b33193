//! What JAX and its plugin read from the environment, per release, and what they make of it.
//!
//! | file | what it is |
//! | --- | --- |
//! | `table.toml`, `table.rs` | every variable and flag, and the page made from them |
//! | `version.rs` | releases of JAX |
//! | `client.rs` | the options of a client, checked as XLA checks them |
//! | `fraction.rs` | the text form of the pool's fraction |
//! | `plugin.rs`, `flags.rs` | what the plugin reads past those options |
//! | `options.rs`, `defaults.rs` | the options of a user, and what holds where they say nothing |
//! | `pool_size.rs` | the size of the pool, as the text of the fraction that JAX reads |
//! | `budget.rs` | how much of a GPU a pool can have, once context, libraries and other processes are subtracted |
//! | `names.rs` | the variables of the pool, and whether a name is one that JAX or its plugin may read |
//! | `platforms.rs` | which backends JAX may make, and the one recommendation about it |
//! | `visible.rs` | which GPUs a program will see |
//! | `late_change.rs` | variables that a running program changes |
//! | `resolve/` | from options to the variables that the installed release reads |
//!
//! Nothing here reads or changes the environment of this process: values are handed in and out.

mod budget;
mod client;
mod defaults;
mod flags;
mod fraction;
mod late_change;
mod names;
mod options;
mod platforms;
mod plugin;
mod pool_size;
mod resolve;
mod table;
mod version;
mod visible;

pub use crate::allocator::DEFAULT_FRACTION;
pub use budget::{
    COLLECTIVES_BYTES, GpuMemoryBudget, LIBRARIES_BYTES, UNKNOWN_CONTEXT_BYTES, min_total_bytes,
    outside_bytes, pool_bytes,
};
pub use client::{ClientOptions, OptionError, Value};
pub use defaults::expected_pool_limits;
pub use flags::XlaFlags;
pub use flags::split_flags;
pub use fraction::FractionPolicy;
pub use late_change::{LateChange, ProcessStage};
pub use names::{
    ALLOCATOR, CREATE_OPTIONS, FRACTION, NONEXISTENT_LIMIT, OLD_FRACTION, PREALLOCATE,
    UNIFIED_MEMORY, is_jax_related, turns_preallocation_off,
};
pub use options::{Assignment, GpuBudgets, Options, ResolvedSettings, Target};
pub use platforms::{GPU_REQUIRED, PLATFORM_NAME, PLATFORMS, allows_gpu, prefers_gpu};
pub use plugin::{Abort, PluginSettings};
pub use pool_size::{MAX_FRACTION, NAME_GPU_HINT, SPILLED_PART, USUAL_UNIFIED_FRACTION};
pub use resolve::allocator_since;
pub use resolve::resolve;
pub use table::{ReadAt, Reader, Setting, all, find, markdown};
pub use version::Version;
pub use visible::visible;
