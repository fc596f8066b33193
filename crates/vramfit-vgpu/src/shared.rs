//! The memory of a card as the driver hands it out: private to this process, or shared with
//! others through a small locked file.

use vramfit_core::allocator::{CardMemory, DeviceMemory};

use crate::environment::Environment;
use crate::status::Answer;

/// Returns the memory of one card: its total, less what others hold and the CUDA context.
pub(crate) fn device_memory(
    environment: &Environment,
    _ordinal: u32,
) -> Answer<Box<dyn DeviceMemory>> {
    let held = environment.taken_bytes + environment.context_bytes;
    let free = environment.gpu.total_memory_bytes.saturating_sub(held);
    Ok(Box::new(CardMemory::new(free)))
}
