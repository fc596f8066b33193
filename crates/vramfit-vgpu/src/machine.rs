//! The virtual machine: the memory of each card, the allocator in front of it, and the log of
//! everything that happens. One lock keeps the log in the order of the allocations.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use vramfit_core::ErrorKind;
use vramfit_core::allocator::{
    self, Allocator, DeviceMemory, PoolOptions, Refusal, Region, Space, Stats,
};
use vramfit_core::trace::{Event, Footer, Header, Purpose, TextId, Writer};

use crate::environment::Environment;
use crate::log;
use crate::status::{Answer, Code, Status};

/// PJRT asks for this alignment (`kAllocatorAlignment`); the allocators round it up to 256.
pub(crate) const ALIGNMENT: u64 = 64;

/// The one machine of this process.
pub(crate) struct Machine {
    /// What was asked for on the command line.
    pub(crate) environment: Environment,
    /// What JAX asked for.
    pub(crate) options: PoolOptions,
    state: Mutex<State>,
}

struct State {
    pools: Vec<Pool>,
    recorder: Option<Writer>,
    /// When the log was last written out by the clock.
    written_out: Instant,
    /// Number of the next allocation.
    allocations: u64,
    executions: u64,
    evaluated: u64,
    not_evaluated: u64,
}

struct Pool {
    allocator: Box<dyn Allocator>,
    driver: Arc<Mutex<Vec<DriverCall>>>,
    outside_bytes: u64,
}

/// What an allocator asked of the driver while it served one request.
struct DriverCall {
    asked: u64,
    granted: Option<Region>,
}

/// A request for device memory.
pub(crate) struct Request {
    pub(crate) device: u32,
    pub(crate) bytes: u64,
    pub(crate) space: Space,
    pub(crate) purpose: Purpose,
    pub(crate) slot: u32,
    pub(crate) site: TextId,
}

/// A piece of device memory; freed when dropped.
pub(crate) struct Block {
    machine: &'static Machine,
    device: u32,
    pub(crate) address: u64,
    number: u64,
}

impl Drop for Block {
    fn drop(&mut self) {
        if is_forked() {
            return;
        }
        self.machine
            .session()
            .free(self.device, self.address, self.number);
    }
}

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// How much of the log may be lost when the process is killed.
const BETWEEN_WRITES: Duration = Duration::from_millis(20);

/// Set in a process that was forked off the one the machine was made in.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Says whether this is a copy of the process that the machine belongs to. On a card it could not
/// use the GPU; here it must not write into the log, whose file and buffer it has inherited, nor
/// wait for the lock, which a thread that was not copied may have held.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Returns the machine, making it with these options if there is none yet.
///
/// # Errors
/// When it exists with other options: one process has one set of cards.
pub(crate) fn get_or_create(
    environment: &Environment,
    options: &PoolOptions,
    header: &Header,
) -> Answer<&'static Machine> {
    if MACHINE.get().is_none() {
        let machine = Machine::new(environment.clone(), options.clone(), header)?;
        let _ = MACHINE.set(machine);
    }
    let machine = MACHINE
        .get()
        .ok_or_else(|| Status::internal("the machine vanished"))?;
    if machine.options != *options {
        return Err(Status::new(
            Code::FailedPrecondition,
            "vramfit: a second client asks for other memory settings than the first; \
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
    fn new(environment: Environment, options: PoolOptions, header: &Header) -> Answer<Self> {
        let recorder = match &environment.trace {
            Some(path) => {
                let cannot = |error: std::io::Error| {
                    Status::internal(format!(
                        "vramfit cannot write `{}`: {error}",
                        path.display()
                    ))
                };
                let file = BufWriter::new(create(path).map_err(cannot)?);
                Some(Writer::new(file, header).map_err(cannot)?)
            }
            None => None,
        };
        // SAFETY: the handler only stores a flag. That there is no memory for it is no reason to stop.
        unsafe { libc::pthread_atfork(None, None, Some(note_fork)) };
        let pools = (0..environment.devices)
            .map(|ordinal| Pool::new(&environment, &options, ordinal))
            .collect::<Answer<_>>()?;
        let state = Mutex::new(State {
            pools,
            recorder,
            written_out: Instant::now(),
            allocations: 0,
            executions: 0,
            evaluated: 0,
            not_evaluated: 0,
        });
        Ok(Machine {
            environment,
            options,
            state,
        })
    }

    /// Returns what a pool may take: what matters is measured against it.
    pub(crate) fn limit_bytes(&'static self) -> u64 {
        let limit = self.session().limit_bytes();
        limit.unwrap_or(self.environment.gpu.total_memory_bytes)
    }

    /// Locks the machine for one thing that happens.
    pub(crate) fn session(&'static self) -> Session {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Session {
            machine: self,
            state,
            write_out: false,
        }
    }
}

/// Creates the trace. If there is one already, another process of the same run has it (a worker
/// that uses the GPU, too), and this one writes beside it, with its process number.
fn create(path: &Path) -> std::io::Result<File> {
    match File::create_new(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let mut beside = path.as_os_str().to_owned();
            beside.push(format!(".{}", std::process::id()));
            File::create(beside)
        }
        result => result,
    }
}

impl Pool {
    fn new(environment: &Environment, options: &PoolOptions, ordinal: u32) -> Answer<Self> {
        let driver = Arc::new(Mutex::new(Vec::new()));
        let memory = Recorded {
            inner: crate::shared::device_memory(environment, ordinal)?,
            calls: Arc::clone(&driver),
        };
        let options = PoolOptions {
            ordinal,
            ..options.clone()
        };
        let allocator = allocator::build(&options, Box::new(memory));
        Ok(Pool {
            allocator,
            driver,
            outside_bytes: 0,
        })
    }
}

/// Device memory that notes every call, for the log.
struct Recorded {
    inner: Box<dyn DeviceMemory>,
    calls: Arc<Mutex<Vec<DriverCall>>>,
}

impl DeviceMemory for Recorded {
    fn allocate(&mut self, alignment: u64, bytes: u64) -> Option<Region> {
        let granted = self.inner.allocate(alignment, bytes);
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(DriverCall {
            asked: bytes,
            granted,
        });
        granted
    }

    fn free(&mut self, region: Region) {
        self.inner.free(region);
    }

    fn free_bytes(&self) -> u64 {
        self.inner.free_bytes()
    }

    fn merges_regions(&self) -> bool {
        self.inner.merges_regions()
    }
}

/// The machine, locked.
pub(crate) struct Session {
    machine: &'static Machine,
    state: MutexGuard<'static, State>,
    write_out: bool,
}

impl Drop for Session {
    /// Writes the log out every so often: a process that is killed, or ends itself at once, leaves
    /// what it did.
    fn drop(&mut self) {
        if self.state.recorder.is_none() || is_forked() {
            return;
        }
        if self.write_out || self.state.written_out.elapsed() >= BETWEEN_WRITES {
            self.flush();
            self.state.written_out = Instant::now();
        }
    }
}

impl Session {
    /// Allocates device memory.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` with the text the real client gives; `Internal` where the real
    /// process would abort or never return.
    pub(crate) fn allocate(&mut self, request: &Request) -> Answer<Block> {
        let pool = &mut self.state.pools[request.device as usize];
        let result = pool
            .allocator
            .allocate(request.bytes, ALIGNMENT, request.space);
        self.drain_driver_calls(request.device);
        let address = match result {
            Ok(address) => address,
            Err(refusal) => return Err(self.refuse(request, refusal)),
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
        Ok(Block {
            machine: self.machine,
            device: request.device,
            address,
            number,
        })
    }

    /// Notes a request that could not be met, and says so as the real client does.
    fn refuse(&mut self, request: &Request, refusal: Refusal) -> Status {
        let allocator = &self.state.pools[request.device as usize].allocator;
        let status = match refusal {
            Refusal::OutOfMemory => {
                log::as_xla(&allocator.out_of_memory_log(request.bytes, request.space));
                let message = allocator.out_of_memory_message(request.bytes);
                Status::new(Code::ResourceExhausted, message)
            }
            Refusal::Fatal(what) => Status::new(
                Code::Internal,
                format!("vramfit: on a real card this process would not go on: {what}"),
            ),
        };
        let message = self.text(status.message());
        self.record(&Event::Refuse {
            device: request.device,
            bytes: request.bytes,
            alignment: ALIGNMENT,
            space: request.space,
            purpose: request.purpose,
            slot: request.slot,
            message,
        });
        self.flush();
        status
    }

    /// Frees a block while the machine is locked. (A dropped [`Block`] locks it itself.)
    pub(crate) fn release(&mut self, block: Block) {
        self.free(block.device, block.address, block.number);
        std::mem::forget(block);
    }

    fn free(&mut self, device: u32, address: u64, number: u64) {
        let result = self.state.pools[device as usize].allocator.free(address);
        self.drain_driver_calls(device);
        match result {
            Ok(()) => self.record(&Event::Free { allocation: number }),
            Err(error) if error.kind() == ErrorKind::AllocatorAborts => {
                let text = error.to_string();
                log::line(&format!(
                    "on a real card this process would die here: {text}"
                ));
                let message = self.text(&text);
                self.record(&Event::FreeAborts {
                    allocation: number,
                    message,
                });
                self.flush();
            }
            Err(error) => log::line(&format!("allocation {number}: {error}")),
        }
    }

    fn drain_driver_calls(&mut self, device: u32) {
        let calls = {
            let pool = &self.state.pools[device as usize];
            std::mem::take(&mut *pool.driver.lock().unwrap_or_else(PoisonError::into_inner))
        };
        for call in calls {
            let region = call.granted.unwrap_or(Region {
                address: 0,
                bytes: 0,
            });
            self.record(&Event::Driver {
                device,
                asked: call.asked,
                address: region.address,
                granted: region.bytes,
            });
        }
    }

    /// Returns the bytes in use on a device.
    pub(crate) fn bytes_in_use(&self, device: u32) -> u64 {
        self.state.pools[device as usize]
            .allocator
            .stats()
            .bytes_in_use
    }

    /// Returns the most that was ever in use on a device.
    pub(crate) fn peak_bytes(&self, device: u32) -> u64 {
        self.state.pools[device as usize].allocator.peak_bytes()
    }

    /// Notes which allocation an argument of the execution that goes on lies in.
    pub(crate) fn record_argument(&mut self, parameter: usize, block: &Block) {
        self.record(&Event::Argument {
            parameter: parameter as u32,
            allocation: block.number,
        });
    }

    fn limit_bytes(&self) -> Option<u64> {
        self.state.pools.first()?.allocator.stats().bytes_limit
    }

    /// Adds to what this process holds on a card outside the pool.
    pub(crate) fn add_outside(&mut self, device: u32, bytes: i64) {
        let pool = &mut self.state.pools[device as usize];
        pool.outside_bytes = pool.outside_bytes.saturating_add_signed(bytes);
        let bytes = pool.outside_bytes;
        self.record(&Event::Outside { device, bytes });
    }

    /// Returns the statistics as the real client would show them: `None` where it shows none.
    pub(crate) fn stats(&self, device: u32) -> Option<Stats> {
        let allocator = &self.state.pools[device as usize].allocator;
        allocator.reports_stats().then(|| allocator.stats())
    }

    /// Interns a text in the log.
    pub(crate) fn text(&mut self, text: &str) -> TextId {
        self.state
            .recorder
            .as_mut()
            .map_or(TextId(0), |recorder| recorder.text(text))
    }

    /// Writes an event. A log that cannot be written is given up with a word, once.
    pub(crate) fn record(&mut self, event: &Event) {
        if is_forked() {
            return;
        }
        let Some(recorder) = &mut self.state.recorder else {
            return;
        };
        if let Err(error) = recorder.event(event) {
            log::line(&format!("the trace is incomplete: {error}"));
            self.state.recorder = None;
        }
    }

    /// Writes where the memory of a program goes, if that is known.
    pub(crate) fn record_memory(&mut self, program: u32, stored: &[u8]) {
        if stored.is_empty() || is_forked() {
            return;
        }
        if let Some(recorder) = &mut self.state.recorder
            && let Err(error) = recorder.program_memory(program, stored)
        {
            log::line(&format!("the trace is incomplete: {error}"));
            self.state.recorder = None;
        }
    }

    /// Writes the log out, so that it survives whatever comes next.
    pub(crate) fn flush(&mut self) {
        if let Some(recorder) = self.state.recorder.as_mut().filter(|_| !is_forked())
            && let Err(error) = recorder.flush()
        {
            log::line(&format!("the trace is incomplete: {error}"));
            self.state.recorder = None;
        }
    }

    /// Has the log written out when this session ends.
    pub(crate) fn write_out(&mut self) {
        self.write_out = true;
    }

    /// Counts an execution.
    pub(crate) fn count_execution(&mut self) {
        self.state.executions += 1;
    }

    /// Counts whether the values of an execution could be computed when they were wanted.
    pub(crate) fn count_evaluation(&mut self, known: bool) {
        if known {
            self.state.evaluated += 1;
        } else {
            self.state.not_evaluated += 1;
        }
    }

    /// Ends the log.
    pub(crate) fn finish(&mut self) {
        let stats: Vec<Stats> = self
            .state
            .pools
            .iter()
            .map(|pool| pool.allocator.stats())
            .collect();
        let footer = Footer {
            bytes_in_use: stats.iter().map(|s| s.bytes_in_use).collect(),
            peak_bytes_in_use: stats.iter().map(|s| s.peak_bytes_in_use).collect(),
            pool_bytes: stats.iter().map(|s| s.pool_bytes.unwrap_or(0)).collect(),
            num_allocs: stats.iter().map(|s| s.num_allocs).collect(),
            executions: self.state.executions,
            evaluated: self.state.evaluated,
            not_evaluated: self.state.not_evaluated,
        };
        if let Some(mut recorder) = self.state.recorder.take()
            && let Err(error) = recorder.finish(&footer)
        {
            log::line(&format!("the trace is incomplete: {error}"));
        }
    }
}
