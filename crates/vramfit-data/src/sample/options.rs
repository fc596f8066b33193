//! What a sample is, in the user's words.

use serde::{Deserialize, Serialize};
use vramfit_base::{Error, Result};

/// What a sample is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SampleOptions {
    /// A row of every column, without an axis of its own.
    #[default]
    Rows,
    /// Consecutive rows of a series.
    Windows {
        /// Rows of a window, unless the column has a length of its own.
        length: u64,
        /// Rows from the start of one window to the start of the next.
        stride: u64,
        /// What a window has where its series has no rows.
        padding: Padding,
        /// What windows do not cross.
        within: Within,
        /// The axis that rows are on: 0, or 1 where each place of axis 0 is a series.
        #[serde(default, skip_serializing_if = "is_zero")]
        axis: u32,
        /// The bounds of series in each group, which windows do not cross either.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bounds: Option<RaggedBounds>,
    },
    /// All rows of a group: an episode, a trajectory.
    Groups {
        /// Rows of a sample; the longest group if not set.
        length: Option<u64>,
        /// What follows the rows of a shorter group.
        padding: Padding,
        /// Whether rows beyond `length` are left out; otherwise a longer group is an error.
        truncate: bool,
    },
    /// Rows between two offsets: documents of a token stream, rows of a sparse matrix, atoms of a molecule.
    Ragged {
        /// The dataset of the offsets.
        bounds: RaggedBounds,
        /// Rows of a sample; the longest one if not set.
        length: Option<u64>,
        /// Whether rows beyond `length` are left out; otherwise a longer sample is an error.
        truncate: bool,
        /// Whether the rows of all samples follow each other in windows of `length` rows without gaps; two columns
        /// then say which rows belong together, and where each is in its part.
        pack: bool,
    },
}

/// Whether windows are on the first axis: the states of runs do not say so.
fn is_zero(axis: &u32) -> bool {
    *axis == 0
}

impl SampleOptions {
    /// Whether each place of axis 0 of a dataset is a series, with rows on axis 1.
    pub fn has_series_in_rows(&self) -> bool {
        matches!(self, SampleOptions::Windows { axis: 1, .. })
    }

    /// Returns the bounds of what a dataset has one after the other, if it has such parts.
    pub fn bounds(&self) -> Option<&RaggedBounds> {
        match self {
            SampleOptions::Windows { bounds, .. } => bounds.as_ref(),
            SampleOptions::Ragged { bounds, .. } => Some(bounds),
            SampleOptions::Rows | SampleOptions::Groups { .. } => None,
        }
    }

    /// Reads the JSON of one.
    ///
    /// # Errors
    /// `invalid-argument` when it is not valid.
    pub fn parse_json(json: &str) -> Result<SampleOptions> {
        serde_json::from_str(json).map_err(|error| {
            Error::invalid_argument("the description of a sample is not valid").cause(error)
        })
    }
}

/// Where the bounds of ragged samples are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RaggedBounds {
    /// A dataset of one number more than there are samples: where each begins, and where the last one ends.
    Offsets(String),
    /// A dataset of where each ends, which is where the next one begins.
    Ends(String),
    /// A dataset of the number of rows of each.
    Lengths(String),
}

impl RaggedBounds {
    /// Returns what one of its numbers is called.
    pub fn noun(&self) -> &'static str {
        match self {
            RaggedBounds::Offsets(_) => "offset",
            RaggedBounds::Ends(_) => "end",
            RaggedBounds::Lengths(_) => "length",
        }
    }

    /// Returns the path of the dataset.
    pub fn dataset(&self) -> &str {
        match self {
            RaggedBounds::Offsets(path)
            | RaggedBounds::Ends(path)
            | RaggedBounds::Lengths(path) => path,
        }
    }
}

/// What a sample has where there are no rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Padding {
    /// There is no such sample.
    #[default]
    None,
    /// Zeros.
    Zeros,
    /// The nearest row.
    Repeat,
}

/// What windows do not cross.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Within {
    /// A dataset: what a wildcard stands for, or a whole file without one.
    #[default]
    Group,
    /// A file.
    File,
    /// Nothing: the rows of all files are one series.
    All,
}
