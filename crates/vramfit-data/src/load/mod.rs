//! From a file to batches, in bounded memory: reader threads ahead of a consumer.
//!
//! [`Loader::open`] reads the structure of the file, decides how it is gone through and divides the
//! budget ([`Plan`]); [`Loader::start`] begins an epoch, or goes on in one; [`Loader::wait`] hands out
//! batches in order. What a batch is made of comes back when it is dropped, and not before: whoever
//! looks into its memory, it does not change.
//!
//! | file | answers |
//! | --- | --- |
//! | `request` | what is wanted? |
//! | `checks` | can it be had at all? |
//! | `columns` | which datasets, of which types, and is the file still the same? |
//! | `plan` | which engine, how many threads, and what is the budget spent on? |
//! | `unit` | which positions of the epoch are in which batch? |
//! | `room` | which rows are in memory together? |
//! | `slab` | which memory are they in? |
//! | `copy` | how do rows get from there into a batch? |
//! | `buffer` | where is a batch, and when can its memory be used again? |
//! | `desk` | where do threads and consumer meet, and who is woken? |
//! | `course` | what is to be done next? |
//! | `reader` | doing it |
//! | `loader` | all of it together |
//! | `lookup`, `cache` | which numbers have these rows, when others choose them? |

mod buffer;
mod cache;
mod checks;
mod columns;
mod copy;
mod course;
mod desk;
mod loader;
mod lookup;
mod plan;
mod reader;
mod request;
mod room;
mod slab;
mod stats;
mod unit;

pub use buffer::Lease;
pub use columns::Column;
pub use loader::{Filled, Loader, Turn};
pub use lookup::Lookup;
pub use plan::Plan;
pub use request::{ColumnRequest, PartRequest, Request, Set};
pub use stats::Stats;
