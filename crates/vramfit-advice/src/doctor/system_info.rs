//! What the checks may know: plain values, gathered by the caller.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::probe::JaxProbe;
use crate::host::{Host, HostEnvironment, HostGpu};
use crate::lint::Packages;
use crate::settings::{self, Version};

/// All that was found out about a host, an environment and a JAX.
#[derive(Clone, Debug, Default)]
pub struct SystemInfo {
    /// What NVIDIA's driver answered.
    pub driver: Driver,
    /// The virtual GPU, inside a dry run.
    pub virtual_gpu: Option<VirtualGpu>,
    /// The container around us.
    pub host_environment: HostEnvironment,
    /// Size of `/dev/shm`, where there is one.
    pub shared_memory_bytes: Option<u64>,
    /// The environment that the trial ran in.
    pub environment: BTreeMap<String, String>,
    /// CUDA libraries that lie in a directory of `LD_LIBRARY_PATH`.
    pub shadowing_libraries: Vec<String>,
    /// What the Python has installed.
    pub inventory: Inventory,
    /// The virtual environment that is active, where it is not that of the Python.
    pub other_active_environment: Option<String>,
    /// What is missing for a dry run with this Python; `Ok` when nothing is.
    pub dry_run: Option<std::result::Result<(), MissingReason>>,
    /// What JAX did when it was tried.
    pub probe: JaxProbe,
    /// The host while the trial held its memory.
    pub host_during_probe: Option<Host>,
    /// Whether a GPU must compute for all to be right.
    pub require_gpu: bool,
    /// Whether JAX is not to be started, so that what needs it is not checked.
    pub skips_jax: bool,
}

/// What NVIDIA's driver answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Driver {
    /// The GPUs and who uses them.
    Available(Host),
    /// Its library is not installed.
    NotInstalled {
        /// The loader's own words.
        cause: String,
    },
    /// There is one, and it does not work.
    Broken {
        /// What is wrong, in one sentence.
        message: String,
        /// The driver's own words, where there are any.
        cause: Option<String>,
        /// What cures it.
        fix: String,
    },
    /// It did not answer within this many seconds.
    TimedOut(u64),
}

impl Default for Driver {
    fn default() -> Self {
        Driver::NotInstalled { cause: String::new() }
    }
}

/// The virtual GPU of a dry run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VirtualGpu {
    /// Its name in the catalog.
    pub name: String,
    /// What a driver would call it.
    pub description: String,
    /// How many of it there are.
    pub count: u32,
    /// Memory of each, as CUDA would report it to JAX.
    pub total_bytes: u64,
    /// What something else holds on each.
    pub occupied_bytes: u64,
    /// What a CUDA context would take: an estimate.
    pub context_bytes: u64,
}

/// What is missing for a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingReason {
    /// What is missing, in one sentence.
    pub message: String,
    /// What brings it.
    pub fix: String,
}

/// What a Python has installed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Inventory {
    /// Version of the language.
    pub python: String,
    /// The interpreter.
    pub executable: String,
    /// The virtual environment it belongs to.
    pub environment: Option<String>,
    /// Installed distributions by name, in lower case with dashes: those that bear on JAX.
    pub packages: BTreeMap<String, String>,
    /// The oldest jaxlib that the installed jax takes.
    pub minimum_jaxlib: Option<String>,
    /// What each CUDA plugin asks of NVIDIA's packages, as its metadata says.
    pub requirements: BTreeMap<String, Vec<String>>,
    /// Directories in which NVIDIA's packages keep their libraries.
    pub library_folders: Vec<String>,
}

impl Inventory {
    /// Returns the version of a distribution.
    pub fn version(&self, name: &str) -> Option<&str> {
        self.packages.get(name).map(String::as_str)
    }

    /// Returns the release of JAX.
    pub fn jax(&self) -> Option<Version> {
        self.version("jax")?.parse().ok()
    }

    /// Returns the major versions of CUDA for which there is a plugin, newest first: JAX takes the
    /// first.
    pub fn cuda_plugins(&self) -> Vec<u32> {
        let numbers = self.packages.keys().filter_map(|name| {
            let rest = name.strip_prefix("jax-cuda")?.strip_suffix("-plugin")?;
            rest.parse().ok()
        });
        let mut numbers: Vec<u32> = numbers.collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        numbers
    }

    /// Returns what the rules about settings want to know of it.
    pub fn for_rules(&self) -> Packages {
        let of = |names: &[&str]| {
            let found = names.iter().find_map(|name| self.version(name));
            found.map(str::to_owned)
        };
        Packages {
            tensorflow: of(&["tensorflow", "tensorflow-gpu", "tf-nightly"]),
            tensorflow_cpu: of(&["tensorflow-cpu", "tf-nightly-cpu"]),
            torch: of(&["torch"]),
            cuda_plugin: !self.cuda_plugins().is_empty(),
        }
    }
}

impl SystemInfo {
    /// Returns the GPUs that there are for programs: the virtual ones, else those of the host,
    /// hidden ones included.
    pub(super) fn gpus(&self) -> Vec<HostGpu> {
        let host = self.host();
        host.gpus.into_iter().filter(HostGpu::is_usable).collect()
    }

    /// Returns the GPUs that a program started here sees.
    fn visible_gpus(&self) -> Vec<HostGpu> {
        let variable = |name: &str| self.environment.get(name).map(String::as_str);
        let host = self.host();
        let seen = settings::visible(
            &host.gpus,
            variable("CUDA_VISIBLE_DEVICES"),
            variable("CUDA_DEVICE_ORDER"),
        );
        seen.into_iter().cloned().collect()
    }

    /// Returns the host that a program sees: a virtual GPU stands before real ones.
    pub(super) fn host(&self) -> Host {
        match (&self.virtual_gpu, &self.driver) {
            (Some(gpu), _) => Host::with_virtual_gpus(
                &gpu.description,
                gpu.count,
                gpu.total_bytes,
                gpu.occupied_bytes,
            ),
            (None, Driver::Available(host)) => host.clone(),
            (None, _) => Host::default(),
        }
    }

    /// Returns the memory of a GPU, as CUDA reports it to JAX, where every GPU has the same.
    pub(super) fn gpu_bytes(&self) -> Option<u64> {
        if let Some(gpu) = &self.virtual_gpu {
            return Some(gpu.total_bytes);
        }
        let totals: Option<Vec<u64>> = self
            .visible_gpus()
            .iter()
            .map(|gpu| {
                let memory = gpu.memory?;
                Some(
                    memory.total_bytes - memory.reserved_bytes.unwrap_or(0).min(memory.total_bytes),
                )
            })
            .collect();
        let totals = totals?;
        let first = *totals.first()?;
        totals.iter().all(|total| *total == first).then_some(first)
    }
}
