//! The optimized module: computations, instructions, shapes, where each came from.

use prost::Message;

use super::assignment::BufferAssignmentProto;

/// What XLA dumps of a module after its last pass.
#[derive(Clone, PartialEq, Message)]
pub struct HloProto {
    #[prost(message, optional, tag = "1")]
    pub hlo_module: Option<HloModuleProto>,
    #[prost(message, optional, tag = "3")]
    pub buffer_assignment: Option<BufferAssignmentProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HloModuleProtoWithConfig {
    #[prost(message, optional, tag = "1")]
    pub hlo_module: Option<HloModuleProto>,
    #[prost(message, optional, tag = "2")]
    pub config: Option<HloModuleConfigProto>,
}

/// The module of an [`HloModuleProtoWithConfig`], still serialized.
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
    #[prost(message, optional, tag = "17")]
    pub stack_frame_index: Option<StackFrameIndexProto>,
    #[prost(message, optional, tag = "18")]
    pub buffer_donor: Option<HloBufferDonorProto>,
}

impl HloModuleProto {
    /// Returns the instructions of all computations.
    pub fn instructions(&self) -> impl Iterator<Item = &HloInstructionProto> {
        self.computations.iter().flat_map(|it| &it.instructions)
    }

    /// Returns a module of one computation.
    #[cfg(test)]
    pub(crate) fn of(instructions: Vec<HloInstructionProto>) -> Self {
        HloModuleProto {
            computations: vec![HloComputationProto {
                instructions,
                ..HloComputationProto::default()
            }],
            ..HloModuleProto::default()
        }
    }
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
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub opcode: String,
    #[prost(message, optional, tag = "3")]
    pub shape: Option<ShapeProto>,
    #[prost(message, optional, tag = "7")]
    pub metadata: Option<OpMetadata>,
    #[prost(int64, tag = "9")]
    pub parameter_number: i64,
    #[prost(string, tag = "11")]
    pub fusion_kind: String,
    #[prost(int64, tag = "13")]
    pub tuple_index: i64,
    /// Of convolutions: the size of the kernel.
    #[prost(message, optional, tag = "15")]
    pub window: Option<WindowProto>,
    #[prost(message, optional, tag = "16")]
    pub convolution_dimension_numbers: Option<ConvolutionDimensionNumbers>,
    #[prost(string, tag = "28")]
    pub custom_call_target: String,
    #[prost(message, optional, tag = "30")]
    pub dot_dimension_numbers: Option<DotDimensionNumbers>,
    /// `FFT` 0, `IFFT` 1, `RFFT` 2, `IRFFT` 3.
    #[prost(int32, tag = "31")]
    pub fft_type: i32,
    #[prost(int64, repeated, tag = "32")]
    pub fft_length: Vec<i64>,
    #[prost(int64, tag = "35")]
    pub id: i64,
    #[prost(int64, repeated, tag = "36")]
    pub operand_ids: Vec<i64>,
    #[prost(int64, repeated, tag = "38")]
    pub called_computation_ids: Vec<i64>,
    #[prost(bytes = "vec", tag = "43")]
    pub backend_config: Vec<u8>,
    /// Of collectives that have neither of the lists below.
    #[prost(message, repeated, tag = "49")]
    pub replica_groups: Vec<ReplicaGroup>,
    #[prost(message, optional, tag = "51")]
    pub precision_config: Option<PrecisionConfig>,
    /// Of collectives.
    #[prost(message, optional, tag = "87")]
    pub collective_device_list: Option<CollectiveDeviceList>,
    /// The same in short, where it is not in the list.
    #[prost(message, optional, tag = "92")]
    pub iota_collective_device_list: Option<IotaReplicaGroupList>,
}

/// Devices that exchange data.
#[derive(Clone, PartialEq, Message)]
pub struct ReplicaGroup {
    #[prost(int64, repeated, tag = "1")]
    pub replica_ids: Vec<i64>,
}

/// The groups of a collective, one by one or in short.
#[derive(Clone, PartialEq, Message)]
pub struct CollectiveDeviceList {
    #[prost(message, repeated, tag = "1")]
    pub replica_groups: Vec<ReplicaGroup>,
    #[prost(message, optional, tag = "2")]
    pub iota_replica_group_list: Option<IotaReplicaGroupList>,
}

/// `IotaReplicaGroupListProto`.
#[derive(Clone, PartialEq, Message)]
pub struct IotaReplicaGroupList {
    #[prost(int64, tag = "1")]
    pub groups: i64,
    #[prost(int64, tag = "2")]
    pub devices_per_group: i64,
    #[prost(int64, repeated, tag = "3")]
    pub reshape_dims: Vec<i64>,
    #[prost(int32, repeated, tag = "4")]
    pub transpose_perm: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub struct DotDimensionNumbers {
    #[prost(int64, repeated, tag = "1")]
    pub lhs_contracting_dimensions: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ConvolutionDimensionNumbers {
    #[prost(int64, tag = "4")]
    pub kernel_output_feature_dimension: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct PrecisionConfig {
    /// `DEFAULT` 0, `HIGH` 1, `HIGHEST` 2.
    #[prost(int32, repeated, tag = "1")]
    pub operand_precision: Vec<i32>,
    /// 0 where none was chosen.
    #[prost(int32, tag = "2")]
    pub algorithm: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct WindowProto {
    #[prost(message, repeated, tag = "1")]
    pub dimensions: Vec<WindowDimensionProto>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WindowDimensionProto {
    #[prost(int64, tag = "1")]
    pub size: i64,
}

/// Where an instruction came from.
#[derive(Clone, PartialEq, Message)]
pub struct OpMetadata {
    #[prost(string, tag = "2")]
    pub op_name: String,
    /// Absent from JAX 0.8.2 on, where there is a stack frame.
    #[prost(string, tag = "3")]
    pub source_file: String,
    #[prost(int32, tag = "4")]
    pub source_line: i32,
    /// From 1; 0 is none.
    #[prost(int32, tag = "15")]
    pub stack_frame_id: i32,
}

/// Python stacks. All numbers in it count from 1; 0 is none.
#[derive(Clone, PartialEq, Message)]
pub struct StackFrameIndexProto {
    #[prost(string, repeated, tag = "1")]
    pub file_names: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub function_names: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub file_locations: Vec<FileLocation>,
    #[prost(message, repeated, tag = "4")]
    pub stack_frames: Vec<StackFrame>,
}

#[derive(Clone, PartialEq, Message)]
pub struct FileLocation {
    #[prost(int32, tag = "1")]
    pub file_name_id: i32,
    #[prost(int32, tag = "2")]
    pub function_name_id: i32,
    #[prost(int32, tag = "3")]
    pub line: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct StackFrame {
    #[prost(int32, tag = "1")]
    pub file_location_id: i32,
    #[prost(int32, tag = "2")]
    pub parent_frame_id: i32,
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

#[cfg(test)]
impl ShapeProto {
    pub(crate) fn array(element_type: i32, dimensions: &[i64]) -> Self {
        ShapeProto { element_type, dimensions: dimensions.to_vec(), ..ShapeProto::default() }
    }

    pub(crate) fn tuple(tuple_shapes: &[ShapeProto]) -> Self {
        ShapeProto {
            element_type: crate::program::ElementType::TUPLE.0,
            tuple_shapes: tuple_shapes.to_vec(),
            ..ShapeProto::default()
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct LayoutProto {
    #[prost(int64, repeated, tag = "1")]
    pub minor_to_major: Vec<i64>,
    #[prost(int64, tag = "7")]
    pub element_size_in_bits: i64,
    #[prost(int64, tag = "8")]
    pub memory_space: i64,
    /// At least 1 in a layout that XLA reads; only written here.
    #[prost(int64, tag = "16")]
    pub tail_padding_alignment_in_elements: i64,
}

/// An `OpSharding`, only as far as a tuple of them is taken apart.
#[derive(Clone, PartialEq, Message)]
pub struct OpShardingProto {
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(bytes = "vec", repeated, tag = "5")]
    pub tuple_shardings: Vec<Vec<u8>>,
}
