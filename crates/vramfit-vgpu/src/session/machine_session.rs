//! The locked machine: allocates and frees memory and records it in the trace. One lock keeps the trace in
//! the order of the allocations.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use vramfit_model::ErrorKind;
use vramfit_model::allocator::{AllocError, PoolSpace, Region, Stats};
use vramfit_model::trace::{Event, Footer, MIN_UNREAD_BYTES, Note, Purpose, TextId, Writer};

use crate::device::machine::{DevicePool, Machine, MachineState, is_forked};
use crate::device::shared_gpu::SharedGpu;
use crate::lock;
use crate::pjrt::status::{PjrtResult, Status, StatusCode};
use crate::session::log;
use crate::session::trace_failure;

/// The alignment that PJRT requests (`kAllocatorAlignment`); the allocators round it up to 256.
pub(crate) const ALIGNMENT: u64 = 64;

/// How many allocations one note names; with twenty digits each they are below the longest note.
const MAX_NOTED_ALLOCATIONS: usize = 2048;

/// How much of the trace may be lost when the process is killed.
const FLUSH_INTERVAL: Duration = Duration::from_millis(20);

/// A request for device memory.
pub(crate) struct AllocationRequest {
    pub(crate) device: u32,
    pub(crate) bytes: u64,
    pub(crate) space: PoolSpace,
    pub(crate) purpose: Purpose,
    pub(crate) slot: u32,
    /// The line that asks, where that is not the one of an execution.
    pub(crate) site: TextId,
}

impl AllocationRequest {
    /// Returns a request for a block of the default pool that belongs to no slot of a program.
    pub(crate) fn new(device: u32, bytes: u64, purpose: Purpose) -> Self {
        AllocationRequest {
            device,
            bytes,
            space: PoolSpace::Default,
            purpose,
            slot: 0,
            site: TextId(0),
        }
    }
}

/// A block of device memory; freed on drop.
pub(crate) struct Block {
    machine: &'static Machine,
    device: u32,
    pub(crate) address: u64,
    number: u64,
    /// Of a large output: whether nothing has read it so far.
    is_unread: Option<Arc<AtomicBool>>,
    /// Of which call that has ended it is an argument that an output replaces: see [`encode_argument`].
    replaced_in: AtomicU64,
    /// The last peak ([`Machine::first_after_peak`]) after which it was read; meaningless for small arrays.
    read_after: AtomicU64,
    pub(crate) bytes: u64,
}

/// Returns program and parameter as one number that is not 0.
fn encode_argument(program: u32, parameter: u32) -> u64 {
    (u64::from(program) << 32) | (u64::from(parameter) + 1)
}

/// Returns program and parameter of a number of [`encode_argument`]; `None` for 0.
fn decode_argument(number: u64) -> Option<(u32, u32)> {
    Some(((number >> 32) as u32, (number as u32).checked_sub(1)?))
}

impl Block {
    /// Notes that something reads the array: an execution, a copy, or the host.
    pub(crate) fn mark_read(&self) {
        if let Some(is_unread) = &self.is_unread {
            is_unread.store(false, Ordering::Relaxed);
        }
        if self.bytes >= MIN_UNREAD_BYTES {
            let peak = self.machine.first_after_peak[self.device as usize].load(Ordering::Relaxed);
            let is_new =
                self.number < peak && self.read_after.swap(peak, Ordering::Relaxed) != peak;
            if is_new && !is_forked() {
                self.machine.session().note_read_after_peak(self);
            }
        }
        if self.replaced_in.load(Ordering::Relaxed) != 0 && !is_forked() {
            let argument = decode_argument(self.replaced_in.swap(0, Ordering::Relaxed));
            if let Some((program, parameter)) = argument {
                self.machine.session().note_read_again(program, parameter);
            }
        }
    }

    /// Notes that an output of a call that has ended replaces the array, which the call could have taken.
    pub(crate) fn mark_replaced(&self, program: u32, parameter: u32) {
        self.replaced_in.store(encode_argument(program, parameter), Ordering::Relaxed);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        self.machine.session().free(self);
    }
}

/// The machine, locked.
pub(crate) struct Session {
    machine: &'static Machine,
    state: MutexGuard<'static, MachineState>,
    flush_at_end: bool,
}

impl Drop for Session {
    /// Flushes the trace periodically, so that it is on disk when the process is killed or ends abruptly.
    fn drop(&mut self) {
        if self.state.recorder.is_none() || is_forked() {
            return;
        }
        if self.flush_at_end || self.state.last_flush.elapsed() >= FLUSH_INTERVAL {
            self.flush();
            self.state.last_flush = Instant::now();
        }
    }
}

impl Session {
    pub(crate) fn new(machine: &'static Machine, state: MutexGuard<'static, MachineState>) -> Self {
        Session { machine, state, flush_at_end: false }
    }

    /// Allocates device memory.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` with the real client's message; `Internal` where the real
    /// process would abort or never return.
    pub(crate) fn allocate(&mut self, request: &AllocationRequest) -> PjrtResult<Block> {
        let pool = &mut self.state.pools[request.device as usize];
        let result = pool.allocator.allocate(request.bytes, ALIGNMENT, request.space);
        // The program may clear the allocator's own peak.
        let is_peak = pool.allocator.peak_bytes() > pool.peak_bytes;
        pool.peak_bytes = pool.peak_bytes.max(pool.allocator.peak_bytes());
        self.take_driver_calls(request.device);
        let address = match result {
            Ok(address) => address,
            Err(refusal) => return Err(self.record_refusal(request, refusal)),
        };
        self.record(&Event::Allocate {
            device: request.device,
            bytes: request.bytes,
            alignment: ALIGNMENT,
            space: request.space,
            purpose: request.purpose,
            slot: request.slot,
            site: request.site,
        });
        let number = self.state.allocations;
        self.state.allocations += 1;
        if is_peak {
            let device = request.device as usize;
            self.machine.first_after_peak[device].store(number + 1, Ordering::Relaxed);
            self.state.pools[device].read_after_peak.clear();
        }
        let is_large_output =
            request.purpose == Purpose::Output && request.bytes >= MIN_UNREAD_BYTES;
        let is_unread = is_large_output.then(|| Arc::new(AtomicBool::new(true)));
        if let Some(is_unread) = &is_unread {
            self.state.unread_outputs.insert(number, Arc::clone(is_unread));
        }
        Ok(Block {
            machine: self.machine,
            device: request.device,
            address,
            number,
            is_unread,
            replaced_in: AtomicU64::new(0),
            read_after: AtomicU64::new(0),
            bytes: request.bytes,
        })
    }

    /// Records a request that was refused, and returns the real client's error.
    fn record_refusal(&mut self, request: &AllocationRequest, refusal: AllocError) -> Status {
        self.refresh_other_processes(request.device);
        let allocator = &self.state.pools[request.device as usize].allocator;
        let status = match refusal {
            AllocError::OutOfMemory => {
                log::print_as_xla(&allocator.out_of_memory_log(request.bytes, request.space));
                let message = allocator.out_of_memory_message(request.bytes);
                Status::new(StatusCode::ResourceExhausted, message)
            }
            AllocError::Fatal(what) => Status::new(
                StatusCode::Internal,
                format!("vramfit: on a real GPU this process would not continue: {what}"),
            ),
        };
        let message = self.intern(status.message());
        self.record(&Event::AllocationFailure {
            device: request.device,
            bytes: request.bytes,
            alignment: ALIGNMENT,
            space: request.space,
            purpose: request.purpose,
            slot: request.slot,
            site: request.site,
            message,
        });
        self.flush();
        status
    }

    /// Frees a block while the machine is locked. (A dropped [`Block`] locks it itself.)
    pub(crate) fn release(&mut self, block: Block) {
        self.free(&block);
        std::mem::forget(block);
    }

    fn free(&mut self, block: &Block) {
        let &Block { device, address, number, .. } = block;
        let is_unread = block.is_unread.as_ref();
        if is_unread.is_some_and(|is_unread| is_unread.load(Ordering::Relaxed)) {
            self.record(&Event::Unread { allocation: number });
        }
        self.state.unread_outputs.remove(&number);
        let result = self.state.pools[device as usize].allocator.free(address);
        self.take_driver_calls(device);
        match result {
            Ok(()) => self.record(&Event::Free { allocation: number }),
            Err(error) if error.kind() == ErrorKind::AllocatorAborts => {
                let text = error.to_string();
                log::print_line(&format!("on a real GPU this process would abort here: {text}"));
                let message = self.intern(&text);
                self.record(&Event::FreeAborts { allocation: number, message });
                self.flush();
            }
            Err(error) => log::print_line(&format!("allocation {number}: {error}")),
        }
    }

    /// Records how much other processes use of a device now.
    fn refresh_other_processes(&mut self, device: u32) {
        let shared = self.state.pools[device as usize].shared.as_ref();
        if let Some(note) = shared.and_then(SharedGpu::refresh) {
            self.note(&note);
        }
    }

    /// Records how much other processes were last seen to use, if it has changed.
    fn note_other_processes(&mut self, device: u32) {
        let shared = self.state.pools[device as usize].shared.as_ref();
        if let Some(note) = shared.and_then(SharedGpu::unwritten_note) {
            self.note(&note);
        }
    }

    fn take_driver_calls(&mut self, device: u32) {
        self.note_other_processes(device);
        let pool = &self.state.pools[device as usize];
        let calls = std::mem::take(&mut *lock(&pool.driver_calls));
        for call in calls {
            let region = call.granted.unwrap_or(Region { address: 0, bytes: 0 });
            self.record(&Event::Driver {
                device,
                asked: call.requested_bytes,
                address: region.address,
                granted: region.bytes,
            });
        }
    }

    pub(crate) fn bytes_in_use(&self, device: u32) -> u64 {
        self.state.pools[device as usize].allocator.stats().bytes_in_use
    }

    /// Returns the peak of the bytes in use on a device.
    pub(crate) fn peak_bytes(&self, device: u32) -> u64 {
        self.state.pools[device as usize].allocator.peak_bytes()
    }

    /// Returns the peak of the bytes in use on each device.
    pub(crate) fn peaks(&self) -> Vec<u64> {
        let pools = self.state.pools.iter();
        pools.map(|pool| pool.allocator.peak_bytes()).collect()
    }

    /// Records which allocation an argument of the running execution is in.
    pub(crate) fn record_argument(&mut self, parameter: usize, block: &Block) {
        self.record(&Event::Argument { parameter: parameter as u32, allocation: block.number });
    }

    /// Notes once that a replaced argument was read again.
    fn note_read_again(&mut self, program: u32, parameter: u32) {
        if self.state.read_again.insert((program, parameter)) {
            self.note(&Note::ReadAgain { program, parameter });
        }
    }

    /// Notes that an array was read after the peak so far of its device.
    fn note_read_after_peak(&mut self, block: &Block) {
        let pool = &mut self.state.pools[block.device as usize];
        pool.read_after_peak.insert(block.number);
    }

    /// Writes which arrays were read after the peak of their device.
    fn write_reads_after_peak(&mut self) {
        let pools = self.state.pools.iter_mut();
        let mut numbers: Vec<u64> = pools.flat_map(|pool| pool.read_after_peak.drain()).collect();
        numbers.sort_unstable();
        let mut parts = numbers.chunks(MAX_NOTED_ALLOCATIONS);
        let first = parts.next().unwrap_or_default();
        for part in std::iter::once(first).chain(parts) {
            self.note(&Note::ReadAfterPeak { allocations: part.to_vec() });
        }
    }

    /// Records which of the outputs that are not freed nothing has read.
    fn write_unread_outputs(&mut self) {
        let unread = std::mem::take(&mut self.state.unread_outputs).into_iter();
        let unread = unread.filter(|(_, is_unread)| is_unread.load(Ordering::Relaxed));
        let mut numbers: Vec<u64> = unread.map(|(number, _)| number).collect();
        numbers.sort_unstable();
        for allocation in numbers {
            self.record(&Event::Unread { allocation });
        }
    }

    /// Returns the limit of a pool in bytes; `None` if it has none.
    pub(crate) fn limit_bytes(&self) -> Option<u64> {
        self.state.pools.first()?.allocator.stats().bytes_limit
    }

    /// Adds to the bytes that this process uses on a device outside the pool.
    pub(crate) fn add_non_pool_bytes(&mut self, device: u32, bytes: i64) {
        let pool = &mut self.state.pools[device as usize];
        pool.non_pool_bytes = pool.non_pool_bytes.saturating_add_signed(bytes);
        let bytes = pool.non_pool_bytes;
        self.record(&Event::OutsidePool { device, bytes });
    }

    /// Returns the statistics that the real client would return: `None` if it returns none.
    pub(crate) fn stats(&self, device: u32) -> Option<Stats> {
        let allocator = &self.state.pools[device as usize].allocator;
        allocator.reports_stats().then(|| allocator.stats())
    }

    /// Makes the statistics of a device begin again; false where the real client has none.
    pub(crate) fn clear_stats(&mut self, device: u32) -> bool {
        let pool = &mut self.state.pools[device as usize];
        if !pool.allocator.reports_stats() {
            return false;
        }
        pool.cleared_allocations += pool.allocator.stats().num_allocs;
        pool.allocator.clear_stats();
        self.record(&Event::ClearPeak { device });
        true
    }

    /// Returns what a real client does not report: the memory that this process uses on a device, context
    /// included, and the largest free block of its pool, which JAX reports only since 0.11.
    pub(crate) fn extra_stats(&self, device: u32) -> Option<(u64, Option<u64>)> {
        let pool = self.state.pools.get(device as usize)?;
        let used = pool.driver_bytes.load(std::sync::atomic::Ordering::Relaxed)
            + pool.non_pool_bytes
            + self.machine.header.run.context_bytes;
        Some((used, pool.allocator.largest_free_block()))
    }

    /// Interns a text in the trace.
    pub(crate) fn intern(&mut self, text: &str) -> TextId {
        self.state.recorder.as_mut().map_or(TextId(0), |recorder| recorder.text(text))
    }

    pub(crate) fn record(&mut self, event: &Event) {
        self.write(|trace| trace.event(event));
    }

    pub(crate) fn note(&mut self, note: &Note) {
        self.write(|trace| trace.add_note(note));
    }

    /// Flushes the trace, so that it survives a crash.
    pub(crate) fn flush(&mut self) {
        self.write(Writer::flush);
    }

    /// Writes to the trace, unless this is a forked process, whose parent owns it. If it cannot be written, that
    /// is reported once and recording ends.
    #[inline]
    pub(crate) fn write(&mut self, change: impl FnOnce(&mut Writer) -> io::Result<()>) {
        if is_forked() {
            return;
        }
        if let Some(recorder) = &mut self.state.recorder
            && let Err(error) = change(recorder)
        {
            let folder = self.machine.run_folder();
            trace_failure::report(folder, &error.to_string());
            self.state.recorder = None;
        }
    }

    /// Makes the trace be flushed when this session ends.
    pub(crate) fn flush_at_end(&mut self) {
        self.flush_at_end = true;
    }

    /// Writes that a program is executed.
    pub(crate) fn begin_execution(&mut self, program: u32, site: TextId) {
        self.state.executions += 1;
        self.record(&Event::Begin { program, site });
    }

    /// Returns how many programs were executed.
    pub(crate) fn executions(&self) -> u64 {
        self.state.executions
    }

    /// Counts whether the values of an execution could be computed when they were needed.
    pub(crate) fn count_evaluation(&mut self, known: bool) {
        match known {
            true => self.state.evaluated += 1,
            false => self.state.not_evaluated += 1,
        }
    }

    /// Finishes the trace.
    pub(crate) fn finish(&mut self) {
        if !is_forked() {
            for device in 0..self.state.pools.len() as u32 {
                self.refresh_other_processes(device);
            }
        }
        self.write_reads_after_peak();
        self.write_unread_outputs();
        let stats: Vec<Stats> =
            self.state.pools.iter().map(|pool| pool.allocator.stats()).collect();
        let footer = Footer {
            bytes_in_use: stats.iter().map(|s| s.bytes_in_use).collect(),
            peak_bytes_in_use: stats.iter().map(|s| s.peak_bytes_in_use).collect(),
            pool_bytes: stats.iter().map(|s| s.pool_bytes.unwrap_or(0)).collect(),
            num_allocs: all_allocations(&self.state.pools, &stats),
            executions: self.state.executions,
            evaluated: self.state.evaluated,
            not_evaluated: self.state.not_evaluated,
        };
        if let Some(mut recorder) = self.state.recorder.take()
            && let Err(error) = recorder.finish(&footer)
        {
            let folder = self.machine.run_folder();
            trace_failure::report(folder, &error.to_string());
        }
    }
}

/// Returns how many allocations there were on each device, those before its statistics were cleared included.
fn all_allocations(pools: &[DevicePool], stats: &[Stats]) -> Vec<u64> {
    let counted = pools.iter().zip(stats);
    counted.map(|(pool, stats)| pool.cleared_allocations + stats.num_allocs).collect()
}
