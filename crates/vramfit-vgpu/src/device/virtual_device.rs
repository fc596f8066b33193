//! Devices and their descriptions.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{LazyLock, Mutex, OnceLock};

use vramfit_model::gpu::Gpu;

use crate::device::machine;
use crate::device::memory::{Memory, MemoryKind};
use crate::lock;
use crate::pjrt::abi;
use crate::pjrt::abi::client::{NamedUnion, NamedValue};
use crate::pjrt::abi::device::{
    DeviceAddressableMemoriesArgs, DeviceClearMemoryStatsArgs, DeviceDefaultMemoryArgs,
    DeviceDescriptionAttributesArgs, DeviceDescriptionDebugStringArgs,
    DeviceDescriptionToStringArgs, DeviceGetAttributesArgs, DeviceGetDescriptionArgs,
    DeviceIsAddressableArgs, DeviceLocalHardwareIdArgs, DeviceMemoryStatsArgs,
};
use crate::pjrt::cuda_plugin::{self, zeroed_struct};
use crate::pjrt::pointers::{self, list_parts, text_parts};
use crate::pjrt::status::{PjrtResult, Status};

/// One virtual GPU.
pub(crate) struct Device {
    /// Its number among the devices of all processes.
    pub(crate) id: u32,
    /// Its number in this process; `None` for a device of another one.
    pub(crate) ordinal: Option<u32>,
    /// A real object of the topology: extensions of the real plugin get it.
    description: *mut abi::DeviceDescription,
    debug_string: String,
    to_string: String,
    attributes: Vec<NamedValue>,
    memories: OnceLock<[Box<Memory>; 2]>,
    memory_pointers: OnceLock<[*mut abi::Memory; 2]>,
}

// SAFETY: constant after creation; pointers lead to immutable or leaked objects.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// Devices by the address of their description, to distinguish these from descriptions of topologies that
/// JAX created without a client.
static DEVICES_BY_DESCRIPTION: LazyLock<Mutex<HashMap<usize, &'static Device>>> =
    LazyLock::new(Mutex::default);

fn described_device(description: *const abi::DeviceDescription) -> Option<&'static Device> {
    let devices = lock(&DEVICES_BY_DESCRIPTION);
    devices.get(&(description as usize)).copied()
}

impl Device {
    /// Makes a device that lives as long as the process.
    ///
    /// # Safety
    /// `description` is a device description of the real plugin's.
    pub(crate) unsafe fn new(
        id: usize,
        ordinal: Option<u32>,
        description: *mut abi::DeviceDescription,
        gpu: &Gpu,
    ) -> PjrtResult<&'static Device> {
        let device: &'static Device = Box::leak(Box::new(Device {
            id: id as u32,
            ordinal,
            description,
            debug_string: format!("cuda:{id}"),
            to_string: format!("CudaDevice(id={id})"),
            attributes: attributes(description, gpu)?,
            memories: OnceLock::new(),
            memory_pointers: OnceLock::new(),
        }));
        let memories = [MemoryKind::Device, MemoryKind::PinnedHost]
            .map(|kind| Box::new(Memory::new(device, kind)));
        let pointers = [Memory::raw(&memories[0]), Memory::raw(&memories[1])];
        let _ = device.memories.set(memories);
        let _ = device.memory_pointers.set(pointers);
        lock(&DEVICES_BY_DESCRIPTION).insert(description as usize, device);
        Ok(device)
    }

    /// Returns its number in this process.
    ///
    /// # Errors
    /// When it is another process's.
    pub(crate) fn ordinal(&self) -> PjrtResult<u32> {
        self.ordinal.ok_or_else(|| {
            Status::invalid_argument(format!("device {} belongs to another process", self.id))
        })
    }

    pub(crate) fn raw(&'static self) -> *mut abi::Device {
        ptr::from_ref(self).cast_mut().cast()
    }

    pub(crate) fn memories(&self) -> &[Box<Memory>] {
        self.memories.get().map_or(&[], |memories| memories)
    }

    pub(crate) fn memory(&'static self, kind: MemoryKind) -> PjrtResult<&'static Memory> {
        self.memories()
            .iter()
            .find(|memory| memory.kind == kind)
            .map(Box::as_ref)
            .ok_or_else(|| Status::internal("a device without memories"))
    }
}

/// Copies the real plugin's attributes and adds those that a deviceless description lacks in
/// some releases (JAX 0.6.2 has no compute capability, which Pallas needs).
unsafe fn attributes(
    description: *mut abi::DeviceDescription,
    gpu: &Gpu,
) -> PjrtResult<Vec<NamedValue>> {
    let mut args: DeviceDescriptionAttributesArgs = zeroed_struct();
    args.device_description = description;
    cuda_plugin::get()?.call("PJRT_DeviceDescription_Attributes", &mut args)?;
    let mut attributes = pointers::list(args.attributes, args.num_attributes).to_vec();
    let (major, minor) = gpu.compute_capability;
    let mut add = |name: &'static str, set: &dyn Fn(&mut NamedValue)| {
        let mut known = attributes.iter();
        if !known.any(|value| pointers::text(value.name, value.name_size) == name) {
            let mut value: NamedValue = zeroed_struct();
            (value.name, value.name_size) = text_parts(name);
            set(&mut value);
            attributes.push(value);
        }
    };
    let text = |text: String| {
        move |value: &mut NamedValue| {
            value.r#type = 0;
            value.value_size = text.len();
            // Attributes live as long as the process.
            let text: &'static str = Box::leak(text.clone().into_boxed_str());
            value.value = NamedUnion { string: text.as_ptr().cast() };
        }
    };
    let number = |number: i64| {
        move |value: &mut NamedValue| {
            value.r#type = 1;
            value.value_size = 1;
            value.value = NamedUnion { int64: number };
        }
    };
    add("compute_capability", &text(format!("{major}.{minor}")));
    add("device_vendor", &text("NVIDIA Corporation".to_owned()));
    add("core_count", &number(i64::from(gpu.core_count)));
    add("slice_index", &number(0));
    Ok(attributes)
}

unsafe fn require_device<'a>(device: *mut abi::Device) -> PjrtResult<&'a Device> {
    pointers::object(device, "no device")
}

/// Returns the device of a handle.
///
/// # Safety
/// `raw` came from [`Device::raw`] or is null.
pub(crate) unsafe fn from_raw(raw: *mut abi::Device) -> Option<&'static Device> {
    raw.cast::<Device>().cast_const().as_ref()
}

// Descriptions: ids and kinds are the real ones, attributes are added; both strings are those of the CUDA
// client's devices.

pub(crate) unsafe fn description_attributes(
    args: &mut DeviceDescriptionAttributesArgs,
) -> PjrtResult {
    let Some(device) = described_device(args.device_description) else {
        return cuda_plugin::get()?.call("PJRT_DeviceDescription_Attributes", args);
    };
    (args.attributes, args.num_attributes) = list_parts(&device.attributes);
    Ok(())
}

pub(crate) unsafe fn description_debug_string(
    args: &mut DeviceDescriptionDebugStringArgs,
) -> PjrtResult {
    let Some(device) = described_device(args.device_description) else {
        return cuda_plugin::get()?.call("PJRT_DeviceDescription_DebugString", args);
    };
    (args.debug_string, args.debug_string_size) = text_parts(&device.debug_string);
    Ok(())
}

pub(crate) unsafe fn description_to_string(args: &mut DeviceDescriptionToStringArgs) -> PjrtResult {
    let Some(device) = described_device(args.device_description) else {
        return cuda_plugin::get()?.call("PJRT_DeviceDescription_ToString", args);
    };
    (args.to_string, args.to_string_size) = text_parts(&device.to_string);
    Ok(())
}

pub(crate) unsafe fn get_description(args: &mut DeviceGetDescriptionArgs) -> PjrtResult {
    args.device_description = require_device(args.device)?.description;
    Ok(())
}

pub(crate) unsafe fn get_attributes(args: &mut DeviceGetAttributesArgs) -> PjrtResult {
    let device = require_device(args.device)?;
    (args.attributes, args.num_attributes) = list_parts(&device.attributes);
    // The list lives as long as the device; nothing is to be freed.
    args.device_attributes = ptr::null_mut();
    args.attributes_deleter = Some(no_op_deleter);
    Ok(())
}

unsafe extern "C" fn no_op_deleter(_: *mut c_void) {}

pub(crate) unsafe fn is_addressable(args: &mut DeviceIsAddressableArgs) -> PjrtResult {
    args.is_addressable = require_device(args.device)?.ordinal.is_some();
    Ok(())
}

pub(crate) unsafe fn local_hardware_id(args: &mut DeviceLocalHardwareIdArgs) -> PjrtResult {
    // XLA returns -1 for a device of another process; an error here would end the process.
    args.local_hardware_id =
        require_device(args.device)?.ordinal.map_or(-1, |ordinal| ordinal as c_int);
    Ok(())
}

pub(crate) unsafe fn addressable_memories(args: &mut DeviceAddressableMemoriesArgs) -> PjrtResult {
    let pointers = require_device(args.device)?.memory_pointers.get().map_or(&[][..], |all| all);
    (args.memories, args.num_memories) = list_parts(pointers);
    Ok(())
}

pub(crate) unsafe fn default_memory(args: &mut DeviceDefaultMemoryArgs) -> PjrtResult {
    let pointers = require_device(args.device)?.memory_pointers.get();
    args.memory = pointers.map_or(ptr::null_mut(), |all| all[0]);
    Ok(())
}

/// Called by JAX before every compile, too: `bytes_limit` becomes the compiler's budget.
pub(crate) unsafe fn memory_stats(args: &mut DeviceMemoryStatsArgs) -> PjrtResult {
    let ordinal = require_device(args.device)?.ordinal()?;
    let machine = machine::get().ok_or_else(|| Status::internal("no machine was created"))?;
    let stats = machine.session().stats(ordinal).ok_or_else(|| {
        // The CUDA client's error for allocators without statistics, for which JAX returns `None`.
        Status::unimplemented("memory statistics of this allocator")
    })?;
    let signed = |bytes: u64| bytes.min(i64::MAX as u64) as i64;
    let reported = |bytes: Option<u64>| (signed(bytes.unwrap_or(0)), bytes.is_some());
    args.bytes_in_use = signed(stats.bytes_in_use);
    (args.peak_bytes_in_use, args.peak_bytes_in_use_is_set) =
        reported(Some(stats.peak_bytes_in_use));
    (args.num_allocs, args.num_allocs_is_set) = reported(Some(stats.num_allocs));
    (args.largest_alloc_size, args.largest_alloc_size_is_set) =
        reported(Some(stats.largest_alloc_size));
    (args.bytes_limit, args.bytes_limit_is_set) =
        reported(machine.reported_limit_bytes.or(stats.bytes_limit));
    (args.bytes_reserved, args.bytes_reserved_is_set) = reported(Some(stats.bytes_reserved));
    (args.peak_bytes_reserved, args.peak_bytes_reserved_is_set) =
        reported(Some(stats.peak_bytes_reserved));
    (args.bytes_reservable_limit, args.bytes_reservable_limit_is_set) =
        reported(stats.bytes_reservable_limit);
    (args.largest_free_block_bytes, args.largest_free_block_bytes_is_set) =
        reported(Some(stats.largest_free_block_bytes));
    (args.pool_bytes, args.pool_bytes_is_set) = reported(stats.pool_bytes);
    (args.peak_pool_bytes, args.peak_pool_bytes_is_set) = reported(stats.peak_pool_bytes);
    Ok(())
}

/// Makes the statistics begin again. No release of JAX up to 0.12.0.1 has a Python function for it.
pub(crate) unsafe fn clear_memory_stats(args: &mut DeviceClearMemoryStatsArgs) -> PjrtResult {
    let ordinal = require_device(args.device)?.ordinal()?;
    let machine = machine::get().ok_or_else(|| Status::internal("no machine was created"))?;
    if machine.session().clear_stats(ordinal) {
        Ok(())
    } else {
        Err(Status::unimplemented("memory statistics of this allocator"))
    }
}
