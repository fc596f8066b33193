//! The partitioned pool against recordings of XLA's own: of JAX 0.11.0, of 0.12, and of XLA's main
//! branch in between.
//!
//! Another folder of recordings in the same format can be given in `VRAMFIT_GOLDEN_BFC_SPATIAL`.

#![allow(
    clippy::unwrap_used,
    reason = "a recording that cannot be read fails the test"
)]

mod recorded;

use std::collections::HashMap;
use std::fmt::Write as _;

use recorded::{BASE, Scenario, assert_same_lines, chunk_hash, free_by_bin};
use vramfit_core::ErrorKind;
use vramfit_core::allocator::{
    AllocError, Allocator, Backpedal, BfcOptions, Chunk, ChunkTag, EndPolicy, PoolEnd, Spatial,
    SpatialPolicy, SplitRule,
};

#[derive(Clone, Copy, PartialEq)]
enum Version {
    Jax0_11,
    /// Between the two, with other rules in every scenario.
    Main,
    Jax0_12,
}

/// Reads the letters of the column `newest_policy`.
fn main_policy(scenario: &Scenario) -> SpatialPolicy {
    let letters: Vec<char> = scenario.columns["newest_policy"].chars().collect();
    let end = |split: char, order: char| EndPolicy {
        holes: match split {
            'b' => SplitRule::Heuristic,
            'e' => SplitRule::Exact,
            other => panic!("unknown split policy {other}"),
        },
        gap: SplitRule::Exact,
        high_addresses_first: match order {
            'a' => false,
            'd' => true,
            other => panic!("unknown order {other}"),
        },
    };
    SpatialPolicy {
        lower: end(letters[0], letters[2]),
        upper: end(letters[1], letters[3]),
        ..SpatialPolicy::JAX_0_11
    }
}

fn pool(scenario: &Scenario, version: Version) -> Spatial {
    let (policy, backpedal) = match version {
        Version::Jax0_11 => (SpatialPolicy::JAX_0_11, Backpedal::UpForEver),
        Version::Main => (main_policy(scenario), Backpedal::Up),
        Version::Jax0_12 => (SpatialPolicy::JAX_0_12, Backpedal::Down),
    };
    let options = BfcOptions {
        limit_bytes: scenario.total_memory,
        fragmentation_fraction: scenario.fragmentation_fraction,
        backpedal,
        ..BfcOptions::default()
    };
    Spatial::new(options, policy, Box::new(scenario.device.clone()))
}

fn stats_line(operation: usize, pool: &Spatial) -> String {
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
        chunk_hash(&chunks, true),
    );
    for count in free_by_bin(&chunks) {
        write!(line, ",{count}").unwrap();
    }
    let gap = chunks.iter().find(|chunk| chunk.tag == ChunkTag::Gap);
    let of = |tag: ChunkTag, in_use: bool| {
        chunks
            .iter()
            .filter(move |chunk: &&Chunk| chunk.tag == tag && chunk.in_use == in_use)
            .map(|chunk| chunk.bytes)
    };
    write!(
        line,
        ",{},{},{},{},{},{}",
        gap.map_or("-1".to_owned(), |gap| (gap.address - BASE).to_string()),
        gap.map_or(0, |gap| gap.bytes),
        of(ChunkTag::Lower, true).sum::<u64>(),
        of(ChunkTag::Upper, true).sum::<u64>(),
        of(ChunkTag::Lower, false).max().unwrap_or(0),
        of(ChunkTag::Upper, false).max().unwrap_or(0),
    )
    .unwrap();
    line
}

fn chunks_text(pool: &Spatial) -> String {
    let mut text = "offset,size,in_use,requested,bin,tag\n".to_owned();
    for chunk in pool.chunks() {
        writeln!(
            text,
            "{},{},{},{},{},{}",
            chunk.address - BASE,
            chunk.bytes,
            u8::from(chunk.in_use),
            chunk.requested_bytes,
            chunk.bin.map_or(-1, i32::from),
            chunk.tag,
        )
        .unwrap();
    }
    text
}

/// Does one line of a trace and returns the line of the result, or what would have killed XLA.
fn step<'a>(
    line: &'a str,
    scenario: &Scenario,
    pool: &mut Spatial,
    addresses: &mut HashMap<&'a str, u64>,
) -> Result<String, String> {
    let words: Vec<&str> = line.split(' ').collect();
    let (verb, id) = (words[0], words[1]);
    if verb == "F" {
        return match addresses
            .remove(id)
            .map_or(Ok(()), |address| pool.free(address))
        {
            Ok(()) => Ok("f".to_owned()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::AllocatorAborts);
                Err(error.cause_text().unwrap().to_owned())
            }
        };
    }
    let end = match verb {
        "AL" => PoolEnd::Lower,
        "AU" => PoolEnd::Upper,
        other => panic!("unknown operation {other}"),
    };
    let bytes = words[2].parse().unwrap();
    let alignment = words
        .get(3)
        .map_or(scenario.alignment, |word| word.parse().unwrap());
    match pool.allocate_at(end, bytes, alignment) {
        Ok(0) | Err(AllocError::OutOfMemory) => Ok("-1".to_owned()),
        Ok(address) => {
            addresses.insert(id, address);
            Ok((address - BASE).to_string())
        }
        Err(AllocError::Fatal(text)) => Err(text),
    }
}

/// What a replay gives, in the form of the recordings.
struct Replay {
    results: String,
    stats: String,
    chunks: String,
    regions: String,
}

fn replay(scenario: &Scenario, version: Version, line_of: fn(usize, &Spatial) -> String) -> Replay {
    let name = &scenario.name;
    let mut pool = pool(scenario, version);
    let calls = scenario.device.calls.clone();
    let trace = scenario.read("trace.txt");
    let operations = trace.lines().count();
    let mut addresses: HashMap<&str, u64> = HashMap::new();
    let mut results = String::new();
    let mut stats = String::new();
    for (index, line) in trace.lines().enumerate() {
        let operation = index + 1;
        calls.lock().unwrap().operation = operation;
        let result = step(line, scenario, &mut pool, &mut addresses);
        results += &result.unwrap_or_else(|why| panic!("{name}, operation {operation}: {why}"));
        results.push('\n');
        if operation % 1000 == 0 || operation == operations {
            stats += &line_of(operation, &pool);
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

fn without_header(text: &str) -> &str {
    text.split_once('\n').expect("a header").1
}

#[test]
fn every_recorded_scenario_is_reproduced_in_both_versions() {
    let folder = recorded::folder("VRAMFIT_GOLDEN_BFC_SPATIAL", "bfc-spatial");
    for version in [Version::Jax0_11, Version::Main] {
        for scenario in recorded::scenarios(&folder, "scenarios.csv") {
            let column = &scenario.columns["newest_crash_at"];
            assert_eq!(
                column, "",
                "this test knows no recording that crashes within its trace"
            );
            let read = |ending: &str| {
                let newest = format!("newest.{ending}");
                let newest = (version == Version::Main && scenario.has(&newest)).then_some(newest);
                scenario.read(newest.as_deref().unwrap_or(ending))
            };
            let ours = replay(&scenario, version, stats_line);
            let what = |file| match version {
                Version::Main => format!("{} (newest), {file}", scenario.name),
                _ => format!("{}, {file}", scenario.name),
            };
            assert_same_lines(&what("results"), &ours.results, &read("result.txt"));
            assert_same_lines(
                &what("statistics"),
                &ours.stats,
                without_header(&read("stats.csv")),
            );
            assert_same_lines(&what("chunks"), &ours.chunks, &read("chunks.csv"));
            assert_same_lines(&what("regions"), &ours.regions, &read("sub.txt"));
        }
    }
}

#[test]
fn jax_0_12_as_released_is_reproduced() {
    let folder = recorded::folder("VRAMFIT_GOLDEN_BFC_SPATIAL", "bfc-spatial");
    let mut compared = 0;
    for scenario in recorded::scenarios(&folder, "scenarios.csv") {
        if !scenario.has("jax0.12.result.txt") {
            // A folder of one's own need not have them.
            continue;
        }
        compared += 1;
        let ours = replay(&scenario, Version::Jax0_12, |operation, pool| {
            let stats = pool.stats();
            format!(
                "{operation},{},{},{},{}",
                stats.bytes_in_use,
                stats.peak_bytes_in_use,
                stats.largest_alloc_size,
                stats.num_allocs,
            )
        });
        let read = |ending: &str| scenario.read(&format!("jax0.12.{ending}"));
        let name = &scenario.name;
        assert_same_lines(
            &format!("{name}, results"),
            &ours.results,
            &read("result.txt"),
        );
        assert_same_lines(
            &format!("{name}, statistics"),
            &ours.stats,
            without_header(&read("stats.csv")),
        );
        assert_same_lines(&format!("{name}, regions"), &ours.regions, &read("sub.txt"));
    }
    assert!(compared > 0 || std::env::var_os("VRAMFIT_GOLDEN_BFC_SPATIAL").is_some());
}

/// Replays a scenario and then the operation at which the real one died; `8 AL 6 30000`, sometimes
/// with a remark in brackets.
fn outcome_of_the_next_operation(name: &str, version: Version) -> (String, Result<String, String>) {
    let folder = recorded::folder("VRAMFIT_GOLDEN_BFC_SPATIAL", "bfc-spatial");
    let scenario = recorded::scenarios(&folder, "scenarios.csv")
        .into_iter()
        .find(|scenario| scenario.name == name)
        .expect("the scenario is in the set");
    let mut pool = pool(&scenario, version);
    let trace = scenario.read("trace.txt");
    let mut addresses = HashMap::new();
    for line in trace.lines() {
        step(line, &scenario, &mut pool, &mut addresses).expect("it dies after its trace");
    }
    let next = scenario.columns["crash_at_next_op"].clone();
    let (_, line) = next.split_once(' ').expect("a number and an operation");
    let line = line.split(" (").next().unwrap().to_owned();
    let outcome = step(&line, &scenario, &mut pool, &mut HashMap::new());
    if outcome.is_err() {
        let again = step("AL 99 1", &scenario, &mut pool, &mut HashMap::new());
        assert_eq!(again, outcome, "a dead process answers nothing");
    }
    (next, outcome)
}

#[test]
fn a_second_region_beside_the_gap_would_abort() {
    for version in [Version::Jax0_11, Version::Main] {
        let (next, outcome) = outcome_of_the_next_operation("crash_second_region_small", version);
        assert!(!next.contains("never returns"), "{next}");
        let text = outcome.expect_err("the real one aborts");
        assert!(text.contains("aborts the process"), "{text}");
        assert!(
            text.contains("spatial partitioning expects one central gap"),
            "{text}"
        );
    }
}

#[test]
fn a_small_request_that_the_gpu_refuses_hangs_in_0_11_only() {
    let (next, outcome) = outcome_of_the_next_operation("hang_small_request", Version::Jax0_11);
    assert!(next.contains("never returns; newest: -1"), "{next}");
    let text = outcome.expect_err("the real one never returns");
    assert!(text.contains("never returns"), "{text}");
    let (_, outcome) = outcome_of_the_next_operation("hang_small_request", Version::Main);
    assert_eq!(outcome.as_deref(), Ok("-1"));
}

#[test]
fn jax_0_12_neither_aborts_nor_hangs() {
    // Seen on the released one: it never asks for a second region.
    for name in ["crash_second_region_small", "hang_small_request"] {
        let (_, outcome) = outcome_of_the_next_operation(name, Version::Jax0_12);
        let expected = if name.starts_with("crash") {
            "50176"
        } else {
            "503296"
        };
        assert_eq!(outcome.as_deref(), Ok(expected), "{name}");
    }
}

#[test]
fn only_requests_of_up_to_2304_bytes_hang() {
    // Seen on the released 0.11.0.
    let folder = recorded::folder("VRAMFIT_GOLDEN_BFC_SPATIAL", "bfc-spatial");
    let scenarios = recorded::scenarios(&folder, "scenarios.csv");
    let scenario = scenarios
        .iter()
        .find(|one| one.name == "hang_small_request");
    let scenario = scenario.expect("the scenario is in the set");
    for (bytes, hangs) in [(1, true), (2304, true), (2305, false), (2560, false)] {
        let mut pool = pool(scenario, Version::Jax0_11);
        let trace = scenario.read("trace.txt");
        for line in trace.lines() {
            step(line, scenario, &mut pool, &mut HashMap::new()).expect("it dies after its trace");
        }
        let refusal = pool
            .allocate_at(PoolEnd::Lower, bytes, 64)
            .expect_err("there is no room");
        assert_eq!(matches!(refusal, AllocError::Fatal(_)), hangs, "{bytes}");
    }
}
