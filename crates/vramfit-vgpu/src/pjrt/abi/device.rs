//! Devices, their descriptions, and memories.

use std::ffi::{c_char, c_int, c_void};

use super::client::NamedValue;
use super::{Device, DeviceDescription, Memory};

args! {
    sized struct DeviceDescriptionIdArgs {
        device_description: *mut DeviceDescription,
        id: c_int,
    }
    sized struct DeviceDescriptionAttributesArgs {
        device_description: *mut DeviceDescription,
        num_attributes: usize,
        attributes: *const NamedValue,
    }
    sized struct DeviceDescriptionKindArgs {
        device_description: *mut DeviceDescription,
        device_kind: *const c_char,
        device_kind_size: usize,
    }
    sized struct DeviceDescriptionDebugStringArgs {
        device_description: *mut DeviceDescription,
        debug_string: *const c_char,
        debug_string_size: usize,
    }
    sized struct DeviceDescriptionToStringArgs {
        device_description: *mut DeviceDescription,
        to_string: *const c_char,
        to_string_size: usize,
    }
    sized struct DeviceGetDescriptionArgs {
        device: *mut Device,
        device_description: *mut DeviceDescription,
    }
    sized struct DeviceIsAddressableArgs {
        device: *mut Device,
        is_addressable: bool,
    }
    sized struct DeviceLocalHardwareIdArgs {
        device: *mut Device,
        local_hardware_id: c_int,
    }
    sized struct DeviceAddressableMemoriesArgs {
        device: *mut Device,
        memories: *const *mut Memory,
        num_memories: usize,
    }
    sized struct DeviceDefaultMemoryArgs {
        device: *mut Device,
        memory: *mut Memory,
    }
    sized struct DeviceMemoryStatsArgs {
        device: *mut Device,
        bytes_in_use: i64,
        peak_bytes_in_use: i64,
        peak_bytes_in_use_is_set: bool,
        num_allocs: i64,
        num_allocs_is_set: bool,
        largest_alloc_size: i64,
        largest_alloc_size_is_set: bool,
        bytes_limit: i64,
        bytes_limit_is_set: bool,
        bytes_reserved: i64,
        bytes_reserved_is_set: bool,
        peak_bytes_reserved: i64,
        peak_bytes_reserved_is_set: bool,
        bytes_reservable_limit: i64,
        bytes_reservable_limit_is_set: bool,
        largest_free_block_bytes: i64,
        largest_free_block_bytes_is_set: bool,
        pool_bytes: i64,
        pool_bytes_is_set: bool,
        peak_pool_bytes: i64,
        peak_pool_bytes_is_set: bool,
    }
    sized struct DeviceClearMemoryStatsArgs {
        device: *mut Device,
    }
    sized struct DeviceGetAttributesArgs {
        device: *mut Device,
        attributes: *const NamedValue,
        num_attributes: usize,
        device_attributes: *mut c_void,
        attributes_deleter: Option<unsafe extern "C" fn(*mut c_void)>,
    }
    sized struct MemoryIdArgs {
        memory: *mut Memory,
        id: c_int,
    }
    sized struct MemoryKindArgs {
        memory: *mut Memory,
        kind: *const c_char,
        kind_size: usize,
    }
    sized struct MemoryKindIdArgs {
        memory: *mut Memory,
        kind_id: c_int,
    }
    // Also the arguments of `PJRT_Memory_ToString`, whose text has another name.
    sized struct MemoryDebugStringArgs {
        memory: *mut Memory,
        debug_string: *const c_char,
        debug_string_size: usize,
    }
    sized struct MemoryAddressableByDevicesArgs {
        memory: *mut Memory,
        devices: *const *mut Device,
        num_devices: usize,
    }
}
