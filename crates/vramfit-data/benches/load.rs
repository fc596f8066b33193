//! Shuffled epochs through the loader, beside what bounds them: copying the rows in the same order from memory,
//! and bare libdeflate with a plain unshuffle. One reader thread, so that both sides have one processor;
//! the consumer only counts.

#![allow(missing_docs, reason = "criterion's macro makes a public function")]

mod sample;

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sample::{ALL_BYTES, CHUNK_ROWS, ROW_BYTES, ROWS, make, mix, open};
use vramfit_base::Bytes;
use vramfit_data::load::{BatchPoll, Loader, LoaderOptions};
use vramfit_data::order::RemainderPolicy;
use vramfit_data::source::Access;
use vramfit_data::write::{Compression, Storage};

fn loader(path: &Path) -> Loader {
    let request = LoaderOptions {
        // A third of the file in each of two windows.
        budget: Bytes(ALL_BYTES as u64),
        remainder: RemainderPolicy::Drop,
        threads: Some(1),
        ..LoaderOptions::new(path, ["x"])
    };
    Loader::open(request).expect("the file was just made")
}

fn epoch(loader: &mut Loader) -> usize {
    let mut bytes = 0;
    loader.start(0, 0).expect("the file is sound");
    let long = Duration::from_secs(10);
    while let BatchPoll::Ready(batch) = loader.poll_batch(long, long).expect("the file is sound") {
        bytes += black_box(&batch).columns[0].bytes().len();
    }
    bytes
}

fn epochs(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut group = c.benchmark_group("a shuffled epoch of rows of 256 bytes");
    group.sample_size(20);
    group.throughput(Throughput::Bytes(ALL_BYTES as u64));

    let gzip = Storage::Chunked { rows: CHUNK_ROWS, compression: Compression::Gzip(4) };
    for (name, storage) in [("contiguous", Storage::Contiguous), ("gzip", gzip)] {
        let path = folder.path().join(name);
        make(&path, storage);
        if name == "contiguous" {
            let mut all = vec![0; ALL_BYTES];
            let mut out = vec![0; ALL_BYTES];
            let rows = open(&path, Access::Read, 1);
            rows.read(0..ROWS, &mut all).expect("it is sound");
            group.bench_function("copied from memory", |b| {
                b.iter(|| {
                    for (place, out) in out.chunks_exact_mut(ROW_BYTES).enumerate() {
                        let start = (mix(place as u64) % ROWS) as usize * ROW_BYTES;
                        out.copy_from_slice(&all[start..start + ROW_BYTES]);
                    }
                    black_box(&mut out);
                });
            });
        } else {
            sample::bare(&mut group, &path);
        }
        let mut loader = loader(&path);
        group.bench_function(format!("loader, {name}"), |b| b.iter(|| epoch(&mut loader)));
    }
    group.finish();
}

criterion_group!(benches, epochs);
criterion_main!(benches);
