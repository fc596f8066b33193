//! From a file to batches, in bounded memory: reader threads ahead of a consumer.
//!
//! [`Loader::open`] reads the structure of the file, and decides how to read it and what to spend the
//! budget on ([`LoaderPlan`]); [`Loader::start`] starts or resumes an epoch; [`Loader::poll_batch`] hands out
//! batches in order. The memory of a batch is recycled when it is dropped, and not before: it does not change
//! while anyone looks at it.
//!
//! | file | answers |
//! | --- | --- |
//! | `options` | what is read? |
//! | `validate` | can it be read at all? |
//! | `column`, `columns`, `column_reader` | which datasets, of which types, and what becomes of their numbers? |
//! | `segments`, `segments_builder` | which files and groups do rows come from, and are they still the same? |
//! | `file_scan`, `file_index`, `index_file` | what do files have, and what is kept of that for the next run? |
//! | `open_files` | which files are open? |
//! | `file_contents` | do they have the content that a run started with? |
//! | `samples`, `bounds`, `derived` | which rows has a sample, and what is said of them? |
//! | `series` | which datasets have series on their first axis? |
//! | `selection` | which samples are read? |
//! | `plan` | which engine, how many threads, and what is the budget spent on? |
//! | `budget` | which budget is enough? |
//! | `storage` | how are the datasets stored, and what does reading them need? |
//! | `batching` | which positions of the epoch are in which batch? |
//! | `window`, `loaded_blocks` | which rows are in memory together? |
//! | `slab` | in which memory? |
//! | `copy`, `sample_copy` | how do rows get from there into a batch? |
//! | `packing` | what do packed values stand for? |
//! | `objects` | which text or bytes do elements refer to? |
//! | `normalization` | which mean and deviation do numbers lose? |
//! | `buffer_pool` | where is a batch, and when can its memory be used again? |
//! | `scheduler` | which task is next? |
//! | `shared_state` | what do the threads and the consumer share, and who is woken? |
//! | `reader_thread` | running tasks |
//! | `batch` | what the consumer gets |
//! | `loader` | all of it together |
//! | `random_access`, `cache` | rows by number, in an order that others choose |

mod batch;
mod batching;
mod bounds;
mod budget;
mod buffer_pool;
mod cache;
mod column;
mod column_reader;
mod columns;
mod copy;
mod derived;
mod file_contents;
mod file_index;
mod file_scan;
mod growing_files;
mod index_file;
mod loaded_blocks;
mod loader;
mod normalization;
mod objects;
mod open_files;
mod options;
mod packing;
mod plan;
mod random_access;
mod reader_thread;
mod sample_copy;
mod samples;
mod scheduler;
mod segments;
mod segments_builder;
mod selection;
mod series;
mod shared_state;
mod slab;
mod stats;
mod storage;
mod validate;
mod window;

pub use batch::{Batch, BatchBuffer};
pub use column::Column;
pub use derived::{DerivedColumn, DerivedKind};
pub use loader::{BatchPoll, Loader};
pub use normalization::Normalization;
pub use options::{ColumnOptions, LoaderOptions, SampleSelection, SplitOptions, SplitSet};
pub(crate) use packing::packing_attributes;
pub use plan::LoaderPlan;
pub use random_access::RandomAccessReader;
pub use stats::Stats;
pub use window::SequentialWindows;
