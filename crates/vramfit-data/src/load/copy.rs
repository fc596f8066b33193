//! Copying rows from the blocks of a pool into a batch: where most of the time goes when nothing is compressed.
//!
//! Rows of a pool are far apart, so each costs a wait for memory. The waits pass while other rows are
//! copied when the processor is told a few rows ahead what it will need.

/// What memory is brought in at a time.
pub(super) const LINE: usize = 64;

/// More of a row than this the processor brings in by itself, once it sees where it goes.
const TOLD: usize = 8 * LINE;

/// How far ahead the processor is told, in bytes of which it is told. Measured with rows of 64 to 1024 bytes from 20 MiB: a
/// quarter of it takes twice as long; with three times as much, what was brought in is gone before it is copied.
const PREFETCH_BYTES: usize = 160 * LINE;

/// And in rows.
const MAX_PREFETCH_ROWS: usize = 96;

/// Where a row is: its block, and its number in the block.
pub(super) type Place = (usize, u64);

/// Copies rows of `length` bytes from blocks into `out`, one behind the other.
pub(super) fn copy_rows(blocks: &[&[u8]], places: &[Place], length: usize, out: &mut [u8]) {
    // With the length known to the compiler, small rows are one instruction and not a call each.
    match length {
        1 => of_length(blocks, places, 1, out),
        2 => of_length(blocks, places, 2, out),
        4 => of_length(blocks, places, 4, out),
        8 => of_length(blocks, places, 8, out),
        12 => of_length(blocks, places, 12, out),
        16 => of_length(blocks, places, 16, out),
        32 => of_length(blocks, places, 32, out),
        64 => of_length(blocks, places, 64, out),
        _ => of_length(blocks, places, length, out),
    }
}

#[inline(always)]
fn of_length(blocks: &[&[u8]], places: &[Place], length: usize, out: &mut [u8]) {
    let row = |(block, row): &Place| &blocks[*block][*row as usize * length..][..length];
    let mut coming = told_ahead(places, length, row);
    for (place, out) in places.iter().zip(out.chunks_exact_mut(length)) {
        coming.next();
        out.copy_from_slice(row(place));
    }
}

/// Tells the processor of the first rows, and then of another one with each step.
#[inline]
fn told_ahead<'p, 'b: 'p>(
    places: &'p [Place],
    length: usize,
    row: impl Fn(&Place) -> &'b [u8] + 'p,
) -> impl Iterator<Item = ()> + 'p {
    let ahead = (PREFETCH_BYTES / length.clamp(1, TOLD)).min(MAX_PREFETCH_ROWS);
    let (first, rest) = places.split_at(ahead.min(places.len()));
    first.iter().for_each(|place| bring_in(row(place)));
    rest.iter().map(move |place| bring_in(row(place)))
}

/// Tells the processor that the beginning of a row will be read. Nothing depends on it but time.
#[inline]
#[cfg(target_arch = "x86_64")]
fn bring_in(row: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for line in row.chunks(LINE).take(TOLD / LINE) {
        #[allow(unsafe_code, reason = "the instruction takes an address")]
        // SAFETY: it changes nothing that a program can see, whatever the address; this one is of the row.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
    }
}

/// Other processors are not told.
#[inline]
#[cfg(not(target_arch = "x86_64"))]
fn bring_in(_: &[u8]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_every_length_come_from_their_places() {
        for length in 1..600 {
            let blocks: Vec<Vec<u8>> = [7, 3]
                .iter()
                .map(|rows| (0..rows * length).map(|at| (at % 251) as u8).collect())
                .collect();
            let blocks: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
            let places: Vec<Place> = (0..29)
                .map(|at| (at % 2, (at * 5 % [7, 3][at % 2]) as u64))
                .collect();
            let mut out = vec![0; places.len() * length];
            copy_rows(&blocks, &places, length, &mut out);
            for ((block, row), out) in places.iter().zip(out.chunks(length)) {
                assert_eq!(out, &blocks[*block][*row as usize * length..][..length]);
            }
        }
    }
}
