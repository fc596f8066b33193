//! A run on a made-up GPU, written as the plugin writes one: real allocators, a real trace.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use vramfit_analysis::analysis::{RunSummary, summarize};
use vramfit_analysis::{Error, ErrorKind};
use vramfit_model::allocator::{
    Allocator, DeviceMemory, PoolOptions, PoolSpace, Region, SimulatedDeviceMemory, Stats, build,
};
use vramfit_model::gpu::{Certainty, Gpu, GpuSelection};
use vramfit_model::program::ProgramSizes;
use vramfit_model::run_config::RunConfig;
use vramfit_model::trace::{Event, Footer, Header, Note, Purpose, Reader, TextId, Writer};

pub(crate) const MIB: u64 = 1 << 20;

/// A file in memory that can still be looked at when the writer owns it.
#[derive(Clone, Default)]
pub(crate) struct File(Arc<Mutex<Vec<u8>>>);

impl File {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type Calls = Arc<Mutex<Vec<(u64, Option<Region>)>>>;

/// A GPU that notes what it was asked.
struct Noted {
    device: SimulatedDeviceMemory,
    calls: Calls,
}

impl DeviceMemory for Noted {
    fn allocate(&mut self, alignment: u64, bytes: u64) -> Option<Region> {
        let region = self.device.allocate(alignment, bytes);
        self.calls.lock().unwrap().push((bytes, region));
        region
    }

    fn free(&mut self, region: Region) {
        self.device.free(region);
    }

    fn free_bytes(&self) -> u64 {
        self.device.free_bytes()
    }
}

struct Pool {
    allocator: Box<dyn Allocator>,
    calls: Calls,
}

/// Something allocated.
pub(crate) struct Block {
    device: u32,
    address: u64,
    number: u64,
}

pub(crate) struct Recorder {
    pub(crate) writer: Writer,
    pub(crate) footer: Footer,
    file: File,
    pools: Vec<Pool>,
    allocations: u64,
}

/// Returns GPUs of a name and a total memory, of which nothing else is known.
pub(crate) fn toy_gpus(name: &str, total_memory_bytes: u64, count: u32) -> GpuSelection {
    let gpu = Gpu {
        name: name.to_owned(),
        description: "Toy 1GB".to_owned(),
        total_memory_bytes,
        memory_certainty: Certainty::Reported,
        ..Gpu::default()
    };
    GpuSelection { name: gpu.name.clone(), gpu, count }
}

/// Returns the header of a run on GPUs of 1024 MiB of which the pool may take 768 MiB at once.
pub(crate) fn header() -> Header {
    Header {
        run: RunConfig { gpus: toy_gpus("toy-1g", 1024 * MIB, 1), ..RunConfig::default() },
        jax: "0.10.2".into(),
        plugin: "0.112".into(),
        devices: 1,
        allocator: "bfc".into(),
        memory_fraction: 0.75,
        preallocate: true,
        command: vec!["python".into(), "train.py".into()],
        ..Header::default()
    }
}

/// Returns the summary of a trace.
pub(crate) fn summarize_trace(trace: &[u8]) -> RunSummary {
    summarize(Reader::new(trace).unwrap()).unwrap()
}

/// Returns the summary of a run that ends here.
pub(crate) fn summarize_run(run: Recorder) -> RunSummary {
    summarize_trace(&run.finish())
}

/// Returns why a trace is no run's.
pub(crate) fn refusal(trace: &[u8]) -> Error {
    let error = summarize(Reader::new(trace).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidFile, "{error}");
    error
}

pub(crate) fn upload_event(device: u32, bytes: u64, alignment: u64, space: PoolSpace) -> Event {
    Event::Allocate {
        device,
        bytes,
        alignment,
        space,
        purpose: Purpose::Upload,
        slot: 0,
        site: TextId(0),
    }
}

pub(crate) fn program_event(
    program: u32,
    name: TextId,
    sizes: ProgramSizes,
    devices: u32,
) -> Event {
    Event::Program {
        program,
        name,
        sizes,
        devices,
        loaded: false,
        compile_attempt: TextId(0),
        site: TextId(0),
    }
}

impl Recorder {
    pub(crate) fn new(header: &Header) -> Recorder {
        Recorder::beside(header, 0)
    }

    /// Records a process on GPUs of which others hold so much.
    pub(crate) fn beside(header: &Header, used_by_others: u64) -> Recorder {
        let version: Vec<_> = header.jax.split('.').collect();
        let version = |part: usize| version[part].parse().unwrap();
        let options = PoolOptions {
            kind: header.allocator.parse().unwrap(),
            total_memory_bytes: header.total_memory_bytes(),
            memory_fraction: header.memory_fraction,
            memory_cap: header.memory_cap,
            preallocate: header.preallocate,
            spatial_partitioning: header.spatial_partitioning,
            cuda_async_prealloc: header.cuda_async_prealloc,
            collective_memory_bytes: header.collective_memory_bytes,
            unified_memory: header.unified_memory,
            jax_version: (version(0), version(1), version(2)),
            ordinal: 0,
        };
        let elsewhere = header.run.occupied_bytes + header.run.context_bytes + used_by_others;
        let free = header.total_memory_bytes() - elsewhere;
        let pools = (0..header.devices).map(|ordinal| {
            let calls = Calls::default();
            let device = Noted { device: SimulatedDeviceMemory::new(free), calls: calls.clone() };
            let options = PoolOptions { ordinal, ..options.clone() };
            Pool { allocator: build(&options, Box::new(device)), calls }
        });
        let file = File::default();
        Recorder {
            writer: Writer::new(file.clone(), header).unwrap(),
            footer: Footer::default(),
            file,
            pools: pools.collect(),
            allocations: 0,
        }
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.writer.event(&event).unwrap();
    }

    fn note_driver(&mut self, device: u32) {
        let calls = std::mem::take(&mut *self.pools[device as usize].calls.lock().unwrap());
        for (asked, region) in calls {
            self.event(Event::Driver {
                device,
                asked,
                address: region.map_or(0, |region| region.address),
                granted: region.map_or(0, |region| region.bytes),
            });
        }
    }

    pub(crate) fn stats(&self, device: u32) -> Stats {
        self.pools[device as usize].allocator.stats()
    }

    /// Allocates in any space; `None` and a refusal in the trace when there is no room.
    pub(crate) fn allocate_in(
        &mut self,
        device: u32,
        bytes: u64,
        space: PoolSpace,
        purpose: Purpose,
    ) -> Option<Block> {
        self.request(device, bytes, space, purpose, 0)
    }

    /// Allocates what is a certain buffer of the program in execution.
    pub(crate) fn allocate_slot(
        &mut self,
        device: u32,
        bytes: u64,
        purpose: Purpose,
        slot: u32,
    ) -> Option<Block> {
        self.request(device, bytes, PoolSpace::Default, purpose, slot)
    }

    fn request(
        &mut self,
        device: u32,
        bytes: u64,
        space: PoolSpace,
        purpose: Purpose,
        slot: u32,
    ) -> Option<Block> {
        let pool = &mut self.pools[device as usize];
        let result = pool.allocator.allocate(bytes, 64, space);
        let message = pool.allocator.out_of_memory_message(bytes);
        self.note_driver(device);
        let alignment = 64;
        let Ok(address) = result else {
            let message = self.writer.text(&message);
            self.event(Event::AllocationFailure {
                device,
                bytes,
                alignment,
                space,
                purpose,
                slot,
                site: TextId(0),
                message,
            });
            return None;
        };
        let site = self.writer.text("train.py:7 (main)");
        self.event(Event::Allocate { device, bytes, alignment, space, purpose, slot, site });
        let number = self.allocations;
        self.allocations += 1;
        Some(Block { device, address, number })
    }

    pub(crate) fn allocate(&mut self, device: u32, bytes: u64, purpose: Purpose) -> Option<Block> {
        self.allocate_in(device, bytes, PoolSpace::Default, purpose)
    }

    pub(crate) fn upload(&mut self, bytes: u64) -> Block {
        self.allocate(0, bytes, Purpose::Upload).unwrap()
    }

    pub(crate) fn free(&mut self, Block { device, address, number: allocation }: Block) {
        let pool = &mut self.pools[device as usize];
        let result = pool.allocator.free(address);
        self.note_driver(device);
        if let Err(error) = result {
            assert_eq!(error.kind(), ErrorKind::AllocatorAborts);
            let message = self.writer.text(&error.to_string());
            self.event(Event::FreeAborts { allocation, message });
        } else {
            self.event(Event::Free { allocation });
        }
    }

    pub(crate) fn note(&mut self, note: &Note) {
        self.writer.add_note(note).unwrap();
    }

    pub(crate) fn program(&mut self, program: u32, name: &str, sizes: ProgramSizes) {
        let name = self.writer.text(name);
        let devices = self.pools.len() as u32;
        self.event(program_event(program, name, sizes, devices));
    }

    pub(crate) fn begin(&mut self, program: u32) {
        self.begin_at(program, "");
    }

    /// Begins an execution that a line called.
    pub(crate) fn begin_at(&mut self, program: u32, line: &str) {
        self.footer.executions += 1;
        let site = self.writer.text(line);
        self.event(Event::Begin { program, site });
    }

    pub(crate) fn end(&mut self) {
        self.event(Event::End);
    }

    /// Fills the closing figures from the allocators.
    pub(crate) fn close(&mut self) {
        let stats: Vec<_> = self.pools.iter().map(|p| p.allocator.stats()).collect();
        self.footer.bytes_in_use = stats.iter().map(|s| s.bytes_in_use).collect();
        self.footer.peak_bytes_in_use = stats.iter().map(|s| s.peak_bytes_in_use).collect();
        self.footer.pool_bytes = stats.iter().map(|s| s.pool_bytes.unwrap_or(0)).collect();
        self.footer.num_allocs = stats.iter().map(|s| s.num_allocs).collect();
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.close();
        self.finish_as_is()
    }

    pub(crate) fn finish_as_is(mut self) -> Vec<u8> {
        self.writer.finish(&self.footer).unwrap();
        self.file.bytes()
    }

    /// Ends as a killed process does.
    pub(crate) fn kill(mut self) -> Vec<u8> {
        self.writer.flush().unwrap();
        self.file.bytes()
    }
}

/// Records the partitioned pool of JAX 0.11 on a GPU that grants it in two regions. It `hangs`
/// where it allocates until XLA would never return; else it frees before that, which aborts.
pub(crate) fn two_regions(header: &Header, hangs: bool) -> Vec<u8> {
    let mut run = Recorder::new(&Header {
        run: RunConfig { occupied_bytes: 347 * MIB, ..header.run.clone() },
        jax: "0.11.0".into(),
        spatial_partitioning: true,
        ..header.clone()
    });
    run.program(1, "jit_step", ProgramSizes::default());
    run.begin(1);
    run.end();
    let mut blocks = Vec::new();
    let (mut pools, mut pool) = (0, 0);
    while hangs || pools < 2 {
        let block = run.allocate_in(0, 1, PoolSpace::Collective, Purpose::Output);
        pools += u32::from(run.stats(0).pool_bytes.unwrap() > pool);
        pool = run.stats(0).pool_bytes.unwrap();
        let Some(block) = block else { break };
        blocks.push(block);
    }
    blocks.into_iter().for_each(|block| run.free(block));
    run.finish()
}
