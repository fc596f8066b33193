//! The file that readers are measured with, and bare libdeflate.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::BenchmarkGroup;
use criterion::measurement::WallTime;
use libdeflater::Decompressor;
use vramfit_base::Bytes;
use vramfit_data::hdf5::Container;
use vramfit_data::read::{Dataset, RowOptions, RowReader, Storage};
use vramfit_data::source::{Access, Source};
use vramfit_data::write;

pub(crate) const ROWS: u64 = 1 << 18;
pub(crate) const COLUMNS: u64 = 64;
pub(crate) const CHUNK_ROWS: u64 = 1024;
pub(crate) const ROW_BYTES: usize = COLUMNS as usize * 4;
pub(crate) const ALL_BYTES: usize = ROWS as usize * ROW_BYTES;
pub(crate) const CHUNK_BYTES: usize = CHUNK_ROWS as usize * ROW_BYTES;

/// Returns a number that looks random and is the same in every run.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Returns about normal numbers, rounded to 1/1024, as the facts about other readers were measured with.
fn value(place: u64) -> f32 {
    let sum: u64 = (0..4).map(|part| mix(place * 4 + part) >> 48).sum();
    let normal = (sum as f32 / 65536.0 - 2.0) * 1.732;
    (normal * 1024.0).round() / 1024.0
}

pub(crate) fn make(path: &Path, storage: write::Storage) {
    let content = write::Content {
        datasets: vec![write::Dataset::new("x", write::Number::F32, vec![ROWS, COLUMNS], storage)],
        ..write::Content::default()
    };
    let task = write::WriteTask {
        path,
        content,
        purpose: "benchmark",
        options: write::WriteOptions::default(),
        threads: 2,
        expected: Bytes(ALL_BYTES as u64),
    };
    let rows = |rows: std::ops::Range<u64>, out: &mut [Vec<u8>]| {
        for place in rows.start * COLUMNS..rows.end * COLUMNS {
            out[0].extend(value(place).to_le_bytes());
        }
        Ok(())
    };
    write::write(task, &rows, &mut |_| {}).expect("a file for the benchmark");
}

pub(crate) fn open(path: &Path, access: Access, threads: usize) -> RowReader {
    let source = Source::open(path, access).expect("the file was just made");
    let container = Container::open(Arc::new(source)).expect("it is sound");
    let options = RowOptions { threads, ..RowOptions::default() };
    RowReader::new(Dataset::open_in(&container, "x").expect("it is there"), &options)
        .expect("it has rows")
}

/// Measures decompressing and unshuffling the chunks of a file, which are in memory.
pub(crate) fn bare(group: &mut BenchmarkGroup<'_, WallTime>, path: &Path) {
    let mut out = vec![0; ALL_BYTES];
    let rows = open(path, Access::Read, 1);
    let Storage::Chunked { table, .. } = rows.dataset().storage() else {
        return;
    };
    let stored: Vec<Vec<u8>> = table
        .iter()
        .map(|chunk| {
            let mut bytes = vec![0; chunk.size as usize];
            let source = rows.dataset().container().source();
            source.read_at(chunk.address, &mut bytes).expect("it is there");
            bytes
        })
        .collect();
    let mut planes = vec![0; CHUNK_BYTES];
    let mut inflater = Decompressor::new();
    group.bench_function("bare libdeflate and unshuffle", |b| {
        b.iter(|| {
            for (bytes, out) in stored.iter().zip(out.chunks_exact_mut(CHUNK_BYTES)) {
                inflater.zlib_decompress(bytes, &mut planes).expect("it is sound");
                let count = CHUNK_BYTES / 4;
                for (index, element) in out.chunks_exact_mut(4).enumerate() {
                    element[0] = planes[index];
                    element[1] = planes[index + count];
                    element[2] = planes[index + 2 * count];
                    element[3] = planes[index + 3 * count];
                }
            }
            black_box(&mut out);
        });
    });
}
