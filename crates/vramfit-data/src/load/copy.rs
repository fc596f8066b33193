//! Copying rows from the blocks of a window into a batch: where most of the time goes when nothing is compressed.
//!
//! Rows of a window are far apart, so each costs a wait for memory. The waits pass while other rows are
//! copied when the processor is told a few rows ahead what it will need.

/// Bytes of a cache line.
pub(super) const CACHE_LINE: usize = 64;

/// Bytes of a row to prefetch; the hardware prefetcher brings in the rest once it recognizes the pattern.
const PREFETCH_ROW_BYTES: usize = 8 * CACHE_LINE;

/// Prefetch distance in bytes that are prefetched. Measured with rows of 64 to 1024 bytes from 20 MiB: a
/// quarter of it takes twice as long; with three times as much, lines are evicted before they are copied.
const PREFETCH_BYTES: usize = 160 * CACHE_LINE;

/// Prefetch distance in rows.
const MAX_PREFETCH_ROWS: usize = 96;

/// Where a row is: its block, and its number in the block.
pub(super) type RowLocation = (usize, u64);

/// Copies rows of `length` bytes from blocks into `out`, one after the other.
pub(super) fn copy_rows(
    blocks: &[&[u8]],
    locations: &[RowLocation],
    length: usize,
    out: &mut [u8],
) {
    // With the length known to the compiler, small rows are one instruction and not a call each.
    match length {
        1 => copy_fixed(blocks, locations, 1, out),
        2 => copy_fixed(blocks, locations, 2, out),
        4 => copy_fixed(blocks, locations, 4, out),
        8 => copy_fixed(blocks, locations, 8, out),
        12 => copy_fixed(blocks, locations, 12, out),
        16 => copy_fixed(blocks, locations, 16, out),
        32 => copy_fixed(blocks, locations, 32, out),
        64 => copy_fixed(blocks, locations, 64, out),
        _ => copy_fixed(blocks, locations, length, out),
    }
}

#[inline(always)]
fn copy_fixed(blocks: &[&[u8]], locations: &[RowLocation], length: usize, out: &mut [u8]) {
    let row = |(block, row): &RowLocation| &blocks[*block][*row as usize * length..][..length];
    let mut coming = prefetch_ahead(locations, length, row);
    for (location, out) in locations.iter().zip(out.chunks_exact_mut(length)) {
        coming.next();
        out.copy_from_slice(row(location));
    }
}

/// Prefetches the first rows, and then another one with each step.
#[inline]
fn prefetch_ahead<'p, 'b: 'p>(
    locations: &'p [RowLocation],
    length: usize,
    row: impl Fn(&RowLocation) -> &'b [u8] + 'p,
) -> impl Iterator<Item = ()> + 'p {
    let distance = (PREFETCH_BYTES / length.clamp(1, PREFETCH_ROW_BYTES)).min(MAX_PREFETCH_ROWS);
    let (first, rest) = locations.split_at(distance.min(locations.len()));
    first.iter().for_each(|location| prefetch(row(location)));
    rest.iter().map(move |location| prefetch(row(location)))
}

/// Prefetches the beginning of a row.
#[inline]
#[cfg(target_arch = "x86_64")]
fn prefetch(row: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for line in row.chunks(CACHE_LINE).take(PREFETCH_ROW_BYTES / CACHE_LINE) {
        #[allow(unsafe_code, reason = "the instruction takes an address")]
        // SAFETY: it changes nothing that a program can see, whatever the address; this one is of the row.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
    }
}

/// Other processors have their own prefetchers.
#[inline]
#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_: &[u8]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_every_length_come_from_their_locations() {
        for length in 1..600 {
            let blocks: Vec<Vec<u8>> = [7, 3]
                .iter()
                .map(|rows| (0..rows * length).map(|at| (at % 251) as u8).collect())
                .collect();
            let blocks: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
            let locations: Vec<RowLocation> =
                (0..29).map(|at| (at % 2, (at * 5 % [7, 3][at % 2]) as u64)).collect();
            let mut out = vec![0; locations.len() * length];
            copy_rows(&blocks, &locations, length, &mut out);
            for ((block, row), out) in locations.iter().zip(out.chunks(length)) {
                assert_eq!(out, &blocks[*block][*row as usize * length..][..length]);
            }
        }
    }
}
