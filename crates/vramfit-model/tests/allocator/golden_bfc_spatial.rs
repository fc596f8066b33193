//! The partitioned pool against recordings of XLA's own: of JAX 0.11.0, of 0.12, and of XLA's main
//! branch in between.
//!
//! Another folder of recordings in the same format can be given in `VRAMFIT_GOLDEN_BFC_SPATIAL`.

use std::fmt::Write as _;

use vramfit_model::allocator::{
    AllocError, Allocator, Backpedal, BfcOptions, Chunk, ChunkTag, EndPolicy, PoolEnd, Spatial,
    SpatialPolicy, SplitRule,
};

use crate::recorded::replay::{self, Addresses, Replay};
use crate::recorded::{self, BASE, Scenario};

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
    let mut line = replay::stats_line(operation, pool, true);
    let chunks = pool.chunks();
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

fn allocate(pool: &mut Spatial, verb: &str, bytes: u64, alignment: u64) -> Result<u64, AllocError> {
    let end = match verb {
        "AL" => PoolEnd::Lower,
        "AU" => PoolEnd::Upper,
        other => panic!("unknown operation {other}"),
    };
    pool.allocate_at(end, bytes, alignment)
}

fn step(
    line: &str,
    scenario: &Scenario,
    pool: &mut Spatial,
    addresses: &mut Addresses,
) -> Result<String, String> {
    replay::step(line, scenario, pool, addresses, allocate)
}

#[test]
fn every_recorded_scenario_is_reproduced_in_both_versions() {
    let folder = recorded::folder("VRAMFIT_GOLDEN_BFC_SPATIAL", "bfc-spatial");
    for version in [Version::Jax0_11, Version::Main] {
        for scenario in recorded::scenarios(&folder, "scenarios.csv") {
            let column = &scenario.columns["newest_crash_at"];
            assert_eq!(column, "", "this test knows no recording that crashes within its trace");
            let read = |ending: &str| {
                let newest = format!("newest.{ending}");
                let newest = (version == Version::Main && scenario.has(&newest)).then_some(newest);
                scenario.read(newest.as_deref().unwrap_or(ending))
            };
            let pool = pool(&scenario, version);
            let ours = Replay::new(&scenario, pool, allocate, stats_line, true);
            let name = match version {
                Version::Main => format!("{} (newest)", scenario.name),
                _ => scenario.name.clone(),
            };
            let endings = ["result.txt", "stats.csv", "chunks.csv", "sub.txt"];
            ours.assert_recorded(&name, &endings, &read);
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
        let stats_line = |operation, pool: &Spatial| {
            let stats = pool.stats();
            format!(
                "{operation},{},{},{},{}",
                stats.bytes_in_use,
                stats.peak_bytes_in_use,
                stats.largest_alloc_size,
                stats.num_allocs,
            )
        };
        let pool = pool(&scenario, Version::Jax0_12);
        let ours = Replay::new(&scenario, pool, allocate, stats_line, true);
        let read = |ending: &str| scenario.read(&format!("jax0.12.{ending}"));
        ours.assert_recorded(&scenario.name, &["result.txt", "stats.csv", "sub.txt"], &read);
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
    let mut addresses = Addresses::new();
    for line in trace.lines() {
        step(line, &scenario, &mut pool, &mut addresses).expect("it dies after its trace");
    }
    let next = scenario.columns["crash_at_next_op"].clone();
    let (_, line) = next.split_once(' ').expect("a number and an operation");
    let line = line.split(" (").next().unwrap().to_owned();
    let outcome = step(&line, &scenario, &mut pool, &mut Addresses::new());
    if outcome.is_err() {
        let again = step("AL 99 1", &scenario, &mut pool, &mut Addresses::new());
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
        assert!(text.contains("spatial partitioning expects one central gap"), "{text}");
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
        let expected = if name.starts_with("crash") { "50176" } else { "503296" };
        assert_eq!(outcome.as_deref(), Ok(expected), "{name}");
    }
}

#[test]
fn only_requests_of_up_to_2304_bytes_hang() {
    // Seen on the released 0.11.0.
    let folder = recorded::folder("VRAMFIT_GOLDEN_BFC_SPATIAL", "bfc-spatial");
    let scenarios = recorded::scenarios(&folder, "scenarios.csv");
    let scenario = scenarios.iter().find(|one| one.name == "hang_small_request");
    let scenario = scenario.expect("the scenario is in the set");
    for (bytes, hangs) in [(1, true), (2304, true), (2305, false), (2560, false)] {
        let mut pool = pool(scenario, Version::Jax0_11);
        let trace = scenario.read("trace.txt");
        for line in trace.lines() {
            step(line, scenario, &mut pool, &mut Addresses::new())
                .expect("it dies after its trace");
        }
        let refusal = pool.allocate_at(PoolEnd::Lower, bytes, 64).expect_err("there is no room");
        assert_eq!(matches!(refusal, AllocError::Fatal(_)), hangs, "{bytes}");
    }
}
