//! Whose the bytes would be of a program that was compiled and not executed: at its own peak, as XLA has planned it.

use super::attribution::Attribution;
use super::attribution_entry::{AttributionEntry, EntryKind, EntrySet};
use super::scratch::RecordedScratch;
use crate::program::memory::Owner;
use crate::program::{ProgramMemory, ScratchPhase};
use crate::trace::TextId;

/// Divides what a program needs among its buffers and the routine of a library that takes most beside them.
///
/// `program` is its index in [`super::RunSummary::programs`]; the parts add up to `needed_bytes`.
pub(super) fn attribute_planned<'a>(
    program: usize,
    memory: &ProgramMemory,
    scratch: &[RecordedScratch],
    needed_bytes: u64,
    text: impl Fn(TextId) -> &'a str,
) -> Attribution {
    let mut parts = EntrySet::default();
    let mut left = needed_bytes;
    let mut add = |part: AttributionEntry, bytes: u64| {
        let own = bytes.min(left);
        left -= own;
        parts.add(part, own);
    };
    let executed = scratch.iter().filter(|need| need.phase == ScratchPhase::Execution);
    if let Some(need) = executed.max_by_key(|need| need.low_bytes) {
        add(AttributionEntry::of_scratch(need, &text), need.low_bytes);
    }
    // Constants are part of the program, not of the pool that its plan is compared with.
    for buffer in memory.buffers.iter().filter(|buffer| buffer.owner != Owner::Constants) {
        add(AttributionEntry::of_buffer(memory, buffer), buffer.peak_bytes);
    }
    parts.add(AttributionEntry::of_kind(EntryKind::Program(Owner::Padding)), left);
    Attribution {
        program: Some(program),
        is_planned: true,
        total_bytes: needed_bytes,
        parts: parts.sorted(),
        ..Attribution::default()
    }
}
