//! Asynchronous transfers from the host: buffers are created first and filled in parts.

use std::ptr;
use std::sync::{Arc, Mutex};

use vramfit_model::program::Shape;
use vramfit_model::trace::Purpose;

use crate::buffer::device_buffer::{Buffer, Storage};
use crate::buffer::host_data::HostData;
use crate::buffer::host_transfers::{allocate, read_shape, target_memory};
use crate::buffer::value::Value;
use crate::device::memory::Memory;
use crate::lock;
use crate::pjrt::abi::AsyncHostToDeviceTransferManager;
use crate::pjrt::abi::buffer::ShapeSpec;
use crate::pjrt::abi::transfer::{
    AsyncHostToDeviceTransferManagerBufferCountArgs,
    AsyncHostToDeviceTransferManagerBufferSizeArgs, AsyncHostToDeviceTransferManagerDestroyArgs,
    AsyncHostToDeviceTransferManagerDeviceArgs, AsyncHostToDeviceTransferManagerRetrieveBufferArgs,
    AsyncHostToDeviceTransferManagerSetBufferErrorArgs,
    AsyncHostToDeviceTransferManagerTransferDataArgs, ClientCreateBuffersForAsyncHostToDeviceArgs,
};
use crate::pjrt::args::read_sized;
use crate::pjrt::event;
use crate::pjrt::pointers::{self, into_handle};
use crate::pjrt::status::{PjrtResult, Status};
use crate::session::machine_session::Block;

struct TransferManager {
    memory: &'static Memory,
    transfers: Vec<Transfer>,
}

struct Transfer {
    shape: Arc<Shape>,
    block: Option<Arc<Block>>,
    state: Mutex<TransferState>,
}

struct TransferState {
    bytes: Vec<u8>,
    error: Option<Status>,
}

unsafe fn manager<'a>(
    raw: *mut AsyncHostToDeviceTransferManager,
) -> PjrtResult<&'a TransferManager> {
    pointers::object(raw, "no transfer")
}

impl TransferManager {
    fn transfer(&self, index: i32) -> PjrtResult<&Transfer> {
        usize::try_from(index)
            .ok()
            .and_then(|index| self.transfers.get(index))
            .ok_or_else(|| Status::invalid_argument(format!("transfer {index} does not exist")))
    }
}

pub(crate) unsafe fn create(args: &mut ClientCreateBuffersForAsyncHostToDeviceArgs) -> PjrtResult {
    let memory = target_memory(args.memory, ptr::null_mut())?;
    let mut transfers = Vec::with_capacity(args.num_shape_specs);
    for index in 0..args.num_shape_specs {
        let spec: ShapeSpec = read_sized(args.shape_specs.add(index))
            .ok_or_else(|| Status::internal("no shape for a transfer"))?;
        let dims = pointers::list(spec.dims, spec.num_dims);
        let layout = match index < args.num_device_layouts {
            true => args.device_layouts.add(index).read(),
            false => ptr::null_mut(),
        };
        let shape = read_shape(spec.element_type, dims, layout, memory.kind.space())?;
        transfers.push(Transfer {
            block: allocate(memory, shape.bytes(), Purpose::Upload)?,
            state: Mutex::new(TransferState { bytes: Vec::new(), error: None }),
            shape: Arc::new(shape),
        });
    }
    args.transfer_manager = into_handle(TransferManager { memory, transfers });
    Ok(())
}

pub(crate) unsafe fn destroy(args: &mut AsyncHostToDeviceTransferManagerDestroyArgs) -> PjrtResult {
    pointers::destroy::<TransferManager, _>(args.transfer_manager)
}

pub(crate) unsafe fn transfer_data(
    args: &mut AsyncHostToDeviceTransferManagerTransferDataArgs,
) -> PjrtResult {
    let transfer = manager(args.transfer_manager)?.transfer(args.buffer_index)?;
    let outside = || Status::invalid_argument("a transfer exceeds its buffer");
    let start = usize::try_from(args.offset).map_err(|_| outside())?;
    let length = usize::try_from(args.transfer_size).map_err(|_| outside())?;
    let end = start.checked_add(length).ok_or_else(outside)?;
    let size = transfer.shape.host_bytes() as usize;
    if end > size {
        return Err(outside());
    }
    let mut state = lock(&transfer.state);
    state.bytes.resize(size, 0);
    let piece = pointers::list(args.data.cast::<u8>(), length);
    state.bytes[start..end].copy_from_slice(piece);
    args.done_with_h2d_transfer = event::ready(Ok(()));
    Ok(())
}

/// The buffer may be retrieved before its data is complete; its value is then unknown. Data that is
/// transferred later is ignored: the virtual GPU never needs large values.
pub(crate) unsafe fn retrieve(
    args: &mut AsyncHostToDeviceTransferManagerRetrieveBufferArgs,
) -> PjrtResult {
    let manager = manager(args.transfer_manager)?;
    let transfer = manager.transfer(args.buffer_index)?;
    let mut state = lock(&transfer.state);
    let shape = Arc::clone(&transfer.shape);
    let buffer = if let Some(error) = &state.error {
        Buffer::new_error(shape, manager.memory, error.clone())
    } else {
        let bytes = std::mem::take(&mut state.bytes);
        let whole = bytes.len() as u64 == shape.host_bytes();
        let value = if whole { Value::Known(HostData::from_upload(bytes)) } else { Value::Unknown };
        Buffer::new(shape, manager.memory, Storage::new(transfer.block.clone(), value))
    };
    args.buffer_out = buffer.into_raw();
    Ok(())
}

pub(crate) unsafe fn device(args: &mut AsyncHostToDeviceTransferManagerDeviceArgs) -> PjrtResult {
    args.device_out = manager(args.transfer_manager)?.memory.device.raw();
    Ok(())
}

pub(crate) unsafe fn buffer_count(
    args: &mut AsyncHostToDeviceTransferManagerBufferCountArgs,
) -> PjrtResult {
    args.buffer_count = manager(args.transfer_manager)?.transfers.len();
    Ok(())
}

pub(crate) unsafe fn buffer_size(
    args: &mut AsyncHostToDeviceTransferManagerBufferSizeArgs,
) -> PjrtResult {
    let transfer = manager(args.transfer_manager)?.transfer(args.buffer_index)?;
    args.buffer_size = transfer.shape.bytes() as usize;
    Ok(())
}

pub(crate) unsafe fn set_error(
    args: &mut AsyncHostToDeviceTransferManagerSetBufferErrorArgs,
) -> PjrtResult {
    let transfer = manager(args.transfer_manager)?.transfer(args.buffer_index)?;
    let text = pointers::text(args.error_message, args.error_message_size);
    let mut state = lock(&transfer.state);
    state.error = Some(Status::with_code(args.error_code, text));
    Ok(())
}
