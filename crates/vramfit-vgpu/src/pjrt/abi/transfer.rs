//! Asynchronous transfers from the host, piece by piece.

use std::ffi::{c_char, c_int, c_void};

use super::buffer::{BufferMemoryLayout, ShapeSpec};
use super::{AsyncHostToDeviceTransferManager, Buffer, Client, Device, Event, Memory};

args! {
    sized struct ClientCreateBuffersForAsyncHostToDeviceArgs {
        client: *mut Client,
        shape_specs: *mut ShapeSpec,
        num_shape_specs: usize,
        device_layouts: *mut *mut BufferMemoryLayout,
        num_device_layouts: usize,
        memory: *mut Memory,
        transfer_manager: *mut AsyncHostToDeviceTransferManager,
    }
    sized struct AsyncHostToDeviceTransferManagerDestroyArgs {
        transfer_manager: *mut AsyncHostToDeviceTransferManager,
    }
    sized struct AsyncHostToDeviceTransferManagerTransferDataArgs {
        transfer_manager: *mut AsyncHostToDeviceTransferManager,
        buffer_index: c_int,
        data: *const c_void,
        offset: i64,
        transfer_size: i64,
        is_last_transfer: bool,
        done_with_h2d_transfer: *mut Event,
    }
    sized struct AsyncHostToDeviceTransferManagerRetrieveBufferArgs {
        transfer_manager: *mut AsyncHostToDeviceTransferManager,
        buffer_index: c_int,
        buffer_out: *mut Buffer,
    }
    sized struct AsyncHostToDeviceTransferManagerDeviceArgs {
        transfer_manager: *mut AsyncHostToDeviceTransferManager,
        device_out: *mut Device,
    }
    sized struct AsyncHostToDeviceTransferManagerBufferCountArgs {
        transfer_manager: *mut AsyncHostToDeviceTransferManager,
        buffer_count: usize,
    }
    sized struct AsyncHostToDeviceTransferManagerBufferSizeArgs {
        transfer_manager: *mut AsyncHostToDeviceTransferManager,
        buffer_index: c_int,
        buffer_size: usize,
    }
    sized struct AsyncHostToDeviceTransferManagerSetBufferErrorArgs {
        transfer_manager: *mut AsyncHostToDeviceTransferManager,
        buffer_index: c_int,
        error_code: c_int,
        error_message: *const c_char,
        error_message_size: usize,
    }
}
