//! JAX's compile options.

use prost::Message;

use super::module::ShapeProto;

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

/// The layouts of arguments and result (fields 1 and 3.2 of the compile options), appended to JAX's
/// own bytes: in protobuf, appended messages are merged.
#[derive(Clone, PartialEq, Message)]
pub struct EntryLayoutOptions {
    #[prost(message, repeated, tag = "1")]
    pub argument_layouts: Vec<ShapeProto>,
    #[prost(message, optional, tag = "3")]
    pub executable_build_options: Option<ResultLayoutOption>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ResultLayoutOption {
    #[prost(message, optional, tag = "2")]
    pub result_layout: Option<ShapeProto>,
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
