//! The fields of XLA's protobuf messages that vramfit reads or writes.
//!
//! Numbers and types follow the descriptors embedded in the CUDA plugins of JAX 0.6.2 to 0.11.0.
//! Fields that are only passed on (shardings, a module with its configuration) are kept as raw
//! bytes; fields that nothing needs are left out and skipped by the decoder.

#![allow(missing_docs, reason = "the names are XLA's own")]

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct ExecutableAndOptionsProto {
    #[prost(bytes = "vec", tag = "1")]
    pub serialized_executable: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub compile_options: Vec<u8>,
}

/// Both forms of the executable: the legacy one (field 2) and the new one (fields 10 and 11).
#[derive(Clone, PartialEq, Message)]
pub struct GpuExecutableProto {
    #[prost(bytes = "vec", tag = "1")]
    pub hlo_module_with_config: Vec<u8>,
    #[prost(message, optional, tag = "2")]
    pub buffer_assignment: Option<BufferAssignmentProto>,
    #[prost(bytes = "vec", tag = "4")]
    pub binary: Vec<u8>,
    #[prost(message, optional, tag = "9")]
    pub program_shape: Option<ProgramShapeProto>,
    #[prost(message, optional, tag = "10")]
    pub buffer_allocations: Option<RepeatedBufferAllocations>,
    #[prost(message, repeated, tag = "11")]
    pub output_info_map: Vec<OutputInfoMapEntry>,
    /// One message for each step of the launch; only searched for machine code.
    #[prost(bytes = "vec", repeated, tag = "13")]
    pub thunks: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RepeatedBufferAllocations {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<BufferAllocationProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct OutputInfoMapEntry {
    #[prost(message, optional, tag = "1")]
    pub shape_index: Option<ShapeIndexProto>,
    #[prost(message, optional, tag = "2")]
    pub output_info: Option<OutputInfoProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ShapeIndexProto {
    #[prost(int64, repeated, tag = "1")]
    pub indexes: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct OutputInfoProto {
    #[prost(int64, tag = "1")]
    pub allocation_index: i64,
    #[prost(bool, tag = "2")]
    pub passthrough: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct BufferAssignmentProto {
    #[prost(message, repeated, tag = "1")]
    pub logical_buffers: Vec<LogicalBufferProto>,
    #[prost(message, repeated, tag = "3")]
    pub buffer_allocations: Vec<BufferAllocationProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct LogicalBufferProto {
    #[prost(int64, tag = "1")]
    pub id: i64,
    #[prost(int64, tag = "2")]
    pub size: i64,
    #[prost(message, optional, tag = "3")]
    pub defined_at: Option<LocationProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct LocationProto {
    #[prost(int64, repeated, tag = "3")]
    pub shape_index: Vec<i64>,
    #[prost(int64, tag = "4")]
    pub instruction_id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct BufferAllocationProto {
    #[prost(int64, tag = "1")]
    pub index: i64,
    #[prost(int64, tag = "2")]
    pub size: i64,
    #[prost(bool, tag = "3")]
    pub is_thread_local: bool,
    #[prost(bool, tag = "5")]
    pub is_entry_computation_parameter: bool,
    #[prost(int64, tag = "6")]
    pub parameter_number: i64,
    #[prost(bool, tag = "7")]
    pub maybe_live_out: bool,
    #[prost(int64, tag = "8")]
    pub color: i64,
    #[prost(message, repeated, tag = "9")]
    pub assigned: Vec<AssignedProto>,
    #[prost(int64, repeated, tag = "10")]
    pub parameter_shape_index: Vec<i64>,
    #[prost(bool, tag = "11")]
    pub is_tuple: bool,
    #[prost(bool, tag = "12")]
    pub is_constant: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct AssignedProto {
    #[prost(int64, tag = "1")]
    pub logical_buffer_id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct HloModuleProtoWithConfig {
    #[prost(message, optional, tag = "1")]
    pub hlo_module: Option<HloModuleProto>,
    #[prost(message, optional, tag = "2")]
    pub config: Option<HloModuleConfigProto>,
}

/// The module of an [`HloModuleProtoWithConfig`], still serialised.
#[derive(Clone, PartialEq, Message)]
pub struct SerializedHloModule {
    #[prost(bytes = "vec", tag = "1")]
    pub hlo_module: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HloModuleConfigProto {
    #[prost(message, optional, tag = "1")]
    pub entry_computation_layout: Option<ProgramShapeProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HloModuleProto {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, repeated, tag = "3")]
    pub computations: Vec<HloComputationProto>,
    #[prost(message, optional, tag = "4")]
    pub host_program_shape: Option<ProgramShapeProto>,
    #[prost(int64, tag = "6")]
    pub entry_computation_id: i64,
    #[prost(message, optional, tag = "8")]
    pub input_output_alias: Option<HloInputOutputAliasProto>,
    #[prost(bytes = "vec", optional, tag = "12")]
    pub spmd_output_sharding: Option<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "14")]
    pub spmd_parameters_shardings: Vec<Vec<u8>>,
    #[prost(message, optional, tag = "18")]
    pub buffer_donor: Option<HloBufferDonorProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HloComputationProto {
    #[prost(message, repeated, tag = "2")]
    pub instructions: Vec<HloInstructionProto>,
    #[prost(int64, tag = "5")]
    pub id: i64,
    #[prost(int64, tag = "6")]
    pub root_id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct HloInstructionProto {
    #[prost(string, tag = "2")]
    pub opcode: String,
    #[prost(message, optional, tag = "3")]
    pub shape: Option<ShapeProto>,
    #[prost(int64, tag = "9")]
    pub parameter_number: i64,
    #[prost(int64, tag = "13")]
    pub tuple_index: i64,
    #[prost(string, tag = "28")]
    pub custom_call_target: String,
    #[prost(int64, tag = "35")]
    pub id: i64,
    #[prost(int64, repeated, tag = "36")]
    pub operand_ids: Vec<i64>,
    #[prost(int64, repeated, tag = "38")]
    pub called_computation_ids: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HloInputOutputAliasProto {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<AliasEntryProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AliasEntryProto {
    #[prost(int64, repeated, tag = "1")]
    pub output_shape_index: Vec<i64>,
    #[prost(int64, tag = "2")]
    pub parameter_number: i64,
    #[prost(int64, repeated, tag = "3")]
    pub parameter_shape_index: Vec<i64>,
    #[prost(int32, tag = "4")]
    pub kind: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct HloBufferDonorProto {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<BufferDonorEntryProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct BufferDonorEntryProto {
    #[prost(int64, tag = "1")]
    pub parameter_number: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ProgramShapeProto {
    #[prost(message, repeated, tag = "1")]
    pub parameters: Vec<ShapeProto>,
    #[prost(message, optional, tag = "2")]
    pub result: Option<ShapeProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ShapeProto {
    #[prost(int32, tag = "2")]
    pub element_type: i32,
    #[prost(int64, repeated, tag = "3")]
    pub dimensions: Vec<i64>,
    #[prost(message, repeated, tag = "4")]
    pub tuple_shapes: Vec<ShapeProto>,
    #[prost(message, optional, tag = "5")]
    pub layout: Option<LayoutProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct LayoutProto {
    #[prost(int64, repeated, tag = "1")]
    pub minor_to_major: Vec<i64>,
    #[prost(int64, tag = "7")]
    pub element_size_in_bits: i64,
    #[prost(int64, tag = "8")]
    pub memory_space: i64,
}

/// An `OpSharding`, only as far as a tuple of them is taken apart.
#[derive(Clone, PartialEq, Message)]
pub struct OpShardingProto {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub tuple_shardings: Vec<Vec<u8>>,
}

/// What XLA's split container says of its records: each is merged, or overrides one field.
#[derive(Clone, PartialEq, Message)]
pub struct SplitProtoManifest {
    #[prost(message, repeated, tag = "2")]
    pub records: Vec<SplitProtoRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SplitProtoRecord {
    #[prost(bytes = "vec", optional, tag = "3")]
    pub field_override: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct CompileOptionsProto {
    #[prost(message, optional, tag = "3")]
    pub executable_build_options: Option<ExecutableBuildOptionsProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ExecutableBuildOptionsProto {
    #[prost(int64, tag = "4")]
    pub num_replicas: i64,
    #[prost(int64, tag = "5")]
    pub num_partitions: i64,
    #[prost(message, optional, tag = "9")]
    pub device_assignment: Option<DeviceAssignmentProto>,
    #[prost(int64, tag = "15")]
    pub device_memory_size: i64,
}

/// Devices by computation (partition); inside each, by replica.
#[derive(Clone, PartialEq, Message)]
pub struct DeviceAssignmentProto {
    #[prost(int32, tag = "1")]
    pub replica_count: i32,
    #[prost(int32, tag = "2")]
    pub computation_count: i32,
    #[prost(message, repeated, tag = "3")]
    pub computation_devices: Vec<ComputationDevice>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ComputationDevice {
    #[prost(int64, repeated, tag = "1")]
    pub replica_device_ids: Vec<i64>,
}

/// One entry of the map `env_option_overrides` (field 7 of the compile options), appended to
/// JAX's own bytes: in protobuf, appended map entries add to the map.
#[derive(Clone, PartialEq, Message)]
pub struct EnvOptionOverride {
    #[prost(message, repeated, tag = "7")]
    pub entries: Vec<EnvOptionOverridesEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub struct EnvOptionOverridesEntry {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<OptionOverrideProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct OptionOverrideProto {
    #[prost(oneof = "OptionValue", tags = "1, 2, 3")]
    pub value: Option<OptionValue>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum OptionValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
}
