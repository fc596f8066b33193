//! The chain of extensions that hangs from the API table, as far as vramfit replaces it.

use std::ffi::{c_char, c_int, c_void};

use super::{
    Buffer, Client, Executable, Function, MemoryLayout, SerializedLayout, TopologyDescription,
};

/// The head of every extension struct.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ExtensionBase {
    pub(crate) struct_size: usize,
    pub(crate) r#type: c_int,
    pub(crate) next: *mut ExtensionBase,
}

/// Numbers of extension types (the enum of API 0.112).
pub(crate) mod kind {
    use std::ffi::c_int;

    pub(crate) const GPU_CUSTOM_CALL: c_int = 0;
    pub(crate) const PROFILER: c_int = 1;
    pub(crate) const CUSTOM_PARTITIONER: c_int = 2;
    pub(crate) const LAYOUTS: c_int = 4;
    pub(crate) const FFI: c_int = 5;
    pub(crate) const MEMORY_DESCRIPTIONS: c_int = 6;
    pub(crate) const TRITON: c_int = 7;
    pub(crate) const SHARDINGS: c_int = 19;
    pub(crate) const XLA_TRANSFORM: c_int = 24;
}

/// The layouts extension. It grew: `get_parameter_layouts` is absent before API 0.90 or so.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct LayoutsExtension {
    pub(crate) base: ExtensionBase,
    pub(crate) layout_destroy: Function,
    pub(crate) layout_serialize: Function,
    pub(crate) client_default_layout: Function,
    pub(crate) buffer_layout: Function,
    pub(crate) topology_default_layout: Option<Function>,
    pub(crate) output_layouts: Option<Function>,
    pub(crate) parameter_layouts: Option<Function>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ShardingsExtension {
    pub(crate) base: ExtensionBase,
    pub(crate) parameter_shardings: Function,
    pub(crate) output_shardings: Function,
}

args! {
    sized struct LayoutDestroyArgs {
        layout: *mut MemoryLayout,
    }
    sized struct LayoutSerializeArgs {
        layout: *mut MemoryLayout,
        serialized_bytes: *const c_char,
        serialized_bytes_size: usize,
        serialized_layout: *mut SerializedLayout,
        serialized_layout_deleter: Option<unsafe extern "C" fn(*mut c_void)>,
    }
    sized struct ClientDefaultLayoutArgs {
        client: *mut Client,
        r#type: c_int,
        dims: *const i64,
        num_dims: usize,
        layout: *mut MemoryLayout,
    }
    sized struct TopologyDefaultLayoutArgs {
        topology_description: *const TopologyDescription,
        r#type: c_int,
        dims: *const i64,
        num_dims: usize,
        layout: *mut MemoryLayout,
    }
    sized struct BufferLayoutArgs {
        buffer: *mut Buffer,
        layout: *mut MemoryLayout,
    }
    sized struct ExecutableLayoutsArgs {
        executable: *mut Executable,
        count: usize,
        layouts: *mut *mut MemoryLayout,
    }
    sized struct ExecutableShardingsArgs {
        executable: *mut Executable,
        count: usize,
        shardings: *const *const c_char,
        sharding_sizes: *const usize,
    }
}
