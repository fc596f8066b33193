//! What JAX and its plugin read from the environment, per release, and what they make of it.
//!
//! | file | what it is |
//! | --- | --- |
//! | `table.toml`, `table.rs` | every variable and flag, and the page made from them |
//! | `version.rs` | releases of JAX |
//! | `client.rs` | the options of a client, checked as XLA checks them |
//! | `fraction.rs` | the text form of the pool's fraction |
//! | `plugin.rs`, `flags.rs` | what the plugin reads past those options |
//! | `share.rs` | a part of a card, as the text that JAX reads |
//! | `room.rs` | what a pool can have of a card, once context, libraries and others are taken off |
//! | `platforms.rs` | which backends JAX may make, and the one recommendation about it |
//! | `visible.rs` | which cards a program will see |
//! | `policy/` | from what a user wants to the variables that the installed release reads |
//!
//! Nothing here reads or changes the environment of this process: values are handed in and out.

mod client;
mod flags;
mod fraction;
mod platforms;
mod plugin;
mod policy;
mod room;
mod share;
mod table;
mod version;
mod visible;

pub use client::{ClientOptions, OptionError, Value};
pub use flags::XlaFlags;
pub(crate) use flags::split as flag_words;
pub use fraction::FractionPolicy;
pub use platforms::{GPU_REQUIRED, PLATFORM_NAME, PLATFORMS, allows_gpu, prefers_gpu};
pub use plugin::{Abort, PluginSettings};
pub(crate) use policy::allocator_since;
pub use policy::{Assignment, Assignments, Policy, variables_for};
pub use room::{
    COLLECTIVES_BYTES, LIBRARIES_BYTES, Room, UNKNOWN_CONTEXT_BYTES, outside_bytes, pool_bytes,
    smallest_total_bytes,
};
pub(crate) use share::DEFAULT_FRACTION;
pub use share::Share;
pub use table::{ReadAt, Reader, Setting, all, lookup, markdown};
pub use version::Version;
pub use visible::visible;
