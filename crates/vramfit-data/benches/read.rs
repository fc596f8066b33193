//! Reading rows beside what bounds it: bare libdeflate with a plain unshuffle for compressed chunks,
//! copying from memory for contiguous rows. Both sides of a pair make the same bytes in the same run.

#![allow(missing_docs, reason = "criterion's macro makes a public function")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use libdeflater::Decompressor;
use vramfit_core::Bytes;
use vramfit_data::hdf5::Container;
use vramfit_data::read::{Dataset, RowOptions, Rows, Storage};
use vramfit_data::source::{Access, Source};
use vramfit_data::write;

const ROWS: u64 = 1 << 16;
const COLUMNS: u64 = 64;
const CHUNK_ROWS: u64 = 1024;
const ROW_BYTES: usize = COLUMNS as usize * 4;
const ALL_BYTES: usize = ROWS as usize * ROW_BYTES;
const CHUNK_BYTES: usize = CHUNK_ROWS as usize * ROW_BYTES;

/// Returns a number that looks random and is the same in every run.
fn mix(number: u64) -> u64 {
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

fn make(path: &Path, storage: write::Storage) {
    let content = write::Content {
        datasets: vec![write::Dataset::new(
            "x",
            write::Number::F32,
            vec![ROWS, COLUMNS],
            storage,
        )],
        ..write::Content::default()
    };
    let job = write::Job {
        path,
        content,
        purpose: "benchmark",
        manner: write::Manner::default(),
        threads: 2,
        expected: Bytes(ALL_BYTES as u64),
    };
    let rows = |rows: std::ops::Range<u64>, out: &mut [Vec<u8>]| {
        for place in rows.start * COLUMNS..rows.end * COLUMNS {
            out[0].extend(value(place).to_le_bytes());
        }
        Ok(())
    };
    write::write(job, &rows, &mut |_| {}).expect("a file for the benchmark");
}

fn open(path: &Path, access: Access, threads: usize) -> Rows {
    let source = Source::open(path, access).expect("the file was just made");
    let container = Container::open(Arc::new(source)).expect("it is sound");
    let options = RowOptions {
        threads,
        ..RowOptions::default()
    };
    Rows::new(
        Dataset::open_in(&container, "x").expect("it is there"),
        &options,
    )
    .expect("it has rows")
}

fn decode(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gzip.h5");
    make(
        &path,
        write::Storage::Chunked {
            rows: CHUNK_ROWS,
            compression: write::Compression::Gzip(4),
        },
    );
    let mut group = c.benchmark_group("gzip and shuffle, chunks of 256 KiB");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(ALL_BYTES as u64));
    let mut out = vec![0; ALL_BYTES];

    let rows = open(&path, Access::Read, 1);
    let Storage::Chunked { table, .. } = rows.dataset().storage() else {
        return;
    };
    let stored: Vec<Vec<u8>> = table
        .iter()
        .map(|chunk| {
            let mut bytes = vec![0; chunk.size as usize];
            let source = rows.dataset().container().source();
            source
                .read_at(chunk.address, &mut bytes)
                .expect("it is there");
            bytes
        })
        .collect();
    let mut planes = vec![0; CHUNK_BYTES];
    let mut inflater = Decompressor::new();
    group.bench_function("bare libdeflate and unshuffle", |b| {
        b.iter(|| {
            for (bytes, out) in stored.iter().zip(out.chunks_exact_mut(CHUNK_BYTES)) {
                inflater
                    .zlib_decompress(bytes, &mut planes)
                    .expect("it is sound");
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
    for threads in [1, 2] {
        let rows = open(&path, Access::Read, threads);
        group.bench_function(format!("rows, {threads} threads"), |b| {
            b.iter(|| rows.read(0..ROWS, &mut out).expect("it is sound"));
        });
    }
    group.finish();
}

fn gather(c: &mut Criterion) {
    const BATCH: usize = 4096;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("contiguous.h5");
    make(&path, write::Storage::Contiguous);
    let mut group = c.benchmark_group("any rows of 256 bytes, contiguous");
    group.throughput(Throughput::Bytes((BATCH * ROW_BYTES) as u64));
    let mut out = vec![0; BATCH * ROW_BYTES];
    let wanted: Vec<u64> = (0..BATCH as u64).map(|place| mix(place) % ROWS).collect();

    let mut all = vec![0; ALL_BYTES];
    let rows = open(&path, Access::Read, 1);
    rows.read(0..ROWS, &mut all).expect("it is sound");
    group.bench_function("copied from memory", |b| {
        b.iter(|| {
            for (row, out) in wanted.iter().zip(out.chunks_exact_mut(ROW_BYTES)) {
                let start = *row as usize * ROW_BYTES;
                out.copy_from_slice(&all[start..start + ROW_BYTES]);
            }
            black_box(&mut out);
        });
    });
    for (name, access) in [("read", Access::Read), ("mapped", Access::MapIfSafe)] {
        let rows = open(&path, access, 1);
        group.bench_function(name, |b| {
            b.iter(|| rows.gather(&wanted, &mut out).expect("it is sound"));
        });
    }
    group.finish();
}

criterion_group!(benches, decode, gather);
criterion_main!(benches);
