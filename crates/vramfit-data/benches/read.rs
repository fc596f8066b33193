//! Reading rows beside what bounds it: bare libdeflate with a plain unshuffle for compressed chunks,
//! copying from memory for contiguous rows. Both sides of a pair make the same bytes in the same run.

#![allow(missing_docs, reason = "criterion's macro makes a public function")]

mod sample;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sample::{ALL_BYTES, CHUNK_ROWS, ROW_BYTES, ROWS, make, mix, open};
use vramfit_data::source::Access;
use vramfit_data::write;

fn decode(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gzip.h5");
    make(
        &path,
        write::Storage::Chunked { rows: CHUNK_ROWS, compression: write::Compression::Gzip(4) },
    );
    let mut group = c.benchmark_group("gzip and shuffle, chunks of 256 KiB");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(ALL_BYTES as u64));
    sample::bare(&mut group, &path);
    let mut out = vec![0; ALL_BYTES];
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
