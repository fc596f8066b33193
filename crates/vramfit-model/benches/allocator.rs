//! Nanoseconds per operation of the BFC pool on the recorded traces, beside XLA's own allocator.
//!
//! Two figures for each trace. *Cold*: a fresh pool, taken from the GPU, and the trace once. *Warm*: the
//! same trace again in a pool that has its regions, after everything was freed. XLA's figures are those
//! of `fixtures/bfc/xla_ns_per_operation.csv`, measured in the same two ways; they hold for the machine
//! named in `fixtures/bfc/README.md`, so compare them on that one.

#![allow(clippy::unwrap_used, reason = "a recording that cannot be read ends the benchmark")]
#![allow(clippy::print_stdout, reason = "the table is the result")]

#[path = "../tests/recorded/mod.rs"]
mod recorded;

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use recorded::{Scenario, Table};
use vramfit_model::allocator::{Allocator, Bfc, BfcOptions, PoolSpace};

enum Operation {
    Allocate { id: usize, bytes: u64 },
    Free { id: usize },
}

fn operations(scenario: &Scenario) -> (Vec<Operation>, usize) {
    let mut ids = 0;
    let trace = scenario.read("trace.txt");
    let operations = trace.lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let id = words[1].parse().unwrap();
        ids = ids.max(id + 1);
        match words[0] {
            "A" => Operation::Allocate { id, bytes: words[2].parse().unwrap() },
            _ => Operation::Free { id },
        }
    });
    (operations.collect(), ids)
}

fn pool(scenario: &Scenario) -> Bfc {
    let options = BfcOptions {
        limit_bytes: scenario.total_memory,
        grows: scenario.allow_growth,
        garbage_collection: scenario.garbage_collection,
        fragmentation_fraction: scenario.fragmentation_fraction,
        ..BfcOptions::default()
    };
    let mut device = scenario.device.clone();
    device.quiet = true;
    Bfc::new(options, Box::new(device))
}

/// Replays a trace; address 0 stands for what was refused, asked for no bytes, or is freed again.
fn replay(pool: &mut Bfc, alignment: u64, operations: &[Operation], addresses: &mut [u64]) {
    for operation in operations {
        match *operation {
            Operation::Allocate { id, bytes } => {
                addresses[id] = pool.allocate(bytes, alignment, PoolSpace::Default).unwrap_or(0);
            }
            Operation::Free { id } => {
                pool.free(std::mem::take(&mut addresses[id])).unwrap();
            }
        }
    }
}

fn free_all(pool: &mut Bfc, addresses: &mut [u64]) {
    for address in addresses {
        pool.free(std::mem::take(address)).unwrap();
    }
}

/// Returns the shortest of several runs in nanoseconds per operation, cold and warm.
fn measure(scenario: &Scenario) -> (f64, f64) {
    let (operations, ids) = operations(scenario);
    let mut addresses = vec![0; ids];
    let mut cold = Duration::MAX;
    let mut warm = Duration::MAX;
    for _ in 0..5 {
        let begin = Instant::now();
        let mut pool = pool(scenario);
        replay(&mut pool, scenario.alignment, &operations, &mut addresses);
        cold = cold.min(begin.elapsed());
        for _ in 0..5 {
            free_all(&mut pool, &mut addresses);
            let begin = Instant::now();
            replay(&mut pool, scenario.alignment, &operations, &mut addresses);
            warm = warm.min(begin.elapsed());
        }
        free_all(&mut pool, &mut addresses);
    }
    let each = |time: Duration| time.as_nanos() as f64 / operations.len() as f64;
    (each(cold), each(warm))
}

/// Prints our figures beside XLA's.
fn compare(scenarios: &[Scenario]) {
    let path = scenarios[0].folder.join("xla_ns_per_operation.csv");
    let table = Table::read(&path);
    let theirs: HashMap<&str, (f64, f64)> = table
        .rows
        .iter()
        .map(|row| {
            let number = |column: &str| table.get(row, column).parse().unwrap();
            (table.get(row, "name"), (number("cold"), number("warm")))
        })
        .collect();
    println!("\nns per operation            cold: ours      XLA     warm: ours    XLA   XLA/ours");
    for scenario in scenarios {
        let (cold, warm) = measure(scenario);
        let name = &scenario.name;
        let Some((xla_cold, xla_warm)) = theirs.get(name.as_str()) else {
            continue;
        };
        println!(
            "{name:<28}{cold:>10.1} {xla_cold:>8.0} {warm:>14.1} {xla_warm:>6.1} {:>10.2}",
            xla_warm / warm
        );
    }
}

fn main() {
    let folder = recorded::folder("VRAMFIT_GOLDEN_BFC", "bfc");
    let scenarios = recorded::scenarios(&folder, "scenarios.csv");
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let mut group = criterion.benchmark_group("bfc");
    for scenario in &scenarios {
        let (operations, ids) = operations(scenario);
        let mut addresses = vec![0; ids];
        let mut pool = pool(scenario);
        group.throughput(Throughput::Elements(operations.len() as u64));
        group.bench_function(BenchmarkId::from_parameter(&scenario.name), |bencher| {
            bencher.iter(|| {
                replay(&mut pool, scenario.alignment, black_box(&operations), &mut addresses);
                free_all(&mut pool, &mut addresses);
            });
        });
    }
    group.finish();
    criterion.final_summary();
    compare(&scenarios);
}
