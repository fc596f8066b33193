//! The client, its options, and topologies.

use std::ffi::{c_char, c_int, c_void};

use super::{Client, Device, DeviceDescription, Memory, TopologyDescription};

/// A value of an option or attribute; `NamedValue::type` says which field is set.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union NamedUnion {
    pub(crate) string: *const c_char,
    pub(crate) int64: i64,
    pub(crate) int64_list: *const i64,
    pub(crate) float: f32,
    pub(crate) bool: bool,
}

args! {
    sized struct NamedValue {
        name: *const c_char,
        name_size: usize,
        r#type: c_int,
        value: NamedUnion,
        value_size: usize,
    }
    sized struct PluginAttributesArgs {
        attributes: *const NamedValue,
        num_attributes: usize,
    }
    sized struct ClientCreateArgs {
        create_options: *const NamedValue,
        num_options: usize,
        kv_get_callback: *mut c_void,
        kv_get_user_arg: *mut c_void,
        kv_put_callback: *mut c_void,
        kv_put_user_arg: *mut c_void,
        client: *mut Client,
        kv_try_get_callback: *mut c_void,
        kv_try_get_user_arg: *mut c_void,
    }
    sized struct ClientDestroyArgs {
        client: *mut Client,
    }
    sized struct ClientPlatformNameArgs {
        client: *mut Client,
        platform_name: *const c_char,
        platform_name_size: usize,
    }
    sized struct ClientProcessIndexArgs {
        client: *mut Client,
        process_index: c_int,
    }
    sized struct ClientPlatformVersionArgs {
        client: *mut Client,
        platform_version: *const c_char,
        platform_version_size: usize,
    }
    sized struct ClientDevicesArgs {
        client: *mut Client,
        devices: *const *mut Device,
        num_devices: usize,
    }
    sized struct ClientAddressableDevicesArgs {
        client: *mut Client,
        addressable_devices: *const *mut Device,
        num_addressable_devices: usize,
    }
    sized struct ClientLookupDeviceArgs {
        client: *mut Client,
        id: c_int,
        device: *mut Device,
    }
    sized struct ClientLookupAddressableDeviceArgs {
        client: *mut Client,
        local_hardware_id: c_int,
        addressable_device: *mut Device,
    }
    sized struct ClientAddressableMemoriesArgs {
        client: *mut Client,
        addressable_memories: *const *mut Memory,
        num_addressable_memories: usize,
    }
    sized struct ClientTopologyDescriptionArgs {
        client: *mut Client,
        topology: *mut TopologyDescription,
    }
    sized struct ClientDefaultDeviceAssignmentArgs {
        client: *mut Client,
        num_replicas: c_int,
        num_partitions: c_int,
        default_assignment_size: usize,
        default_assignment: *mut c_int,
    }
    sized struct TopologyDescriptionCreateArgs {
        topology_name: *const c_char,
        topology_name_size: usize,
        create_options: *const NamedValue,
        num_options: usize,
        topology: *mut TopologyDescription,
    }
    sized struct TopologyDescriptionGetDeviceDescriptionsArgs {
        topology: *const TopologyDescription,
        descriptions: *const *mut DeviceDescription,
        num_descriptions: usize,
    }
}
