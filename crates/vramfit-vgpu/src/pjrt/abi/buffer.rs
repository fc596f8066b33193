//! Buffers: created from host memory, inspected, copied, deleted.

use std::ffi::{c_char, c_int, c_void};

use super::client::NamedValue;
use super::{Buffer, Client, Device, Event, Memory};

/// A layout of the caller; `BufferMemoryLayout::type` says which field is set.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union LayoutUnion {
    pub(crate) tiled: BufferMemoryLayoutTiled,
    pub(crate) strides: BufferMemoryLayoutStrides,
}

args! {
    sized struct BufferMemoryLayoutTiled {
        minor_to_major: *const i64,
        minor_to_major_size: usize,
        tile_dims: *const i64,
        tile_dim_sizes: *const usize,
        num_tiles: usize,
    }
    sized struct BufferMemoryLayoutStrides {
        byte_strides: *const i64,
        num_byte_strides: usize,
    }
    sized struct BufferMemoryLayout {
        value: LayoutUnion,
        r#type: c_int,
    }
    sized struct ShapeSpec {
        dims: *const i64,
        num_dims: usize,
        element_type: c_int,
    }
    sized struct ClientBufferFromHostBufferArgs {
        client: *mut Client,
        data: *const c_void,
        r#type: c_int,
        dims: *const i64,
        num_dims: usize,
        byte_strides: *const i64,
        num_byte_strides: usize,
        host_buffer_semantics: c_int,
        device: *mut Device,
        memory: *mut Memory,
        device_layout: *mut BufferMemoryLayout,
        done_with_host_buffer: *mut Event,
        buffer: *mut Buffer,
    }
    sized struct ClientCreateUninitializedBufferArgs {
        client: *mut Client,
        shape_dims: *const i64,
        shape_num_dims: usize,
        shape_element_type: c_int,
        shape_layout: *mut BufferMemoryLayout,
        device: *mut Device,
        memory: *mut Memory,
        buffer: *mut Buffer,
    }
    sized struct ClientCreateErrorBufferArgs {
        client: *mut Client,
        error_code: c_int,
        error_message: *const c_char,
        error_message_size: usize,
        shape_dims: *const i64,
        shape_num_dims: usize,
        shape_element_type: c_int,
        shape_layout: *mut BufferMemoryLayout,
        memory: *mut Memory,
        buffer: *mut Buffer,
        payload: *const NamedValue,
        num_payload: usize,
    }
    sized struct BufferDestroyArgs {
        buffer: *mut Buffer,
    }
    sized struct BufferElementTypeArgs {
        buffer: *mut Buffer,
        r#type: c_int,
    }
    // Also the arguments of `PJRT_Buffer_UnpaddedDimensions`, whose list has another name.
    sized struct BufferDimensionsArgs {
        buffer: *mut Buffer,
        dims: *const i64,
        num_dims: usize,
    }
    sized struct BufferDynamicDimensionIndicesArgs {
        buffer: *mut Buffer,
        dynamic_dim_indices: *const usize,
        num_dynamic_dims: usize,
    }
    sized struct BufferGetMemoryLayoutArgs {
        buffer: *mut Buffer,
        layout: BufferMemoryLayout,
    }
    sized struct BufferOnDeviceSizeInBytesArgs {
        buffer: *mut Buffer,
        on_device_size_in_bytes: usize,
    }
    sized struct BufferDeviceArgs {
        buffer: *mut Buffer,
        device: *mut Device,
    }
    sized struct BufferMemoryArgs {
        buffer: *mut Buffer,
        memory: *mut Memory,
    }
    sized struct BufferDeleteArgs {
        buffer: *mut Buffer,
    }
    sized struct BufferIsDeletedArgs {
        buffer: *mut Buffer,
        is_deleted: bool,
    }
    sized struct BufferCopyToDeviceArgs {
        buffer: *mut Buffer,
        dst_device: *mut Device,
        dst_buffer: *mut Buffer,
    }
    sized struct BufferCopyToMemoryArgs {
        buffer: *mut Buffer,
        dst_memory: *mut Memory,
        dst_buffer: *mut Buffer,
    }
    sized struct BufferToHostBufferArgs {
        src: *mut Buffer,
        host_layout: *mut BufferMemoryLayout,
        dst: *mut c_void,
        dst_size: usize,
        event: *mut Event,
    }
    sized struct BufferCopyRawToHostArgs {
        buffer: *mut Buffer,
        dst: *mut c_void,
        offset: i64,
        transfer_size: i64,
        event: *mut Event,
    }
    sized struct BufferIsOnCpuArgs {
        buffer: *mut Buffer,
        is_on_cpu: bool,
    }
    sized struct BufferReadyEventArgs {
        buffer: *mut Buffer,
        event: *mut Event,
    }
    sized struct BufferUnsafePointerArgs {
        buffer: *mut Buffer,
        buffer_pointer: usize,
    }
    sized struct BufferIncreaseExternalReferenceCountArgs {
        buffer: *mut Buffer,
    }
    sized struct BufferDecreaseExternalReferenceCountArgs {
        buffer: *mut Buffer,
    }
    sized struct BufferOpaqueDeviceMemoryDataPointerArgs {
        buffer: *mut Buffer,
        device_memory_ptr: *mut c_void,
    }
    sized struct BufferBitcastArgs {
        buffer: *mut Buffer,
        element_type: c_int,
        dims: *const i64,
        num_dims: usize,
        device_layout: *mut BufferMemoryLayout,
        out_buffer: *mut Buffer,
    }
}
