//! The growing partitioned pool against recordings of XLA's own, from the plugin of JAX 0.12.0.1.
//!
//! The format is described in `fixtures/README.md`; `scripts/record/growth.py` wrote them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use vramfit_model::allocator::{
    AllocError, Allocator, Backpedal, BfcOptions, DeviceMemory, PAGE_BYTES, PoolEnd, Region,
    SimulatedDeviceMemory, Spatial, SpatialPolicy,
};

use crate::recorded;

/// A GPU that writes down what it is asked for.
struct RecordingMemory {
    device: SimulatedDeviceMemory,
    asked: Arc<Mutex<String>>,
}

impl DeviceMemory for RecordingMemory {
    fn allocate(&mut self, alignment: u64, bytes: u64) -> Option<Region> {
        let granted = self.device.allocate(alignment, bytes);
        let received = granted.map_or(0, |region| region.bytes);
        writeln!(self.asked.lock().unwrap(), "ask {bytes} = {received}").unwrap();
        granted
    }

    fn free(&mut self, region: Region) {
        self.device.free(region);
    }

    fn free_bytes(&self) -> u64 {
        self.device.free_bytes()
    }
}

/// Plays a recording and returns it with our own answers.
fn replayed(text: &str) -> String {
    let first = text.lines().next().unwrap();
    let [start, limit, free] = ["start=", "limit=", "free="].map(|key| {
        let word = first.split(' ').find_map(|word| word.strip_prefix(key)).unwrap();
        word.parse::<u64>().unwrap()
    });
    let asked = Arc::new(Mutex::new(String::new()));
    let device = RecordingMemory { device: SimulatedDeviceMemory::new(free), asked: asked.clone() };
    let mut pool = growing_pool(start, limit, device);
    let mut live: HashMap<&str, u64> = HashMap::new();
    let mut ours = format!("{first}\n");
    for line in text.lines().skip(1) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["ask", ..] => {}
            ["F", id] => {
                pool.free(live.remove(id).unwrap()).unwrap();
                writeln!(ours, "{line}").unwrap();
            }
            ["stats", ..] => {
                let stats = pool.stats();
                let figures = [
                    stats.num_allocs,
                    stats.bytes_in_use,
                    stats.peak_bytes_in_use,
                    stats.largest_alloc_size,
                    stats.bytes_limit.unwrap(),
                    stats.largest_free_block_bytes,
                    stats.pool_bytes.unwrap(),
                    stats.peak_pool_bytes.unwrap(),
                ];
                writeln!(ours, "stats {}", figures.map(|n| n.to_string()).join(" ")).unwrap();
            }
            [verb, id, bytes, alignment, "=", _] => {
                let end = match verb {
                    "AL" => PoolEnd::Lower,
                    _ => PoolEnd::Upper,
                };
                let answer =
                    pool.allocate_at(end, bytes.parse().unwrap(), alignment.parse().unwrap());
                let place = match answer {
                    Ok(address) => {
                        live.insert(id, address);
                        (address - pool.regions()[0].address).to_string()
                    }
                    Err(AllocError::OutOfMemory) => "-1".to_owned(),
                    Err(AllocError::Fatal(why)) => panic!("{line}: {why}"),
                };
                ours += &std::mem::take(&mut *asked.lock().unwrap());
                writeln!(ours, "{verb} {id} {bytes} {alignment} = {place}").unwrap();
            }
            _ => panic!("unknown line {line}"),
        }
    }
    ours
}

#[test]
fn every_recorded_scenario_is_reproduced() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bfc-growth");
    let mut extended = 0;
    let mut scenarios = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let theirs = std::fs::read_to_string(&path).unwrap();
        let ours = replayed(&theirs);
        recorded::assert_same_lines(&path.to_string_lossy(), &ours, &theirs);
        scenarios += 1;
        let granted = |line: &&str| line.starts_with("ask") && !line.ends_with("= 0");
        extended += theirs.lines().filter(granted).count();
    }
    assert_eq!(scenarios, 8);
    assert!(extended > 2 * scenarios, "pools were extended: {extended}");
}

fn growing_pool(start: u64, limit: u64, device: impl DeviceMemory + 'static) -> Spatial {
    let options = BfcOptions {
        limit_bytes: limit,
        start_bytes: Some(start),
        backpedal: Backpedal::Down,
        jax_version: (0, 12, 0),
        ..BfcOptions::default()
    };
    Spatial::new(options, SpatialPolicy::JAX_0_12, Box::new(device))
}

/// Four pages to begin with, which end at 8 MiB, and at most 16.
fn small_pool() -> Spatial {
    let device = SimulatedDeviceMemory::new(1 << 40);
    growing_pool(4 * PAGE_BYTES, 16 * PAGE_BYTES, device)
}

#[test]
fn addresses_continue_where_the_start_ends() {
    let mut pool = small_pool();
    let upper = |pool: &mut Spatial, bytes| pool.allocate_at(PoolEnd::Upper, bytes, 256);
    let first = upper(&mut pool, 1000).unwrap();
    let begin = pool.regions()[0].address;
    // 1,000 bytes are 1,024 at the very end of the first 8 MiB.
    assert_eq!(first - begin, (8 << 20) - 1024);
    assert_eq!(pool.stats().pool_bytes, Some(8 << 20));
    assert_eq!(pool.stats().bytes_limit, Some(32 << 20));
    // 12 MB fit neither in the gap nor in a region of 2, 4 or 8 MiB: the pool is extended by 16 MiB, and what is left
    // of them is less than the request, so that all of it is handed out.
    let second = upper(&mut pool, 12_000_000).unwrap();
    assert_eq!(second - begin, 8 << 20);
    assert_eq!(pool.stats().bytes_in_use, 1024 + (16 << 20));
    assert_eq!(pool.stats().pool_bytes, Some(24 << 20));
    // There is one region still, and what is freed is kept.
    pool.free(second).unwrap();
    assert_eq!(pool.regions().len(), 1);
    assert_eq!(pool.stats().pool_bytes, Some(24 << 20));
    assert_eq!(pool.stats().peak_pool_bytes, Some(24 << 20));
    // Collective memory has what is left of the first 8 MiB, and does not extend the pool.
    let lower = |pool: &mut Spatial, bytes| pool.allocate_at(PoolEnd::Lower, bytes, 256);
    let gap = (8 << 20) - 1024;
    assert_eq!(lower(&mut pool, gap + 1), Err(AllocError::OutOfMemory));
    assert_eq!(lower(&mut pool, gap), Ok(begin));
}

#[test]
fn the_dump_says_that_the_pool_grows() {
    let mut pool = small_pool();
    for (end, bytes) in
        [(PoolEnd::Upper, 1000), (PoolEnd::Lower, 3000), (PoolEnd::Upper, 4_000_000)]
    {
        pool.allocate_at(end, bytes, 256).unwrap();
    }
    let log = pool.out_of_memory_log_at(PoolEnd::Upper, 60_000_000);
    let has = |text: &str| {
        assert!(log.iter().any(|record| record.text == text), "{text}\n{log:#?}");
    };
    // Recorded from the same plugin in the same state.
    has(
        "Allocator memory summary: rounded request 57.22MiB, total free in pool 4.18MiB, largest free chunk \
         usable by upper end 4.18MiB, unallocated bytes 24.00MiB, pool size 8.00MiB, pool limit 32.00MiB",
    );
    has("Allocator region growth hint: next region allocation target 2.00MiB (growth enabled).");
}
