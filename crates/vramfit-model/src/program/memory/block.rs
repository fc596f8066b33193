//! The temporary block: its live bytes at each time, and their owners at the peak.

use super::liveness::LiveRange;

/// A live range with its place in the block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PlacedRange {
    pub(super) live_range: LiveRange,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl PlacedRange {
    /// Returns its offset and size.
    pub(super) fn extent(&self) -> (u64, u64) {
        (self.offset, self.bytes)
    }

    fn is_live(&self, time: u32) -> bool {
        (self.live_range.start..=self.live_range.end).contains(&time)
    }
}

/// Returns the live bytes of the block at each of `times` times.
pub(super) fn live_bytes(placed: &[PlacedRange], times: usize) -> Vec<u64> {
    let mut begun = vec![0u64; times];
    let mut ended = vec![0u64; times];
    for one in placed {
        let add = |total: &mut u64| *total = total.saturating_add(one.bytes);
        begun.get_mut(one.live_range.start as usize).map(add);
        ended.get_mut(one.live_range.end as usize).map(add);
    }
    let mut live = 0u64;
    let levels = begun.iter().zip(&ended).map(|(begun, ended)| {
        let level = live.saturating_add(*begun);
        live = level.saturating_sub(*ended);
        level
    });
    levels.collect()
}

/// Returns the first time of the highest level; 0 when there is none.
pub(super) fn peak_time(live_bytes: &[u64]) -> u32 {
    let highest = live_bytes.iter().max();
    let at = live_bytes.iter().position(|level| Some(level) == highest);
    at.unwrap_or(0) as u32
}

/// Divides the bytes of the block at a time: for each of `placed`, how many it owns. Where two
/// overlap, which a valid assignment does not do, the one that started first owns them.
pub(super) fn divide(placed: &[PlacedRange], time: u32, block_bytes: u64) -> Vec<u64> {
    let mut live: Vec<usize> = (0..placed.len()).filter(|&at| placed[at].is_live(time)).collect();
    live.sort_by_key(|&at| (placed[at].offset, placed[at].live_range.start));
    let mut own = vec![0; placed.len()];
    let mut covered = 0;
    for at in live {
        let end = placed[at].offset.saturating_add(placed[at].bytes).min(block_bytes);
        let start = placed[at].offset.max(covered);
        own[at] = end.saturating_sub(start);
        covered = covered.max(end);
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(offset: u64, bytes: u64, start: u32, end: u32) -> PlacedRange {
        PlacedRange { live_range: LiveRange { values: Vec::new(), start, end }, offset, bytes }
    }

    #[test]
    fn levels_hold_what_begins_and_what_ends_at_their_moment() {
        let block = [placed(0, 10, 0, 1), placed(10, 5, 1, 2), placed(0, 20, 2, 2)];
        let levels = live_bytes(&block, 4);
        assert_eq!(levels, [10, 15, 25, 0]);
        assert_eq!(peak_time(&levels), 2);
    }

    #[test]
    fn no_byte_has_two_owners_and_none_lies_outside() {
        let block = [placed(0, 10, 0, 9), placed(4, 10, 1, 9), placed(20, 99, 0, 9)];
        assert_eq!(divide(&block, 5, 32), [10, 4, 12]);
        assert_eq!(divide(&block, 0, 32), [10, 0, 12]);
    }
}
