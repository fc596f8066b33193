//! Which entry of the API table does what.

use std::ffi::c_void;

use crate::abi::Function;
use crate::real::Real;
use crate::status::Answer;
use crate::{
    buffer, client, copies, device, error, event, executable, execute, inspect, memory, topology,
    transfer,
};

/// What happens on a call.
pub(crate) enum Action {
    /// It is ours.
    Own(unsafe fn(*mut c_void) -> Answer),
    /// The real plugin does it: no object of ours is involved.
    Forward(Function),
    /// There is no such thing on a virtual GPU, or in this release of the plugin.
    Missing,
}

/// Makes a C function of a handler, for tables outside the API's own.
macro_rules! own {
    ($handler:path) => {{
        unsafe extern "C" fn entry(args: *mut std::ffi::c_void) -> *mut crate::abi::Error {
            // SAFETY: JAX passes the argument struct that belongs to this entry.
            let result = unsafe { crate::table::with_args(args, |args| $handler(args)) };
            result
                .err()
                .map_or(std::ptr::null_mut(), crate::error::into_raw)
        }
        entry as crate::abi::Function
    }};
}
pub(crate) use own;

/// Entries of the real plugin that only take objects of its own: the plugin itself, topologies,
/// and execute contexts (into which the FFI extension writes, so they must be its objects).
const FORWARDED: &[&str] = &[
    "PJRT_Plugin_",
    "PJRT_TopologyDescription_",
    "PJRT_ExecuteContext_",
];

/// Returns what a call of this entry does.
pub(crate) fn action(name: &str, real: &Real) -> Action {
    if real.function(name).is_none() {
        return Action::Missing;
    }
    if let Some(function) = ours(name) {
        return Action::Own(function);
    }
    match real.function(name) {
        Some(function) if FORWARDED.iter().any(|prefix| name.starts_with(prefix)) => {
            Action::Forward(function)
        }
        _ => Action::Missing,
    }
}

macro_rules! table {
    ($($name:literal => $handler:path,)*) => {
        fn ours(name: &str) -> Option<unsafe fn(*mut c_void) -> Answer> {
            match name {
                $($name => {
                    unsafe fn entry(args: *mut c_void) -> Answer {
                        // SAFETY: the caller passes the argument struct of this entry.
                        unsafe { crate::table::with_args(args, |args| $handler(args)) }
                    }
                    Some(entry)
                })*
                _ => None,
            }
        }
    };
}

table! {
    "PJRT_Error_Destroy" => error::destroy,
    "PJRT_Error_Message" => error::message,
    "PJRT_Error_GetCode" => error::get_code,
    "PJRT_Error_ForEachPayload" => error::for_each_payload,
    "PJRT_Event_Destroy" => event::destroy,
    "PJRT_Event_IsReady" => event::is_ready,
    "PJRT_Event_Error" => event::error,
    "PJRT_Event_Await" => event::wait,
    "PJRT_Event_OnReady" => event::on_ready,
    "PJRT_Event_Create" => event::create,
    "PJRT_Event_Set" => event::set,
    "PJRT_Client_Create" => client::create,
    "PJRT_Client_Destroy" => client::destroy,
    "PJRT_Client_PlatformName" => client::platform_name,
    "PJRT_Client_ProcessIndex" => client::process_index,
    "PJRT_Client_PlatformVersion" => client::version,
    "PJRT_Client_Devices" => client::devices,
    "PJRT_Client_AddressableDevices" => client::addressable_devices,
    "PJRT_Client_LookupDevice" => client::lookup_device,
    "PJRT_Client_LookupAddressableDevice" => client::lookup_addressable_device,
    "PJRT_Client_AddressableMemories" => client::addressable_memories,
    "PJRT_Client_TopologyDescription" => client::topology,
    "PJRT_Client_DefaultDeviceAssignment" => client::default_device_assignment,
    "PJRT_Client_UpdateGlobalProcessInfo" => client::update_process_info,
    "PJRT_Client_DmaMap" => client::dma_map,
    "PJRT_Client_DmaUnmap" => client::dma_unmap,
    "PJRT_TopologyDescription_Create" => topology::create,
    "PJRT_DeviceDescription_Id" => device::description_id,
    "PJRT_DeviceDescription_ProcessIndex" => device::description_process_index,
    "PJRT_DeviceDescription_Attributes" => device::description_attributes,
    "PJRT_DeviceDescription_Kind" => device::description_kind,
    "PJRT_DeviceDescription_DebugString" => device::description_debug_string,
    "PJRT_DeviceDescription_ToString" => device::description_to_string,
    "PJRT_Device_GetDescription" => device::get_description,
    "PJRT_Device_GetAttributes" => device::get_attributes,
    "PJRT_Device_IsAddressable" => device::is_addressable,
    "PJRT_Device_LocalHardwareId" => device::local_hardware_id,
    "PJRT_Device_AddressableMemories" => device::addressable_memories,
    "PJRT_Device_DefaultMemory" => device::default_memory,
    "PJRT_Device_MemoryStats" => device::memory_stats,
    "PJRT_Memory_Id" => memory::id,
    "PJRT_Memory_Kind" => memory::kind,
    "PJRT_Memory_Kind_Id" => memory::kind_id,
    "PJRT_Memory_DebugString" => memory::debug_string,
    "PJRT_Memory_ToString" => memory::to_string,
    "PJRT_Memory_AddressableByDevices" => memory::devices,
    "PJRT_Compile" => executable::compile_for_topology,
    "PJRT_Client_Compile" => executable::client_compile,
    "PJRT_Client_Load" => executable::client_load,
    "PJRT_Executable_DeserializeAndLoad" => executable::deserialize_and_load,
    "PJRT_Executable_Destroy" => inspect::destroy,
    "PJRT_Executable_Name" => inspect::name,
    "PJRT_Executable_NumReplicas" => inspect::num_replicas,
    "PJRT_Executable_NumPartitions" => inspect::num_partitions,
    "PJRT_Executable_NumOutputs" => inspect::num_outputs,
    "PJRT_Executable_SizeOfGeneratedCodeInBytes" => inspect::code_size,
    "PJRT_Executable_GetCostAnalysis" => inspect::cost_analysis,
    "PJRT_Executable_OutputMemoryKinds" => inspect::output_memory_kinds,
    "PJRT_Executable_ParameterMemoryKinds" => inspect::parameter_memory_kinds,
    "PJRT_Executable_OutputElementTypes" => inspect::output_types,
    "PJRT_Executable_OutputDimensions" => inspect::output_dimensions,
    "PJRT_Executable_OptimizedProgram" => inspect::optimized_program,
    "PJRT_Executable_Serialize" => inspect::serialize,
    "PJRT_Executable_GetCompileOptions" => inspect::compile_options,
    "PJRT_Executable_Fingerprint" => inspect::fingerprint,
    "PJRT_Executable_GetCompiledMemoryStats" => inspect::memory_stats,
    "PJRT_LoadedExecutable_Destroy" => executable::loaded_destroy,
    "PJRT_LoadedExecutable_GetExecutable" => executable::get_executable,
    "PJRT_LoadedExecutable_AddressableDevices" => executable::loaded_devices,
    "PJRT_LoadedExecutable_AddressableDeviceLogicalIds" => executable::logical_ids,
    "PJRT_LoadedExecutable_GetDeviceAssignment" => executable::device_assignment,
    "PJRT_LoadedExecutable_Delete" => executable::loaded_delete,
    "PJRT_LoadedExecutable_IsDeleted" => executable::loaded_is_deleted,
    "PJRT_LoadedExecutable_Fingerprint" => executable::loaded_fingerprint,
    "PJRT_LoadedExecutable_Execute" => execute::execute,
    "PJRT_Client_BufferFromHostBuffer" => copies::from_host,
    "PJRT_Client_CreateUninitializedBuffer" => copies::uninitialized,
    "PJRT_Client_CreateErrorBuffer" => copies::of_error,
    "PJRT_Buffer_Destroy" => buffer::destroy,
    "PJRT_Buffer_ElementType" => buffer::element_type,
    "PJRT_Buffer_Dimensions" => buffer::dimensions,
    "PJRT_Buffer_UnpaddedDimensions" => buffer::unpadded_dimensions,
    "PJRT_Buffer_DynamicDimensionIndices" => buffer::dynamic_dimensions,
    "PJRT_Buffer_GetMemoryLayout" => buffer::memory_layout,
    "PJRT_Buffer_OnDeviceSizeInBytes" => buffer::on_device_size,
    "PJRT_Buffer_Device" => buffer::device,
    "PJRT_Buffer_Memory" => buffer::memory,
    "PJRT_Buffer_Delete" => buffer::delete,
    "PJRT_Buffer_IsDeleted" => buffer::is_deleted,
    "PJRT_Buffer_IsOnCpu" => buffer::is_on_cpu,
    "PJRT_Buffer_ReadyEvent" => buffer::ready_event,
    "PJRT_Buffer_UnsafePointer" => buffer::unsafe_pointer,
    "PJRT_Buffer_OpaqueDeviceMemoryDataPointer" => buffer::opaque_pointer,
    "PJRT_Buffer_IncreaseExternalReferenceCount" => buffer::increase_references,
    "PJRT_Buffer_DecreaseExternalReferenceCount" => buffer::decrease_references,
    "PJRT_Buffer_CopyToMemory" => copies::to_memory,
    "PJRT_Buffer_CopyToDevice" => copies::to_device,
    "PJRT_Buffer_CopyRawToHost" => copies::raw_to_host,
    "PJRT_Buffer_ToHostBuffer" => copies::to_host,
    "PJRT_Buffer_Bitcast" => copies::bitcast,
    "PJRT_Client_CreateBuffersForAsyncHostToDevice" => transfer::create,
    "PJRT_AsyncHostToDeviceTransferManager_Destroy" => transfer::destroy,
    "PJRT_AsyncHostToDeviceTransferManager_TransferData" => transfer::transfer_data,
    "PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer" => transfer::retrieve,
    "PJRT_AsyncHostToDeviceTransferManager_Device" => transfer::device,
    "PJRT_AsyncHostToDeviceTransferManager_BufferCount" => transfer::buffer_count,
    "PJRT_AsyncHostToDeviceTransferManager_BufferSize" => transfer::buffer_size,
    "PJRT_AsyncHostToDeviceTransferManager_SetBufferError" => transfer::set_error,
    "PJRT_AsyncHostToDeviceTransferManager_AddMetadata" => transfer::add_metadata,
}
