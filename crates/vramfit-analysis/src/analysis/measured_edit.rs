//! What a dry run of a program with an edit came to.

use serde::Serialize;

/// An edit of a program, or several together, and what a dry run with it came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeasuredEdit {
    /// The kinds of the edits: `donate`, `shard_outputs`, `constrain_batch`, `cudnn_attention`.
    pub kinds: Vec<&'static str>,
    /// What to do.
    pub change: String,
    /// On which condition; empty without any.
    pub condition: String,
    /// The peak with it; `None` where the program did not run to its end.
    pub peak_bytes: Option<u64>,
    /// Whether the program fits with it.
    pub fits: Option<bool>,
    /// After how many training steps the run with it was ended; `None` where it went to its end.
    pub steps: Option<u64>,
    /// Why it could not be measured; empty where it was.
    pub failure: String,
}

/// What brings less than one in this many of the bytes that are needed is not worth an edit.
const MIN_SAVED_FRACTION: u64 = 100;

impl MeasuredEdit {
    /// Returns `true` if a program that needs so many bytes needs less with it.
    pub fn helps(&self, needed_bytes: u64) -> bool {
        let peak_bytes = self.peak_bytes.unwrap_or(u64::MAX);
        peak_bytes.saturating_add(needed_bytes / MIN_SAVED_FRACTION) < needed_bytes
    }
}
