//! What a JAX process publishes of its own memory pool, for `vramfit top` to read.
//!
//! The driver knows how much a process holds. What is in use *inside* of JAX's pool only the process
//! itself knows. So a process that was started with `VRAMFIT_PUBLISH` writes it into a small file a few
//! times a second, and other processes map or read the file.
//!
//! Here is what a file says ([`StatsHeader`], [`LiveStats`]), how it lies in the file ([`Layout`]), and how to
//! tell a file that is alive from one that was left behind ([`Liveness`]). Writing is at home in
//! `vramfit-vgpu`, reading in the command line.

mod layout;
mod liveness;

use std::ffi::OsStr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use layout::Layout;
pub use liveness::{Liveness, ReaderContext, assess};

/// Ends the name of a file: `PID-STARTED-CLIENT.stats`.
pub const FILE_SUFFIX: &str = ".stats";

/// What does not change while a file is there: who writes it, and what was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StatsHeader {
    /// The process, by the number it knows itself by.
    pub pid: u32,
    /// When it was started, in clock ticks since the machine was: process numbers are used again.
    pub started_ticks: u64,
    /// Which of the clients of this process it is, from 0; nearly always the only one.
    pub client: u32,
    /// The namespace that `pid` is a number in; 0 where that is not known.
    pub pid_namespace: u64,
    /// The kernel's name for the time since the machine was started: [`LiveStats::heartbeat_ns`] counts in it.
    pub boot_id: String,
    /// The command line, joined by spaces, cut after some hundred bytes.
    pub command: String,
    /// Version of `jax`, where it was told.
    pub jax: Option<String>,
    /// Version of the plugin's interface, such as `0.112`.
    pub plugin_api: String,
    /// Time between two samples.
    pub interval_ms: u32,
    /// What the client was made with.
    pub client_settings: ClientSettings,
    /// The name of the catalog's GPU where the GPU is a virtual one; `None` for a real GPU.
    pub virtual_gpu: Option<String>,
    /// The devices of this process, in the order of [`LiveStats::devices`].
    pub devices: Vec<PublishedDevice>,
}

/// The settings that JAX made its client with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientSettings {
    /// The allocator, by JAX's name for it: `default`, `bfc`, `platform`, `cuda_async`, …
    pub allocator: Option<String>,
    /// The part of the GPU's memory that the pool may take.
    pub fraction: Option<f64>,
    /// Whether the pool takes it at once.
    pub preallocate: Option<bool>,
    /// `CUDA_VISIBLE_DEVICES`, as the process was given it.
    pub visible_devices: Option<String>,
    /// The options that the person gave to vramfit, such as `--limit 8GiB`.
    pub policy: Option<String>,
}

/// One device of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedDevice {
    /// JAX's number for it: that of `jax.devices()`.
    pub id: i32,
    /// CUDA's number for it in this process, after `CUDA_VISIBLE_DEVICES`.
    pub local_hardware_id: i32,
    /// What it is, such as `NVIDIA H100 80GB HBM3`.
    pub kind: String,
    /// All memory of a virtual GPU; a real GPU's is the driver's to tell.
    pub virtual_total_bytes: Option<u64>,
}

/// What changes: one look into the pools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveStats {
    /// When the process looked, in nanoseconds of the monotonic clock; 0 before the first time.
    pub heartbeat_ns: u64,
    /// How often it has looked.
    pub samples: u64,
    /// Nanoseconds that all of that took together.
    pub sampling_ns: u64,
    /// What it saw, device by device.
    pub devices: Vec<DeviceSample>,
}

/// What one device's allocator answered. Bytes, except for the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSample {
    /// How it answered.
    pub status: StatsStatus,
    /// Given out to arrays and running programs.
    pub in_use_bytes: Option<u64>,
    /// The most that was, since the process began.
    pub peak_bytes: Option<u64>,
    /// Taken from the driver for the pool.
    pub pool_bytes: Option<u64>,
    /// The most that was taken.
    pub peak_pool_bytes: Option<u64>,
    /// The largest piece that is free in the pool.
    pub largest_free_block_bytes: Option<u64>,
    /// What the pool may take.
    pub limit_bytes: Option<u64>,
    /// How many requests it has served.
    pub allocations: Option<u64>,
    /// What the process holds on the GPU, context included: told by a virtual GPU only.
    pub driver_bytes: Option<u64>,
}

/// How an allocator answered when it was asked for its statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatsStatus {
    /// It was not asked yet.
    #[default]
    Pending,
    /// With figures.
    Available,
    /// That it keeps none, as `platform` and `vmm` do.
    Unsupported,
    /// With another error, by its code in the plugin's interface.
    Failed(u32),
}

impl StatsHeader {
    /// Returns the name of the file.
    pub fn file_name(&self) -> String {
        format!("{}-{}-{}{FILE_SUFFIX}", self.pid, self.started_ticks, self.client)
    }

    /// Returns `true` if this release of JAX fills the key `largest_free_block_bytes`. Earlier ones show 0
    /// there, whatever is free.
    pub fn reports_largest_free(&self) -> bool {
        let version = self.jax.as_deref().and_then(|text| text.parse().ok());
        version.is_some_and(|version: crate::settings::Version| {
            version >= crate::settings::Version::new(0, 11, 0)
        })
    }
}

/// Returns the folders that files may lie in, the preferred one first: `$XDG_RUNTIME_DIR/vramfit`, which
/// only its user can reach, else `/tmp/vramfit-UID`.
///
/// Not `$TMPDIR`: batch systems set one for each job, where nobody else would look.
pub fn stats_directories(runtime_dir: Option<&OsStr>, user: u32) -> Vec<PathBuf> {
    let runtime = runtime_dir.map(PathBuf::from).filter(|path| path.is_absolute());
    let runtime = runtime.map(|path| path.join("vramfit"));
    let shared = PathBuf::from(format!("/tmp/vramfit-{user}"));
    runtime.into_iter().chain([shared]).collect()
}

/// Reads when a process was started, in clock ticks since the machine was, from the text of its
/// `/proc/PID/stat`; `None` for one that has ended and was not waited for: its memory is back.
pub fn started_ticks(stat: &str) -> Option<u64> {
    // The second field is the command in parentheses, which may hold anything.
    let mut after = stat.rsplit_once(") ")?.1.split(' ');
    let state = after.next()?;
    const FIELDS_TO_START_TIME: usize = 18;
    let started = after.nth(FIELDS_TO_START_TIME)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_own_folder_comes_first() {
        let folders = |runtime: Option<&str>| stats_directories(runtime.map(OsStr::new), 1000);
        let shared = PathBuf::from("/tmp/vramfit-1000");
        assert_eq!(
            folders(Some("/run/user/1000")),
            [PathBuf::from("/run/user/1000/vramfit"), shared.clone()]
        );
        for none in [None, Some(""), Some("relative")] {
            assert_eq!(folders(none), std::slice::from_ref(&shared), "{none:?}");
        }
    }

    #[test]
    fn the_start_of_a_process_is_read_whatever_it_is_called() {
        let stat = |state: &str| {
            format!("41 (a) b) {state} 1 41 41 0 -1 4194304 9 0 0 0 0 0 0 0 20 0 1 0 8765 99 1")
        };
        assert_eq!(started_ticks(&stat("S")), Some(8765));
        assert_eq!(started_ticks(&stat("Z")), None);
        assert_eq!(started_ticks("41 (cut"), None);
    }
}
