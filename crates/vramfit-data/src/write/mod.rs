//! Writes HDF5 files: what vramfit generates, and what models predict. It knows no more of the format than that takes.
//!
//! Datasets with row bands as chunks, gzip, zstd or lz4 behind a byte shuffle, attributes, groups, links.
//! Several threads compress while one writes; a file appears under its name only when it is whole, and
//! an attempt that was killed can be resumed. The files can be read by every HDF5 since 1.8 of 2008
//! (zstd and lz4 with their plugin), which the tests check with `h5py`.
//!
//! Reading is the business of the neighbors.

mod atomic_file;
mod content;
mod groups;
mod heap;
mod index;
mod journal;
mod message;
mod metadata_block;
mod number;
mod options;
mod parallel;
mod pipeline;
mod queue;
mod row_writer;
mod sync_thread;
mod value;
mod writer;

pub use content::{Compression, Content, Dataset, Storage};
pub use number::Number;
pub use options::WriteOptions;
pub use parallel::{Progress, Source, WriteTask, estimate_file_size, write};
pub use row_writer::RowWriter;
pub use value::{Attribute, Value};
