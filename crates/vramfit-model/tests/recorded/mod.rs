//! Recordings of XLA's own BFC allocator: how they are read, and the GPU they were made on.
//!
//! The format is described in `fixtures/bfc/README.md`. The comparison itself is in the tests.

#![allow(dead_code, reason = "the benchmark uses a part of this")]
#![allow(unreachable_pub, reason = "a module of several binaries")]

pub mod replay;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use vramfit_model::allocator::{Chunk, DeviceMemory, LogRecord, Region, Severity};

/// Address 0 of the recordings.
pub const BASE: u64 = 1 << 40;

/// Returns the folder of recordings: the one in `variable` if it is set, else that in `fixtures/`.
pub fn folder(variable: &str, fixture: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(fixture),
        PathBuf::from,
    )
}

/// A file of comma-separated values, by column name.
pub struct Table {
    columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn parse(text: &str) -> Table {
        let mut lines = text.lines().map(fields);
        Table { columns: lines.next().expect("a header"), rows: lines.collect() }
    }

    pub fn read(path: &Path) -> Table {
        let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        Table::parse(&text)
    }

    pub fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|name| name == column)
    }

    pub fn get<'a>(&'a self, row: &'a [String], column: &str) -> &'a str {
        let index = self.columns.iter().position(|name| name == column);
        &row[index.unwrap_or_else(|| panic!("no column {column}"))]
    }
}

/// Splits a line; a field in quotes may hold commas.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            _ => fields.last_mut().unwrap().push(c),
        }
    }
    fields
}

/// One row of `scenarios.csv` or `dumps.csv`.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub folder: PathBuf,
    pub name: String,
    pub total_memory: u64,
    pub allow_growth: bool,
    pub garbage_collection: bool,
    pub fragmentation_fraction: f64,
    pub alignment: u64,
    pub device: FakeDevice,
    /// All columns, for what only one of the sets has.
    pub columns: HashMap<String, String>,
}

/// Reads every scenario of a folder.
pub fn scenarios(folder: &Path, table: &str) -> Vec<Scenario> {
    let table = Table::read(&folder.join(table));
    let scenarios: Vec<Scenario> = table
        .rows
        .iter()
        .map(|row| {
            let text = |column: &str| table.get(row, column);
            let number = |column: &str| -> u64 {
                if table.has(column) { text(column).parse().expect(column) } else { 0 }
            };
            Scenario {
                folder: folder.to_owned(),
                name: text("name").to_owned(),
                total_memory: number("total_memory"),
                allow_growth: number("allow_growth") == 1,
                garbage_collection: number("garbage_collection") == 1,
                fragmentation_fraction: text("fragmentation_fraction").parse().unwrap(),
                alignment: number("alignment"),
                device: FakeDevice {
                    kind: text("sub_allocator").to_owned(),
                    capacity: Some(number("capacity")).filter(|&n| n > 0).unwrap_or(1 << 44),
                    max_region: number("max_region"),
                    granule: number("granule"),
                    base_shift: number("base_shift"),
                    ..FakeDevice::default()
                },
                columns: table.columns.iter().cloned().zip(row.iter().cloned()).collect(),
            }
        })
        .collect();
    assert!(!scenarios.is_empty(), "no scenarios in {folder:?}");
    scenarios
}

impl Scenario {
    /// Reads one of the scenario's files, compressed or not.
    pub fn read(&self, ending: &str) -> String {
        let packed = self.folder.join(format!("traces/{}.{ending}.zst", self.name));
        let bytes = std::fs::read(&packed).unwrap_or_else(|e| panic!("{packed:?}: {e}"));
        String::from_utf8(zstd::decode_all(&bytes[..]).expect("zstd")).expect("UTF-8")
    }

    /// Returns `true` if the scenario has such a file.
    pub fn has(&self, ending: &str) -> bool {
        self.folder.join(format!("traces/{}.{ending}.zst", self.name)).exists()
    }
}

/// What was asked of the GPU: lines of `sub.txt`.
#[derive(Debug, Default)]
pub struct Calls {
    /// The operation in progress, counted from 1.
    pub operation: usize,
    pub lines: Vec<String>,
}

/// The fake GPUs of the recordings.
#[derive(Clone, Debug, Default)]
pub struct FakeDevice {
    kind: String,
    capacity: u64,
    max_region: u64,
    granule: u64,
    base_shift: u64,
    bytes_out: u64,
    /// Begin and end of the last region.
    last: Option<(u64, u64)>,
    /// Regions out by offset; only `arena` looks at them.
    out: BTreeMap<u64, u64>,
    pub calls: Arc<Mutex<Calls>>,
    /// Keeps no record of the calls, for timing.
    pub quiet: bool,
}

const GAP: u64 = 2 << 20;

impl FakeDevice {
    fn note(&self, call: std::fmt::Arguments<'_>) {
        if !self.quiet {
            let mut calls = self.calls.lock().unwrap();
            let operation = calls.operation;
            calls.lines.push(format!("{operation} {call}"));
        }
    }

    fn place(&self, got: u64) -> Option<u64> {
        if self.max_region > 0 && got > self.max_region {
            return None;
        }
        if self.kind != "arena" && self.bytes_out + got > self.capacity {
            return None;
        }
        let begin = self.last.map(|(begin, _)| begin);
        let end = self.last.map(|(_, end)| end);
        Some(match self.kind.as_str() {
            "arena" => {
                let mut at = self.base_shift;
                for (&begin, &bytes) in &self.out {
                    if begin - at >= got {
                        break;
                    }
                    at = begin + bytes;
                }
                (at + got <= self.base_shift + self.capacity).then_some(at)?
            }
            "adj_up" | "adj_up_coal" => end.unwrap_or(self.base_shift),
            "adj_down_coal" => begin.unwrap_or(1 << 45) - got,
            "gap_up" => {
                end.map_or(self.base_shift, |end| end.next_multiple_of(GAP) + GAP + self.base_shift)
            }
            "gap_down" => (begin.unwrap_or(1 << 45) - got) / GAP * GAP - GAP,
            other => panic!("unknown sub-allocator {other}"),
        })
    }
}

impl DeviceMemory for FakeDevice {
    fn allocate(&mut self, alignment: u64, bytes: u64) -> Option<Region> {
        let got = bytes.next_multiple_of(self.granule);
        let place = self.place(got);
        let Some(offset) = place else {
            self.note(format_args!("A {alignment} {bytes} -1 0"));
            return None;
        };
        self.note(format_args!("A {alignment} {bytes} {offset} {got}"));
        self.bytes_out += got;
        self.last = Some((offset, offset + got));
        self.out.insert(offset, got);
        Some(Region { address: BASE + offset, bytes: got })
    }

    fn free(&mut self, region: Region) {
        let offset = region.address - BASE;
        self.note(format_args!("F {offset} {}", region.bytes));
        self.out.remove(&offset);
        self.bytes_out -= region.bytes;
    }

    fn free_bytes(&self) -> u64 {
        self.capacity - self.bytes_out
    }

    fn merges_regions(&self) -> bool {
        self.kind == "arena" || self.kind.ends_with("_coal")
    }
}

/// Returns the `chunk_hash` of the recordings over one text line for each chunk.
pub fn chunk_hash(chunks: &[Chunk], with_tag: bool) -> String {
    let mut hash: u64 = 14_695_981_039_346_656_037;
    let mut line = String::new();
    for chunk in chunks {
        line.clear();
        let offset = chunk.address - BASE;
        let in_use = u8::from(chunk.in_use);
        write!(line, "{offset},{},{in_use},{}", chunk.bytes, chunk.requested_bytes).unwrap();
        if with_tag {
            write!(line, ",{}", chunk.tag).unwrap();
        }
        line.push('\n');
        for byte in line.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
        }
    }
    format!("{hash:016x}")
}

/// Counts the free chunks of each bin.
pub fn free_by_bin(chunks: &[Chunk]) -> [usize; 21] {
    let mut counts = [0; 21];
    for bin in chunks.iter().filter_map(|chunk| chunk.bin) {
        counts[usize::from(bin)] += 1;
    }
    counts
}

/// Says where two texts differ first.
pub fn assert_same_lines(what: &str, ours: &str, theirs: &str) {
    if ours == theirs {
        return;
    }
    for (number, (our, their)) in ours.lines().zip(theirs.lines()).enumerate() {
        assert_eq!(our, their, "{what}, line {}", number + 1);
    }
    assert_eq!(ours.lines().count(), theirs.lines().count(), "{what}: number of lines");
    assert_eq!(ours, theirs, "{what}");
}

/// Reads the records of a recorded log.
pub fn parse_log(text: &str) -> Vec<LogRecord> {
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

/// Says where two logs differ first.
pub fn assert_same_records(what: &str, ours: &[LogRecord], theirs: &[LogRecord]) {
    for (number, (our, their)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(our, their, "{what}, record {number}");
    }
    assert_eq!(ours.len(), theirs.len(), "{what}: number of records");
}
