//! The functions of a program that can be rematerialized, as `vramfit._plan` records them.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// How the program uses a function that can be rematerialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SiteKind {
    /// It is given to `jax.grad` or one of its relatives.
    Grad,
    /// It is the body of a `jax.lax.scan`.
    Scan,
    /// The program rematerializes it already, with `jax.checkpoint`.
    Checkpoint,
}

/// A function that can be rematerialized.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Site {
    /// How the program uses it.
    pub kind: SiteKind,
    /// Where it is defined: `file.py:line (function)`.
    pub definition: String,
    /// Whether a function that is differentiated calls it.
    pub differentiated: bool,
    /// Digest of its jaxpr with shapes and types.
    pub fingerprint: String,
    /// Digest of its jaxpr without shapes and types.
    pub structure: String,
    /// Bytes of its arguments; they are the values with the first numbers.
    pub input_bytes: Vec<u64>,
    /// The values that it returns; negative for constants.
    pub outputs: Vec<i64>,
    /// What it computes, in order.
    pub equations: Vec<Equation>,
}

/// One equation of a jaxpr.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Equation {
    /// Name of the primitive.
    pub name: String,
    /// Numbers of the values that it uses.
    pub inputs: Vec<usize>,
    /// Numbers of the values that it makes.
    pub outputs: Vec<usize>,
    /// Bytes of each value that it makes.
    pub bytes: Vec<u64>,
    /// Type and shape of each value that it makes.
    pub shape: Vec<String>,
    /// Floating-point operations.
    pub flops: u64,
    /// Whether it is a matrix product for each of several batches.
    pub batched: bool,
    /// The user's line: `file.py:line (function)`; empty if not known.
    pub line: String,
    /// Whether it cannot be part of a segment.
    pub barrier: bool,
}

impl Site {
    /// Returns how many bytes its equations make.
    pub fn made_bytes(&self) -> u64 {
        self.equations.iter().map(Equation::total_bytes).sum()
    }

    /// Returns how many bytes the equations of a segment make.
    pub(super) fn segment_bytes(&self, &(start, stop): &(usize, usize)) -> u64 {
        let equations = &self.equations[start..stop];
        equations.iter().map(Equation::total_bytes).sum()
    }

    /// Returns the floating-point operations of one call.
    pub fn flops(&self) -> u64 {
        self.equations.iter().map(|equation| equation.flops).sum()
    }
}

impl Equation {
    /// Returns the bytes of all values that it makes.
    pub fn total_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

/// Reads recorded sites: one JSON object per line.
///
/// # Errors
/// [`ErrorKind::InvalidFile`] for a line that is not a site.
pub fn read_sites(text: &str) -> Result<Vec<Site>> {
    text.lines()
        .enumerate()
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|error| {
                let message = format!("line {} of the recorded sites is not a site", index + 1);
                Error::new(ErrorKind::InvalidFile, message).cause(error)
            })
        })
        .collect()
}
