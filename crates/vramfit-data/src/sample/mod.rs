//! What a sample is: which rows of each column it has. No file is read here.
//!
//! The rows of a column are numbered through all files and groups that they come from, in *segments*: one dataset of one
//! group of one file after the other. A sample is some of these rows, and none of another *series*: the rows that
//! belong together in time, which is one segment unless the options say otherwise.
//!
//! | file | answers |
//! | --- | --- |
//! | `options` | what is a sample, in the user's words? |
//! | `index` | how many samples are there, and which rows has each? |
//! | `series` | in which series is a sample, and where in it? |
//! | `row_ranges` | sets of rows: which come before a row, and which row comes after so many? |

mod index;
mod options;
mod row_ranges;
mod series;

pub use index::{ColumnSpan, SampleIndex, Span};
pub use options::{Padding, RaggedBounds, SampleOptions, Within};
pub use row_ranges::RowRanges;
pub use series::{Series, SeriesTable};
