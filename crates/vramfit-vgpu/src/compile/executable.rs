//! Handles of compiled programs, and what JAX asks about them.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use prost::Message;

use crate::compile::compiled::CompiledProgram;
use crate::compile::serialized::SerializedProgram;
use crate::pjrt::abi;
use crate::pjrt::abi::executable::{
    ExecutableDestroyArgs, ExecutableFingerprintArgs, ExecutableGetCompileOptionsArgs,
    ExecutableGetCompiledMemoryStatsArgs, ExecutableGetCostAnalysisArgs, ExecutableNameArgs,
    ExecutableNumOutputsArgs, ExecutableNumPartitionsArgs, ExecutableNumReplicasArgs,
    ExecutableOptimizedProgramArgs, ExecutableOutputDimensionsArgs,
    ExecutableOutputElementTypesArgs, ExecutableOutputMemoryKindsArgs,
    ExecutableParameterMemoryKindsArgs, ExecutableSerializeArgs,
    ExecutableSizeOfGeneratedCodeInBytesArgs, Program as RawProgram,
};
use crate::pjrt::layouts;
use crate::pjrt::pointers::{self, list_parts, text_parts};
use crate::pjrt::status::{PjrtResult, Status};

/// A compiled program that is not loaded.
pub(crate) struct Executable {
    pub(crate) compiled: Arc<CompiledProgram>,
    /// Layout objects, made when they are first requested; they live as long as this handle.
    pub(crate) layouts: layouts::LayoutLists,
}

/// Returns the executable of a handle.
///
/// # Safety
/// `raw` came from this file and is not destroyed.
pub(crate) unsafe fn from_raw<'a>(raw: *mut abi::Executable) -> PjrtResult<&'a Executable> {
    pointers::object(raw, "no executable")
}

/// Makes a handle; the caller destroys it.
pub(crate) fn new_handle(compiled: Arc<CompiledProgram>) -> *mut abi::Executable {
    pointers::into_handle(Executable { compiled, layouts: layouts::LayoutLists::default() })
}

pub(crate) unsafe fn destroy(args: &mut ExecutableDestroyArgs) -> PjrtResult {
    pointers::destroy::<Executable, _>(args.executable)
}

pub(crate) unsafe fn name(args: &mut ExecutableNameArgs) -> PjrtResult {
    let name = &from_raw(args.executable)?.compiled.program.name;
    (args.executable_name, args.executable_name_size) = text_parts(name);
    Ok(())
}

pub(crate) unsafe fn num_replicas(args: &mut ExecutableNumReplicasArgs) -> PjrtResult {
    args.num_replicas = from_raw(args.executable)?.compiled.program.options.replicas;
    Ok(())
}

pub(crate) unsafe fn num_partitions(args: &mut ExecutableNumPartitionsArgs) -> PjrtResult {
    args.num_partitions = from_raw(args.executable)?.compiled.program.options.partitions;
    Ok(())
}

pub(crate) unsafe fn num_outputs(args: &mut ExecutableNumOutputsArgs) -> PjrtResult {
    args.num_outputs = from_raw(args.executable)?.compiled.program.outputs.len();
    Ok(())
}

pub(crate) unsafe fn code_size(args: &mut ExecutableSizeOfGeneratedCodeInBytesArgs) -> PjrtResult {
    args.size_in_bytes = from_raw(args.executable)?.compiled.program.sizes.code_bytes as i64;
    Ok(())
}

/// Uses the cost model of XLA's CPU client: the plugin's own is only available on a device.
pub(crate) unsafe fn cost_analysis(args: &mut ExecutableGetCostAnalysisArgs) -> PjrtResult {
    let costs = from_raw(args.executable)?
        .compiled
        .costs()
        .ok_or_else(|| Status::unimplemented("cost analysis"))?;
    (args.properties, args.num_properties) = list_parts(&costs.values);
    Ok(())
}

pub(crate) unsafe fn output_memory_kinds(args: &mut ExecutableOutputMemoryKindsArgs) -> PjrtResult {
    let kinds = &from_raw(args.executable)?.compiled.info.output_kinds;
    (args.memory_kinds, args.num_outputs) = list_parts(&kinds.pointers);
    args.memory_kind_sizes = kinds.sizes.as_ptr();
    Ok(())
}

pub(crate) unsafe fn parameter_memory_kinds(
    args: &mut ExecutableParameterMemoryKindsArgs,
) -> PjrtResult {
    let kinds = &from_raw(args.executable)?.compiled.info.parameter_kinds;
    (args.memory_kinds, args.num_parameters) = list_parts(&kinds.pointers);
    args.memory_kind_sizes = kinds.sizes.as_ptr();
    Ok(())
}

pub(crate) unsafe fn output_types(args: &mut ExecutableOutputElementTypesArgs) -> PjrtResult {
    let types = &from_raw(args.executable)?.compiled.info.output_types;
    args.output_types = types.as_ptr().cast_mut();
    args.num_output_types = types.len();
    Ok(())
}

pub(crate) unsafe fn output_dimensions(args: &mut ExecutableOutputDimensionsArgs) -> PjrtResult {
    let info = &from_raw(args.executable)?.compiled.info;
    args.dims = info.output_dims.as_ptr();
    (args.dim_sizes, args.num_outputs) = list_parts(&info.output_dim_counts);
    Ok(())
}

const OPTIMIZED_FORMAT: &str = "hlo_with_config";

/// JAX calls this twice: for the size, then for the bytes.
pub(crate) unsafe fn optimized_program(args: &mut ExecutableOptimizedProgramArgs) -> PjrtResult {
    let module = &from_raw(args.executable)?.compiled.program.module;
    let program: &mut RawProgram =
        args.program.as_mut().ok_or_else(|| Status::internal("no program to fill"))?;
    (program.format, program.format_size) = text_parts(OPTIMIZED_FORMAT);
    if program.code.is_null() {
        program.code_size = module.len();
    } else if program.code_size < module.len() {
        return Err(Status::invalid_argument("the buffer for the program is too small"));
    } else {
        ptr::copy_nonoverlapping(module.as_ptr(), program.code.cast(), module.len());
        program.code_size = module.len();
    }
    Ok(())
}

/// Frees the result of [`leak_bytes`].
pub(crate) unsafe extern "C" fn drop_bytes(bytes: *mut c_void) {
    drop(Box::from_raw(bytes.cast::<Vec<u8>>()));
}

/// Returns pointer, size and owner of bytes that the caller frees with [`drop_bytes`].
pub(crate) fn leak_bytes(bytes: Vec<u8>) -> (*const c_char, usize, *mut c_void) {
    let bytes = Box::new(bytes);
    let (pointer, size) = (bytes.as_ptr().cast(), bytes.len());
    (pointer, size, Box::into_raw(bytes).cast())
}

pub(crate) unsafe fn serialize(args: &mut ExecutableSerializeArgs) -> PjrtResult {
    let compiled = &from_raw(args.executable.cast_mut())?.compiled;
    let serialized = SerializedProgram::from_compiled(compiled).encode_to_vec();
    (args.serialized_bytes, args.serialized_bytes_size, args.serialized_executable) =
        leak_bytes(serialized);
    args.serialized_executable_deleter = Some(drop_bytes);
    Ok(())
}

pub(crate) unsafe fn compile_options(args: &mut ExecutableGetCompileOptionsArgs) -> PjrtResult {
    (args.serialized_bytes, args.serialized_bytes_size, args.serialized_compile_options) =
        leak_bytes(from_raw(args.executable)?.compiled.host_program.options.clone());
    args.serialized_compile_options_deleter = Some(drop_bytes);
    Ok(())
}

pub(crate) unsafe fn fingerprint(args: &mut ExecutableFingerprintArgs) -> PjrtResult {
    let fingerprint = &from_raw(args.executable)?.compiled.info.fingerprint;
    (args.executable_fingerprint, args.executable_fingerprint_size) = text_parts(fingerprint);
    Ok(())
}

/// XLA's own formulas over the buffer allocations. `peak` is what a call takes on top of nothing:
/// arguments, outputs that are not arguments, and the temporary block.
pub(crate) unsafe fn memory_stats(args: &mut ExecutableGetCompiledMemoryStatsArgs) -> PjrtResult {
    let program = &from_raw(args.executable)?.compiled.program;
    let sizes = &program.sizes;
    let host = &program.host_sizes;
    args.generated_code_size_in_bytes = sizes.code_bytes as i64;
    args.argument_size_in_bytes = sizes.argument_bytes as i64;
    args.output_size_in_bytes = sizes.output_bytes as i64;
    args.alias_size_in_bytes = sizes.alias_bytes as i64;
    args.temp_size_in_bytes = sizes.temp_bytes as i64;
    args.host_generated_code_size_in_bytes = 0;
    args.host_argument_size_in_bytes = host.argument_bytes as i64;
    args.host_output_size_in_bytes = host.output_bytes as i64;
    args.host_alias_size_in_bytes = host.alias_bytes as i64;
    args.host_temp_size_in_bytes = host.temp_bytes as i64;
    args.peak_memory_in_bytes =
        (sizes.argument_bytes + sizes.output_bytes - sizes.alias_bytes + sizes.temp_bytes) as i64;
    Ok(())
}
