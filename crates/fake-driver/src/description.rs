//! The machine that is pretended, and the calls that fail.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vramfit_model::host::{ComputeMode, GpuMemory, Host, HostGpu, Mig};

/// What the file beside the library holds: the fields of a [`Host`] and those below.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Description {
    /// The machine. A figure that is left out is one that the driver does not support, and memory
    /// left out of a process is one that it does not tell.
    #[serde(flatten)]
    pub host: Host,
    /// Calls that fail, with the library's own number: `nvmlInit_v2`, or `nvmlDeviceGetName@1`
    /// for the second entry of `gpus` only, or `@1` for everything that is asked of it.
    pub errors: BTreeMap<String, u32>,
    /// What a context takes of a GPU before the first allocation.
    pub context_bytes: u64,
    /// What a GPU counts as free and yet does not give, as one does whose memory is in pieces.
    pub withheld_bytes: u64,
    /// Whether memory reads as zeros whatever was written to it.
    pub reads_zeros: bool,
}

/// Returns the memory of a GPU, whose rest is free.
pub fn memory(total_bytes: u64, reserved_bytes: u64, used_bytes: u64) -> GpuMemory {
    GpuMemory {
        total_bytes,
        reserved_bytes: Some(reserved_bytes),
        used_bytes,
        free_bytes: total_bytes - reserved_bytes - used_bytes,
    }
}

/// Returns an A100 of 81 GiB with 3 GiB in use.
pub fn a100(index: u32) -> HostGpu {
    HostGpu {
        index,
        uuid: format!("GPU-0000000{index}-1111-2222-3333-444444444444"),
        name: "NVIDIA A100-SXM4-80GB".to_owned(),
        compute_capability: Some((8, 0)),
        memory: Some(memory(81 << 30, 1 << 30, 3 << 30)),
        display: Some(false),
        compute_mode: Some(ComputeMode::Default),
        ..HostGpu::default()
    }
}

/// Returns a T4.
pub fn t4(memory: GpuMemory) -> HostGpu {
    HostGpu {
        uuid: "GPU-0a1b2c3d-1111-2222-3333-444455556666".to_owned(),
        name: "Tesla T4".to_owned(),
        memory: Some(memory),
        ..HostGpu::default()
    }
}

impl From<Vec<HostGpu>> for Description {
    /// Returns a machine with these GPUs.
    fn from(gpus: Vec<HostGpu>) -> Description {
        let host = Host {
            driver: Some("580.82.07".to_owned()),
            cuda: Some("13.0".to_owned()),
            gpus,
            unknown: Vec::new(),
        };
        Description { host, ..Description::default() }
    }
}

impl Description {
    /// Reads the file; every call does, so that a test can change the machine while it runs.
    pub(crate) fn read() -> Description {
        let path = sibling_path(&own_path(), ".json");
        std::fs::read_to_string(&path)
            .map_err(|error| error.to_string())
            .and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The error that a call must end with, if one is asked for.
    pub(crate) fn forced_error(&self, function: &str, position: Option<usize>) -> Option<u32> {
        let of_gpu = position.and_then(|at| {
            let named = self.errors.get(&format!("{function}@{at}"));
            named.or_else(|| self.errors.get(&format!("@{at}")))
        });
        of_gpu.or_else(|| self.errors.get(function)).copied()
    }

    /// Positions of the GPUs that programs can be given: slices, and GPUs that are not divided.
    pub(crate) fn usable(&self) -> Vec<usize> {
        let gpus = self.host.gpus.iter().enumerate();
        gpus.filter(|(_, gpu)| gpu.is_usable()).map(|(at, _)| at).collect()
    }

    /// Position of a whole GPU, by the driver's number.
    pub(crate) fn whole_gpu(&self, index: u32) -> Option<usize> {
        let is_whole = |gpu: &HostGpu| !matches!(gpu.mig, Mig::Instance { .. });
        let gpus = self.host.gpus.iter();
        gpus.clone().position(|gpu| gpu.index == index && is_whole(gpu))
    }
}

/// The file that this library was loaded from.
pub(crate) fn own_path() -> PathBuf {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is one of this library's functions, and `found` outlives the call.
    let name = unsafe {
        let known = libc::dladdr(own_path as *const c_void, found.as_mut_ptr());
        assert_ne!(known, 0, "the library knows itself");
        CStr::from_ptr(found.assume_init().dli_fname)
    };
    PathBuf::from(OsStr::from_bytes(name.to_bytes()))
}

/// The file beside the library whose name has `ending` in addition.
pub(crate) fn sibling_path(library: &Path, ending: &str) -> PathBuf {
    let mut path = library.as_os_str().to_owned();
    path.push(ending);
    path.into()
}
