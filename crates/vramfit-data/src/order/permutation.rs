//! A permutation of `0..len` that is not written down: any place of it is computed from the key.
//!
//! A Feistel network over a grid of about `√len` by `√len`, so that it takes no power of two, with cycle
//! walking: what falls outside of `0..len` is sent through again until it comes back inside. The grid
//! has less than one row more than needed, so walks are rare. A network over a few cells cannot make
//! every permutation (two by two cells: 8 of 24), so short ones are shuffled in a table.
//!
//! Nothing in this file may change the result: people continue runs with it after an update.

use crate::splitmix::{MixKey, below};

/// The most elements a permutation can have, so that the grid's area fits 64 bits.
pub(super) const MAX_ELEMENTS: u64 = 1 << 63;

/// Up to here a table is as quick as the network.
const TABLE_ELEMENTS: u64 = 256;

/// Up to here what the rounds add is looked up, which takes less than half the time of computing it: the grid has at
/// most [`SIDE`] rows and columns, and all tables take 64 KiB, which fit into a processor's second cache.
const LOOKED_UP_ELEMENTS: u64 = (SIDE as u64 - 1) * (SIDE as u64 - 1);

/// Entries of a table: a power of two, so that a mask keeps every look inside of it.
const SIDE: usize = 1 << 12;

/// Bits behind the point of one divided by the width, enough for every cell of such a grid.
const POINT: u32 = 40;

/// Twice the rounds from which on the statistics of `tests/order_quality.rs` look random (2 do not, 4 do).
const ROUNDS: usize = 8;

/// A bijection of `0..len`, chosen by a key.
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    /// How many elements are permuted.
    pub(super) len: u64,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Table(Vec<u8>),
    Network {
        width: u64,
        height: u64,
        rounds: [MixKey; ROUNDS],
    },
    /// The same network, with what each round adds written down for every row or column.
    LookedUp {
        width: u32,
        height: u32,
        /// One divided by the width, rounded up, times 2^[`POINT`].
        inverse: u64,
        rounds: Box<[[u16; SIDE]; ROUNDS]>,
    },
}

impl Permutation {
    /// Returns the permutation of `0..len` that the key chooses; `len` is at most 2^63.
    pub(super) fn new(key: MixKey, len: u64) -> Self {
        debug_assert!(len <= MAX_ELEMENTS, "more rows than a file can have");
        let form = if len <= TABLE_ELEMENTS {
            Form::Table(shuffled(key, len))
        } else if len <= LOOKED_UP_ELEMENTS {
            looked_up(key, len)
        } else {
            network(key, len)
        };
        Permutation { len, form }
    }

    /// Returns what stands at `place`, which is below `len`.
    #[inline]
    pub(super) fn get(&self, place: u64) -> u64 {
        let [element] = self.get_each([place]);
        element
    }

    /// Returns what stands at several places. Each round of the network waits for the one before it, so several
    /// places at a time take hardly longer than one.
    #[inline]
    pub(super) fn get_each<const N: usize>(&self, places: [u64; N]) -> [u64; N] {
        debug_assert!(places.iter().all(|place| *place < self.len));
        match &self.form {
            Form::Table(table) => places.map(|place| u64::from(table[place as usize])),
            Form::Network { width, height, rounds } => {
                let mut cells = through(places, *width, *height, rounds);
                for cell in &mut cells {
                    while *cell >= self.len {
                        [*cell] = through([*cell], *width, *height, rounds);
                    }
                }
                cells
            }
            Form::LookedUp { width, height, inverse, rounds } => {
                let mut cells = look_through(places, *width, *height, *inverse, rounds);
                for cell in &mut cells {
                    while *cell >= self.len {
                        [*cell] = look_through([*cell], *width, *height, *inverse, rounds);
                    }
                }
                cells
            }
        }
    }
}

/// Returns width and height of the grid, and the key of each round.
fn grid(key: MixKey, len: u64) -> (u64, u64, [MixKey; ROUNDS]) {
    let width = len.isqrt();
    let rounds = std::array::from_fn(|round| MixKey::new(&[key.at(round as u64)]));
    (width, len.div_ceil(width), rounds)
}

fn network(key: MixKey, len: u64) -> Form {
    let (width, height, rounds) = grid(key, len);
    Form::Network { width, height, rounds }
}

/// Writes down what the rounds of a network of at most [`LOOKED_UP_ELEMENTS`] add.
fn looked_up(key: MixKey, len: u64) -> Form {
    let (width, height, rounds) = grid(key, len);
    let mut tables = Box::new([[0; SIDE]; ROUNDS]);
    for (round, (table, key)) in tables.iter_mut().zip(rounds).enumerate() {
        // Every other round moves rows, by what depends on the column.
        let (count, size) = match round % 2 {
            0 => (width, height),
            _ => (height, width),
        };
        for (at, added) in table.iter_mut().enumerate().take(count as usize) {
            *added = below(key.at(at as u64), size) as u16;
        }
    }
    Form::LookedUp {
        width: width as u32,
        height: height as u32,
        inverse: (1 << POINT) / width + 1,
        rounds: tables,
    }
}

/// Shuffles `0..len`, which is at most 256, by Fisher and Yates.
fn shuffled(key: MixKey, len: u64) -> Vec<u8> {
    let mut table: Vec<u8> = (0..len).map(|element| element as u8).collect();
    for last in (1..len).rev() {
        table.swap(last as usize, below(key.at(last), last + 1) as usize);
    }
    table
}

/// Sends cells of the grid through all rounds: rows move by a number that depends on the column, then
/// columns by one that depends on the row.
#[inline]
fn through<const N: usize>(
    cells: [u64; N],
    width: u64,
    height: u64,
    rounds: &[MixKey; ROUNDS],
) -> [u64; N] {
    let mut rows = cells.map(|cell| cell / width);
    let mut columns = cells.map(|cell| cell % width);
    for pair in rounds.chunks_exact(2) {
        for (row, column) in rows.iter_mut().zip(&columns) {
            *row = wrapped(*row + below(pair[0].at(*column), height), height);
        }
        for (row, column) in rows.iter().zip(&mut columns) {
            *column = wrapped(*column + below(pair[1].at(*row), width), width);
        }
    }
    std::array::from_fn(|at| rows[at] * width + columns[at])
}

/// The same with what each round adds from its table.
#[inline]
fn look_through<const N: usize>(
    cells: [u64; N],
    width: u32,
    height: u32,
    inverse: u64,
    rounds: &[[u16; SIDE]; ROUNDS],
) -> [u64; N] {
    // Cells of the grid are below 2^25, and the inverse is too large by less than 2^-40: a multiplication gives
    // the same as dividing by a width of at most 2^12.
    let mut rows = cells.map(|cell| ((cell * inverse) >> POINT) as u32);
    let mut columns = [0; N];
    for ((column, row), cell) in columns.iter_mut().zip(&rows).zip(&cells) {
        *column = *cell as u32 - row * width;
    }
    let wrapped = |sum: u32, size: u32| sum.min(sum.wrapping_sub(size));
    let look = |table: &[u16; SIDE], at: u32| u32::from(table[at as usize % SIDE]);
    for [rows_by, columns_by] in rounds.as_chunks().0 {
        for (row, column) in rows.iter_mut().zip(&columns) {
            *row = wrapped(*row + look(rows_by, *column), height);
        }
        for (row, column) in rows.iter().zip(&mut columns) {
            *column = wrapped(*column + look(columns_by, *row), width);
        }
    }
    std::array::from_fn(|at| u64::from(rows[at] * width + columns[at]))
}

/// Returns `sum % size` for a sum below `2 * size`, without a division.
#[inline]
fn wrapped(sum: u64, size: u64) -> u64 {
    if sum >= size { sum - size } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_permuted() {
        for len in (0..700).chain([65_535, 65_536, 65_537]) {
            let permutation = Permutation::new(MixKey::new(&[len]), len);
            let mut seen = vec![false; len as usize];
            for place in 0..len {
                let element = permutation.get(place);
                assert!(!std::mem::replace(&mut seen[element as usize], true));
            }
        }
    }

    #[test]
    fn looking_rounds_up_changes_nothing() {
        for len in [257, 258, 1000, 65_536, 65_537, LOOKED_UP_ELEMENTS - 1, LOOKED_UP_ELEMENTS] {
            let plain = Permutation { len, form: network(MixKey::new(&[len]), len) };
            let quick = Permutation::new(MixKey::new(&[len]), len);
            assert!(matches!(quick.form, Form::LookedUp { .. }));
            for place in (0..len).step_by((len / 5000).max(1) as usize) {
                assert_eq!(quick.get(place), plain.get(place), "{place} of {len}");
            }
        }
    }

    #[test]
    fn the_largest_lengths_stay_inside() {
        for len in [MAX_ELEMENTS, MAX_ELEMENTS - 1, (1 << 62) + 12_345] {
            let permutation = Permutation::new(MixKey::new(&[1]), len);
            let places = [0, 1, len / 2, len - 2, len - 1];
            let mut elements = places.map(|place| permutation.get(place));
            elements.sort_unstable();
            assert!(elements.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(elements[4] < len);
        }
    }
}
