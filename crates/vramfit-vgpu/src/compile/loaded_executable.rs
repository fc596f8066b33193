//! Programs that JAX compiles, loads and unloads. What it asks about a compiled program is in
//! [`executable`].

use std::ffi::c_int;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use vramfit_model::program::ProgramSizes;
use vramfit_model::trace::{Event as LogEvent, Note, PartitionedProgram};

use crate::compile::compiled::{CompileDiagnostics, CompiledProgram};
use crate::compile::compiler::{self, ProgramSource};
use crate::compile::executable::{self, drop_bytes, leak_bytes, new_handle};
use crate::compile::serialized::SerializedProgram;
use crate::compile::stderr_capture::Warning;
use crate::device::client::{self, Client};
use crate::device::virtual_device::Device;
use crate::hooks;
use crate::lock;
use crate::pjrt::abi::executable::{
    ClientCompileArgs, ClientLoadArgs, CompileArgs, ExecutableDeserializeAndLoadArgs,
    LoadedExecutableAddressableDeviceLogicalIdsArgs, LoadedExecutableAddressableDevicesArgs,
    LoadedExecutableDeleteArgs, LoadedExecutableDestroyArgs, LoadedExecutableFingerprintArgs,
    LoadedExecutableGetDeviceAssignmentArgs, LoadedExecutableGetExecutableArgs,
    LoadedExecutableIsDeletedArgs, LogicalDeviceIds,
};
use crate::pjrt::abi::{self, Device as RawDevice};
use crate::pjrt::pointers::{self, into_handle, list_parts, text_parts};
use crate::pjrt::status::PjrtResult;

/// A program that can be executed.
pub(crate) struct LoadedExecutable {
    pub(crate) compiled: Arc<CompiledProgram>,
    /// Its devices in this process.
    pub(crate) devices: Vec<&'static Device>,
    /// Their numbers in this process.
    pub(crate) ordinals: Vec<u32>,
    device_pointers: Vec<*mut RawDevice>,
    logical_ids: Vec<LogicalDeviceIds>,
    deleted: AtomicBool,
    /// On which of its devices the constants are loaded.
    pub(crate) constants_loaded: Mutex<Vec<bool>>,
    client: &'static Client,
}

impl LoadedExecutable {
    fn new(
        client: &'static Client,
        compiled: Arc<CompiledProgram>,
        from_cache: bool,
    ) -> PjrtResult<Self> {
        let options = &compiled.program.options;
        // This process executes on its own devices only; the others belong to other processes.
        let mut devices = Vec::new();
        let mut ordinals = Vec::new();
        let mut logical_ids = Vec::new();
        for (index, &id) in options.devices.iter().enumerate() {
            let device = client.device(id)?;
            if let Some(ordinal) = device.ordinal {
                devices.push(device);
                ordinals.push(ordinal);
                logical_ids.push(LogicalDeviceIds {
                    replica: (index / options.partitions) as c_int,
                    partition: (index % options.partitions) as c_int,
                });
            }
        }
        let site = hooks::get().and_then(hooks::Hooks::call_site).unwrap_or_default();
        if let Some(hooks) = hooks::get() {
            hooks.on_compiled(compiled.number);
        }
        let limit_bytes = client.machine.limit_bytes();
        let variant = if client.machine.header.run.autotune_range
            && compiled.program.sizes.is_large(limit_bytes)
        {
            // SAFETY: the client's topology lives as long as the client.
            unsafe { compiler::measure_variant(client.topology, &compiled) }
        } else {
            None
        };
        let mut session = client.machine.session();
        let event = LogEvent::Program {
            program: compiled.number,
            name: session.intern(&compiled.program.name),
            sizes: compiled.program.sizes,
            devices: devices.len() as u32,
            loaded: from_cache,
            compile_attempt: session.intern(&compiled.compile_attempt),
            site: session.intern(&site),
        };
        session.record(&event);
        if options.devices.len() > 1 {
            session.note(&Note::PartitionedProgram(describe_partitions(client, &compiled)));
        }
        let CompileDiagnostics { memory, time, warnings, .. } = &compiled.diagnostics;
        if !memory.is_empty() {
            session.write(|trace| trace.program_memory(compiled.number, memory));
        }
        if let Some(time) = time {
            session.write(|trace| trace.program_time(compiled.number, time));
        }
        for need in &compiled.program.scratch {
            let event = LogEvent::Scratch {
                program: compiled.number,
                library: session.intern(&need.library),
                routine: session.intern(&need.routine),
                site: session.intern(&need.site),
                low_bytes: need.low_bytes,
                high_bytes: need.high_bytes,
                source: need.source,
                phase: need.phase,
            };
            session.record(&event);
        }
        for Warning { source, text } in warnings {
            session.write(|trace| trace.compiler_warning(&compiled.program.name, source, text));
        }
        if let Some(variant) = variant {
            let event = LogEvent::Variant {
                program: compiled.number,
                name: session.intern(variant.name),
                sizes: variant.sizes,
            };
            session.record(&event);
        }
        session.flush();
        drop(session);
        Ok(LoadedExecutable {
            device_pointers: devices.iter().map(|device| device.raw()).collect(),
            constants_loaded: Mutex::new(vec![false; devices.len()]),
            compiled,
            devices,
            ordinals,
            logical_ids,
            deleted: AtomicBool::new(false),
            client,
        })
    }

    /// Frees what the program occupies on its devices.
    fn unload(&self) {
        if self.deleted.swap(true, Ordering::Relaxed) {
            return;
        }
        let constants = non_pool_bytes(&self.compiled.program.sizes);
        let mut constants_loaded = lock(&self.constants_loaded);
        let mut session = self.client.machine.session();
        for (&ordinal, loaded) in self.ordinals.iter().zip(constants_loaded.iter_mut()) {
            if std::mem::take(loaded) && constants > 0 {
                session.add_non_pool_bytes(ordinal, -(constants as i64));
            }
        }
        session.record(&LogEvent::Unload { program: self.compiled.number });
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Relaxed)
    }
}

/// Describes on which devices a program runs, and which of them exchange data.
fn describe_partitions(client: &Client, compiled: &CompiledProgram) -> PartitionedProgram {
    let program = &compiled.program;
    let groups = program.device_groups.iter();
    let groups: Vec<_> = groups.map(|groups| program.device_ids(groups)).collect();
    let crosses_hosts = |group: &Vec<i64>| client.hosts_of(group).len() > 1;
    let hash = |groups: &Vec<Vec<i64>>| {
        let mut hasher = DefaultHasher::new();
        groups.hash(&mut hasher);
        hasher.finish()
    };
    PartitionedProgram {
        program: compiled.number,
        fingerprint: compiled.info.fingerprint.clone(),
        hosts: client.hosts_of(&program.options.devices),
        devices: program.options.devices.len() as u32,
        communicates: groups.iter().flatten().any(crosses_hosts),
        communicators: groups.iter().map(hash).collect(),
        copies: program.parameter_copies(),
        output_copies: program.output_copies(),
    }
}

/// Returns the bytes that a loaded program occupies outside the pool: its machine code, and its constants,
/// which are globals of the module.
pub(crate) fn non_pool_bytes(sizes: &ProgramSizes) -> u64 {
    sizes.constant_bytes + sizes.code_bytes
}

impl Drop for LoadedExecutable {
    fn drop(&mut self) {
        self.unload();
    }
}

/// Returns the loaded executable of a handle.
///
/// # Safety
/// `raw` came from this file and is not destroyed.
pub(crate) unsafe fn from_raw<'a>(
    raw: *mut abi::LoadedExecutable,
) -> PjrtResult<&'a LoadedExecutable> {
    pointers::object(raw, "no executable")
}

pub(crate) unsafe fn compile_for_topology(args: &mut CompileArgs) -> PjrtResult {
    let source = ProgramSource::read(args.program)?;
    let options = pointers::bytes(args.compile_options, args.compile_options_size);
    // Any topology that a program may have made: nothing describes it to a cache.
    let compiled = compiler::compile(args.topology, None, source, &options)?;
    args.executable = new_handle(compiled);
    Ok(())
}

pub(crate) unsafe fn client_compile(args: &mut ClientCompileArgs) -> PjrtResult {
    let client = client::from_raw(args.client)?;
    let source = ProgramSource::read(args.program)?;
    let options = pointers::bytes(args.compile_options, args.compile_options_size);
    let description = Some(client.topology_description.as_str());
    let compiled = compiler::compile(client.topology, description, source, &options)?;
    args.executable = into_handle(LoadedExecutable::new(client, compiled, false)?);
    Ok(())
}

pub(crate) unsafe fn client_load(args: &mut ClientLoadArgs) -> PjrtResult {
    let client = client::from_raw(args.client)?;
    let compiled = Arc::clone(&executable::from_raw(args.executable)?.compiled);
    args.loaded_executable = into_handle(LoadedExecutable::new(client, compiled, true)?);
    Ok(())
}

pub(crate) unsafe fn deserialize_and_load(
    args: &mut ExecutableDeserializeAndLoadArgs,
) -> PjrtResult {
    let client = client::from_raw(args.client)?;
    let serialized = pointers::bytes(args.serialized_executable, args.serialized_executable_size);
    let overridden = pointers::bytes(
        args.overridden_serialized_compile_options,
        args.overridden_serialized_compile_options_size,
    );
    let options = (!overridden.is_empty()).then_some(overridden);
    let compiled = SerializedProgram::parse(&serialized)?.into_compiled(options)?;
    args.loaded_executable = into_handle(LoadedExecutable::new(client, compiled, true)?);
    Ok(())
}

pub(crate) unsafe fn destroy(args: &mut LoadedExecutableDestroyArgs) -> PjrtResult {
    pointers::destroy::<LoadedExecutable, _>(args.executable)
}

/// Returns a new handle each time; the caller destroys it.
pub(crate) unsafe fn get_executable(args: &mut LoadedExecutableGetExecutableArgs) -> PjrtResult {
    args.executable = new_handle(Arc::clone(&from_raw(args.loaded_executable)?.compiled));
    Ok(())
}

pub(crate) unsafe fn addressable_devices(
    args: &mut LoadedExecutableAddressableDevicesArgs,
) -> PjrtResult {
    (args.addressable_devices, args.num_addressable_devices) =
        list_parts(&from_raw(args.executable)?.device_pointers);
    Ok(())
}

pub(crate) unsafe fn logical_ids(
    args: &mut LoadedExecutableAddressableDeviceLogicalIdsArgs,
) -> PjrtResult {
    let ids = &from_raw(args.executable)?.logical_ids;
    args.addressable_device_logical_ids = ids.as_ptr().cast_mut();
    args.num_addressable_device_logical_ids = ids.len();
    Ok(())
}

pub(crate) unsafe fn device_assignment(
    args: &mut LoadedExecutableGetDeviceAssignmentArgs,
) -> PjrtResult {
    let bytes = from_raw(args.executable)?.compiled.program.options.device_assignment();
    let (pointer, size, owner) = leak_bytes(bytes);
    args.serialized_bytes = pointer;
    args.serialized_bytes_size = size;
    args.serialized_device_assignment = owner;
    args.serialized_device_assignment_deleter = Some(drop_bytes);
    Ok(())
}

pub(crate) unsafe fn delete(args: &mut LoadedExecutableDeleteArgs) -> PjrtResult {
    from_raw(args.executable)?.unload();
    Ok(())
}

pub(crate) unsafe fn is_deleted(args: &mut LoadedExecutableIsDeletedArgs) -> PjrtResult {
    args.is_deleted = from_raw(args.executable)?.is_deleted();
    Ok(())
}

pub(crate) unsafe fn fingerprint(args: &mut LoadedExecutableFingerprintArgs) -> PjrtResult {
    let fingerprint = &from_raw(args.executable)?.compiled.info.fingerprint;
    (args.executable_fingerprint, args.executable_fingerprint_size) = text_parts(fingerprint);
    Ok(())
}
