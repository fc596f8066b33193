//! The fields of XLA's protobuf messages that vramfit reads or writes.
//!
//! Numbers and types follow the descriptors embedded in the CUDA plugins of JAX 0.6.2 to 0.12.0.
//! Fields that are only passed on (shardings, a module with its configuration) are kept as raw
//! bytes; fields that nothing needs are left out and skipped by the decoder.

#![allow(missing_docs, reason = "the names are XLA's own")]

mod assignment;
mod executable;
mod fields;
mod module;
mod options;

pub use assignment::*;
pub use executable::*;
pub(crate) use fields::{Field, Fields};
pub use module::*;
pub use options::*;
