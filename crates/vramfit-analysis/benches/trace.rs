//! What a trace costs the run that writes it, in ns per event.
//!
//! `folded` is the state a training loop is in after its third step; `unfolded` is the worst
//! case, a run in which nothing ever repeats.

#![allow(missing_docs, reason = "the macro makes a public function")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use vramfit_analysis::analysis::{ReplayOverrides, compare, summarize};
use vramfit_model::allocator::{Allocator, DeviceMemory, PoolOptions, PoolSpace, Region, build};
use vramfit_model::program::ProgramSizes;
use vramfit_model::run_config::RunConfig;
use vramfit_model::settings::Options;
use vramfit_model::trace::{Event, Footer, Header, Purpose, Reader, TextId, Writer};

/// Events of one step: eight outputs, one temporary, all freed.
const STEP: u64 = 20;

const BEGIN: Event = Event::Begin { program: 1, site: TextId(0) };

fn allocation(bytes: u64, slot: u32) -> Event {
    Event::Allocate {
        device: 0,
        bytes,
        alignment: 256,
        space: PoolSpace::Default,
        purpose: Purpose::Output,
        slot,
        site: TextId(0),
    }
}

fn step(first: u64, salt: u64) -> Vec<Event> {
    let mut events = vec![BEGIN];
    events.extend((0..9).map(|slot| allocation(4096 * u64::from(slot) + salt, slot)));
    events.push(Event::End);
    events.extend((0..9).map(|slot| Event::Free { allocation: first + slot }));
    events
}

fn folded(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("trace");
    group.throughput(Throughput::Elements(STEP)).measurement_time(Duration::from_secs(2));
    let open = || Writer::new(std::io::sink(), &Header::default()).expect("a sink takes all");

    let (mut writer, mut first) = (open(), 0);
    group.bench_function("write, folded", |bencher| {
        bencher.iter(|| {
            writer.event(&BEGIN).expect("sink");
            for slot in 0..9 {
                writer.event(black_box(&allocation(4096 * u64::from(slot), slot))).expect("sink");
            }
            writer.event(&Event::End).expect("sink");
            for slot in 0..9 {
                writer.event(black_box(&Event::Free { allocation: first + slot })).expect("sink");
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

/// Writes a trace to a file, and returns its bytes.
fn written(header: &Header, write: impl FnOnce(&mut Writer) -> Footer) -> Vec<u8> {
    let path = std::env::temp_dir().join(format!("vramfit-bench-{}", std::process::id()));
    let file = std::fs::File::create(&path).expect("a temporary file");
    let mut writer = Writer::new(file, header).expect("a temporary file");
    let footer = write(&mut writer);
    writer.finish(&footer).expect("a temporary file");
    let bytes = std::fs::read(&path).expect("it was just written");
    std::fs::remove_file(&path).expect("it was just written");
    bytes
}

fn reading(criterion: &mut Criterion) {
    let steps = 10_000;
    let bytes = written(&Header::default(), |writer| {
        for number in 0..steps {
            for event in step(9 * number, 0) {
                writer.event(&event).expect("a temporary file");
            }
        }
        Footer::default()
    });

    let mut group = criterion.benchmark_group("trace");
    group.throughput(Throughput::Elements(steps * STEP));
    group.bench_function("read, folded", |bencher| {
        bencher.iter(|| {
            let reader = Reader::new(&bytes[..]).expect("it was just written");
            reader.map(|event| event.expect("it was just written")).map(black_box).count()
        });
    });
    group.finish();
}

/// A GPU that gives whatever is asked of it and notes it for the trace.
struct Generous(std::sync::mpsc::Sender<u64>);

impl DeviceMemory for Generous {
    fn allocate(&mut self, _alignment: u64, bytes: u64) -> Option<Region> {
        self.0.send(bytes).expect("the bench listens");
        Some(Region { address: 1 << 40, bytes })
    }

    fn free(&mut self, _region: Region) {}

    fn free_bytes(&self) -> u64 {
        0
    }
}

/// A run of `steps` equal steps over `parameters` arrays that stay.
fn run(steps: u64, parameters: u64) -> Vec<u8> {
    let header = Header {
        run: RunConfig::new("h100-80g".parse().expect("in the catalog")),
        jax: "0.10.2".into(),
        devices: 1,
        allocator: "bfc".into(),
        memory_fraction: 0.75,
        preallocate: true,
        ..Header::default()
    };
    let (asked, answers) = std::sync::mpsc::channel();
    let options =
        PoolOptions { total_memory_bytes: header.total_memory_bytes(), ..PoolOptions::default() };
    let mut pool = build(&options, Box::new(Generous(asked)));
    written(&header, |writer| {
        let mut number = 0;
        let mut allocate = |writer: &mut Writer, pool: &mut dyn Allocator, bytes| {
            let address = pool.allocate(bytes, 256, PoolSpace::Default).expect("there is room");
            for asked in answers.try_iter() {
                let (address, granted) = (1 << 40, asked);
                let driver = Event::Driver { device: 0, asked, address, granted };
                writer.event(&driver).expect("a temporary file");
            }
            let event = allocation(bytes, 0);
            writer.event(&event).expect("a temporary file");
            number += 1;
            (number - 1, address)
        };
        for parameter in 0..parameters {
            allocate(writer, &mut *pool, 1000 * (parameter % 50 + 1));
        }
        let program = Event::Program {
            program: 1,
            name: TextId(0),
            sizes: ProgramSizes::default(),
            devices: 1,
            loaded: false,
            compile_attempt: TextId(0),
            site: TextId(0),
        };
        writer.event(&program).expect("a temporary file");
        for _ in 0..steps {
            writer.event(&BEGIN).expect("a temporary file");
            let blocks: Vec<_> =
                (0..9u64).map(|slot| allocate(writer, &mut *pool, 100_000 * (slot + 1))).collect();
            writer.event(&Event::End).expect("a temporary file");
            for (allocation, address) in blocks {
                pool.free(address).expect("it was allocated");
                writer.event(&Event::Free { allocation }).expect("a temporary file");
            }
        }
        let stats = pool.stats();
        Footer {
            bytes_in_use: vec![stats.bytes_in_use],
            peak_bytes_in_use: vec![stats.peak_bytes_in_use],
            pool_bytes: vec![stats.pool_bytes.expect("BFC has a pool")],
            num_allocs: vec![stats.num_allocs],
            executions: steps,
            ..Footer::default()
        }
    })
}

fn answering(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("trace");
    group.sample_size(10).measurement_time(Duration::from_secs(4));
    for (name, parameters) in [("few arrays", 10), ("10 000 arrays", 10_000)] {
        let steps = 10_000;
        let bytes = run(steps, parameters);
        group.throughput(Throughput::Elements(steps * STEP));
        group.bench_function(format!("summarize, {name}"), |bencher| {
            bencher.iter(|| {
                let reader = Reader::new(&bytes[..]).expect("it was just written");
                summarize(reader).expect("it was just written")
            });
        });
    }
    group.finish();
}

/// A million events, as they were and under another fraction.
fn replaying(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("trace");
    group.sample_size(10).measurement_time(Duration::from_secs(6));
    let steps = 50_000;
    let bytes = run(steps, 1000);
    let settings = ReplayOverrides {
        options: Options { fraction: Some(0.9), ..Options::default() },
        ..ReplayOverrides::default()
    };
    group.throughput(Throughput::Elements(steps * STEP));
    group.bench_function("replay, other fraction", |bencher| {
        bencher.iter(|| {
            let mut reader = Reader::new(&bytes[..]).expect("it was just written");
            compare(&mut reader, &settings).expect("it was just written")
        });
    });
    group.finish();
}

criterion_group!(benches, folded, reading, answering, replaying);
criterion_main!(benches);
