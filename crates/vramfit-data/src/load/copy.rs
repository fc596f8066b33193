//! Copying rows from the blocks of a pool into a batch: where most of the time goes when nothing is compressed.
//!
//! Rows of a pool are far apart, so each costs a wait for memory. The waits of several rows pass at the
//! same time when they are looked at before the first of them is copied.

use std::hint::black_box;

/// Rows that are looked at together: as many as a processor can wait for at a time, at four lines a row.
const TOGETHER: usize = 8;

/// What memory is brought in at a time.
const LINE: usize = 64;

/// More of a row than this the processor brings in by itself, once it sees where it goes.
const LOOKED_AT: usize = 8 * LINE;

/// Where a row is: its block, and its number in the block.
pub(super) type Place = (usize, u64);

/// Copies rows of `length` bytes from blocks into `out`, one behind the other.
pub(super) fn copy_rows(blocks: &[&[u8]], places: &[Place], length: usize, out: &mut [u8]) {
    // With the length known to the compiler, small rows are one instruction and not a call each.
    match length {
        1 => small::<1>(blocks, places, out),
        2 => small::<2>(blocks, places, out),
        4 => small::<4>(blocks, places, out),
        8 => small::<8>(blocks, places, out),
        12 => small::<12>(blocks, places, out),
        16 => small::<16>(blocks, places, out),
        32 => small::<32>(blocks, places, out),
        64 => small::<64>(blocks, places, out),
        _ => large(blocks, places, length, out),
    }
}

fn small<const LENGTH: usize>(blocks: &[&[u8]], places: &[Place], out: &mut [u8]) {
    let (out, _) = out.as_chunks_mut::<LENGTH>();
    for ((block, row), out) in places.iter().zip(out) {
        // One load each, of which the processor has many under way by itself.
        let start = *row as usize * LENGTH;
        out.copy_from_slice(&blocks[*block][start..start + LENGTH]);
    }
}

fn large(blocks: &[&[u8]], places: &[Place], length: usize, out: &mut [u8]) {
    let groups = places.chunks(TOGETHER);
    for (places, out) in groups.zip(out.chunks_mut(TOGETHER * length)) {
        let row = |(block, row): &Place| &blocks[*block][*row as usize * length..][..length];
        let mut seen = 0;
        for place in places {
            let lines = row(place).iter().take(LOOKED_AT).step_by(LINE);
            seen = lines.fold(seen, |seen, byte| seen ^ byte);
        }
        black_box(seen);
        for (place, out) in places.iter().zip(out.chunks_exact_mut(length)) {
            out.copy_from_slice(row(place));
        }
    }
}

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
