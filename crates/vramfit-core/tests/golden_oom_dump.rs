//! The out-of-memory dump against recorded ones, byte for byte, in three versions.
//!
//! Only the prefix of a record (file, line) is not compared; its severity is.

#![allow(
    clippy::unwrap_used,
    reason = "a recording that cannot be read fails the test"
)]

mod recorded;

use std::collections::HashMap;

use recorded::{BASE, Scenario};
use vramfit_core::allocator::{
    Allocator, Bfc, BfcOptions, End, JaxVersion, LogRecord, Refusal, Severity, Space,
    refusal_warning,
};

/// Reads the records of a recorded log.
fn parse(text: &str) -> Vec<LogRecord> {
    let mut records: Vec<LogRecord> = Vec::new();
    for line in text.lines() {
        let severity = match line.split_once(" bfc_allocator.cc:") {
            Some(("I", _)) => Some(Severity::Info),
            Some(("W", _)) => Some(Severity::Warning),
            _ => None,
        };
        match severity {
            Some(severity) => {
                let text = line.split_once("] ").unwrap().1.to_owned();
                records.push(LogRecord { severity, text });
            }
            None => {
                let text = &mut records.last_mut().unwrap().text;
                text.push('\n');
                text.push_str(line);
            }
        }
    }
    records
}

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
    let mut pool = Bfc::new(options, Box::new(scenario.card.clone()));
    let trace =
        std::fs::read_to_string(scenario.folder.join(format!("{}.trace.txt", scenario.name)));
    let mut addresses = HashMap::new();
    let mut results = String::new();
    let mut log = Vec::new();
    for line in trace.unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (verb, id) = (words[0], words[1]);
        if verb == "F" {
            if let Some(address) = addresses.remove(id) {
                pool.free(address).unwrap();
            }
            results.push_str("f\n");
            continue;
        }
        let bytes: u64 = words[2].parse().unwrap();
        let program = "xla.execute{executable=jit_train_step}";
        let inner = format!("{program} / inner{{index={id}, size={bytes}}}");
        pool.label(match verb {
            "L" => Some(program),
            "M" => Some(&inner),
            _ => None,
        });
        match pool.allocate(bytes, scenario.alignment, Space::Default) {
            Ok(address) => {
                addresses.insert(id.to_owned(), address);
                results += &format!("{}\n", address - BASE);
            }
            Err(refusal) => {
                assert_eq!(refusal, Refusal::OutOfMemory);
                results.push_str("-1\n");
                if verb == "D" {
                    log.extend(pool.out_of_memory_log(bytes, Space::Default));
                } else {
                    log.push(refusal_warning(&name, bytes, End::Lower, jax_version));
                }
            }
        }
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
            scenario.card.calls = Default::default();
            let (results, ours) = replay(&scenario, jax_version);
            assert_eq!(results, read("result.txt"), "{name}");
            let theirs = parse(&read(ending));
            for (number, (our, their)) in ours.iter().zip(&theirs).enumerate() {
                assert_eq!(our, their, "{name}.{ending}, record {number}");
            }
            assert_eq!(
                ours.len(),
                theirs.len(),
                "{name}.{ending}: number of records"
            );
        }
    }
}
