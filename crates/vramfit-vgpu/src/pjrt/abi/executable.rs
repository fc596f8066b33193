//! Compiling, executables and executions.

use std::ffi::{c_char, c_int, c_void};

use super::client::NamedValue;
use super::{
    Buffer, Client, Device, Event, Executable, ExecuteContext, LoadedExecutable,
    TopologyDescription,
};

args! {
    sized struct Program {
        code: *mut c_char,
        code_size: usize,
        format: *const c_char,
        format_size: usize,
    }
    sized struct CompileArgs {
        topology: *const TopologyDescription,
        program: *const Program,
        compile_options: *const c_char,
        compile_options_size: usize,
        client: *mut Client,
        executable: *mut Executable,
    }
    sized struct ClientCompileArgs {
        client: *mut Client,
        program: *const Program,
        compile_options: *const c_char,
        compile_options_size: usize,
        executable: *mut LoadedExecutable,
    }
    sized struct ClientLoadArgs {
        client: *mut Client,
        executable: *mut Executable,
        compile_options: *const c_char,
        compile_options_size: usize,
        loaded_executable: *mut LoadedExecutable,
    }
    sized struct ExecutableDestroyArgs {
        executable: *mut Executable,
    }
    sized struct ExecutableNameArgs {
        executable: *mut Executable,
        executable_name: *const c_char,
        executable_name_size: usize,
    }
    sized struct ExecutableNumReplicasArgs {
        executable: *mut Executable,
        num_replicas: usize,
    }
    sized struct ExecutableNumPartitionsArgs {
        executable: *mut Executable,
        num_partitions: usize,
    }
    sized struct ExecutableNumOutputsArgs {
        executable: *mut Executable,
        num_outputs: usize,
    }
    sized struct ExecutableSizeOfGeneratedCodeInBytesArgs {
        executable: *mut Executable,
        size_in_bytes: i64,
    }
    sized struct ExecutableGetCostAnalysisArgs {
        executable: *mut Executable,
        num_properties: usize,
        properties: *const NamedValue,
    }
    sized struct ExecutableOutputMemoryKindsArgs {
        executable: *mut Executable,
        num_outputs: usize,
        memory_kinds: *const *const c_char,
        memory_kind_sizes: *const usize,
    }
    sized struct ExecutableParameterMemoryKindsArgs {
        executable: *mut Executable,
        num_parameters: usize,
        memory_kinds: *const *const c_char,
        memory_kind_sizes: *const usize,
    }
    sized struct ExecutableOutputElementTypesArgs {
        executable: *mut Executable,
        output_types: *mut c_int,
        num_output_types: usize,
    }
    sized struct ExecutableOutputDimensionsArgs {
        executable: *mut Executable,
        num_outputs: usize,
        dims: *const i64,
        dim_sizes: *const usize,
    }
    sized struct ExecutableOptimizedProgramArgs {
        executable: *mut Executable,
        program: *mut Program,
    }
    sized struct ExecutableSerializeArgs {
        executable: *const Executable,
        serialized_bytes: *const c_char,
        serialized_bytes_size: usize,
        serialized_executable: *mut c_void,
        serialized_executable_deleter: Option<unsafe extern "C" fn(*mut c_void)>,
    }
    sized struct ExecutableFingerprintArgs {
        executable: *mut Executable,
        executable_fingerprint: *const c_char,
        executable_fingerprint_size: usize,
    }
    sized struct ExecutableGetCompiledMemoryStatsArgs {
        executable: *mut Executable,
        generated_code_size_in_bytes: i64,
        argument_size_in_bytes: i64,
        output_size_in_bytes: i64,
        alias_size_in_bytes: i64,
        temp_size_in_bytes: i64,
        host_generated_code_size_in_bytes: i64,
        host_argument_size_in_bytes: i64,
        host_output_size_in_bytes: i64,
        host_alias_size_in_bytes: i64,
        host_temp_size_in_bytes: i64,
        peak_memory_in_bytes: i64,
        total_size_in_bytes: i64,
        total_allocation_bytes: i64,
        indefinite_allocations: i64,
        peak_unpadded_heap_bytes: i64,
    }
    sized struct ExecutableGetCompileOptionsArgs {
        executable: *mut Executable,
        serialized_bytes: *const c_char,
        serialized_bytes_size: usize,
        serialized_compile_options: *mut c_void,
        serialized_compile_options_deleter: Option<unsafe extern "C" fn(*mut c_void)>,
    }
    sized struct ExecutableDeserializeAndLoadArgs {
        client: *mut Client,
        serialized_executable: *const c_char,
        serialized_executable_size: usize,
        loaded_executable: *mut LoadedExecutable,
        overridden_serialized_compile_options: *const c_char,
        overridden_serialized_compile_options_size: usize,
        load_options: *mut c_void,
    }
    sized struct LoadedExecutableDestroyArgs {
        executable: *mut LoadedExecutable,
    }
    sized struct LoadedExecutableGetExecutableArgs {
        loaded_executable: *mut LoadedExecutable,
        executable: *mut Executable,
    }
    sized struct LoadedExecutableAddressableDevicesArgs {
        executable: *mut LoadedExecutable,
        addressable_devices: *const *mut Device,
        num_addressable_devices: usize,
    }
    sized struct LoadedExecutableAddressableDeviceLogicalIdsArgs {
        executable: *mut LoadedExecutable,
        addressable_device_logical_ids: *mut LogicalDeviceIds,
        num_addressable_device_logical_ids: usize,
    }
    sized struct LoadedExecutableGetDeviceAssignmentArgs {
        executable: *mut LoadedExecutable,
        serialized_bytes: *const c_char,
        serialized_bytes_size: usize,
        serialized_device_assignment: *mut c_void,
        serialized_device_assignment_deleter: Option<unsafe extern "C" fn(*mut c_void)>,
    }
    sized struct LoadedExecutableDeleteArgs {
        executable: *mut LoadedExecutable,
    }
    sized struct LoadedExecutableIsDeletedArgs {
        executable: *mut LoadedExecutable,
        is_deleted: bool,
    }
    sized struct LoadedExecutableFingerprintArgs {
        executable: *mut LoadedExecutable,
        executable_fingerprint: *const c_char,
        executable_fingerprint_size: usize,
    }
    plain struct LogicalDeviceIds {
        replica: c_int,
        partition: c_int,
    }
    sized struct ExecuteOptions {
        send_callbacks: *mut *mut c_void,
        recv_callbacks: *mut *mut c_void,
        num_send_ops: usize,
        num_recv_ops: usize,
        launch_id: c_int,
        non_donatable_input_indices: *const i64,
        num_non_donatable_input_indices: usize,
        context: *mut ExecuteContext,
        call_location: *const c_char,
        num_tasks: usize,
        task_ids: *mut c_int,
        incarnation_ids: *mut i64,
        multi_slice_config: *mut c_void,
        use_major_to_minor_data_layout_for_callbacks: bool,
        hlo_output_callbacks: *mut c_void,
        num_hlo_output_callbacks: usize,
    }
    sized struct LoadedExecutableExecuteArgs {
        executable: *mut LoadedExecutable,
        options: *mut ExecuteOptions,
        argument_lists: *const *const *mut Buffer,
        num_devices: usize,
        num_args: usize,
        output_lists: *const *mut *mut Buffer,
        device_complete_events: *mut *mut Event,
        execute_device: *mut Device,
    }
}
