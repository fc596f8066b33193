//! Writes HDF5 files: what vramfit generates and repacks. It knows no more of the format than that takes.
//!
//! Datasets of numbers with row bands as chunks, gzip or zstd behind a byte shuffle, attributes, groups.
//! Several threads compress while one writes; a file appears under its name only when it is whole, and
//! an attempt that was killed is gone on with. The files can be read by every HDF5 since 1.8 of 2008
//! (zstd with its plugin), which the tests check with `h5py`.
//!
//! Reading is the business of the neighbours.

mod bands;
mod content;
mod front;
mod heap;
mod index;
mod journal;
mod message;
mod number;
mod pipeline;
mod writer;

pub use bands::{Job, Progress, Source, estimate, write};
pub use content::{Attribute, Compression, Content, Dataset, Storage, Value};
pub use number::Number;
pub use writer::Manner;
