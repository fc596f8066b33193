//! The memory of a GPU as the driver allocates it: private to this process, or shared with others on this
//! machine, so that they run out of memory as on a real GPU.

use vramfit_model::allocator::{DeviceMemory, PoolOptions, SimulatedDeviceMemory};
use vramfit_model::run_config::RunConfig;
use vramfit_model::trace::{Header, Note};

use super::shared_gpu::{SharedGpu, SharedGpuState};
use super::sharing;
use crate::pjrt::status::Status;

pub(crate) struct GpuMemory {
    /// The memory for an allocator.
    pub(crate) memory: Box<dyn DeviceMemory>,
    /// The shared GPU, if other processes use it, too.
    pub(crate) shared: Option<SharedGpu>,
}

/// Why the memory of a GPU cannot be used.
pub(crate) enum GpuMemoryError {
    /// Other processes have left too little for the CUDA context: notes for the trace, and the error.
    NoContext(Vec<Note>, Status),
    /// Anything else.
    Failed(Status),
}

/// Returns the memory of the GPU of a device: its total, less what others use and the CUDA context, and with managed
/// memory that of the host.
pub(crate) fn open_gpu_memory(
    header: &Header,
    options: &PoolOptions,
    device: u32,
) -> Result<GpuMemory, GpuMemoryError> {
    let run = &header.run;
    let total = run.pool_total_bytes();
    let free = options.allocatable_bytes(total.saturating_sub(run.occupied_bytes));
    let context = run.context_bytes;
    let Some(file) = sharing::open(run).map_err(GpuMemoryError::Failed)? else {
        return Ok(GpuMemory {
            memory: Box::new(SimulatedDeviceMemory::new(free.saturating_sub(context))),
            shared: None,
        });
    };
    let mut state = SharedGpuState::new(file, device, header.gpu_of(device), free);
    state.register(&describe_gpus(run)).map_err(GpuMemoryError::Failed)?;
    if !state.reserve(context) {
        let left = free.saturating_sub(state.others_bytes());
        let mut notes = vec![state.others_note()];
        notes.push(Note::NoContext { device, context_bytes: context, free_bytes: left });
        let text = format!(
            "vramfit: no room for the CUDA context, some {context} bytes: other processes use {} of \
             the {free} bytes of GPU {}; on a real machine JAX would continue without this GPU, or find \
             none",
            state.others_bytes(),
            state.gpu
        );
        return Err(GpuMemoryError::NoContext(notes, Status::failed_precondition(text)));
    }
    let shared = SharedGpu::new(state);
    Ok(GpuMemory { memory: Box::new(shared.clone()), shared: Some(shared) })
}

/// Returns a description of the machine's GPUs, which must be the same for all processes that share them.
fn describe_gpus(run: &RunConfig) -> String {
    let gpu = &run.gpus.gpu;
    format!("{} {} {}", gpu.name, run.gpus.count, gpu.total_memory_bytes)
}
