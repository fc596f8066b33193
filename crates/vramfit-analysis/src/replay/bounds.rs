//! What a trace may hold at most; beyond it is damaged, or more than can be followed.

use crate::allocator::MAX_REGION_BYTES;
use crate::error::Error;
use crate::trace::Event;

/// More arrays than any program has at once; a limit for traces that allocate and never free. A million
/// of them take about 200 MB here.
pub(super) const MAX_LIVE_ALLOCATIONS: usize = 1 << 22;

/// Beyond the addresses and sizes of any GPU, and far enough below 64 bits for every sum.
pub(super) const MAX_ADDRESS: u64 = 1 << 60;

/// Refuses a trace of which nothing could be told in the memory of this machine.
pub(super) fn too_many_allocations(events: u64) -> Error {
    let at = events.saturating_sub(1);
    Error::invalid_file(format!(
            "at event {at} of the trace more than {MAX_LIVE_ALLOCATIONS} allocations are alive at once, \
             which is more than vramfit follows"
        ),
    )
    .hint("if the run is real, it leaks arrays: record fewer steps of it with `--steps`")
}

/// Returns `true` if the numbers of an event can be those of a GPU. The allocators rely on it.
pub(super) fn is_valid(event: &Event) -> bool {
    match *event {
        Event::Allocate { bytes, alignment, .. }
        | Event::AllocationFailure { bytes, alignment, .. } => {
            // Sizes are signed in XLA.
            bytes <= i64::MAX as u64 && alignment <= MAX_ADDRESS
        }
        Event::Driver { asked, address, granted, .. } => {
            granted == 0
                || (granted >= asked
                    && granted <= MAX_REGION_BYTES
                    && (1..=MAX_ADDRESS).contains(&address))
        }
        _ => true,
    }
}
