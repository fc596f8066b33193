//! Which function of the API table is handled here, forwarded or missing.

use std::ffi::c_void;

use crate::buffer::async_transfers;
use crate::buffer::device_buffer;
use crate::buffer::host_transfers;
use crate::compile::executable;
use crate::compile::loaded_executable;
use crate::device::client;
use crate::device::memory;
use crate::device::topology;
use crate::device::virtual_device;
use crate::execute::execution;
use crate::pjrt::abi::Function;
use crate::pjrt::cuda_plugin::CudaPlugin;
use crate::pjrt::error;
use crate::pjrt::event;
use crate::pjrt::status::PjrtResult;

/// How a call is handled.
pub(crate) enum Dispatch {
    /// By a function of this crate.
    Handle(unsafe fn(*mut c_void) -> PjrtResult),
    /// By the CUDA plugin: no object of this crate is involved.
    Forward(Function),
    /// Successfully, without doing anything.
    Accept,
    /// Not at all: a virtual GPU, or this release of the plugin, does not have the function.
    Missing,
}

/// Functions of the CUDA plugin that only take objects of its own: the plugin itself, topologies, descriptions
/// of devices, and execute contexts (into which the FFI extension writes, so they must be its objects).
const FORWARDED: &[&str] = &[
    "PJRT_Plugin_",
    "PJRT_TopologyDescription_",
    "PJRT_DeviceDescription_",
    "PJRT_ExecuteContext_",
];

/// Functions without an effect here. Nothing is copied by hardware, so registering host memory for it changes
/// nothing.
const ACCEPTED: &[&str] = &[
    "PJRT_Client_UpdateGlobalProcessInfo",
    "PJRT_Client_DmaMap",
    "PJRT_Client_DmaUnmap",
    "PJRT_AsyncHostToDeviceTransferManager_AddMetadata",
];

/// Returns how calls of this function are handled.
pub(crate) fn dispatch_of(name: &str, plugin: &CudaPlugin) -> Dispatch {
    let Some(function) = plugin.function(name) else {
        return Dispatch::Missing;
    };
    match override_of(name) {
        Some(function) => Dispatch::Handle(function),
        None if ACCEPTED.contains(&name) => Dispatch::Accept,
        None if FORWARDED.iter().any(|prefix| name.starts_with(prefix)) => {
            Dispatch::Forward(function)
        }
        None => Dispatch::Missing,
    }
}

macro_rules! table {
    ($($name:literal => $handler:path,)*) => {
        fn override_of(name: &str) -> Option<unsafe fn(*mut c_void) -> PjrtResult> {
            match name {
                $($name => {
                    unsafe fn entry(args: *mut c_void) -> PjrtResult {
                        // SAFETY: the caller passes the argument struct of this entry.
                        unsafe { crate::pjrt::args::with_args(args, |args| $handler(args)) }
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
    "PJRT_TopologyDescription_Create" => topology::create,
    "PJRT_DeviceDescription_Attributes" => virtual_device::description_attributes,
    "PJRT_DeviceDescription_DebugString" => virtual_device::description_debug_string,
    "PJRT_DeviceDescription_ToString" => virtual_device::description_to_string,
    "PJRT_Device_GetDescription" => virtual_device::get_description,
    "PJRT_Device_GetAttributes" => virtual_device::get_attributes,
    "PJRT_Device_IsAddressable" => virtual_device::is_addressable,
    "PJRT_Device_LocalHardwareId" => virtual_device::local_hardware_id,
    "PJRT_Device_AddressableMemories" => virtual_device::addressable_memories,
    "PJRT_Device_DefaultMemory" => virtual_device::default_memory,
    "PJRT_Device_MemoryStats" => virtual_device::memory_stats,
    "PJRT_Device_ClearMemoryStats" => virtual_device::clear_memory_stats,
    "PJRT_Memory_Id" => memory::id,
    "PJRT_Memory_Kind" => memory::kind,
    "PJRT_Memory_Kind_Id" => memory::kind_id,
    "PJRT_Memory_DebugString" => memory::debug_string,
    "PJRT_Memory_ToString" => memory::debug_string,
    "PJRT_Memory_AddressableByDevices" => memory::devices,
    "PJRT_Compile" => loaded_executable::compile_for_topology,
    "PJRT_Client_Compile" => loaded_executable::client_compile,
    "PJRT_Client_Load" => loaded_executable::client_load,
    "PJRT_Executable_DeserializeAndLoad" => loaded_executable::deserialize_and_load,
    "PJRT_Executable_Destroy" => executable::destroy,
    "PJRT_Executable_Name" => executable::name,
    "PJRT_Executable_NumReplicas" => executable::num_replicas,
    "PJRT_Executable_NumPartitions" => executable::num_partitions,
    "PJRT_Executable_NumOutputs" => executable::num_outputs,
    "PJRT_Executable_SizeOfGeneratedCodeInBytes" => executable::code_size,
    "PJRT_Executable_GetCostAnalysis" => executable::cost_analysis,
    "PJRT_Executable_OutputMemoryKinds" => executable::output_memory_kinds,
    "PJRT_Executable_ParameterMemoryKinds" => executable::parameter_memory_kinds,
    "PJRT_Executable_OutputElementTypes" => executable::output_types,
    "PJRT_Executable_OutputDimensions" => executable::output_dimensions,
    "PJRT_Executable_OptimizedProgram" => executable::optimized_program,
    "PJRT_Executable_Serialize" => executable::serialize,
    "PJRT_Executable_GetCompileOptions" => executable::compile_options,
    "PJRT_Executable_Fingerprint" => executable::fingerprint,
    "PJRT_Executable_GetCompiledMemoryStats" => executable::memory_stats,
    "PJRT_LoadedExecutable_Destroy" => loaded_executable::destroy,
    "PJRT_LoadedExecutable_GetExecutable" => loaded_executable::get_executable,
    "PJRT_LoadedExecutable_AddressableDevices" => loaded_executable::addressable_devices,
    "PJRT_LoadedExecutable_AddressableDeviceLogicalIds" => loaded_executable::logical_ids,
    "PJRT_LoadedExecutable_GetDeviceAssignment" => loaded_executable::device_assignment,
    "PJRT_LoadedExecutable_Delete" => loaded_executable::delete,
    "PJRT_LoadedExecutable_IsDeleted" => loaded_executable::is_deleted,
    "PJRT_LoadedExecutable_Fingerprint" => loaded_executable::fingerprint,
    "PJRT_LoadedExecutable_Execute" => execution::execute,
    "PJRT_Client_BufferFromHostBuffer" => host_transfers::from_host,
    "PJRT_Client_CreateUninitializedBuffer" => host_transfers::uninitialized,
    "PJRT_Client_CreateErrorBuffer" => host_transfers::error_buffer,
    "PJRT_Buffer_Destroy" => device_buffer::destroy,
    "PJRT_Buffer_ElementType" => device_buffer::element_type,
    "PJRT_Buffer_Dimensions" => device_buffer::dimensions,
    "PJRT_Buffer_UnpaddedDimensions" => device_buffer::dimensions,
    "PJRT_Buffer_DynamicDimensionIndices" => device_buffer::dynamic_dimensions,
    "PJRT_Buffer_GetMemoryLayout" => device_buffer::memory_layout,
    "PJRT_Buffer_OnDeviceSizeInBytes" => device_buffer::on_device_size,
    "PJRT_Buffer_Device" => device_buffer::device,
    "PJRT_Buffer_Memory" => device_buffer::memory,
    "PJRT_Buffer_Delete" => device_buffer::delete,
    "PJRT_Buffer_IsDeleted" => device_buffer::is_deleted,
    "PJRT_Buffer_IsOnCpu" => device_buffer::is_on_cpu,
    "PJRT_Buffer_ReadyEvent" => device_buffer::ready_event,
    "PJRT_Buffer_UnsafePointer" => device_buffer::unsafe_pointer,
    "PJRT_Buffer_OpaqueDeviceMemoryDataPointer" => device_buffer::opaque_pointer,
    "PJRT_Buffer_IncreaseExternalReferenceCount" => device_buffer::increase_references,
    "PJRT_Buffer_DecreaseExternalReferenceCount" => device_buffer::decrease_references,
    "PJRT_Buffer_CopyToMemory" => host_transfers::to_memory,
    "PJRT_Buffer_CopyToDevice" => host_transfers::to_device,
    "PJRT_Buffer_CopyRawToHost" => host_transfers::raw_to_host,
    "PJRT_Buffer_ToHostBuffer" => host_transfers::to_host,
    "PJRT_Buffer_Bitcast" => host_transfers::bitcast,
    "PJRT_Client_CreateBuffersForAsyncHostToDevice" => async_transfers::create,
    "PJRT_AsyncHostToDeviceTransferManager_Destroy" => async_transfers::destroy,
    "PJRT_AsyncHostToDeviceTransferManager_TransferData" => async_transfers::transfer_data,
    "PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer" => async_transfers::retrieve,
    "PJRT_AsyncHostToDeviceTransferManager_Device" => async_transfers::device,
    "PJRT_AsyncHostToDeviceTransferManager_BufferCount" => async_transfers::buffer_count,
    "PJRT_AsyncHostToDeviceTransferManager_BufferSize" => async_transfers::buffer_size,
    "PJRT_AsyncHostToDeviceTransferManager_SetBufferError" => async_transfers::set_error,
}
