//! The functions of a program that can be rematerialized, as `vramfit._plan` records them.

use serde::{Deserialize, Serialize};

use super::chunk::MappedFunction;
use crate::error::{Error, ErrorKind, Result};

/// How the program uses a function that can be rematerialized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SiteKind {
    /// It is given to `jax.grad` or one of its relatives.
    Grad,
    /// A function that is differentiated gives it to `jax.shard_map`.
    ShardMap,
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
    /// The function that was traced, defined there: this one, or the one whose jaxpr contains it.
    pub inside: String,
    /// In how many functions it is that are differentiated: the jaxpr of those depends on what is planned for it.
    pub depth: u32,
    /// Which of the functions that are differentiated that was, from 1; each counts once, whatever its shapes.
    pub call: u64,
    /// How often the loop runs whose body it is; `None` where it may not be unrolled, or there is none.
    #[serde(default)]
    pub iterations: Option<u64>,
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
    /// Whether the policy keeps what it makes by which the program rematerializes the function itself.
    #[serde(default)]
    pub kept: bool,
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

/// Why a function is not traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftAloneReason {
    /// It reads a value, which it can only outside of `jit`.
    ValueRead,
    /// Something keeps a value of the trace, whose later use ends the program.
    ValueKept,
}

/// A function that is differentiated and cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftAlone {
    /// Where it is defined: `file.py:line (function)`.
    #[serde(rename = "left_alone")]
    pub definition: String,
    /// Why.
    pub reason: LeftAloneReason,
    /// The line that reads or makes the value, empty if not known.
    pub line: String,
}

impl LeftAlone {
    /// Returns a sentence about it.
    pub fn describe(&self) -> String {
        let function = short_name(&self.definition);
        let line = match self.line.is_empty() {
            true => String::new(),
            false => format!(" ({})", short_name(&self.line)),
        };
        match self.reason {
            LeftAloneReason::ValueRead => format!(
                "{function} is left alone: it reads a value{line}, so that it is not known in advance what it computes"
            ),
            LeftAloneReason::ValueKept => format!(
                "{function} is left alone: a value that it computes is kept and used outside of it{line}"
            ),
        }
    }
}

/// What is recorded of the functions of a program that are differentiated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedSites {
    /// What can be rematerialized.
    pub sites: Vec<Site>,
    /// What cannot.
    pub left_alone: Vec<LeftAlone>,
    /// What is mapped, by `jax.vmap` or for a Jacobian.
    pub mapped: Vec<MappedFunction>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RecordedLine {
    LeftAlone(LeftAlone),
    Mapped(MappedFunction),
    Site(Site),
}

impl RecordedSites {
    /// Reads a record: one JSON object per line. A function that reads a value in one call is left alone in all.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidFile`] for a line that is neither.
    pub fn parse(text: &str) -> Result<Self> {
        let mut recorded = RecordedSites::default();
        for (index, line) in text.lines().enumerate() {
            match serde_json::from_str(line) {
                Ok(RecordedLine::Site(site)) => recorded.sites.push(site),
                Ok(RecordedLine::Mapped(function)) => recorded.mapped.push(function),
                Ok(RecordedLine::LeftAlone(one)) => recorded.left_alone.push(one),
                Err(error) => {
                    let message = format!("line {} of the recorded sites is not a site", index + 1);
                    return Err(Error::new(ErrorKind::InvalidFile, message).cause(error));
                }
            }
        }
        let RecordedSites { sites, left_alone, .. } = &mut recorded;
        sites.retain(|site| {
            let reads = |one: &LeftAlone| {
                one.reason == LeftAloneReason::ValueRead && one.definition == site.inside
            };
            !left_alone.iter().any(reads)
        });
        Ok(recorded)
    }
}

/// Returns a place without the folder of its file.
pub(super) fn short_name(place: &str) -> &str {
    let file_end = place.find(':').unwrap_or(place.len());
    place[..file_end].rfind('/').map_or(place, |slash| &place[slash + 1..])
}
