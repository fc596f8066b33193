//! GPU memory that this process allocates itself, through the CUDA driver library.

use std::ffi::{CStr, OsStr, c_char};
use std::rc::Rc;

use vramfit_model::{Error, ErrorKind, Result};

use crate::DriverUnavailable;
use crate::cuda::{self, Address, Cuda, Device, OUT_OF_MEMORY, Uuid};
use crate::pattern;

/// The CUDA driver.
#[derive(Clone, Debug)]
pub struct Driver {
    cuda: Rc<Cuda>,
}

/// A GPU as CUDA shows it: what `CUDA_VISIBLE_DEVICES` leaves, in CUDA's order, which is JAX's too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaDevice {
    /// Its number in CUDA's order, which can differ from that of `nvidia-smi`.
    pub index: u32,
    /// Its UUID without the prefix `GPU-` or `MIG-`.
    pub uuid: String,
    /// Product name.
    pub name: String,
    /// Memory that programs can use, in bytes.
    pub total_bytes: u64,
}

/// Memory of a GPU as `cuMemGetInfo` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Memory that is free.
    pub free_bytes: u64,
    /// Memory that programs can use.
    pub total_bytes: u64,
}

impl Driver {
    /// Opens the driver's library and initializes it, which takes up to a second with many GPUs.
    ///
    /// # Errors
    /// Why the driver is unavailable; converts into an error of the kind `no-driver`.
    pub fn open() -> std::result::Result<Driver, DriverUnavailable> {
        Driver::open_library(&cuda::library())
    }

    /// As [`Driver::open`], with the library that has this name or path.
    ///
    /// # Errors
    /// As [`Driver::open`].
    pub fn open_library(library: &OsStr) -> std::result::Result<Driver, DriverUnavailable> {
        let cuda = Rc::new(Cuda::open(library)?);
        Ok(Driver { cuda })
    }

    /// Lists the devices that CUDA shows to this process.
    ///
    /// # Errors
    /// `no-driver` with CUDA's message if the call fails.
    pub fn devices(&self) -> Result<Vec<CudaDevice>> {
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        self.cuda.check("cuDeviceGetCount", unsafe { (self.cuda.cuDeviceGetCount)(&mut count) })?;
        (0..count.unsigned_abs()).map(|index| self.device_properties(index)).collect()
    }

    fn device_properties(&self, index: u32) -> Result<CudaDevice> {
        let device = self.device_handle(index)?;
        let mut name = [0 as c_char; 256];
        let mut uuid: Uuid = [0; 16];
        let mut total = 0;
        // SAFETY: all three outlive their calls, and the length is that of `name`.
        unsafe {
            let length = name.len() as i32;
            self.cuda.check(
                "cuDeviceGetName",
                (self.cuda.cuDeviceGetName)(name.as_mut_ptr(), length, device),
            )?;
            self.cuda
                .check("cuDeviceGetUuid_v2", (self.cuda.cuDeviceGetUuid_v2)(&mut uuid, device))?;
            self.cuda.check(
                "cuDeviceTotalMem_v2",
                (self.cuda.cuDeviceTotalMem_v2)(&mut total, device),
            )?;
        }
        // SAFETY: the function ends the name with a zero byte.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        Ok(CudaDevice {
            index,
            uuid: format_uuid(&uuid),
            name: name.to_string_lossy().into_owned(),
            total_bytes: total as u64,
        })
    }

    /// Retains the primary context of a device, which takes some hundred MB until it is dropped.
    ///
    /// # Errors
    /// `no-driver` with CUDA's message if another process uses the GPU exclusively, or it has not enough
    /// memory for a context.
    pub fn create_context(&self, index: u32) -> Result<DeviceContext> {
        let device = self.device_handle(index)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: `context` outlives the call; the context is released when the value is dropped.
        let retained = unsafe { (self.cuda.cuDevicePrimaryCtxRetain)(&mut context, device) };
        let retained = self.cuda.check("cuDevicePrimaryCtxRetain", retained);
        retained.map_err(|error| {
            let hint = match error.code {
                OUT_OF_MEMORY => {
                    "the GPU has not enough free memory for a CUDA context; `nvidia-smi` \
                                  lists the processes that use it"
                }
                _ => "`nvidia-smi` shows whether the GPU is in exclusive mode, and which processes use it",
            };
            Error::new(ErrorKind::NoDriver, format!("GPU {index} cannot be used"))
                .cause(error)
                .hint(hint)
        })?;
        let memory = DeviceContext { cuda: self.cuda.clone(), device, allocations: Vec::new() };
        // SAFETY: the context was retained above.
        self.cuda.check("cuCtxSetCurrent", unsafe { (self.cuda.cuCtxSetCurrent)(context) })?;
        Ok(memory)
    }

    fn device_handle(&self, index: u32) -> Result<Device> {
        let ordinal = i32::try_from(index).unwrap_or(i32::MAX);
        let mut device = 0;
        // SAFETY: `device` outlives the call.
        self.cuda.check("cuDeviceGet", unsafe { (self.cuda.cuDeviceGet)(&mut device, ordinal) })?;
        Ok(device)
    }
}

/// Formats a UUID as `nvidia-smi` does.
fn format_uuid(uuid: &Uuid) -> String {
    let mut text = String::new();
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// A CUDA context and the memory that was allocated through it. All of it is freed on drop.
///
/// A context is current in one thread; the [`Rc`] keeps this value from being sent to another.
#[derive(Debug)]
pub struct DeviceContext {
    cuda: Rc<Cuda>,
    device: Device,
    allocations: Vec<(Address, u64)>,
}

impl DeviceContext {
    /// Queries free and total memory.
    ///
    /// # Errors
    /// `no-driver` with CUDA's message if the call fails.
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both outlive the call, and the context is current.
        self.cuda.check("cuMemGetInfo_v2", unsafe {
            (self.cuda.cuMemGetInfo_v2)(&mut free, &mut total)
        })?;
        Ok(MemoryInfo { free_bytes: free as u64, total_bytes: total as u64 })
    }

    /// Allocates one more block. Returns false if the GPU is out of memory.
    ///
    /// # Errors
    /// `no-driver` with CUDA's message if it fails for another reason.
    pub fn allocate(&mut self, bytes: u64) -> Result<bool> {
        let mut address = 0;
        // SAFETY: `address` outlives the call, and the context is current.
        let code = unsafe { (self.cuda.cuMemAlloc_v2)(&mut address, bytes as usize) };
        match self.cuda.check("cuMemAlloc_v2", code) {
            Ok(()) => {
                self.allocations.push((address, bytes));
                Ok(true)
            }
            Err(error) if error.code == OUT_OF_MEMORY => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Bytes allocated so far.
    pub fn allocated_bytes(&self) -> u64 {
        self.allocations.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Writes a different word into every block of the allocated memory, then reads samples of all blocks
    /// back. Returns the first mismatch.
    ///
    /// # Errors
    /// `no-driver` with CUDA's message if a call fails.
    pub fn verify(&self) -> Result<Option<pattern::Mismatch>> {
        let blocks = pattern::blocks(&self.allocations);
        for block in &blocks {
            // SAFETY: the block lies in memory that is allocated.
            self.cuda.check("cuMemsetD32_v2", unsafe {
                (self.cuda.cuMemsetD32_v2)(block.address, block.word, block.word_count() as usize)
            })?;
        }
        // SAFETY: it takes no arguments, and the context is current.
        self.cuda.check("cuCtxSynchronize", unsafe { (self.cuda.cuCtxSynchronize)() })?;
        for block in &blocks {
            for address in block.samples() {
                let mut word = 0u32;
                let to = (&raw mut word).cast();
                // SAFETY: `word` has room for four bytes, and the address lies in the block.
                self.cuda.check("cuMemcpyDtoH_v2", unsafe {
                    (self.cuda.cuMemcpyDtoH_v2)(to, address, size_of::<u32>())
                })?;
                if word != block.word {
                    return Ok(Some(pattern::Mismatch {
                        offset_bytes: block.offset + (address - block.address),
                        written: block.word,
                        read: word,
                    }));
                }
            }
        }
        Ok(None)
    }
}

impl Drop for DeviceContext {
    fn drop(&mut self) {
        // A failure means that the GPU is gone, and its memory with it.
        for (address, _) in self.allocations.drain(..) {
            // SAFETY: allocated in this context, and freed once.
            unsafe { (self.cuda.cuMemFree_v2)(address) };
        }
        // SAFETY: retained once in `create_context`.
        unsafe { (self.cuda.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}
