//! The client: creates the machine and its devices from the options that JAX passes.

use std::collections::BTreeSet;
use std::ffi::c_int;

use vramfit_model::allocator::{AllocatorKind, PoolOptions};
use vramfit_model::run_config::RunConfig;
use vramfit_model::settings::{ClientOptions, PluginSettings, Value, Version};
use vramfit_model::trace::Header;

use crate::device::client_options::{named_value, read_run_config, visible_gpus};
use crate::device::machine::{self, Machine};
use crate::device::memory::Memory;
use crate::device::topology;
use crate::device::virtual_device::Device;
use crate::pjrt::abi::client::{
    ClientAddressableDevicesArgs, ClientAddressableMemoriesArgs, ClientCreateArgs,
    ClientDefaultDeviceAssignmentArgs, ClientDestroyArgs, ClientDevicesArgs,
    ClientLookupAddressableDeviceArgs, ClientLookupDeviceArgs, ClientPlatformNameArgs,
    ClientPlatformVersionArgs, ClientProcessIndexArgs, ClientTopologyDescriptionArgs,
    TopologyDescriptionGetDeviceDescriptionsArgs,
};
use crate::pjrt::abi::{self, Device as RawDevice, Memory as RawMemory, TopologyDescription};
use crate::pjrt::cuda_plugin::{self, zeroed_struct};
use crate::pjrt::pointers::{self, into_handle, list_parts, text_parts};
use crate::pjrt::status::{PjrtResult, Status};

/// A client. It lives as long as the process: buffers and executables may outlive JAX's handle.
pub(crate) struct Client {
    pub(crate) machine: &'static Machine,
    pub(crate) topology: *mut TopologyDescription,
    /// What determines the topology.
    pub(crate) topology_description: String,
    /// All devices, those of other processes included, by global id.
    pub(crate) devices: Vec<&'static Device>,
    process: ProcessInfo,
    platform_version: String,
    device_pointers: Vec<*mut RawDevice>,
    addressable_pointers: Vec<*mut RawDevice>,
    memory_pointers: Vec<*mut RawMemory>,
}

/// This process among those that run one program together (`jax.distributed`). Each has as many
/// GPUs as this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessInfo {
    pub(crate) index: u32,
    pub(crate) count: u32,
}

// SAFETY: all fields are constant after creation; the topology is an immutable object of the real
// plugin's.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

/// Returns the client of a handle.
///
/// # Safety
/// `client` came from [`create`].
pub(crate) unsafe fn from_raw(client: *mut abi::Client) -> PjrtResult<&'static Client> {
    pointers::object(client, "no client")
}

pub(crate) unsafe fn create(args: &mut ClientCreateArgs) -> PjrtResult {
    let run = read_run_config()?;
    let (options, visible, process) = pool_options(args, &run)?;
    let mut gpus = visible_gpus(&run)?;
    if let Some(visible) = visible {
        gpus = select_visible(&gpus, &visible);
    }
    if gpus.is_empty() {
        return Err(Status::failed_precondition("No visible GPU devices."));
    }
    let header = header(run, gpus, &options, process);
    let machine = machine::get_or_create(&options, &header)?;
    let topology = topology::create_for_gpu(&header)?;
    let devices = create_devices(machine, topology, process)?;
    let addressable = || devices.iter().filter(|device| device.ordinal.is_some());
    let device_pointers = devices.iter().map(|device| device.raw()).collect();
    let addressable_pointers = addressable().map(|device| device.raw()).collect();
    let memory_pointers =
        addressable().flat_map(|device| device.memories()).map(|memory| Memory::raw(memory));
    let memory_pointers = memory_pointers.collect();
    let client = Client {
        machine,
        topology,
        topology_description: topology::description(&header),
        devices,
        process,
        platform_version: platform_version(),
        device_pointers,
        addressable_pointers,
        memory_pointers,
    };
    args.client = into_handle(client);
    Ok(())
}

/// Returns the GPUs that `jax_cuda_visible_devices` selects of those that CUDA shows. XLA has the numbers in a
/// set, so they are in ascending order, and ignores those that do not exist (`GetStreamExecutors`).
fn select_visible(gpus: &[u32], requested: &[i64]) -> Vec<u32> {
    let visible = gpus.iter().enumerate();
    let selected = visible.filter(|(number, _)| requested.contains(&(*number as i64)));
    selected.map(|(_, gpu)| *gpu).collect()
}

/// Reads JAX's create options with XLA's own checks, and the variables that the plugin reads itself.
/// Also returns which of the visible GPUs JAX selects, if it does, and which process this is.
unsafe fn pool_options(
    args: &ClientCreateArgs,
    run: &RunConfig,
) -> PjrtResult<(PoolOptions, Option<Vec<i64>>, ProcessInfo)> {
    let named = pointers::list(args.create_options, args.num_options);
    let named: Vec<(String, Value)> = named.iter().map(|value| named_value(value)).collect();
    let minor = cuda_plugin::get()?.minor_version();
    let client = ClientOptions::from_named_values(&named, minor.unsigned_abs())
        .map_err(|error| Status::with_code(error.code, error.message))?;
    let plugin = PluginSettings::read(|name| std::env::var(name).ok()).map_err(|abort| {
        Status::invalid_argument(format!(
            "vramfit: on a real GPU this process would abort here: {}",
            abort.message
        ))
    })?;
    for ignored in &plugin.ignored {
        crate::session::log::print_line(ignored);
    }
    let version = jax_version();
    let partitioned = version >= Version::new(0, 11, 0)
        && client.allocator == AllocatorKind::Bfc
        && client.preallocate
        && plugin.spatial_partitioning.unwrap_or(true);
    let visible = client.visible_devices.clone();
    let options = PoolOptions {
        kind: client.allocator,
        ordinal: 0,
        total_memory_bytes: run.pool_total_bytes(),
        memory_fraction: client.fraction(),
        memory_cap: client.fraction_policy.and_then(|policy| policy.cap),
        preallocate: client.preallocate,
        spatial_partitioning: partitioned,
        unified_memory: plugin.unified_memory,
        cuda_async_prealloc: plugin.cuda_async_prealloc,
        collective_memory_bytes: client.collective_memory_bytes,
        jax_version: (version.major, version.minor, version.patch),
    };
    let process =
        ProcessInfo { index: client.node_id.max(0) as u32, count: client.num_nodes.max(1) as u32 };
    Ok((options, visible, process))
}

/// Returns the version of `jax` in this process, which the shim has set.
fn jax_version() -> Version {
    std::env::var("VRAMFIT_JAX_VERSION")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| Version::new(0, 10, 2))
}

fn header(run: RunConfig, gpus: Vec<u32>, options: &PoolOptions, process: ProcessInfo) -> Header {
    let (major, minor, patch) = options.jax_version;
    let head = cuda_plugin::get().map(|plugin| plugin.header());
    Header {
        jax: format!("{major}.{minor}.{patch}"),
        plugin: head.map_or(String::new(), |head| format!("{}.{}", head.major, head.minor)),
        devices: gpus.len() as u32,
        gpus,
        run,
        host: process.index,
        hosts: process.count,
        pid: std::process::id(),
        allocator: options.kind.name().to_owned(),
        memory_fraction: options.memory_fraction,
        memory_cap: options.memory_cap,
        preallocate: options.preallocate,
        spatial_partitioning: options.spatial_partitioning,
        unified_memory: options.unified_memory,
        cuda_async_prealloc: options.cuda_async_prealloc,
        collective_memory_bytes: options.collective_memory_bytes,
        command: crate::process::command_line(std::process::id()),
    }
}

/// Makes the devices of a topology, those of other processes included.
unsafe fn create_devices(
    machine: &'static Machine,
    topology: *mut TopologyDescription,
    process: ProcessInfo,
) -> PjrtResult<Vec<&'static Device>> {
    let mut args: TopologyDescriptionGetDeviceDescriptionsArgs = zeroed_struct();
    args.topology = topology;
    cuda_plugin::get()?.call("PJRT_TopologyDescription_GetDeviceDescriptions", &mut args)?;
    let descriptions = pointers::list(args.descriptions, args.num_descriptions);
    // Ids are consecutive over the processes, each with as many GPUs as this one.
    let own = machine.header.devices;
    let first = process.index * own;
    descriptions
        .iter()
        .enumerate()
        .map(|(id, &description)| {
            let ordinal = (id as u32).checked_sub(first).filter(|ordinal| *ordinal < own);
            Device::new(id, ordinal, description, machine.header.gpu())
        })
        .collect()
}

/// Returns the CUDA client's platform version, such as `cuda 13000`.
fn platform_version() -> String {
    cuda_plugin::cuda_version()
        .map_or_else(|| "cuda".to_owned(), |version| format!("cuda {version}"))
}

pub(crate) unsafe fn destroy(args: &mut ClientDestroyArgs) -> PjrtResult {
    // JAX may still hold buffers, and the trace ends with the process.
    if let Some(client) = args.client.cast::<Client>().as_ref() {
        client.machine.session().flush();
    }
    Ok(())
}

const PLATFORM: &str = "cuda";

pub(crate) unsafe fn platform_name(args: &mut ClientPlatformNameArgs) -> PjrtResult {
    (args.platform_name, args.platform_name_size) = text_parts(PLATFORM);
    Ok(())
}

pub(crate) unsafe fn process_index(args: &mut ClientProcessIndexArgs) -> PjrtResult {
    args.process_index = from_raw(args.client)?.process.index as c_int;
    Ok(())
}

pub(crate) unsafe fn version(args: &mut ClientPlatformVersionArgs) -> PjrtResult {
    let client = from_raw(args.client)?;
    (args.platform_version, args.platform_version_size) = text_parts(&client.platform_version);
    Ok(())
}

pub(crate) unsafe fn devices(args: &mut ClientDevicesArgs) -> PjrtResult {
    let client = from_raw(args.client)?;
    (args.devices, args.num_devices) = list_parts(&client.device_pointers);
    Ok(())
}

pub(crate) unsafe fn addressable_devices(args: &mut ClientAddressableDevicesArgs) -> PjrtResult {
    let client = from_raw(args.client)?;
    (args.addressable_devices, args.num_addressable_devices) =
        list_parts(&client.addressable_pointers);
    Ok(())
}

pub(crate) unsafe fn addressable_memories(args: &mut ClientAddressableMemoriesArgs) -> PjrtResult {
    let client = from_raw(args.client)?;
    (args.addressable_memories, args.num_addressable_memories) =
        list_parts(&client.memory_pointers);
    Ok(())
}

impl Client {
    /// Returns the hosts that have some of these devices, in ascending order.
    pub(crate) fn hosts_of(&self, devices: &[i64]) -> Vec<u32> {
        let own = i64::from(self.machine.header.devices);
        let hosts: BTreeSet<u32> = devices.iter().map(|id| (id / own) as u32).collect();
        hosts.into_iter().collect()
    }

    /// Returns the device of a global id.
    pub(crate) fn device(&self, id: i64) -> PjrtResult<&'static Device> {
        usize::try_from(id).ok().and_then(|id| self.devices.get(id)).copied().ok_or_else(|| {
            Status::invalid_argument(format!("No matching device found for device_id {id}"))
        })
    }
}

pub(crate) unsafe fn lookup_device(args: &mut ClientLookupDeviceArgs) -> PjrtResult {
    args.device = from_raw(args.client)?.device(i64::from(args.id))?.raw();
    Ok(())
}

pub(crate) unsafe fn lookup_addressable_device(
    args: &mut ClientLookupAddressableDeviceArgs,
) -> PjrtResult {
    let client = from_raw(args.client)?;
    let ordinal = u32::try_from(args.local_hardware_id).ok();
    let found = client.devices.iter().find(|device| device.ordinal == ordinal && ordinal.is_some());
    args.addressable_device = found.map(|device| device.raw()).ok_or_else(|| {
        Status::invalid_argument(format!(
            "No matching device found for local_hardware_id {}",
            args.local_hardware_id
        ))
    })?;
    Ok(())
}

pub(crate) unsafe fn topology(args: &mut ClientTopologyDescriptionArgs) -> PjrtResult {
    args.topology = from_raw(args.client)?.topology;
    Ok(())
}

/// Assigns devices in order: replica-major, then partition.
pub(crate) unsafe fn default_device_assignment(
    args: &mut ClientDefaultDeviceAssignmentArgs,
) -> PjrtResult {
    let requested = (args.num_replicas * args.num_partitions) as usize;
    let available = from_raw(args.client)?.devices.len();
    if requested > available || requested > args.default_assignment_size {
        return Err(Status::invalid_argument(format!(
            "{requested} devices are requested, {available} are available"
        )));
    }
    for id in 0..requested {
        args.default_assignment.add(id).write(id as c_int);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jax_selects_among_the_gpus_that_cuda_shows() {
        for (gpus, requested, selected) in [
            (vec![0, 1, 2, 3], vec![2], vec![2]),
            (vec![3, 1], vec![1, 0], vec![3, 1]),
            (vec![3, 1], vec![1, 7], vec![1]),
            (vec![0], vec![1], vec![]),
        ] {
            assert_eq!(select_visible(&gpus, &requested), selected, "{requested:?}");
        }
    }
}
