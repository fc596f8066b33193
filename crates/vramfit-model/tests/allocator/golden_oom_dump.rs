//! The out-of-memory dump against recorded ones, byte for byte, in three versions.
//!
//! Only the prefix of a record (file, line) is not compared; its severity is.

use vramfit_model::allocator::{
    Allocator, Backpedal, Bfc, BfcOptions, JaxVersion, LogRecord, PoolEnd, PoolSpace, Spatial,
    SpatialPolicy, refusal_warning,
};

use crate::recorded::replay::{Addresses, step};
use crate::recorded::{self, Scenario, assert_same_records, parse_log};

fn replay(scenario: &Scenario, jax_version: JaxVersion) -> (String, Vec<LogRecord>) {
    let name = scenario.columns["allocator_name"].clone();
    let options = BfcOptions {
        name: name.clone(),
        limit_bytes: scenario.total_memory,
        grows: scenario.allow_growth,
        garbage_collection: scenario.garbage_collection,
        fragmentation_fraction: scenario.fragmentation_fraction,
        jax_version,
        ..BfcOptions::default()
    };
    let mut pool = Bfc::new(options, Box::new(scenario.device.clone()));
    let trace =
        std::fs::read_to_string(scenario.folder.join(format!("{}.trace.txt", scenario.name)));
    let allocate = |pool: &mut Bfc, _: &str, bytes, alignment| {
        pool.allocate(bytes, alignment, PoolSpace::Default)
    };
    let mut addresses = Addresses::new();
    let mut results = String::new();
    let mut log = Vec::new();
    for line in trace.unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (verb, id) = (words[0], words[1]);
        let bytes = words.get(2).map_or(0, |word| word.parse().unwrap());
        let program = "xla.execute{executable=jit_train_step}";
        let inner = format!("{program} / inner{{index={id}, size={bytes}}}");
        pool.set_label(match verb {
            "L" => Some(program),
            "M" => Some(&inner),
            _ => None,
        });
        let result = step(line, scenario, &mut pool, &mut addresses, allocate).unwrap();
        match verb {
            _ if result != "-1" => {}
            "D" => log.extend(pool.out_of_memory_log(bytes, PoolSpace::Default)),
            _ => log.push(refusal_warning(&name, bytes, PoolEnd::Lower, jax_version)),
        }
        results += &format!("{result}\n");
    }
    (results, log)
}

#[test]
fn every_recorded_dump_is_written_again() {
    let folder = recorded::folder("VRAMFIT_GOLDEN_BFC", "bfc").join("oom_dumps");
    for scenario in recorded::scenarios(&folder, "dumps.csv") {
        for (ending, jax_version) in [
            ("dump.txt", (0, 12, 0)),
            ("dump-2025-12.txt", (0, 10, 2)),
            ("dump-2025-11.txt", (0, 8, 1)),
        ] {
            let name = &scenario.name;
            let read = |ending: &str| {
                std::fs::read_to_string(folder.join(format!("{name}.{ending}"))).unwrap()
            };
            let mut scenario = scenario.clone();
            scenario.device.calls = Default::default();
            let (results, ours) = replay(&scenario, jax_version);
            assert_eq!(results, read("result.txt"), "{name}");
            let theirs = parse_log(&read(ending));
            assert_same_records(&format!("{name}.{ending}"), &ours, &theirs);
        }
    }
}

fn end_of(verb: &str) -> PoolEnd {
    match verb.ends_with('U') {
        true => PoolEnd::Upper,
        false => PoolEnd::Lower,
    }
}

#[test]
fn dumps_of_partitioned_pools_are_written_again() {
    let folder = recorded::folder("VRAMFIT_GOLDEN_BFC_SPATIAL", "bfc-spatial");
    // The pools are those of these scenarios.
    for (name, like) in [("s1_rules", "rules_small"), ("s2_mixed", "mix_align_8g_cl")] {
        for (version, jax_version, policy, backpedal) in [
            ("0.11.0", (0, 11, 0), SpatialPolicy::JAX_0_11, Backpedal::UpForEver),
            ("0.12", (0, 12, 0), SpatialPolicy::JAX_0_12, Backpedal::Down),
        ] {
            let scenario = recorded::scenarios(&folder, "scenarios.csv")
                .into_iter()
                .find(|scenario| scenario.name == like)
                .expect("the scenario is in the set");
            let read = |file: String| {
                let path = folder.join("oom_dumps").join(&file);
                std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{file}: {e}"))
            };
            let options = BfcOptions {
                name: "GPU_3_bfc".to_owned(),
                limit_bytes: scenario.total_memory,
                backpedal,
                jax_version,
                ..BfcOptions::default()
            };
            let mut pool = Spatial::new(options, policy, Box::new(scenario.device.clone()));
            let mut addresses = Addresses::new();
            let mut results = String::new();
            let mut log = Vec::new();
            for line in read(format!("{name}.trace.txt")).lines() {
                let words: Vec<&str> = line.split(' ').collect();
                let bytes = words.get(2).map_or(0, |word| word.parse().unwrap());
                let end = end_of(words[0]);
                let allocate = |pool: &mut Spatial, verb: &str, bytes, alignment| {
                    pool.allocate_at(end_of(verb), bytes, alignment)
                };
                let result = step(line, &scenario, &mut pool, &mut addresses, allocate).unwrap();
                if result == "-1" && bytes > 0 {
                    match words[0].starts_with('D') {
                        true => log.extend(pool.out_of_memory_log_at(end, bytes)),
                        false => log.push(refusal_warning("GPU_3_bfc", bytes, end, jax_version)),
                    }
                }
                results += &format!("{result}\n");
            }
            let what = format!("{name}, jax {version}");
            assert_eq!(results, read(format!("{name}.jax{version}.result.txt")), "{what}");
            let theirs = parse_log(&read(format!("{name}.dump.jax{version}.txt")));
            assert_same_records(&what, &log, &theirs);
        }
    }
}
