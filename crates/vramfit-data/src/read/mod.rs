//! Reading rows: the elements of a dataset along its first axis, or its last one, decoded, converted, in the order
//! that is asked for.
//!
//! A [`Dataset`] says what is in the file; [`RowReader`] reads it. The unit of work is the *band*: all
//! chunks that share the same rows. Bands never share a row, so threads that decode different bands
//! write to different memory, also where a row is spread over many chunks. What a dataset has at one index of its first
//! axis is a dataset as well (`first_axis`), whose rows are on the second one.

mod chunk_rows;
mod convert;
mod dataset;
mod elements;
mod fields;
mod first_axis;
mod last_axis;
mod overflow;
mod row_options;
mod row_reader;
mod runs;
mod virtual_elements;
mod virtual_rows;
mod virtual_source;

pub(crate) use convert::{to_bf16, to_f16};
pub(crate) use fields::{find_numbers, suggest_numbers};

pub use dataset::{Dataset, MAX_CHUNK_BYTES, Storage};
pub(crate) use last_axis::buffer_bytes as last_axis_buffer_bytes;
pub use row_options::{RowOptions, ScratchPool};
pub use row_reader::RowReader;
pub use virtual_source::VirtualSource;
