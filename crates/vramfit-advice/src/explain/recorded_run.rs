//! What a recorded run says, as a log would: the same messages, to the byte.

use super::cause::Evidence;
use super::dump_line::{DumpLine, PoolFigures, PoolStats};
use super::log::{Counter, Log};
use super::message::Message;
use super::number::Size;
use crate::allocator::AllocatorKind;
use crate::bytes::Bytes;
use crate::gpu;
use crate::trace::Header;

/// A pool allocates multiples of this.
const UNIT: u64 = 256;

/// What a recorded run, whose events were replayed, tells of its end.
#[derive(Clone, Debug)]
pub struct RecordedRun<'a> {
    /// What the trace begins with.
    pub header: &'a Header,
    /// The programs that were compiled, by name, and how often each was.
    pub compilations: Vec<(&'a str, u64)>,
    /// What grew until the end, the most bytes first.
    pub leaks: Vec<RecordedLeak<'a>>,
    /// The request that was refused first.
    pub failure: Option<RecordedFailure<'a>>,
    /// Events of the trace.
    pub events: u64,
    /// Whether the run fits; `None` where it does not tell.
    pub fits: Option<bool>,
    /// The peak of the device that decides.
    pub peak_bytes: u64,
}

/// Memory that grew until the end of a run.
#[derive(Clone, Debug)]
pub struct RecordedLeak<'a> {
    /// How fast, such as `64.0 MiB more in every step`.
    pub growth: String,
    /// How many times in a row.
    pub times: u64,
    /// The line that made it.
    pub site: &'a str,
}

/// A request for memory that was refused, and its pool at that moment.
#[derive(Clone, Debug)]
pub struct RecordedFailure<'a> {
    /// The bytes that were requested.
    pub requested_bytes: u64,
    /// What for.
    pub purpose: &'a str,
    /// The program that ran.
    pub program: Option<&'a str>,
    /// The event of the trace.
    pub event: u64,
    /// The pool; `None` where the device is not recorded.
    pub pool: Option<RecordedPool>,
}

/// A pool when a request was refused. All figures are in bytes.
#[derive(Clone, Copy, Debug)]
pub struct RecordedPool {
    /// The most that it may allocate.
    pub limit_bytes: u64,
    /// What was allocated.
    pub in_use_bytes: u64,
    /// The most that was allocated until then.
    pub peak_bytes: u64,
    /// What was free in it; `None` for an allocator without a pool of its own.
    pub free_bytes: Option<u64>,
    /// The largest of its free blocks.
    pub largest_free_block_bytes: Option<u64>,
}

impl Log {
    /// Makes a log of a recorded run. The lines of its evidence are the indices of events.
    pub fn from_run(run: &RecordedRun<'_>, source: impl Into<String>) -> Log {
        let mut log = Log::new(source.into());
        let header = run.header;
        let jax: Option<Vec<u32>> = header.jax.split('.').map(|part| part.parse().ok()).collect();
        if let Some([major, minor, patch]) = jax.as_deref() {
            let version = (*major, *minor, *patch);
            log.push(0, format!("jax {}", header.jax), Message::Jax { version });
        }
        if let Some(gpu) = gpu::get(&header.gpu().name) {
            let name = &gpu.name;
            log.push(0, format!("GPU {name}"), Message::Gpu { name });
        }
        log.push(
            0,
            format!("GPU memory {}", Bytes(header.total_memory_bytes())),
            Message::GpuMemory {
                free: header.total_memory_bytes().saturating_sub(header.run.occupied_bytes),
                total: header.total_memory_bytes(),
                at_failure: false,
            },
        );
        for (name, count) in &run.compilations {
            log.compilations.insert(
                (*name).to_owned(),
                Counter {
                    count: *count,
                    first: Some(Evidence {
                        source: None,
                        line: 0,
                        process: None,
                        text: format!("`{name}` compiled {count} times"),
                    }),
                    number: 0,
                },
            );
        }
        for leak in &run.leaks {
            let RecordedLeak { growth, times, site } = leak;
            let text =
                format!("{growth} are allocated, {times} times up to the end; made at {site}");
            let message = Message::Leak { growth: growth.clone(), site: (*site).to_owned() };
            log.push(0, text, message);
        }
        match &run.failure {
            Some(failure) => log.add_failure(header, failure),
            None => log.push(
                run.events,
                verdict_text(run),
                Message::Dryrun {
                    fits: run.fits == Some(true),
                    short: None,
                    program: None,
                    fragmented: false,
                },
            ),
        }
        log.finish();
        log
    }

    fn add_failure(&mut self, header: &Header, failure: &RecordedFailure<'_>) {
        let RecordedFailure { requested_bytes, purpose, program, event, pool } = *failure;
        let size = Size::exact(requested_bytes);
        let by = program.map_or(String::new(), |name| format!(" in `{name}`"));
        let text = format!(
            "{} ({requested_bytes} bytes) requested for {purpose}{by} and refused",
            Bytes(requested_bytes),
        );
        let kind: Option<AllocatorKind> = header.allocator.parse().ok();
        let message = match kind {
            Some(AllocatorKind::Bfc) | None => Message::PoolRefusal {
                size,
                rounded: requested_bytes.checked_next_multiple_of(UNIT),
                end: None,
                device: None,
            },
            Some(AllocatorKind::CudaAsync) => Message::AsyncRefusal { size },
            Some(AllocatorKind::Vmm) => Message::BudgetRefusal { size, budget: 0 },
            Some(AllocatorKind::Platform | AllocatorKind::Address) => {
                Message::DirectRefusal { size }
            }
        };
        self.push(event, text.clone(), message);
        let program = program.map(str::to_owned);
        self.push(event, text, Message::OutOfMemory { size, program });
        let Some(pool) = pool else {
            return;
        };
        let limit = Size::exact(pool.limit_bytes);
        let largest_block = pool.largest_free_block_bytes.map(Size::exact);
        self.push_dump_line(DumpLine::Stats(PoolStats {
            limit: Some(limit),
            in_use: Some(Size::exact(pool.in_use_bytes)),
            peak_in_use: Some(Size::exact(pool.peak_bytes)),
            largest_free_block: largest_block,
        }));
        let Some(free_bytes) = pool.free_bytes else {
            return;
        };
        self.push_dump_line(DumpLine::Pool(PoolFigures {
            pool: Size::exact(pool.in_use_bytes.saturating_add(free_bytes)),
            limit,
            next_region: None,
            largest_usable: largest_block,
            free: Some(Size::exact(free_bytes)),
            grows: Some(!header.preallocate),
        }));
    }
}

fn verdict_text(run: &RecordedRun<'_>) -> String {
    let peak = Bytes(run.peak_bytes);
    match run.fits {
        Some(true) => format!("the recorded run fits, with a peak of {peak}"),
        _ => format!("no request was refused in the recorded run, with a peak of {peak}"),
    }
}
