//! Transfers of arrays from the host, to the host, and between memories.

use std::ptr;
use std::sync::Arc;

use vramfit_model::program::{ElementType, MemorySpace, Shape};
use vramfit_model::trace::Purpose;

use crate::buffer::device_buffer::{self, Buffer, Storage};
use crate::buffer::host_data::HostData;
use crate::buffer::host_reads::read_value;
use crate::buffer::strides::{copy_strided, layout_strides, row_major_strides};
use crate::buffer::value::Value;
use crate::device::machine::{self, Machine};
use crate::device::memory::{self, Memory, MemoryKind};
use crate::device::virtual_device;
use crate::hooks;
use crate::pjrt::abi::buffer::{
    BufferBitcastArgs, BufferCopyRawToHostArgs, BufferCopyToDeviceArgs, BufferCopyToMemoryArgs,
    BufferMemoryLayout, BufferToHostBufferArgs, ClientBufferFromHostBufferArgs,
    ClientCreateErrorBufferArgs, ClientCreateUninitializedBufferArgs,
};
use crate::pjrt::event;
use crate::pjrt::pointers;
use crate::pjrt::status::{PjrtResult, Status};
use crate::session::machine_session::{AllocationRequest, Block};

/// Contents of uploads up to this size are always kept: scalars and keys decide what the program does.
const ALWAYS_KEEP_BYTES: u64 = 64 << 10;

fn machine() -> PjrtResult<&'static Machine> {
    machine::get().ok_or_else(|| Status::internal("no client was created"))
}

/// Of smaller uploads nobody asks for the line, and there are many.
const MIN_SITED_BYTES: u64 = 1 << 16;

/// Allocates memory for an array; `None` for host memory and arrays without bytes.
pub(crate) fn allocate(
    memory: &'static Memory,
    bytes: u64,
    purpose: Purpose,
) -> PjrtResult<Option<Arc<Block>>> {
    if memory.kind == MemoryKind::PinnedHost || bytes == 0 {
        return Ok(None);
    }
    let request = AllocationRequest::new(memory.device.ordinal()?, bytes, purpose);
    // Asked for before the session is locked: the thread that has Python may be waiting for it.
    let site = match purpose == Purpose::Upload && bytes >= MIN_SITED_BYTES {
        true => hooks::get().and_then(hooks::Hooks::call_site).unwrap_or_default(),
        false => String::new(),
    };
    let mut session = machine()?.session();
    let site = session.intern(&site);
    let block = session.allocate(&AllocationRequest { site, ..request })?;
    Ok(Some(Arc::new(block)))
}

/// Returns the memory a call names, or the default memory of the device it names.
pub(crate) unsafe fn target_memory(
    memory: *mut crate::pjrt::abi::Memory,
    target: *mut crate::pjrt::abi::Device,
) -> PjrtResult<&'static Memory> {
    if let Some(memory) = memory::from_raw(memory) {
        return Ok(memory);
    }
    virtual_device::from_raw(target)
        .ok_or_else(|| Status::invalid_argument("neither a device nor a memory was provided"))?
        .memory(MemoryKind::Device)
}

/// Returns the shape of an array in `space`; without a layout it is row-major.
pub(crate) unsafe fn read_shape(
    element_type: i32,
    dims: &[i64],
    layout: *const BufferMemoryLayout,
    space: MemorySpace,
) -> PjrtResult<Shape> {
    let element_type = ElementType::from_pjrt(element_type)
        .ok_or_else(|| Status::invalid_argument(format!("unknown element type {element_type}")))?;
    let mut shape = Shape::dense(element_type, dims);
    shape.space = space;
    if let Some(layout) = layout.as_ref() {
        let strides = layout_strides(layout, &shape)?;
        let mut order: Vec<i64> = (0..dims.len() as i64).rev().collect();
        // A stable sort keeps row-major order where strides are equal (dimensions of one element).
        order.sort_by_key(|&dim| strides[dim as usize].unsigned_abs());
        shape.minor_to_major = order;
    }
    Ok(shape)
}

/// Returns whether the contents of an upload of this size are kept.
fn keeps_contents(size: u64) -> bool {
    let cap = machine::get().map_or(0, |machine| machine.header.run.upload_cap_bytes);
    size <= ALWAYS_KEEP_BYTES || HostData::retained_bytes() + size <= cap
}

pub(crate) unsafe fn from_host(args: &mut ClientBufferFromHostBufferArgs) -> PjrtResult {
    let memory = target_memory(args.memory, args.device)?;
    let dims = pointers::list(args.dims, args.num_dims);
    let space = memory.kind.space();
    let shape = read_shape(args.r#type, dims, args.device_layout, space)?;
    let block = allocate(memory, shape.bytes(), Purpose::Upload)?;
    let value = if keeps_contents(shape.host_bytes()) {
        let element = shape.element_type.bytes();
        let from = if args.num_byte_strides == 0 {
            row_major_strides(dims, element)
        } else {
            pointers::list(args.byte_strides, args.num_byte_strides).to_vec()
        };
        let mut bytes = vec![0; shape.host_bytes() as usize];
        let to = row_major_strides(dims, element);
        copy_strided(args.data.cast(), &from, bytes.as_mut_ptr(), &to, dims, element);
        Value::Known(HostData::from_upload(bytes))
    } else {
        Value::Unknown
    };
    let buffer = Buffer::new(Arc::new(shape), memory, Storage::new(block, value));
    args.buffer = buffer.into_raw();
    // The data was copied during the call, so its lifetime does not matter.
    args.done_with_host_buffer = event::ready(Ok(()));
    Ok(())
}

pub(crate) unsafe fn uninitialized(args: &mut ClientCreateUninitializedBufferArgs) -> PjrtResult {
    let memory = target_memory(args.memory, args.device)?;
    let dims = pointers::list(args.shape_dims, args.shape_num_dims);
    let space = memory.kind.space();
    let shape = read_shape(args.shape_element_type, dims, args.shape_layout, space)?;
    let block = allocate(memory, shape.bytes(), Purpose::Upload)?;
    let storage = Storage::new(block, Value::Unknown);
    args.buffer = Buffer::new(Arc::new(shape), memory, storage).into_raw();
    Ok(())
}

pub(crate) unsafe fn error_buffer(args: &mut ClientCreateErrorBufferArgs) -> PjrtResult {
    let memory = target_memory(args.memory, ptr::null_mut())?;
    let dims = pointers::list(args.shape_dims, args.shape_num_dims);
    let space = memory.kind.space();
    let shape = read_shape(args.shape_element_type, dims, ptr::null(), space)?;
    let text = pointers::text(args.error_message, args.error_message_size);
    let error = Status::with_code(args.error_code, text);
    args.buffer = Buffer::new_error(Arc::new(shape), memory, error).into_raw();
    Ok(())
}

pub(crate) unsafe fn to_host(args: &mut BufferToHostBufferArgs) -> PjrtResult {
    let source = device_buffer::from_raw(args.src)?;
    let size = source.shape.host_bytes() as usize;
    if args.dst.is_null() {
        args.dst_size = size;
        return Ok(());
    }
    if args.dst_size < size {
        return Err(Status::invalid_argument(format!(
            "`dst_size` must be >= {size}, got {}",
            args.dst_size
        )));
    }
    let storage = source.storage()?;
    let bytes = read_value(&source.shape, &storage)?;
    let element = source.shape.element_type.bytes();
    let from = row_major_strides(&source.shape.dims, element);
    let to = match args.host_layout.as_ref() {
        Some(layout) => layout_strides(layout, &source.shape)?,
        None => crate::buffer::strides::minor_to_major_strides(
            &source.shape.minor_to_major,
            &source.shape.dims,
            element,
        ),
    };
    copy_strided(bytes.as_ptr(), &from, args.dst.cast(), &to, &source.shape.dims, element);
    args.event = event::ready(Ok(()));
    Ok(())
}

pub(crate) unsafe fn raw_to_host(args: &mut BufferCopyRawToHostArgs) -> PjrtResult {
    let source = device_buffer::from_raw(args.buffer)?;
    let bytes = read_value(&source.shape, source.storage()?.as_ref())?;
    let start = usize::try_from(args.offset).unwrap_or(usize::MAX);
    let length = usize::try_from(args.transfer_size).unwrap_or(usize::MAX);
    let part = start
        .checked_add(length)
        .and_then(|end| bytes.get(start..end))
        .ok_or_else(|| Status::invalid_argument("the part to copy lies outside the buffer"))?;
    ptr::copy_nonoverlapping(part.as_ptr(), args.dst.cast::<u8>(), part.len());
    args.event = event::ready(Ok(()));
    Ok(())
}

/// Copies an array into another memory, of this or another device.
fn copy_to(source: &Buffer, memory: &'static Memory) -> PjrtResult<Buffer> {
    let storage = source.storage()?;
    let block = allocate(memory, source.shape.bytes(), Purpose::Copy)?;
    let mut shape = (*source.shape).clone();
    shape.space = memory.kind.space();
    Ok(Buffer::new(
        Arc::new(shape),
        memory,
        Storage::with_origin(block, storage.value.clone(), storage.origin.of_copy()),
    ))
}

pub(crate) unsafe fn to_memory(args: &mut BufferCopyToMemoryArgs) -> PjrtResult {
    let memory = target_memory(args.dst_memory, ptr::null_mut())?;
    args.dst_buffer = copy_to(device_buffer::from_raw(args.buffer)?, memory)?.into_raw();
    Ok(())
}

pub(crate) unsafe fn to_device(args: &mut BufferCopyToDeviceArgs) -> PjrtResult {
    let memory = target_memory(ptr::null_mut(), args.dst_device)?;
    args.dst_buffer = copy_to(device_buffer::from_raw(args.buffer)?, memory)?.into_raw();
    Ok(())
}

/// Returns a buffer of the same memory with another type and shape of equal size.
pub(crate) unsafe fn bitcast(args: &mut BufferBitcastArgs) -> PjrtResult {
    let source = device_buffer::from_raw(args.buffer)?;
    let dims = pointers::list(args.dims, args.num_dims);
    let space = source.shape.space;
    let shape = read_shape(args.element_type, dims, args.device_layout, space)?;
    if shape.bytes() != source.shape.bytes() {
        return Err(Status::invalid_argument("a bitcast cannot change the size"));
    }
    args.out_buffer = Buffer::new(Arc::new(shape), source.memory, source.storage()?).into_raw();
    Ok(())
}
