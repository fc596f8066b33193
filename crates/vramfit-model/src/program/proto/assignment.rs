//! XLA's buffer assignment: which value lies where, and when it is needed.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct BufferAssignmentProto {
    #[prost(message, repeated, tag = "1")]
    pub logical_buffers: Vec<LogicalBufferProto>,
    #[prost(message, repeated, tag = "3")]
    pub buffer_allocations: Vec<BufferAllocationProto>,
    #[prost(message, repeated, tag = "4")]
    pub heap_simulator_traces: Vec<HeapSimulatorTrace>,
}

/// What the compiler allocated and freed when it planned a heap, in the order of the schedule.
#[derive(Clone, PartialEq, Message)]
pub struct HeapSimulatorTrace {
    #[prost(message, repeated, tag = "1")]
    pub events: Vec<HeapEvent>,
}

#[derive(Clone, PartialEq, Message)]
pub struct HeapEvent {
    /// 0 allocate, 1 free, 2 share with another value.
    #[prost(int32, tag = "1")]
    pub kind: i32,
    #[prost(int64, tag = "2")]
    pub buffer_id: i64,
    #[prost(string, tag = "4")]
    pub instruction_name: String,
    #[prost(int64, tag = "5")]
    pub share_with_canonical_id: i64,
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
    #[prost(bool, tag = "11")]
    pub is_tuple: bool,
    #[prost(bool, tag = "12")]
    pub is_constant: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct AssignedProto {
    #[prost(int64, tag = "1")]
    pub logical_buffer_id: i64,
    #[prost(int64, tag = "2")]
    pub offset: i64,
    #[prost(int64, tag = "3")]
    pub size: i64,
}
