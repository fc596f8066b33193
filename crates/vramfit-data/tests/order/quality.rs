//! How well rows are mixed: statistics, with the figures that `docs/concepts/row-order.md` shows.
//!
//! All seeds are fixed, so nothing here passes or fails by chance.

use vramfit_data::order::{Engine, Order, RowSubset, WindowSize};

fn epoch(rows: u64, seed: u64, engine: Engine, epoch: u64) -> Vec<u64> {
    let order = Order::new(rows, seed, engine, RowSubset::All).expect("these can be");
    let mut out = Vec::new();
    order.epoch(epoch).append_rows(0..rows, &mut out);
    out
}

fn block_windows(block_rows: u64, window_blocks: u64) -> Engine {
    Engine::BlockWindows(WindowSize { block_rows, window_blocks })
}

/// Returns the chi-square of counts that should all be equal, in standard deviations from its mean.
fn deviation(counts: &[u64]) -> f64 {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let square: f64 =
        counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum();
    let freedom = counts.len() as f64 - 1.0;
    (square - freedom) / (2.0 * freedom).sqrt()
}

/// Returns a permutation's number in the list of all permutations of its length.
fn number(permutation: &[u64]) -> usize {
    permutation.iter().enumerate().fold(0, |number, (at, value)| {
        let smaller = permutation[at + 1..].iter().filter(|v| *v < value).count();
        number * (permutation.len() - at) + smaller
    })
}

#[test]
fn all_permutations_of_a_few_rows_come_equally_often() {
    for (rows, possible) in [(2, 2), (3, 6), (4, 24), (5, 120), (6, 720)] {
        let mut counts = vec![0; possible];
        for seed in 0..200 * possible as u64 {
            counts[number(&epoch(rows, seed, Engine::GlobalShuffle, 0))] += 1;
        }
        let deviation = deviation(&counts);
        assert!(deviation.abs() < 3.0, "{rows} rows: {deviation:.1}");
    }
}

#[test]
fn every_row_comes_equally_often_at_every_position() {
    // More than 256, up to which short orders are shuffled in another way.
    let rows = 300;
    for engine in [Engine::GlobalShuffle, block_windows(30, 9)] {
        let mut counts = vec![0; (rows * rows) as usize];
        for number in 0..5000 {
            for (position, row) in epoch(rows, 7, engine, number).into_iter().enumerate() {
                counts[position * rows as usize + row as usize] += 1;
            }
        }
        // The counts of one row or position add up, so the freedom is 299² and not 300² - 1; the
        // difference is 1.4 standard deviations.
        let deviation = deviation(&counts);
        assert!((deviation + 1.4).abs() < 3.0, "{engine:?}: {deviation:.1}");
    }
}

#[test]
fn neighbors_are_torn_apart_in_large_files() {
    let rows = 1_000_000;
    let order = epoch(rows, 3, Engine::GlobalShuffle, 0);
    let mut steps = vec![0; 1000];
    for pair in order.windows(2) {
        steps[((pair[1] + rows - pair[0]) % rows / 1000) as usize] += 1;
    }
    let deviation = deviation(&steps);
    assert!(deviation.abs() < 4.0, "{deviation:.1}");
}

#[test]
fn no_epoch_is_like_another_and_no_seed_is_an_epoch_of_another() {
    let rows = 1000;
    let mut seen = std::collections::HashSet::new();
    for seed in 0..40 {
        for number in 0..40 {
            assert!(seen.insert(epoch(rows, seed, Engine::GlobalShuffle, number)));
        }
    }
    // Rows at the same place in two epochs: one in a random pair of permutations. Over 39 pairs the
    // mean has a standard deviation of 0.16.
    let epochs: Vec<Vec<u64>> = (0..40).map(|n| epoch(rows, 0, Engine::GlobalShuffle, n)).collect();
    let fixed: usize = epochs
        .windows(2)
        .map(|pair| pair[0].iter().zip(&pair[1]).filter(|(a, b)| a == b).count())
        .sum();
    assert!((20..60).contains(&fixed), "{fixed}");
}

#[test]
fn permutations_have_as_many_cycles_as_random_ones() {
    // A random permutation of 1000 has 7.49 cycles in the mean, with a standard deviation of 2.42.
    let mut cycles = 0;
    for number in 0..400 {
        let order = epoch(1000, 11, Engine::GlobalShuffle, number);
        let mut seen = vec![false; order.len()];
        for start in 0..order.len() {
            let mut at = start;
            cycles += usize::from(!seen[start]);
            while !std::mem::replace(&mut seen[at], true) {
                at = order[at] as usize;
            }
        }
    }
    let mean = cycles as f64 / 400.0;
    assert!((mean - 7.49).abs() < 0.5, "{mean}");
}

/// Returns the mean entropy of the labels in a batch of 100 rows, of a file of 100 000 rows that is
/// sorted by ten labels.
fn label_entropy(engine: Engine) -> f64 {
    let rows = epoch(100_000, 1, engine, 0);
    let entropy = |batch: &[u64]| {
        let mut counts = [0_u32; 10];
        for row in batch {
            counts[(row / 10_000) as usize] += 1;
        }
        counts
            .iter()
            .filter(|&&count| count > 0)
            .map(|&count| f64::from(count) / 100.0)
            .map(|share| -share * share.ln())
            .sum::<f64>()
            .abs()
    };
    rows.chunks(100).map(entropy).sum::<f64>() / 1000.0
}

#[test]
fn batches_of_a_sorted_file_are_even_when_a_pool_has_enough_blocks() {
    let window =
        |block_rows, window_blocks| label_entropy(block_windows(block_rows, window_blocks));
    let table = [
        ("sequential", label_entropy(Engine::Sequential)),
        ("5 blocks of 1000", window(1000, 5)),
        ("20 blocks of 1000", window(1000, 20)),
        ("10 blocks of 100", window(100, 10)),
        ("64 blocks of 100", window(100, 64)),
        ("100 blocks of 100", window(100, 100)),
        ("250 blocks of 20", window(20, 250)),
        ("gather", label_entropy(Engine::GlobalShuffle)),
    ];
    let shown: Vec<String> =
        table.iter().map(|(name, entropy)| format!("{name}: {entropy:.2}")).collect();
    // The best that can be had is 2.26: a fair draw of a hundred labels is never quite even.
    assert_eq!(
        shown,
        [
            "sequential: 0.00",
            "5 blocks of 1000: 1.36",
            "20 blocks of 1000: 1.99",
            "10 blocks of 100: 1.76",
            "64 blocks of 100: 2.18",
            "100 blocks of 100: 2.22",
            "250 blocks of 20: 2.24",
            "gather: 2.26",
        ]
    );
}
