//! The classic pool against recordings of XLA's own, operation by operation.
//!
//! Another folder of recordings in the same format can be given in `VRAMFIT_GOLDEN_BFC`.

use vramfit_model::allocator::{Allocator, Backpedal, Bfc, BfcOptions, PoolSpace};

use crate::recorded::replay::{Replay, stats_line};
use crate::recorded::{self, Scenario};

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

fn replay(scenario: &Scenario, backpedal: Backpedal) -> Replay {
    let allocate = |pool: &mut Bfc, verb: &str, bytes, alignment| {
        assert_eq!(verb, "A");
        pool.allocate(bytes, alignment, PoolSpace::Default)
    };
    let line = |operation, pool: &Bfc| stats_line(operation, pool, false);
    Replay::new(scenario, pool(scenario, backpedal), allocate, line, false)
}

#[test]
fn every_recorded_scenario_is_reproduced() {
    let folder = recorded::folder("VRAMFIT_GOLDEN_BFC", "bfc");
    for scenario in recorded::scenarios(&folder, "scenarios.csv") {
        let name = &scenario.name;
        let hangs = &scenario.columns["hangs_at_next_op"];
        assert_eq!(hangs, "", "{name}: this test knows no recording of a version that hangs");
        let ours = replay(&scenario, Backpedal::Up);
        let endings = ["result.txt", "stats.csv", "chunks.csv", "sub.txt"];
        ours.assert_recorded(name, &endings, &|ending| scenario.read(ending));
    }
}

#[test]
fn jax_0_12_asks_for_other_regions_when_refused() {
    let folder = recorded::folder("VRAMFIT_GOLDEN_BFC", "bfc");
    for scenario in recorded::scenarios(&folder, "scenarios.csv") {
        if scenario.has("jax0.12.sub.txt") {
            let name = &scenario.name;
            let ours = replay(&scenario, Backpedal::Down);
            ours.assert_recorded(name, &["sub.txt"], &|_| scenario.read("jax0.12.sub.txt"));
            // They are a little smaller, but this trace does not feel it.
            ours.assert_recorded(name, &["result.txt"], &|ending| scenario.read(ending));
        }
    }
}
