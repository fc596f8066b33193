//! The virtual machine: the memory and the allocator of each device, and the trace. What can be done with
//! it is in `machine_session`.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use rustc_hash::{FxHashMap, FxHashSet};
use vramfit_model::allocator::{
    self, Allocator, DeviceMemory, PAGE_BYTES, PoolOptions, Region, SimulatedDeviceMemory,
};
use vramfit_model::gpu::Gpu;
use vramfit_model::trace::{Header, Writer};

use crate::compile::user_flags;
use crate::device::gpu_memory::{self, GpuMemoryError};
use crate::device::shared_gpu::SharedGpu;
use crate::lock;
use crate::pjrt::status::{PjrtResult, Status};
use crate::session::machine_session::Session;
use crate::session::trace_failure;

/// The one machine of this process.
pub(crate) struct Machine {
    /// What the trace begins with: the configuration of the dry run, and what is known of this process.
    pub(crate) header: Header,
    /// The memory settings of JAX.
    pub(crate) options: PoolOptions,
    /// The limit that programs see, where it is not that of the pools.
    pub(crate) reported_limit_bytes: Option<u64>,
    /// For each device, the number of the first allocation after its peak so far.
    pub(crate) first_after_peak: Vec<AtomicU64>,
    state: Mutex<MachineState>,
}

/// The mutable state of a machine.
pub(crate) struct MachineState {
    pub(crate) pools: Vec<DevicePool>,
    pub(crate) recorder: Option<Writer>,
    /// When the trace was last flushed periodically.
    pub(crate) last_flush: Instant,
    /// Number of the next allocation.
    pub(crate) allocations: u64,
    pub(crate) executions: u64,
    pub(crate) evaluated: u64,
    pub(crate) not_evaluated: u64,
    /// Programs and their parameters that were read again although an output replaces them.
    pub(crate) read_again: FxHashSet<(u32, u32)>,
    /// Large outputs by their numbers: whether nothing has read them so far.
    pub(crate) unread_outputs: FxHashMap<u64, Arc<AtomicBool>>,
}

/// The memory pool of one device.
pub(crate) struct DevicePool {
    pub(crate) allocator: Box<dyn Allocator>,
    pub(crate) driver_calls: Arc<Mutex<Vec<DriverCall>>>,
    /// What the allocator has allocated from the driver now, in whole pages.
    pub(crate) driver_bytes: Arc<AtomicU64>,
    pub(crate) non_pool_bytes: u64,
    /// The highest peak of the bytes in use so far.
    pub(crate) peak_bytes: u64,
    /// Numbers of the large arrays that were allocated before the peak so far and read after it.
    pub(crate) read_after_peak: FxHashSet<u64>,
    /// Successful allocations from before the statistics were last cleared.
    pub(crate) cleared_allocations: u64,
    /// The shared GPU, if other processes use it, too.
    pub(crate) shared: Option<SharedGpu>,
}

/// A driver allocation that an allocator made while it served one request.
pub(crate) struct DriverCall {
    pub(crate) requested_bytes: u64,
    pub(crate) granted: Option<Region>,
}

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// Set in a process that was forked from the one that created the machine.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_fork() {
    IS_FORKED.store(true, Ordering::Relaxed);
}

/// Returns whether this is a forked copy of the process that the machine belongs to. It could not
/// use a real GPU; here it must not write to the trace, whose file and buffer it has inherited, nor
/// wait for the lock, which a thread that was not copied may have held.
pub(crate) fn is_forked() -> bool {
    IS_FORKED.load(Ordering::Relaxed)
}

/// Returns the machine, making it with these options if there is none yet.
///
/// # Errors
/// When it exists with other options: one process has one set of GPUs.
pub(crate) fn get_or_create(
    options: &PoolOptions,
    header: &Header,
) -> PjrtResult<&'static Machine> {
    if MACHINE.get().is_none() {
        let machine = Machine::new(options.clone(), header.clone())?;
        let _ = MACHINE.set(machine);
    }
    let machine = MACHINE.get().ok_or_else(|| Status::internal("no machine was created"))?;
    if machine.options != *options {
        return Err(Status::failed_precondition(
            "vramfit: a second client requests other memory settings than the first; \
             start one process for each",
        ));
    }
    Ok(machine)
}

/// Returns the machine, if a client was made.
pub(crate) fn get() -> Option<&'static Machine> {
    MACHINE.get()
}

impl Machine {
    fn new(options: PoolOptions, header: Header) -> PjrtResult<Self> {
        let run = &header.run;
        let path = Some(run.trace.as_path()).filter(|path| !path.as_os_str().is_empty());
        let mut recorder = path.and_then(|path| {
            let start = |file| {
                let mut recorder = Writer::new(BufWriter::new(file), &header)?;
                if let Some(settings) = crate::session::run_settings::latest() {
                    recorder.settings(&settings)?;
                }
                if !run.values {
                    recorder.not_computed("", "off", 0)?;
                }
                Ok(recorder)
            };
            let report_failure = |error: std::io::Error| {
                let reason = format!("`{}` cannot be written: {error}", path.display());
                trace_failure::report(run_folder(&header), &reason);
            };
            create_trace(path).and_then(start).map_err(report_failure).ok()
        });
        // As XLA, which does not see what is set later.
        user_flags::read_environment();
        // SAFETY: the handler only stores a flag. Failing to register it is ignored.
        unsafe { libc::pthread_atfork(None, None, Some(on_fork)) };
        let pools = (0..header.devices).map(|ordinal| {
            DevicePool::new(&header, &options, ordinal).map_err(|error| match error {
                GpuMemoryError::Failed(status) => status,
                GpuMemoryError::NoContext(notes, status) => {
                    for note in notes {
                        // A failure to write does not matter: the program gets the error anyway.
                        let _ = recorder.as_mut().map(|recorder| recorder.add_note(&note));
                    }
                    status
                }
            })
        });
        let pools = pools.collect::<PjrtResult<_>>()?;
        let state = Mutex::new(MachineState {
            pools,
            recorder,
            last_flush: Instant::now(),
            allocations: 0,
            executions: 0,
            evaluated: 0,
            not_evaluated: 0,
            read_again: FxHashSet::default(),
            unread_outputs: FxHashMap::default(),
        });
        Ok(Machine {
            first_after_peak: (0..header.devices).map(|_| AtomicU64::new(0)).collect(),
            reported_limit_bytes: run
                .unlimited
                .then(|| limit_on_gpu(header.gpu(), &options))
                .flatten(),
            header,
            options,
            state,
        })
    }

    /// Returns the limit of a pool in bytes, relative to which a program counts as large.
    pub(crate) fn limit_bytes(&'static self) -> u64 {
        // `cuda_async` without preallocation reports a limit of 0 and has none.
        let limit = self.reported_limit_bytes.or(self.session().limit_bytes());
        limit.filter(|limit| *limit > 0).unwrap_or(self.header.gpu().total_memory_bytes)
    }

    /// Returns the folder of the dry run; `None` where it has none.
    pub(crate) fn run_folder(&self) -> Option<&Path> {
        run_folder(&self.header)
    }

    /// Locks the machine.
    pub(crate) fn session(&'static self) -> Session {
        Session::new(self, lock(&self.state))
    }
}

fn run_folder(header: &Header) -> Option<&Path> {
    Some(header.run.folder.as_path()).filter(|folder| !folder.as_os_str().is_empty())
}

/// Returns the limit that a pool would have on the GPU.
fn limit_on_gpu(gpu: &Gpu, options: &PoolOptions) -> Option<u64> {
    let options = PoolOptions { total_memory_bytes: gpu.total_memory_bytes, ..options.clone() };
    let memory = SimulatedDeviceMemory::new(gpu.total_memory_bytes);
    allocator::build(&options, Box::new(memory)).stats().bytes_limit
}

/// Creates the trace. If the file exists, it belongs to another process of the same run (a worker
/// that uses the GPU, too), and this one creates a file of the same name with its PID appended.
fn create_trace(path: &Path) -> std::io::Result<File> {
    match File::create_new(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let mut sibling = path.as_os_str().to_owned();
            sibling.push(format!(".{}", std::process::id()));
            File::create(sibling)
        }
        result => result,
    }
}

impl DevicePool {
    fn new(
        header: &Header,
        options: &PoolOptions,
        ordinal: u32,
    ) -> std::result::Result<Self, GpuMemoryError> {
        let driver_calls = Arc::new(Mutex::new(Vec::new()));
        let driver_bytes = Arc::new(AtomicU64::new(0));
        let gpu = gpu_memory::open_gpu_memory(header, options, ordinal)?;
        let memory = RecordedMemory {
            inner: gpu.memory,
            calls: Arc::clone(&driver_calls),
            driver_bytes: Arc::clone(&driver_bytes),
        };
        let options = PoolOptions { ordinal, ..options.clone() };
        let allocator = allocator::build(&options, Box::new(memory));
        Ok(DevicePool {
            allocator,
            driver_calls,
            driver_bytes,
            non_pool_bytes: 0,
            peak_bytes: 0,
            read_after_peak: FxHashSet::default(),
            cleared_allocations: 0,
            shared: gpu.shared,
        })
    }
}

/// Device memory that records every call, for the trace.
struct RecordedMemory {
    inner: Box<dyn DeviceMemory>,
    calls: Arc<Mutex<Vec<DriverCall>>>,
    driver_bytes: Arc<AtomicU64>,
}

impl DeviceMemory for RecordedMemory {
    fn allocate(&mut self, alignment: u64, bytes: u64) -> Option<Region> {
        let granted = self.inner.allocate(alignment, bytes);
        if let Some(region) = granted {
            let pages = region.bytes.next_multiple_of(PAGE_BYTES);
            self.driver_bytes.fetch_add(pages, Ordering::Relaxed);
        }
        lock(&self.calls).push(DriverCall { requested_bytes: bytes, granted });
        granted
    }

    fn free(&mut self, region: Region) {
        let pages = region.bytes.next_multiple_of(PAGE_BYTES);
        self.driver_bytes.fetch_sub(pages, Ordering::Relaxed);
        self.inner.free(region);
    }

    fn free_bytes(&self) -> u64 {
        self.inner.free_bytes()
    }

    fn merges_regions(&self) -> bool {
        self.inner.merges_regions()
    }
}
