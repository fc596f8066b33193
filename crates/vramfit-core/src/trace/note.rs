//! Notes in a trace: what was learnt about a run beside its events. `docs/trace-format.md` has them.

use serde::{Deserialize, Serialize};

use super::wire::tag;
use super::{ProgramExit, UncaughtError};

/// Something that was learnt about a run. A trace without notes is as good; a note of a kind that
/// is not known is passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Note {
    /// An exception of the program that nothing caught.
    Error(UncaughtError),
    /// How the program's process ended.
    Exit(ProgramExit),
}

impl Note {
    /// Returns the tag of its record: notes about the step and about the process have one each.
    pub(super) fn tag(&self) -> u8 {
        match self {
            Note::Error(_) | Note::Exit(_) => tag::PROCESS_NOTE,
        }
    }
}

/// Longest note in bytes.
pub(super) const MAX_NOTE_BYTES: usize = 64 << 10;
/// How many notes are kept of a trace; a writer makes a few of each kind.
pub(super) const MAX_NOTES: usize = 1 << 16;

/// Returns what the record of a note holds.
pub(super) fn body(note: &Note) -> Vec<u8> {
    serde_json::to_vec(note).unwrap_or_default()
}

/// Reads a note; `None` where it is of a kind that is not known.
pub(super) fn parse(body: &[u8]) -> Option<Note> {
    serde_json::from_slice(body).ok()
}
