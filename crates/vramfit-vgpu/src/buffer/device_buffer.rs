//! Buffers: an array's type and shape, its memory, and the value of its contents.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use vramfit_model::program::Shape;

use crate::buffer::host_reads::{self, read_value};
use crate::buffer::origin::Origin;
use crate::buffer::value::Value;
use crate::device::memory::{Memory, MemoryKind};
use crate::lock;
use crate::pjrt::abi::buffer::{
    BufferDecreaseExternalReferenceCountArgs, BufferDeleteArgs, BufferDestroyArgs,
    BufferDeviceArgs, BufferDimensionsArgs, BufferDynamicDimensionIndicesArgs,
    BufferElementTypeArgs, BufferGetMemoryLayoutArgs, BufferIncreaseExternalReferenceCountArgs,
    BufferIsDeletedArgs, BufferIsOnCpuArgs, BufferMemoryArgs, BufferMemoryLayout,
    BufferMemoryLayoutTiled, BufferOnDeviceSizeInBytesArgs,
    BufferOpaqueDeviceMemoryDataPointerArgs, BufferReadyEventArgs, BufferUnsafePointerArgs,
    LayoutUnion,
};
use crate::pjrt::abi::{self, Buffer as RawBuffer};
use crate::pjrt::event;
use crate::pjrt::pointers::{self, list_parts};
use crate::pjrt::status::{PjrtResult, Status};
use crate::session::machine_session::Block;

/// An array in the memory of a device, or in pinned host memory.
pub(crate) struct Buffer {
    pub(crate) shape: Arc<Shape>,
    pub(crate) memory: &'static Memory,
    content: Mutex<BufferContent>,
    /// References held outside JAX; a buffer with any cannot be donated.
    external_references: AtomicU64,
}

enum BufferContent {
    Live(Arc<Storage>),
    /// An array that stands for an error, which is returned when it is awaited.
    Error(Status),
    Deleted,
}

/// The memory and the value of an array.
pub(crate) struct Storage {
    /// `None` in host memory, and for arrays without bytes.
    pub(crate) block: Option<Arc<Block>>,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
    /// Real bytes for host memory, made when the pointer is requested.
    host: OnceLock<Box<[u8]>>,
}

impl Storage {
    /// Makes the storage of an uploaded array.
    pub(crate) fn new(block: Option<Arc<Block>>, value: Value) -> Arc<Self> {
        Storage::with_origin(block, value, Origin::from_upload())
    }

    pub(crate) fn with_origin(
        block: Option<Arc<Block>>,
        value: Value,
        origin: Origin,
    ) -> Arc<Self> {
        Arc::new(Storage { block, value, origin, host: OnceLock::new() })
    }

    /// Returns the same memory with another value: a donated argument as a result.
    pub(crate) fn with_value(&self, value: Value, origin: Origin) -> Arc<Self> {
        Storage::with_origin(self.block.clone(), value, origin)
    }
}

impl Buffer {
    pub(crate) fn new(shape: Arc<Shape>, memory: &'static Memory, storage: Arc<Storage>) -> Self {
        Buffer::with_content(shape, memory, BufferContent::Live(storage))
    }

    pub(crate) fn new_error(shape: Arc<Shape>, memory: &'static Memory, error: Status) -> Self {
        Buffer::with_content(shape, memory, BufferContent::Error(error))
    }

    fn with_content(shape: Arc<Shape>, memory: &'static Memory, content: BufferContent) -> Self {
        Buffer {
            shape,
            memory,
            content: Mutex::new(content),
            external_references: AtomicU64::new(0),
        }
    }

    pub(crate) fn into_raw(self) -> *mut RawBuffer {
        pointers::into_handle(self)
    }

    /// Returns memory and value for somebody who reads the array.
    ///
    /// # Errors
    /// When the array was deleted or donated, with XLA's message.
    pub(crate) fn storage(&self) -> PjrtResult<Arc<Storage>> {
        let storage = self.unread_storage()?;
        if let Some(block) = &storage.block {
            block.mark_read();
        }
        Ok(storage)
    }

    fn unread_storage(&self) -> PjrtResult<Arc<Storage>> {
        match &*lock(&self.content) {
            BufferContent::Live(storage) => Ok(Arc::clone(storage)),
            BufferContent::Error(error) => Err(error.clone()),
            BufferContent::Deleted => {
                Err(Status::invalid_argument("Buffer has been deleted or donated."))
            }
        }
    }

    /// Deletes the array and frees its memory.
    pub(crate) fn delete(&self) {
        let before = std::mem::replace(&mut *lock(&self.content), BufferContent::Deleted);
        // Dropped here, after the lock is released: the last owner of a block locks the machine.
        drop(before);
    }

    pub(crate) fn is_deleted(&self) -> bool {
        matches!(*lock(&self.content), BufferContent::Deleted)
    }
}

/// Returns the buffer of a handle.
///
/// # Safety
/// `raw` came from [`Buffer::into_raw`] and is not destroyed.
pub(crate) unsafe fn from_raw<'a>(raw: *mut RawBuffer) -> PjrtResult<&'a Buffer> {
    pointers::object(raw, "no buffer")
}

pub(crate) unsafe fn destroy(args: &mut BufferDestroyArgs) -> PjrtResult {
    pointers::destroy::<Buffer, _>(args.buffer)
}

pub(crate) unsafe fn delete(args: &mut BufferDeleteArgs) -> PjrtResult {
    from_raw(args.buffer)?.delete();
    Ok(())
}

pub(crate) unsafe fn is_deleted(args: &mut BufferIsDeletedArgs) -> PjrtResult {
    args.is_deleted = from_raw(args.buffer)?.is_deleted();
    Ok(())
}

pub(crate) unsafe fn element_type(args: &mut BufferElementTypeArgs) -> PjrtResult {
    args.r#type = from_raw(args.buffer)?.shape.element_type.pjrt();
    Ok(())
}

pub(crate) unsafe fn dimensions(args: &mut BufferDimensionsArgs) -> PjrtResult {
    (args.dims, args.num_dims) = list_parts(&from_raw(args.buffer)?.shape.dims);
    Ok(())
}

/// XLA:GPU has no dynamic dimensions at run time.
pub(crate) unsafe fn dynamic_dimensions(
    args: &mut BufferDynamicDimensionIndicesArgs,
) -> PjrtResult {
    args.dynamic_dim_indices = ptr::null();
    args.num_dynamic_dims = 0;
    Ok(())
}

pub(crate) unsafe fn memory_layout(args: &mut BufferGetMemoryLayoutArgs) -> PjrtResult {
    let mut layout: BufferMemoryLayout = crate::pjrt::cuda_plugin::zeroed_struct();
    let mut tiled: BufferMemoryLayoutTiled = crate::pjrt::cuda_plugin::zeroed_struct();
    (tiled.minor_to_major, tiled.minor_to_major_size) =
        list_parts(&from_raw(args.buffer)?.shape.minor_to_major);
    layout.value = LayoutUnion { tiled };
    args.layout = layout;
    Ok(())
}

pub(crate) unsafe fn on_device_size(args: &mut BufferOnDeviceSizeInBytesArgs) -> PjrtResult {
    args.on_device_size_in_bytes = from_raw(args.buffer)?.shape.bytes() as usize;
    Ok(())
}

pub(crate) unsafe fn device(args: &mut BufferDeviceArgs) -> PjrtResult {
    args.device = from_raw(args.buffer)?.memory.device.raw();
    Ok(())
}

pub(crate) unsafe fn memory(args: &mut BufferMemoryArgs) -> PjrtResult {
    args.memory = Memory::raw(from_raw(args.buffer)?.memory);
    Ok(())
}

pub(crate) unsafe fn is_on_cpu(args: &mut BufferIsOnCpuArgs) -> PjrtResult {
    args.is_on_cpu = from_raw(args.buffer)?.memory.kind == MemoryKind::PinnedHost;
    Ok(())
}

pub(crate) unsafe fn ready_event(args: &mut BufferReadyEventArgs) -> PjrtResult {
    // To wait for an array is not to read it.
    let result = from_raw(args.buffer)?.unread_storage().map(drop);
    args.event = event::ready(result);
    Ok(())
}

/// Returns the simulated address, or for host memory a real one.
unsafe fn pointer(buffer: *mut abi::Buffer) -> PjrtResult<*mut c_void> {
    let buffer = from_raw(buffer)?;
    let storage = match host_reads::is_recorded() {
        true => buffer.storage()?,
        false => buffer.unread_storage()?,
    };
    if buffer.memory.kind == MemoryKind::Device {
        let address = storage.block.as_ref().map_or(0, |block| block.address);
        return Ok(ptr::without_provenance_mut(address as usize));
    }
    if let Some(bytes) = storage.host.get() {
        return Ok(bytes.as_ptr().cast_mut().cast());
    }
    // The holder of the pointer reads without further calls, so this counts as the one read. Not inside
    // `get_or_init`: reading may call Python, and a thread that holds the GIL could be waiting for it.
    let bytes = read_value(&buffer.shape, &storage)?;
    let bytes = storage.host.get_or_init(|| bytes.to_vec().into_boxed_slice());
    Ok(bytes.as_ptr().cast_mut().cast())
}

pub(crate) unsafe fn unsafe_pointer(args: &mut BufferUnsafePointerArgs) -> PjrtResult {
    args.buffer_pointer = pointer(args.buffer)? as usize;
    Ok(())
}

pub(crate) unsafe fn opaque_pointer(
    args: &mut BufferOpaqueDeviceMemoryDataPointerArgs,
) -> PjrtResult {
    args.device_memory_ptr = pointer(args.buffer)?;
    Ok(())
}

pub(crate) unsafe fn increase_references(
    args: &mut BufferIncreaseExternalReferenceCountArgs,
) -> PjrtResult {
    from_raw(args.buffer)?.external_references.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

pub(crate) unsafe fn decrease_references(
    args: &mut BufferDecreaseExternalReferenceCountArgs,
) -> PjrtResult {
    let less = |count: u64| count.checked_sub(1);
    from_raw(args.buffer)?
        .external_references
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
        .map(drop)
        .map_err(|_| Status::internal("more external references were released than acquired"))
}
