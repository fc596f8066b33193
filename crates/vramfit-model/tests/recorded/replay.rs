//! Replays a recorded trace through a pool, and renders what happens in the form of the recordings.

use std::collections::HashMap;
use std::fmt::Write as _;

use vramfit_model::ErrorKind;
use vramfit_model::allocator::{AllocError, Allocator};

use super::{BASE, Scenario, assert_same_lines, chunk_hash, free_by_bin};

/// Addresses by the ids of a trace.
pub type Addresses = HashMap<String, u64>;

/// Allocates for a verb of the trace: bytes and alignment.
pub type Allocate<P> = fn(&mut P, &str, u64, u64) -> Result<u64, AllocError>;

/// Carries out one line of a trace. Returns the line of the result, or what would have killed XLA.
pub fn step<P: Allocator>(
    line: &str,
    scenario: &Scenario,
    pool: &mut P,
    addresses: &mut Addresses,
    allocate: Allocate<P>,
) -> Result<String, String> {
    let words: Vec<&str> = line.split(' ').collect();
    let (verb, id) = (words[0], words[1]);
    if verb == "F" {
        let freed = addresses.remove(id).map_or(Ok(()), |it| pool.free(it));
        return freed.map(|()| "f".to_owned()).map_err(|error| {
            assert_eq!(error.kind(), ErrorKind::AllocatorAborts);
            error.cause_text().unwrap().to_owned()
        });
    }
    let alignment = words.get(3).map(|word| word.parse().unwrap());
    let alignment = alignment.unwrap_or(scenario.alignment);
    match allocate(pool, verb, words[2].parse().unwrap(), alignment) {
        Ok(0) | Err(AllocError::OutOfMemory) => Ok("-1".to_owned()),
        Ok(address) => {
            addresses.insert(id.to_owned(), address);
            Ok((address - BASE).to_string())
        }
        Err(AllocError::Fatal(text)) => Err(text),
    }
}

/// The results of a replay.
pub struct Replay {
    pub results: String,
    pub stats: String,
    pub chunks: String,
    pub regions: String,
}

impl Replay {
    /// Replays a scenario; `tags` says whether chunks have the tag of a partitioned pool.
    pub fn new<P: Allocator>(
        scenario: &Scenario,
        mut pool: P,
        allocate: Allocate<P>,
        stats_line: fn(usize, &P) -> String,
        tags: bool,
    ) -> Replay {
        let name = &scenario.name;
        let calls = scenario.device.calls.clone();
        let trace = scenario.read("trace.txt");
        let operations = trace.lines().count();
        let mut addresses = Addresses::new();
        let mut results = String::new();
        let mut stats = String::new();
        for (index, line) in trace.lines().enumerate() {
            let operation = index + 1;
            calls.lock().unwrap().operation = operation;
            let result = step(line, scenario, &mut pool, &mut addresses, allocate);
            results += &result.unwrap_or_else(|why| panic!("{name}, operation {operation}: {why}"));
            results.push('\n');
            if operation % 1000 == 0 || operation == operations {
                stats += &stats_line(operation, &pool);
                stats.push('\n');
            }
        }
        let lines = std::mem::take(&mut calls.lock().unwrap().lines);
        Replay {
            results,
            stats,
            chunks: chunks_text(&pool, tags),
            regions: lines.iter().map(|line| format!("{line}\n")).collect(),
        }
    }

    /// Compares with recorded files; `read` returns the content of one by its ending.
    pub fn assert_recorded(&self, name: &str, endings: &[&str], read: &dyn Fn(&str) -> String) {
        for &ending in endings {
            let theirs = read(ending);
            let (ours, theirs) = match ending {
                "stats.csv" => (&self.stats, theirs.split_once('\n').expect("a header").1),
                "chunks.csv" => (&self.chunks, &theirs[..]),
                "sub.txt" => (&self.regions, &theirs[..]),
                _ => (&self.results, &theirs[..]),
            };
            assert_same_lines(&format!("{name}, {ending}"), ours, theirs);
        }
    }
}

/// Returns the columns of `stats.csv` that all pools have.
pub fn stats_line(operation: usize, pool: &dyn Allocator, tags: bool) -> String {
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
        chunk_hash(&chunks, tags),
    );
    for count in free_by_bin(&chunks) {
        write!(line, ",{count}").unwrap();
    }
    line
}

fn chunks_text(pool: &dyn Allocator, tags: bool) -> String {
    let mut text = "offset,size,in_use,requested,bin".to_owned();
    text += if tags { ",tag\n" } else { "\n" };
    for chunk in pool.chunks() {
        let (offset, in_use) = (chunk.address - BASE, u8::from(chunk.in_use));
        let (bytes, requested) = (chunk.bytes, chunk.requested_bytes);
        let bin = chunk.bin.map_or(-1, i32::from);
        write!(text, "{offset},{bytes},{in_use},{requested},{bin}").unwrap();
        if tags {
            write!(text, ",{}", chunk.tag).unwrap();
        }
        text.push('\n');
    }
    text
}
