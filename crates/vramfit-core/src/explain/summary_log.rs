//! What a recorded run says, as a log would: the same messages, to the byte.

use super::cause::Evidence;
use super::dump_line::{DumpLine, PoolFigures, PoolStats};
use super::log::{Counter, Log};
use super::message::Message;
use super::number::Size;
use crate::allocator::AllocatorKind;
use crate::analysis::{AllocationFailure, RunSummary};
use crate::bytes::Bytes;
use crate::gpu;

/// A pool allocates multiples of this.
const UNIT: u64 = 256;

impl Log {
    /// Makes a log of a recorded run. The lines of its evidence are the indices of events.
    pub fn from_summary(summary: &RunSummary, source: impl Into<String>) -> Log {
        let mut log = Log::new(source.into());
        let header = &summary.header;
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
        for compiled in &summary.compilations {
            log.compilations.insert(
                compiled.name.clone(),
                Counter {
                    count: compiled.count - compiled.loaded.min(compiled.count),
                    first: Some(Evidence {
                        source: None,
                        line: 0,
                        process: None,
                        text: format!("`{}` compiled {} times", compiled.name, compiled.count),
                    }),
                    number: 0,
                },
            );
        }
        for leak in &summary.leaks {
            let text = format!(
                "{} are allocated, {} times up to the end; made at {}",
                leak.describe_growth(),
                leak.steps,
                leak.site
            );
            log.push(
                0,
                text,
                Message::Leak { growth: leak.describe_growth(), site: leak.site.clone() },
            );
        }
        match summary.out_of_memory() {
            Some(failure) => log.add_failure(summary, failure),
            None => log.push(
                summary.events,
                verdict_text(summary),
                Message::Dryrun {
                    fits: summary.fits() == Some(true),
                    short: None,
                    program: None,
                    fragmented: false,
                },
            ),
        }
        log.finish();
        log
    }

    fn add_failure(&mut self, summary: &RunSummary, failure: &AllocationFailure) {
        let context = &failure.context;
        let size = Size::exact(context.requested_bytes);
        let program = context.program.clone();
        let by = program.as_ref().map_or(String::new(), |name| format!(" in `{name}`"));
        let text = format!(
            "{} ({} bytes) requested for {}{by} and refused",
            Bytes(context.requested_bytes),
            context.requested_bytes,
            context.purpose.label(),
        );
        let kind: Option<AllocatorKind> = summary.header.allocator.parse().ok();
        let message = match kind {
            Some(AllocatorKind::Bfc) | None => Message::PoolRefusal {
                size,
                rounded: context.requested_bytes.checked_next_multiple_of(UNIT),
                end: None,
            },
            Some(AllocatorKind::CudaAsync) => Message::AsyncRefusal { size },
            Some(AllocatorKind::Vmm) => Message::BudgetRefusal { size, budget: 0 },
            Some(AllocatorKind::Platform | AllocatorKind::Address) => {
                Message::DirectRefusal { size }
            }
        };
        self.push(context.event, text.clone(), message);
        self.push(context.event, text, Message::OutOfMemory { size, program });
        let Some(device) = summary.devices.get(failure.device as usize) else {
            return;
        };
        let limit = device.limit().unwrap_or(device.capacity_bytes);
        let in_use = failure.pool.in_use_bytes;
        self.push_dump_line(DumpLine::Stats(PoolStats {
            limit: Some(Size::exact(limit)),
            in_use: Some(Size::exact(in_use)),
            peak_in_use: Some(Size::exact(device.peak_bytes)),
            largest_free_block: failure.pool.largest_free_block_bytes.map(Size::exact),
        }));
        let Some(free) = failure.pool.free_bytes else {
            return;
        };
        let pool = in_use.saturating_add(free);
        self.push_dump_line(DumpLine::Pool(PoolFigures {
            pool: Size::exact(pool),
            limit: Size::exact(limit),
            next_region: None,
            largest_usable: failure.pool.largest_free_block_bytes.map(Size::exact),
            free: Some(Size::exact(free)),
            grows: Some(!summary.header.preallocate),
        }));
    }
}

fn verdict_text(summary: &RunSummary) -> String {
    let peak = summary.critical_device().map_or(0, |device| device.peak_bytes);
    match summary.fits() {
        Some(true) => format!("the recorded run fits, with a peak of {}", Bytes(peak)),
        _ => format!("no request was refused in the recorded run, with a peak of {}", Bytes(peak)),
    }
}
