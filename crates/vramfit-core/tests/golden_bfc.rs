//! The classic pool against recordings of XLA's own, operation by operation.
//!
//! Another folder of recordings in the same format can be given in `VRAMFIT_GOLDEN_BFC`.

#![allow(
    clippy::unwrap_used,
    reason = "a recording that cannot be read fails the test"
)]

mod recorded;

use std::collections::HashMap;
use std::fmt::Write as _;

use recorded::{BASE, Scenario, assert_same_lines, chunk_hash, free_by_bin};
use vramfit_core::allocator::{AllocError, Allocator, Backpedal, Bfc, BfcOptions, PoolSpace};

fn pool(scenario: &Scenario, backpedal: Backpedal) -> Bfc {
    let options = BfcOptions {
        limit_bytes: scenario.total_memory,
        grows: scenario.allow_growth,
        garbage_collection: scenario.garbage_collection,
        fragmentation_fraction: scenario.fragmentation_fraction,
        backpedal,
        ..BfcOptions::default()
    };
    Bfc::new(options, Box::new(scenario.device.clone()))
}

fn stats_line(operation: usize, pool: &Bfc) -> String {
    let stats = pool.stats();
    let chunks = pool.chunks();
    let mut line = format!(
        "{operation},{},{},{},{},{},{},{},{},{},{}",
        stats.bytes_in_use,
        stats.peak_bytes_in_use,
        stats.largest_alloc_size,
        stats.num_allocs,
        stats.pool_bytes.expect("BFC reports its pool"),
        stats.peak_pool_bytes.expect("BFC reports its pool"),
        stats.largest_free_block_bytes,
        chunks.len(),
        chunks.iter().filter(|chunk| chunk.in_use).count(),
        chunk_hash(&chunks, false),
    );
    for count in free_by_bin(&chunks) {
        write!(line, ",{count}").unwrap();
    }
    line
}

fn chunks_text(pool: &Bfc) -> String {
    let mut text = "offset,size,in_use,requested,bin\n".to_owned();
    for chunk in pool.chunks() {
        writeln!(
            text,
            "{},{},{},{},{}",
            chunk.address - BASE,
            chunk.bytes,
            u8::from(chunk.in_use),
            chunk.requested_bytes,
            chunk.bin.map_or(-1, i32::from),
        )
        .unwrap();
    }
    text
}

/// What a replay gives, in the form of the recordings.
struct Replay {
    results: String,
    stats: String,
    chunks: String,
    regions: String,
}

fn replay(scenario: &Scenario, backpedal: Backpedal) -> Replay {
    let name = &scenario.name;
    let mut pool = pool(scenario, backpedal);
    let calls = scenario.device.calls.clone();
    let trace = scenario.read("trace.txt");
    let operations = trace.lines().count();
    let mut addresses: HashMap<&str, u64> = HashMap::new();
    let mut results = String::new();
    let mut stats = String::new();
    for (index, line) in trace.lines().enumerate() {
        let operation = index + 1;
        calls.lock().unwrap().operation = operation;
        let mut words = line.split(' ');
        let verb = words.next().unwrap();
        let id = words.next().unwrap();
        if verb == "A" {
            let bytes = words.next().unwrap().parse().unwrap();
            match pool.allocate(bytes, scenario.alignment, PoolSpace::Default) {
                Ok(0) => results.push_str("-1\n"),
                Ok(address) => {
                    addresses.insert(id, address);
                    writeln!(results, "{}", address - BASE).unwrap();
                }
                Err(AllocError::OutOfMemory) => results.push_str("-1\n"),
                Err(AllocError::Fatal(why)) => panic!("{name}, operation {operation}: {why}"),
            }
        } else {
            assert_eq!(verb, "F");
            if let Some(address) = addresses.remove(id) {
                pool.free(address).expect("it was allocated");
            }
            results.push_str("f\n");
        }
        if operation % 1000 == 0 || operation == operations {
            stats += &stats_line(operation, &pool);
            stats.push('\n');
        }
    }
    let lines = std::mem::take(&mut calls.lock().unwrap().lines);
    let regions = lines.iter().map(|line| format!("{line}\n")).collect();
    Replay {
        results,
        stats,
        chunks: chunks_text(&pool),
        regions,
    }
}

#[test]
fn every_recorded_scenario_is_reproduced() {
    let folder = recorded::folder("VRAMFIT_GOLDEN_BFC", "bfc");
    for scenario in recorded::scenarios(&folder, "scenarios.csv") {
        let name = &scenario.name;
        let hangs = &scenario.columns["hangs_at_next_op"];
        assert_eq!(
            hangs, "",
            "{name}: this test knows no recording of a version that hangs"
        );
        let ours = replay(&scenario, Backpedal::Up);
        let stats = scenario.read("stats.csv");
        let stats = stats.split_once('\n').expect("a header").1;
        let same = |file, ours: &str, theirs: &str| {
            assert_same_lines(&format!("{name}, {file}"), ours, theirs);
        };
        same("results", &ours.results, &scenario.read("result.txt"));
        same("statistics", &ours.stats, stats);
        same("chunks", &ours.chunks, &scenario.read("chunks.csv"));
        same("regions", &ours.regions, &scenario.read("sub.txt"));
    }
}

#[test]
fn jax_0_12_asks_for_other_regions_when_refused() {
    let folder = recorded::folder("VRAMFIT_GOLDEN_BFC", "bfc");
    for scenario in recorded::scenarios(&folder, "scenarios.csv") {
        if scenario.has("jax0.12.sub.txt") {
            let name = &scenario.name;
            let ours = replay(&scenario, Backpedal::Down);
            let regions = scenario.read("jax0.12.sub.txt");
            assert_same_lines(&format!("{name}, regions"), &ours.regions, &regions);
            // They are a little smaller, but this trace does not feel it.
            let results = scenario.read("result.txt");
            assert_same_lines(&format!("{name}, results"), &ours.results, &results);
        }
    }
}
