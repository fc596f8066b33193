//! What a trace costs the run that writes it, in ns per event.
//!
//! `folded` is the state a training loop is in after its third step; `unfolded` is the worst
//! case, a run in which nothing ever repeats.

#![allow(missing_docs, reason = "the macro makes a public function")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use vramfit_core::allocator::Space;
use vramfit_core::trace::{Event, Footer, Header, Purpose, Reader, TextId, Writer};

/// Events of one step: eight outputs, one temporary, all freed.
const STEP: u64 = 20;

fn step(first: u64, salt: u64) -> Vec<Event> {
    let allocate = |slot: u32| Event::Allocate {
        device: 0,
        bytes: 4096 * u64::from(slot) + salt,
        alignment: 256,
        space: Space::Default,
        purpose: Purpose::Output,
        slot,
        site: TextId(0),
    };
    let mut events = vec![Event::Begin {
        program: 1,
        site: TextId(0),
    }];
    events.extend((0..9).map(allocate));
    events.push(Event::End);
    events.extend((0..9).map(|slot| Event::Free {
        allocation: first + slot,
    }));
    events
}

fn folded(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("trace");
    group
        .throughput(Throughput::Elements(STEP))
        .measurement_time(Duration::from_secs(2));
    let open = || Writer::new(std::io::sink(), &Header::default()).expect("a sink takes all");

    let (mut writer, mut first) = (open(), 0);
    group.bench_function("write, folded", |bencher| {
        bencher.iter(|| {
            writer
                .event(&Event::Begin {
                    program: 1,
                    site: TextId(0),
                })
                .expect("sink");
            for slot in 0..9 {
                writer
                    .event(black_box(&Event::Allocate {
                        device: 0,
                        bytes: 4096 * u64::from(slot),
                        alignment: 256,
                        space: Space::Default,
                        purpose: Purpose::Output,
                        slot,
                        site: TextId(0),
                    }))
                    .expect("sink");
            }
            writer.event(&Event::End).expect("sink");
            for slot in 0..9 {
                writer
                    .event(black_box(&Event::Free {
                        allocation: first + slot,
                    }))
                    .expect("sink");
            }
            first += 9;
        });
    });

    let (mut writer, mut first) = (open(), 0);
    group.bench_function("write, unfolded", |bencher| {
        bencher.iter(|| {
            for event in step(first, first) {
                writer.event(&event).expect("sink");
            }
            first += 9;
        });
    });

    let mut writer = open();
    let site = "/home/someone/project/train.py:123 (train_one_epoch)";
    group.throughput(Throughput::Elements(1));
    group.bench_function("text, known", |bencher| {
        bencher.iter(|| writer.text(black_box(site)));
    });
    group.finish();
}

fn reading(criterion: &mut Criterion) {
    let path = std::env::temp_dir().join(format!("vramfit-bench-{}", std::process::id()));
    let file = std::fs::File::create(&path).expect("a temporary file");
    let mut writer = Writer::new(file, &Header::default()).expect("a temporary file");
    let steps = 10_000;
    for number in 0..steps {
        for event in step(9 * number, 0) {
            writer.event(&event).expect("a temporary file");
        }
    }
    writer.finish(&Footer::default()).expect("a temporary file");
    let bytes = std::fs::read(&path).expect("it was just written");
    std::fs::remove_file(&path).expect("it was just written");

    let mut group = criterion.benchmark_group("trace");
    group.throughput(Throughput::Elements(steps * STEP));
    group.bench_function("read, folded", |bencher| {
        bencher.iter(|| {
            let reader = Reader::new(&bytes[..]).expect("it was just written");
            reader
                .map(|event| event.expect("it was just written"))
                .map(black_box)
                .count()
        });
    });
    group.finish();
}

criterion_group!(benches, folded, reading);
criterion_main!(benches);
