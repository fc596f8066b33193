//! CUB's radix sort: on a GPU XLA rewrites a large sort of one or two arrays into a call of CUB, which
//! does not work in place and has its temporary storage in the plan. Without a device the size of that
//! is not known (cccl#9814), and the sort stays XLA's own, which needs nothing beside its result.
//!
//! CUB's reference: sorting without a double buffer takes another copy of keys and values, and
//! space for the counts of digits. The copies are part of the plan, too. The order that JAX defines
//! for floating-point numbers makes a pair of each: the bits to compare, and the number. On an H200
//! (`fixtures/gpu/`) 16,777,216 numbers in double precision took 473,507,328 bytes more than planned
//! here, in single precision 203,968,000.

use super::routine::Routine;
use super::{Estimate, EstimateSource, ScratchPhase};

/// Below this XLA keeps its own sort (`sort_rewriter.cc`).
const MIN_ELEMENTS: u64 = 16_384;
/// Keys, values, and the positions that XLA's own sort adds to keep equal keys in order.
const MAX_OPERANDS: usize = 3;
/// Counts of digits and the look-back of tiles: 256 counters of 4 bytes for each tile of at least
/// 2048 keys, four passes, and a base.
const COUNTS: u128 = 4 << 20;

pub(super) fn estimate(routine: &Routine<'_>) -> Option<Estimate> {
    if routine.opcode() != "sort" || routine.operands.len() > MAX_OPERANDS {
        return None;
    }
    let keys = routine.operands.first()?;
    if keys.elements() <= MIN_ELEMENTS {
        return None;
    }
    let pairs = 2 * u128::from(keys.bytes());
    let arrays = routine.operand_bytes().max(pairs);
    let tiles = u128::from(keys.elements()) / 2048;
    Some(Estimate {
        library: "CUB",
        routine: routine.named("sort"),
        low: 0,
        high: 2 * arrays + tiles * 1024 + COUNTS,
        source: EstimateSource::Documented,
        phase: ScratchPhase::Plan,
    })
}
