//! Executables as handles: what JAX asks of a compiled program, and what it loads and drops.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prost::Message;
use vramfit_core::trace::{Event as LogEvent, ProgramSizes};

use crate::abi::executable::{
    ClientCompileArgs, ClientLoadArgs, CompileArgs, ExecutableDeserializeAndLoadArgs,
    ExecutableDestroyArgs, ExecutableFingerprintArgs, ExecutableGetCompileOptionsArgs,
    ExecutableGetCompiledMemoryStatsArgs, ExecutableGetCostAnalysisArgs, ExecutableNameArgs,
    ExecutableNumOutputsArgs, ExecutableNumPartitionsArgs, ExecutableNumReplicasArgs,
    ExecutableOptimizedProgramArgs, ExecutableOutputDimensionsArgs,
    ExecutableOutputElementTypesArgs, ExecutableOutputMemoryKindsArgs,
    ExecutableParameterMemoryKindsArgs, ExecutableSerializeArgs,
    ExecutableSizeOfGeneratedCodeInBytesArgs, LoadedExecutableAddressableDeviceLogicalIdsArgs,
    LoadedExecutableAddressableDevicesArgs, LoadedExecutableDeleteArgs,
    LoadedExecutableDestroyArgs, LoadedExecutableFingerprintArgs,
    LoadedExecutableGetDeviceAssignmentArgs, LoadedExecutableGetExecutableArgs,
    LoadedExecutableIsDeletedArgs, LogicalDeviceIds, Program as RawProgram,
};
use crate::abi::{self, Device as RawDevice};
use crate::client::{self, Client};
use crate::compile::{self, Source};
use crate::compiled::Compiled;
use crate::device::Device;
use crate::record::Record;
use crate::status::{Answer, Code, Status};
use crate::{hooks, layouts};

/// A program as JAX holds it for asking.
pub(crate) struct Executable {
    pub(crate) compiled: Arc<Compiled>,
    /// Layout objects, made when first asked for; they live as long as this handle.
    pub(crate) layouts: layouts::Lists,
}

/// A program that can be executed.
pub(crate) struct Loaded {
    pub(crate) compiled: Arc<Compiled>,
    /// Its devices in this process.
    pub(crate) devices: Vec<&'static Device>,
    /// Their numbers in this process.
    pub(crate) ordinals: Vec<u32>,
    device_pointers: Vec<*mut RawDevice>,
    logical_ids: Vec<LogicalDeviceIds>,
    deleted: AtomicBool,
    /// On which of its devices the constants are loaded.
    pub(crate) resident: Mutex<Vec<bool>>,
    client: &'static Client,
}

impl Loaded {
    fn new(client: &'static Client, compiled: Arc<Compiled>, from_cache: bool) -> Answer<Self> {
        let options = &compiled.program.options;
        // This process executes on its own devices only; the others are other processes' business.
        let mut devices = Vec::new();
        let mut ordinals = Vec::new();
        let mut logical_ids = Vec::new();
        for (place, &id) in options.devices.iter().enumerate() {
            let device = client.device(id)?;
            if let Some(ordinal) = device.ordinal {
                devices.push(device);
                ordinals.push(ordinal);
                logical_ids.push(LogicalDeviceIds {
                    replica: (place / options.partitions) as c_int,
                    partition: (place % options.partitions) as c_int,
                });
            }
        }
        let site = hooks::get()
            .and_then(hooks::Hooks::site)
            .unwrap_or_default();
        if let Some(hooks) = hooks::get() {
            hooks.compiled(compiled.number);
        }
        let limit_bytes = client.machine.limit_bytes();
        let variant =
            if client.machine.environment.bracket && compiled.program.sizes.is_large(limit_bytes) {
                // SAFETY: the client's topology lives as long as the client.
                unsafe { compile::variant(client.topology, &compiled) }
            } else {
                None
            };
        let mut session = client.machine.session();
        let event = LogEvent::Program {
            program: compiled.number,
            name: session.text(&compiled.program.name),
            sizes: compiled.program.sizes,
            devices: devices.len() as u32,
            loaded: from_cache,
            rung: session.text(&compiled.rung),
            site: session.text(&site),
        };
        session.record(&event);
        session.record_memory(compiled.number, &compiled.memory);
        if let Some(variant) = variant {
            let event = LogEvent::Variant {
                program: compiled.number,
                name: session.text(variant.name),
                sizes: variant.sizes,
            };
            session.record(&event);
        }
        session.flush();
        drop(session);
        Ok(Loaded {
            device_pointers: devices.iter().map(|device| device.raw()).collect(),
            resident: Mutex::new(vec![false; devices.len()]),
            compiled,
            devices,
            ordinals,
            logical_ids,
            deleted: AtomicBool::new(false),
            client,
        })
    }

    fn into_raw(self) -> *mut abi::LoadedExecutable {
        Box::into_raw(Box::new(self)).cast()
    }

    /// Drops what the program holds on its devices.
    fn unload(&self) {
        if self.deleted.swap(true, Ordering::Relaxed) {
            return;
        }
        let constants = outside_bytes(&self.compiled.program.sizes);
        let mut resident = self.resident.lock().unwrap_or_else(PoisonError::into_inner);
        let mut session = self.client.machine.session();
        for (&ordinal, loaded) in self.ordinals.iter().zip(resident.iter_mut()) {
            if std::mem::take(loaded) && constants > 0 {
                session.add_outside(ordinal, -(constants as i64));
            }
        }
        session.record(&LogEvent::Unload {
            program: self.compiled.number,
        });
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Relaxed)
    }
}

/// Bytes a loaded program holds outside the pool: its machine code, and its constants, which are
/// globals of the module.
pub(crate) fn outside_bytes(sizes: &ProgramSizes) -> u64 {
    sizes.constant_bytes + sizes.code_bytes
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.unload();
    }
}

/// Returns the executable behind a handle.
///
/// # Safety
/// `raw` came from this file and is not destroyed.
pub(crate) unsafe fn from_raw<'a>(raw: *mut abi::Executable) -> Answer<&'a Executable> {
    raw.cast::<Executable>()
        .cast_const()
        .as_ref()
        .ok_or_else(|| Status::internal("no executable"))
}

/// Returns the loaded executable behind a handle.
///
/// # Safety
/// As for [`from_raw`].
pub(crate) unsafe fn loaded<'a>(raw: *mut abi::LoadedExecutable) -> Answer<&'a Loaded> {
    raw.cast::<Loaded>()
        .cast_const()
        .as_ref()
        .ok_or_else(|| Status::internal("no executable"))
}

fn handle(compiled: Arc<Compiled>) -> *mut abi::Executable {
    let executable = Executable {
        compiled,
        layouts: layouts::Lists::default(),
    };
    Box::into_raw(Box::new(executable)).cast()
}

unsafe fn bytes(pointer: *const c_char, size: usize) -> Vec<u8> {
    if size == 0 || pointer.is_null() {
        Vec::new()
    } else {
        std::slice::from_raw_parts(pointer.cast::<u8>(), size).to_vec()
    }
}

pub(crate) unsafe fn compile_for_topology(args: &mut CompileArgs) -> Answer {
    let source = Source::read(args.program)?;
    let options = bytes(args.compile_options, args.compile_options_size);
    args.executable = handle(compile::compile(args.topology, &source, &options)?);
    Ok(())
}

pub(crate) unsafe fn client_compile(args: &mut ClientCompileArgs) -> Answer {
    let client = client::from_raw(args.client)?;
    let source = Source::read(args.program)?;
    let options = bytes(args.compile_options, args.compile_options_size);
    let compiled = compile::compile(client.topology, &source, &options)?;
    args.executable = Loaded::new(client, compiled, false)?.into_raw();
    Ok(())
}

pub(crate) unsafe fn client_load(args: &mut ClientLoadArgs) -> Answer {
    let client = client::from_raw(args.client)?;
    let compiled = Arc::clone(&from_raw(args.executable)?.compiled);
    args.loaded_executable = Loaded::new(client, compiled, true)?.into_raw();
    Ok(())
}

pub(crate) unsafe fn deserialize_and_load(args: &mut ExecutableDeserializeAndLoadArgs) -> Answer {
    let client = client::from_raw(args.client)?;
    let bytes_of_record = bytes(args.serialized_executable, args.serialized_executable_size);
    let overridden = bytes(
        args.overridden_serialized_compile_options,
        args.overridden_serialized_compile_options_size,
    );
    let options = (!overridden.is_empty()).then_some(overridden);
    let compiled = Record::read(&bytes_of_record)?.into_compiled(options)?;
    args.loaded_executable = Loaded::new(client, compiled, true)?.into_raw();
    Ok(())
}

pub(crate) unsafe fn destroy(args: &mut ExecutableDestroyArgs) -> Answer {
    if !args.executable.is_null() {
        drop(Box::from_raw(args.executable.cast::<Executable>()));
    }
    Ok(())
}

pub(crate) unsafe fn name(args: &mut ExecutableNameArgs) -> Answer {
    let name = &from_raw(args.executable)?.compiled.program.name;
    args.executable_name = name.as_ptr().cast();
    args.executable_name_size = name.len();
    Ok(())
}

pub(crate) unsafe fn num_replicas(args: &mut ExecutableNumReplicasArgs) -> Answer {
    args.num_replicas = from_raw(args.executable)?.compiled.program.options.replicas;
    Ok(())
}

pub(crate) unsafe fn num_partitions(args: &mut ExecutableNumPartitionsArgs) -> Answer {
    args.num_partitions = from_raw(args.executable)?
        .compiled
        .program
        .options
        .partitions;
    Ok(())
}

pub(crate) unsafe fn num_outputs(args: &mut ExecutableNumOutputsArgs) -> Answer {
    args.num_outputs = from_raw(args.executable)?.compiled.program.outputs.len();
    Ok(())
}

pub(crate) unsafe fn code_size(args: &mut ExecutableSizeOfGeneratedCodeInBytesArgs) -> Answer {
    args.size_in_bytes = from_raw(args.executable)?.compiled.program.sizes.code_bytes as i64;
    Ok(())
}

/// Asks the cost model of XLA's CPU client: the plugin's own is reached through a device only.
pub(crate) unsafe fn cost_analysis(args: &mut ExecutableGetCostAnalysisArgs) -> Answer {
    let costs = from_raw(args.executable)?
        .compiled
        .costs()
        .ok_or_else(|| Status::unimplemented("cost analysis"))?;
    args.num_properties = costs.values.len();
    args.properties = costs.values.as_ptr();
    Ok(())
}

pub(crate) unsafe fn output_memory_kinds(args: &mut ExecutableOutputMemoryKindsArgs) -> Answer {
    let kinds = &from_raw(args.executable)?.compiled.answers.output_kinds;
    args.num_outputs = kinds.pointers.len();
    args.memory_kinds = kinds.pointers.as_ptr();
    args.memory_kind_sizes = kinds.sizes.as_ptr();
    Ok(())
}

pub(crate) unsafe fn parameter_memory_kinds(
    args: &mut ExecutableParameterMemoryKindsArgs,
) -> Answer {
    let kinds = &from_raw(args.executable)?.compiled.answers.parameter_kinds;
    args.num_parameters = kinds.pointers.len();
    args.memory_kinds = kinds.pointers.as_ptr();
    args.memory_kind_sizes = kinds.sizes.as_ptr();
    Ok(())
}

pub(crate) unsafe fn output_types(args: &mut ExecutableOutputElementTypesArgs) -> Answer {
    let types = &from_raw(args.executable)?.compiled.answers.output_types;
    args.output_types = types.as_ptr().cast_mut();
    args.num_output_types = types.len();
    Ok(())
}

pub(crate) unsafe fn output_dimensions(args: &mut ExecutableOutputDimensionsArgs) -> Answer {
    let answers = &from_raw(args.executable)?.compiled.answers;
    args.num_outputs = answers.output_dim_counts.len();
    args.dims = answers.output_dims.as_ptr();
    args.dim_sizes = answers.output_dim_counts.as_ptr();
    Ok(())
}

const OPTIMIZED_FORMAT: &str = "hlo_with_config";

/// Asked twice: for the size, then for the bytes.
pub(crate) unsafe fn optimized_program(args: &mut ExecutableOptimizedProgramArgs) -> Answer {
    let module = &from_raw(args.executable)?.compiled.program.module;
    let program: &mut RawProgram = args
        .program
        .as_mut()
        .ok_or_else(|| Status::internal("no program to fill"))?;
    program.format = OPTIMIZED_FORMAT.as_ptr().cast();
    program.format_size = OPTIMIZED_FORMAT.len();
    if program.code.is_null() {
        program.code_size = module.len();
    } else if program.code_size < module.len() {
        return Err(Status::new(
            Code::InvalidArgument,
            "the space for the program is too small",
        ));
    } else {
        ptr::copy_nonoverlapping(module.as_ptr(), program.code.cast(), module.len());
        program.code_size = module.len();
    }
    Ok(())
}

unsafe extern "C" fn drop_bytes(bytes: *mut c_void) {
    drop(Box::from_raw(bytes.cast::<Vec<u8>>()));
}

/// Hands bytes over that the caller frees with [`drop_bytes`].
fn hand_over(bytes: Vec<u8>) -> (*const c_char, usize, *mut c_void) {
    let bytes = Box::new(bytes);
    let (pointer, size) = (bytes.as_ptr().cast(), bytes.len());
    (pointer, size, Box::into_raw(bytes).cast())
}

pub(crate) unsafe fn serialize(args: &mut ExecutableSerializeArgs) -> Answer {
    let compiled = &from_raw(args.executable.cast_mut())?.compiled;
    let record = Record::of(compiled).encode_to_vec();
    let (pointer, size, owner) = hand_over(record);
    args.serialized_bytes = pointer;
    args.serialized_bytes_size = size;
    args.serialized_executable = owner;
    args.serialized_executable_deleter = Some(drop_bytes);
    Ok(())
}

pub(crate) unsafe fn compile_options(args: &mut ExecutableGetCompileOptionsArgs) -> Answer {
    let (pointer, size, owner) = hand_over(from_raw(args.executable)?.compiled.options.clone());
    args.serialized_bytes = pointer;
    args.serialized_bytes_size = size;
    args.serialized_compile_options = owner;
    args.serialized_compile_options_deleter = Some(drop_bytes);
    Ok(())
}

pub(crate) unsafe fn fingerprint(args: &mut ExecutableFingerprintArgs) -> Answer {
    let fingerprint = &from_raw(args.executable)?.compiled.answers.fingerprint;
    args.executable_fingerprint = fingerprint.as_ptr().cast();
    args.executable_fingerprint_size = fingerprint.len();
    Ok(())
}

/// XLA's own formulas over the buffer allocations. `peak` is what a call takes on top of nothing:
/// arguments, outputs that are not arguments, and the temporary block.
pub(crate) unsafe fn memory_stats(args: &mut ExecutableGetCompiledMemoryStatsArgs) -> Answer {
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

pub(crate) unsafe fn loaded_destroy(args: &mut LoadedExecutableDestroyArgs) -> Answer {
    if !args.executable.is_null() {
        drop(Box::from_raw(args.executable.cast::<Loaded>()));
    }
    Ok(())
}

/// Returns a new handle each time; the caller destroys it.
pub(crate) unsafe fn get_executable(args: &mut LoadedExecutableGetExecutableArgs) -> Answer {
    args.executable = handle(Arc::clone(&loaded(args.loaded_executable)?.compiled));
    Ok(())
}

pub(crate) unsafe fn loaded_devices(args: &mut LoadedExecutableAddressableDevicesArgs) -> Answer {
    let pointers = &loaded(args.executable)?.device_pointers;
    args.addressable_devices = pointers.as_ptr();
    args.num_addressable_devices = pointers.len();
    Ok(())
}

pub(crate) unsafe fn logical_ids(
    args: &mut LoadedExecutableAddressableDeviceLogicalIdsArgs,
) -> Answer {
    let ids = &loaded(args.executable)?.logical_ids;
    args.addressable_device_logical_ids = ids.as_ptr().cast_mut();
    args.num_addressable_device_logical_ids = ids.len();
    Ok(())
}

pub(crate) unsafe fn device_assignment(
    args: &mut LoadedExecutableGetDeviceAssignmentArgs,
) -> Answer {
    let bytes = loaded(args.executable)?
        .compiled
        .program
        .options
        .device_assignment();
    let (pointer, size, owner) = hand_over(bytes);
    args.serialized_bytes = pointer;
    args.serialized_bytes_size = size;
    args.serialized_device_assignment = owner;
    args.serialized_device_assignment_deleter = Some(drop_bytes);
    Ok(())
}

pub(crate) unsafe fn loaded_delete(args: &mut LoadedExecutableDeleteArgs) -> Answer {
    loaded(args.executable)?.unload();
    Ok(())
}

pub(crate) unsafe fn loaded_is_deleted(args: &mut LoadedExecutableIsDeletedArgs) -> Answer {
    args.is_deleted = loaded(args.executable)?.is_deleted();
    Ok(())
}

pub(crate) unsafe fn loaded_fingerprint(args: &mut LoadedExecutableFingerprintArgs) -> Answer {
    let fingerprint = &loaded(args.executable)?.compiled.answers.fingerprint;
    args.executable_fingerprint = fingerprint.as_ptr().cast();
    args.executable_fingerprint_size = fingerprint.len();
    Ok(())
}
