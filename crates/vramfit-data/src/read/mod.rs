//! Reading rows: the elements of a dataset along its first axis, decoded, converted, in the order
//! that is asked for.
//!
//! A [`Dataset`] says what is in the file; [`Rows`] reads it. The unit of work is the *band*: all
//! chunks that share the same rows. Bands never share a row, so threads that decode different bands
//! write to different memory, also where a row is spread over many chunks.

mod band;
mod convert;
mod dataset;
mod fields;
mod overflow;
mod pieces;
mod rows;
mod runs;

pub use dataset::{Dataset, MAX_CHUNK_BYTES, Storage};
pub use pieces::Piece;
pub use rows::{RowOptions, Rows};
