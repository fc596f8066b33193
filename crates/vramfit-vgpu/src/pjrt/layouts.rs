//! The layouts extension: which dimension of an array varies fastest.
//!
//! The layouts of this crate and of the CUDA plugin are of the same topology, so that JAX can compare
//! them; those of this crate have a tag as their first word.

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

use vramfit_model::program::{ElementType, Shape};

use crate::buffer::device_buffer;
use crate::compile::executable;
use crate::device::client;
use crate::pjrt::abi::MemoryLayout;
use crate::pjrt::abi::extension::{
    BufferLayoutArgs, ClientDefaultLayoutArgs, ExecutableLayoutsArgs, LayoutDestroyArgs,
    LayoutSerializeArgs, LayoutsExtension, TopologyDefaultLayoutArgs,
};
use crate::pjrt::cuda_plugin;
use crate::pjrt::cuda_plugin::zeroed_struct;
use crate::pjrt::error;
use crate::pjrt::pointers::{self, text_parts};
use crate::pjrt::status::{PjrtResult, Status};

/// Its address marks the layouts of this crate.
static OWN_TAG: u8 = 0;

#[repr(C)]
struct Layout {
    tag: *const u8,
    serialized: String,
}

/// Layouts of an executable's parameters and outputs; they live as long as its handle.
#[derive(Default)]
pub(crate) struct LayoutLists {
    parameters: OnceLock<LayoutList>,
    outputs: OnceLock<LayoutList>,
}

struct LayoutList(Vec<*mut MemoryLayout>);

// SAFETY: the layouts are constant until the list is dropped.
unsafe impl Send for LayoutList {}
// SAFETY: as above.
unsafe impl Sync for LayoutList {}

impl LayoutList {
    fn new(shapes: &[Shape]) -> Self {
        LayoutList(shapes.iter().map(from_shape).collect())
    }
}

impl Drop for LayoutList {
    fn drop(&mut self) {
        for layout in &self.0 {
            // SAFETY: made by `from_shape`; JAX only reads it.
            drop(unsafe { Box::from_raw(layout.cast::<Layout>()) });
        }
    }
}

fn from_shape(shape: &Shape) -> *mut MemoryLayout {
    pointers::into_handle(Layout { tag: &raw const OWN_TAG, serialized: shape.layout_text() })
}

unsafe fn is_own(layout: *mut MemoryLayout) -> bool {
    *layout.cast::<*const u8>() == &raw const OWN_TAG
}

/// The CUDA plugin's extension, as it was before its functions were replaced.
static ORIGINAL: OnceLock<OriginalExtension> = OnceLock::new();

struct OriginalExtension(LayoutsExtension);

// SAFETY: constant function pointers; the chain it was part of is not followed.
unsafe impl Send for OriginalExtension {}
// SAFETY: as above.
unsafe impl Sync for OriginalExtension {}

fn original_extension() -> PjrtResult<&'static LayoutsExtension> {
    ORIGINAL
        .get()
        .map(|original| &original.0)
        .ok_or_else(|| Status::internal("the layouts extension is missing"))
}

/// Replaces the functions that take objects of this crate. The struct grew over the releases: what is
/// beyond its size is not changed.
///
/// # Safety
/// `extension` is a copy of the original extension, `size` bytes long.
pub(crate) unsafe fn replace(extension: *mut LayoutsExtension, size: usize) {
    // Every release has the four functions after the base; the others may be missing.
    let mut known = std::mem::MaybeUninit::<LayoutsExtension>::zeroed();
    ptr::copy_nonoverlapping(
        extension.cast::<u8>(),
        known.as_mut_ptr().cast::<u8>(),
        size.min(size_of::<LayoutsExtension>()),
    );
    if size < std::mem::offset_of!(LayoutsExtension, topology_default_layout) {
        return;
    }
    let _ = ORIGINAL.set(OriginalExtension(known.assume_init()));
    macro_rules! set {
        ($field:ident, $handler:path) => {
            if std::mem::offset_of!(LayoutsExtension, $field) + size_of::<usize>() <= size {
                (&raw mut (*extension).$field)
                    .cast::<crate::pjrt::abi::Function>()
                    .write(crate::pjrt::args::entry_point!($handler));
            }
        };
    }
    set!(layout_destroy, destroy);
    set!(layout_serialize, serialize);
    set!(client_default_layout, client_default);
    set!(buffer_layout, buffer_layout);
    set!(output_layouts, outputs);
    set!(parameter_layouts, parameters);
}

pub(crate) unsafe fn destroy(args: &mut LayoutDestroyArgs) -> PjrtResult {
    if args.layout.is_null() {
        return Ok(());
    }
    if is_own(args.layout) {
        drop(Box::from_raw(args.layout.cast::<Layout>()));
        return Ok(());
    }
    error::into_result((original_extension()?.layout_destroy)(ptr::from_mut(args).cast()))
}

unsafe extern "C" fn no_op_deleter(_: *mut c_void) {}

pub(crate) unsafe fn serialize(args: &mut LayoutSerializeArgs) -> PjrtResult {
    if !is_own(args.layout) {
        return error::into_result((original_extension()?.layout_serialize)(
            ptr::from_mut(args).cast(),
        ));
    }
    let text = &(*args.layout.cast::<Layout>()).serialized;
    (args.serialized_bytes, args.serialized_bytes_size) = text_parts(text);
    // The bytes belong to the layout and go with it.
    args.serialized_layout = ptr::null_mut();
    args.serialized_layout_deleter = Some(no_op_deleter);
    Ok(())
}

/// Returns the default layout of the topology, which is that of the GPU (4-bit types are packed).
pub(crate) unsafe fn client_default(args: &mut ClientDefaultLayoutArgs) -> PjrtResult {
    if let Some(function) = original_extension()?.topology_default_layout {
        let mut topology_args: TopologyDefaultLayoutArgs = zeroed_struct();
        topology_args.topology_description = client::from_raw(args.client)?.topology;
        topology_args.r#type = args.r#type;
        topology_args.dims = args.dims;
        topology_args.num_dims = args.num_dims;
        let error = function((&raw mut topology_args).cast());
        if error.is_null() {
            args.layout = topology_args.layout;
            return Ok(());
        }
        // Fails for types without a layout, such as tokens; the dense one is right for those.
        drop(cuda_plugin::get()?.take_error(error));
    }
    let dims = pointers::list(args.dims, args.num_dims);
    let element = ElementType::from_pjrt(args.r#type).unwrap_or_default();
    args.layout = from_shape(&Shape::dense(element, dims));
    Ok(())
}

pub(crate) unsafe fn buffer_layout(args: &mut BufferLayoutArgs) -> PjrtResult {
    args.layout = from_shape(&device_buffer::from_raw(args.buffer)?.shape);
    Ok(())
}

pub(crate) unsafe fn outputs(args: &mut ExecutableLayoutsArgs) -> PjrtResult {
    let executable = executable::from_raw(args.executable)?;
    let shapes = &executable.compiled.program.outputs;
    return_layouts(args, &executable.layouts.outputs, shapes)
}

pub(crate) unsafe fn parameters(args: &mut ExecutableLayoutsArgs) -> PjrtResult {
    let executable = executable::from_raw(args.executable)?;
    let shapes = &executable.compiled.program.parameters;
    return_layouts(args, &executable.layouts.parameters, shapes)
}

fn return_layouts(
    args: &mut ExecutableLayoutsArgs,
    cached: &OnceLock<LayoutList>,
    shapes: &[Shape],
) -> PjrtResult {
    let list = cached.get_or_init(|| LayoutList::new(shapes));
    args.count = list.0.len();
    args.layouts = list.0.as_ptr().cast_mut();
    Ok(())
}
