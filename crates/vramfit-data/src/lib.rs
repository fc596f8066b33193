//! Streams HDF5: files larger than memory, at the speed of the disk, in an order that can be resumed.
//!
//! No libhdf5 and none of its lock: the file's own structure is read once, and then its bytes.
//!
//! - [`order`] says which row comes when, as a pure function of a seed and a position.
//! - [`mod@write`] makes files.
//! - [`generate`] makes data sets to try things with.

pub mod generate;
mod mix;
pub mod order;
pub mod write;
