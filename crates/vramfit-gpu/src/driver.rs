//! Card memory of our own, through CUDA's driver library.

use std::ffi::{CStr, OsStr, c_char};
use std::rc::Rc;

use vramfit_core::{Error, ErrorKind, Result};

use crate::Absence;
use crate::cuda::{self, Address, Cuda, CudaError, Device, OUT_OF_MEMORY, Uuid};
use crate::pattern;

/// CUDA's driver, and the cards it shows to this process.
#[derive(Clone, Debug)]
pub struct Driver {
    cuda: Rc<Cuda>,
}

/// A card as CUDA shows it: what `CUDA_VISIBLE_DEVICES` leaves, in CUDA's order, which is JAX's too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverCard {
    /// Its number in CUDA's order, which can differ from that of `nvidia-smi`.
    pub index: u32,
    /// The lasting name without `GPU-` or `MIG-` before it.
    pub uuid: String,
    /// What it is sold as.
    pub name: String,
    /// All that programs can use of its memory, in bytes.
    pub total_bytes: u64,
}

/// Memory of a card as CUDA counts it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// What can still be had.
    pub free_bytes: u64,
    /// All that programs can use.
    pub total_bytes: u64,
}

impl Driver {
    /// Opens the driver's library and initialises it, which takes up to a second with many cards.
    ///
    /// # Errors
    /// Why there is no driver; it turns into an error of the kind `no-driver`.
    pub fn open() -> std::result::Result<Driver, Absence> {
        Driver::open_library(&cuda::library())
    }

    /// As [`Driver::open`], with the library that has this name or path.
    ///
    /// # Errors
    /// As [`Driver::open`].
    pub fn open_library(library: &OsStr) -> std::result::Result<Driver, Absence> {
        let cuda = Rc::new(Cuda::open(library)?);
        Ok(Driver { cuda })
    }

    /// Lists the cards.
    ///
    /// # Errors
    /// `no-driver` with CUDA's own words when it does not answer.
    pub fn cards(&self) -> Result<Vec<DriverCard>> {
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        self.call("cuDeviceGetCount", unsafe {
            (self.cuda.cuDeviceGetCount)(&mut count)
        })?;
        (0..count.unsigned_abs())
            .map(|index| self.card(index))
            .collect()
    }

    fn card(&self, index: u32) -> Result<DriverCard> {
        let device = self.device(index)?;
        let mut name = [0 as c_char; 256];
        let mut uuid: Uuid = [0; 16];
        let mut total = 0;
        // SAFETY: all three outlive their calls, and the length is that of `name`.
        unsafe {
            let length = name.len() as i32;
            self.call(
                "cuDeviceGetName",
                (self.cuda.cuDeviceGetName)(name.as_mut_ptr(), length, device),
            )?;
            self.call(
                "cuDeviceGetUuid_v2",
                (self.cuda.cuDeviceGetUuid_v2)(&mut uuid, device),
            )?;
            self.call(
                "cuDeviceTotalMem_v2",
                (self.cuda.cuDeviceTotalMem_v2)(&mut total, device),
            )?;
        }
        // SAFETY: the function ends the name with a zero byte.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        Ok(DriverCard {
            index,
            uuid: shown(&uuid),
            name: name.to_string_lossy().into_owned(),
            total_bytes: total as u64,
        })
    }

    /// Makes this process one that uses a card. That takes some hundred MB of it for the context,
    /// until the value is dropped.
    ///
    /// # Errors
    /// `no-driver` with CUDA's own words, when the card is used exclusively by another process or
    /// has no room for a context.
    pub fn enter(&self, index: u32) -> Result<SimulatedDeviceMemory> {
        let device = self.device(index)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: `context` outlives the call; the context is released when the value is dropped.
        let retained = unsafe { (self.cuda.cuDevicePrimaryCtxRetain)(&mut context, device) };
        let retained = self.cuda.check("cuDevicePrimaryCtxRetain", retained);
        retained.map_err(|error| {
            let hint = match error.code {
                OUT_OF_MEMORY => {
                    "the card is so full that not even a context fits; `nvidia-smi` \
                                  says who holds it"
                }
                _ => "`nvidia-smi` says whether the card is in exclusive mode, and who uses it",
            };
            Error::new(ErrorKind::NoDriver, format!("GPU {index} cannot be used"))
                .cause(error)
                .hint(hint)
        })?;
        let memory = SimulatedDeviceMemory {
            cuda: self.cuda.clone(),
            device,
            pieces: Vec::new(),
        };
        // SAFETY: the context was retained above.
        self.call("cuCtxSetCurrent", unsafe {
            (self.cuda.cuCtxSetCurrent)(context)
        })?;
        Ok(memory)
    }

    fn device(&self, index: u32) -> Result<Device> {
        let ordinal = i32::try_from(index).unwrap_or(i32::MAX);
        let mut device = 0;
        // SAFETY: `device` outlives the call.
        self.call("cuDeviceGet", unsafe {
            (self.cuda.cuDeviceGet)(&mut device, ordinal)
        })?;
        Ok(device)
    }

    fn call(&self, function: &'static str, code: u32) -> Result<()> {
        Ok(self.cuda.check(function, code)?)
    }
}

/// Writes a UUID as `nvidia-smi` does.
fn shown(uuid: &Uuid) -> String {
    let mut text = String::new();
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// A context on a card and the pieces of memory that were taken through it. All of them are given
/// back when this is dropped.
///
/// A context is current in the thread that made it so; the [`Rc`] keeps this from being sent to
/// another.
#[derive(Debug)]
pub struct SimulatedDeviceMemory {
    cuda: Rc<Cuda>,
    device: Device,
    pieces: Vec<(Address, u64)>,
}

impl SimulatedDeviceMemory {
    /// Asks the driver what is free.
    ///
    /// # Errors
    /// `no-driver` with CUDA's own words when it does not answer.
    pub fn free(&self) -> Result<Free> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both outlive the call, and our context is current.
        self.call("cuMemGetInfo_v2", unsafe {
            (self.cuda.cuMemGetInfo_v2)(&mut free, &mut total)
        })?;
        Ok(Free {
            free_bytes: free as u64,
            total_bytes: total as u64,
        })
    }

    /// Takes one more piece. Returns whether the card had it in one piece.
    ///
    /// # Errors
    /// `no-driver` with CUDA's own words when it fails for another reason than lack of memory.
    pub fn take(&mut self, bytes: u64) -> Result<bool> {
        let mut address = 0;
        // SAFETY: `address` outlives the call, and our context is current.
        let code = unsafe { (self.cuda.cuMemAlloc_v2)(&mut address, bytes as usize) };
        match self.cuda.check("cuMemAlloc_v2", code) {
            Ok(()) => {
                self.pieces.push((address, bytes));
                Ok(true)
            }
            Err(error) if error.code == OUT_OF_MEMORY => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Bytes taken so far.
    pub fn held_bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Writes a different number into every block of every piece, and then reads samples of all of
    /// them back. Returns the first that did not come back.
    ///
    /// # Errors
    /// `no-driver` with CUDA's own words when the card fails meanwhile.
    pub fn verify(&self) -> Result<Option<pattern::Wrong>> {
        let blocks = pattern::blocks(&self.pieces);
        for block in &blocks {
            // SAFETY: the block lies in a piece that we hold.
            self.call("cuMemsetD32_v2", unsafe {
                (self.cuda.cuMemsetD32_v2)(block.address, block.word, block.words() as usize)
            })?;
        }
        // SAFETY: it takes no arguments, and our context is current.
        self.call("cuCtxSynchronize", unsafe {
            (self.cuda.cuCtxSynchronize)()
        })?;
        for block in &blocks {
            for address in block.samples() {
                let mut word = 0u32;
                let to = (&raw mut word).cast();
                // SAFETY: `word` has room for four bytes, and the address is in our block.
                self.call("cuMemcpyDtoH_v2", unsafe {
                    (self.cuda.cuMemcpyDtoH_v2)(to, address, size_of::<u32>())
                })?;
                if word != block.word {
                    return Ok(Some(pattern::Wrong {
                        offset_bytes: block.offset + (address - block.address),
                        written: block.word,
                        read: word,
                    }));
                }
            }
        }
        Ok(None)
    }

    fn call(&self, function: &'static str, code: u32) -> std::result::Result<(), CudaError> {
        self.cuda.check(function, code)
    }
}

impl Drop for SimulatedDeviceMemory {
    fn drop(&mut self) {
        // A failure here means that the card is gone, and its memory with it.
        for (address, _) in self.pieces.drain(..) {
            // SAFETY: each piece was allocated in our context and is freed once.
            unsafe { (self.cuda.cuMemFree_v2)(address) };
        }
        // SAFETY: retained once in `enter`.
        unsafe { (self.cuda.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}
