//! What the CUDA plugin serializes: the executable, and the records it is cut into.

use prost::Message;

use super::assignment::{BufferAllocationProto, BufferAssignmentProto};
use super::module::ProgramShapeProto;

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
}

/// What XLA's split container says of its records: each is merged, or overrides one field.
#[derive(Clone, PartialEq, Message)]
pub struct SplitProtoManifest {
    #[prost(message, repeated, tag = "2")]
    pub records: Vec<SplitProtoRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SplitProtoRecord {
    #[prost(message, optional, tag = "3")]
    pub field_override: Option<FieldOverrideRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub struct FieldOverrideRecord {
    #[prost(message, repeated, tag = "1")]
    pub field_path: Vec<FieldPathPart>,
}

impl FieldOverrideRecord {
    /// Returns the number of the field that the record holds; `None` when it lies deeper, or is one
    /// element of a repeated field.
    pub fn top_level_field(&self) -> Option<u32> {
        match self.field_path.as_slice() {
            [only] => only.field_number.and_then(|number| u32::try_from(number).ok()),
            _ => None,
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct FieldPathPart {
    #[prost(int32, optional, tag = "1")]
    pub field_number: Option<i32>,
}
