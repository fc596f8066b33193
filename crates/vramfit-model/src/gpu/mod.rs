//! The GPUs that vramfit knows, and what XLA's compiler is told about each.
//!
//! The figures live in `catalog.toml`, one readable table per GPU; this module looks GPUs up.
//! [`target`] writes the description XLA wants. What the machine's own GPUs report is not known
//! here: nothing in this crate touches a GPU.

mod autotune;
mod calibration;
mod catalog;
mod host_link;
mod selection;
mod target;

use std::path::Path;

use serde::{Deserialize, Serialize};
use vramfit_base::files::cannot_read;

use crate::bytes::Bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::nearest;

pub use autotune::fit_autotune_results;
pub use calibration::Calibration;
pub use host_link::HostLink;
pub use selection::GpuSelection;
pub use target::target_config_text;

/// Whether a figure was printed by a driver or derived from other figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Certainty {
    /// A driver reported it on a GPU of this kind.
    Reported,
    /// Nobody was seen to report it; [`Gpu::source`] says how it was derived.
    #[default]
    Estimated,
}

/// Where a total was seen, as far as it matters to how much CUDA reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// Linux on the machine itself.
    #[default]
    Linux,
    /// Windows and WSL2, where CUDA reports 2 to 3 % more: nearly all that the board has.
    Windows,
}

/// A total memory that a driver reported for a kind of GPU, and who says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Total {
    /// Total device memory in bytes, as CUDA reports it.
    pub bytes: u64,
    /// Where the figure is from.
    pub source: String,
    /// Where it was seen.
    #[serde(default)]
    pub platform: Platform,
}

/// Dense peak rates in 10^12 operations per second; `None` where the GPU has no unit for the type
/// or the rate is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeakTflops {
    /// 64-bit floats, on tensor cores where the GPU has them for this type.
    pub fp64: Option<f64>,
    /// 32-bit floats, without tensor cores.
    pub fp32: Option<f64>,
    /// 32-bit floats rounded to TF32 on tensor cores.
    pub tf32: Option<f64>,
    /// bfloat16 with 32-bit accumulation.
    pub bf16: Option<f64>,
    /// 16-bit floats with 32-bit accumulation.
    pub fp16: Option<f64>,
    /// 8-bit floats.
    pub fp8: Option<f64>,
    /// 8-bit integers.
    pub int8: Option<f64>,
}

impl PeakTflops {
    /// Returns the known rates by name, fastest type last.
    pub fn known(&self) -> impl Iterator<Item = (&'static str, f64)> {
        [
            ("fp64", self.fp64),
            ("fp32", self.fp32),
            ("tf32", self.tf32),
            ("bf16", self.bf16),
            ("fp16", self.fp16),
            ("fp8", self.fp8),
            ("int8", self.int8),
        ]
        .into_iter()
        .filter_map(|(name, rate)| Some((name, rate?)))
    }

    fn scaled(&self, share: f64) -> Self {
        // Three digits are what data sheets print; more would pretend to know better.
        let scale = |rate: Option<f64>| rate.map(|r| (r * share * 1e3).round() / 1e3);
        PeakTflops {
            fp64: scale(self.fp64),
            fp32: scale(self.fp32),
            tf32: scale(self.tf32),
            bf16: scale(self.bf16),
            fp16: scale(self.fp16),
            fp8: scale(self.fp8),
            int8: scale(self.int8),
        }
    }
}

/// One graphics GPU (or a MIG slice of one) as the driver and XLA see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// The name used on the command line, such as `h100-80g`.
    pub name: String,
    /// Other names that mean this GPU.
    pub aliases: Vec<String>,
    /// What the driver calls it, such as `NVIDIA H100 80GB HBM3`.
    pub description: String,
    /// Compute capability, such as `(9, 0)`.
    pub compute_capability: (u32, u32),
    /// Total device memory in bytes: the lowest that a driver reports on Linux. A virtual GPU has
    /// this much, so that what fits there fits with every driver.
    pub total_memory_bytes: u64,
    /// The highest that a driver reports on Linux; equal to `total_memory_bytes` where one figure is
    /// known. Driver version and error correction (ECC) decide between the two.
    pub max_total_memory_bytes: u64,
    /// Every total that was seen, with its source; empty where one is known, see `source`.
    pub totals: Vec<Total>,
    /// Whether `total_memory_bytes` was seen on a GPU.
    pub memory_certainty: Certainty,
    /// Streaming multiprocessors.
    pub core_count: u32,
    /// 32-bit floating point lanes per streaming multiprocessor.
    pub fp32_lanes_per_core: u32,
    /// Threads that can be resident on one streaming multiprocessor.
    pub max_threads_per_core: u32,
    /// 32-bit registers per streaming multiprocessor, and per block.
    pub registers_per_core: u32,
    /// Shared memory one block gets without asking.
    pub shared_memory_per_block_bytes: u32,
    /// Shared memory of one streaming multiprocessor.
    pub shared_memory_per_core_bytes: u32,
    /// Shared memory one block can get by asking for it.
    pub shared_memory_per_block_optin_bytes: u32,
    /// Level 2 cache.
    pub l2_bytes: u64,
    /// Memory bandwidth, bytes per second.
    pub bandwidth_bytes_per_s: u64,
    /// What connects it with host memory; `None` where it shares that memory, or where it is
    /// not known.
    pub host_link: Option<HostLink>,
    /// Highest clock of the streaming multiprocessors.
    pub clock_ghz: f64,
    /// Dense peak rates by number type.
    pub peak_tflops: PeakTflops,
    /// An estimate, not a measurement: device memory that one process's CUDA context takes outside
    /// JAX's pool. `catalog.toml` says how it is derived.
    pub context_bytes_estimate: u64,
    /// First major release of CUDA whose compiler accepts this GPU.
    pub min_cuda_major: u32,
    /// Last major release of CUDA whose compiler accepts this GPU; `None`: no end is known.
    pub max_cuda_major: Option<u32>,
    /// Whether the memory is the host's too (Jetson): what programs on the CPU hold cannot be allocated.
    pub shares_host_memory: bool,
    /// The GPU this is a MIG slice of.
    pub mig_parent: Option<String>,
    /// Where the figures come from.
    pub source: String,
}

impl Gpu {
    /// Returns `true` if the compiler of this CUDA major release (12, 13) can compile for the GPU.
    pub fn supports_cuda(&self, major: u32) -> bool {
        major >= self.min_cuda_major && self.max_cuda_major.is_none_or(|last| major <= last)
    }

    /// Returns `true` if drivers are known to report different totals for this GPU.
    pub fn has_total_range(&self) -> bool {
        self.max_total_memory_bytes > self.total_memory_bytes
    }

    /// Returns the highest total that CUDA reports on Windows and in WSL2, where one was seen.
    pub fn windows_total_memory_bytes(&self) -> Option<u64> {
        let totals = self.totals.iter();
        let windows = totals.filter(|total| total.platform == Platform::Windows);
        windows.map(|total| total.bytes).max()
    }

    /// Returns the GPU with exactly this total memory, as the driver at hand reports it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a total that no driver can report for this GPU: less than
    /// three quarters of the lowest that is known, or more than a tenth above the highest.
    pub fn with_total(&self, bytes: u64) -> Result<Gpu> {
        let least = self.total_memory_bytes / 4 * 3;
        let most = self.max_total_memory_bytes / 10 * 11;
        if !(least..=most).contains(&bytes) {
            return Err(Error::invalid_argument(format!(
                "no driver reports {} for `{}`",
                Bytes(bytes),
                self.name
            ))
            .hint(format!(
                "known totals are {} to {} bytes; describe a GPU of another size in a `.toml` file \
                 (see `vramfit gpus`), and pass memory used by others as `--occupied`",
                self.total_memory_bytes, self.max_total_memory_bytes
            )));
        }
        Ok(Gpu {
            total_memory_bytes: bytes,
            max_total_memory_bytes: bytes,
            totals: Vec::new(),
            memory_certainty: Certainty::Reported,
            ..self.clone()
        })
    }
}

/// Returns every GPU of the catalog, in its order.
pub fn all() -> &'static [Gpu] {
    catalog::gpus()
}

/// Returns the GPU that has exactly this name in the catalog.
pub fn get(name: &str) -> Option<&'static Gpu> {
    all().iter().find(|gpu| gpu.name == name)
}

/// Returns the GPU of that name.
///
/// Names, aliases and the driver's own names are found in any case, with spaces or underscores for
/// dashes. A name that ends in `.toml` is the path of a file that describes one GPU; see
/// [`parse_gpu`].
///
/// # Errors
/// [`ErrorKind::UnknownGpu`] with the nearest names as a hint; [`ErrorKind::Io`] or
/// [`ErrorKind::InvalidFile`] for a GPU file.
///
/// # Examples
/// ```
/// use vramfit_model::gpu;
///
/// let gpu = gpu::find("NVIDIA H100 80GB HBM3")?;
/// assert_eq!(gpu.name, "h100-80g");
/// assert!(gpu::find("h1000").is_err());
/// # Ok::<(), vramfit_model::Error>(())
/// ```
pub fn find(name: &str) -> Result<Gpu> {
    if name.to_ascii_lowercase().ends_with(".toml") {
        let text = std::fs::read_to_string(name).map_err(|e| cannot_read(Path::new(name), e))?;
        return parse_gpu(&text)
            .map_err(|e| e.context(format_args!("cannot use the GPU file `{name}`")));
    }
    let wanted = normalize(name);
    let names = |gpu: &'static Gpu| {
        std::iter::once(&gpu.name).chain(&gpu.aliases).chain(std::iter::once(&gpu.description))
    };
    if let Some(gpu) = all().iter().find(|gpu| names(gpu).any(|n| normalize(n) == wanted)) {
        return Ok(gpu.clone());
    }
    if let Some(names) = of_size(&wanted) {
        let hint = format!("GPUs with so much memory: `{}`", names.join("`, `"));
        let message = format!("`{name}` is an amount of memory, not the name of a GPU");
        return Err(Error::new(ErrorKind::UnknownGpu, message).hint(hint));
    }
    let near = nearest::nearest(
        &wanted,
        all().iter().flat_map(|g| {
            std::iter::once(g.name.as_str()).chain(g.aliases.iter().map(String::as_str))
        }),
    );
    let hint = match near.as_slice() {
        [] => "`vramfit gpus` lists all GPUs; describe others in a `.toml` file".to_owned(),
        near => format!("did you mean `{}`? `vramfit gpus` lists all GPUs", near.join("` or `")),
    };
    Err(Error::new(ErrorKind::UnknownGpu, format!("unknown GPU `{name}`")).hint(hint))
}

/// Returns the GPUs that are sold with this amount of memory, such as `24gb`; `None` if there are none, or it is none.
fn of_size(text: &str) -> Option<Vec<&'static str>> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    if !matches!(&text[number.len()..], "g" | "gb" | "gi" | "gib") {
        return None;
    }
    let gigabytes: f64 = number.trim_end_matches('-').parse().ok()?;
    // Drivers report up to 3 % less than the decimal amount, or as much as the binary one.
    let range = gigabytes * 0.97e9..=gigabytes * f64::from(1 << 30);
    let names: Vec<&str> = all()
        .iter()
        .filter(|gpu| range.contains(&(gpu.total_memory_bytes as f64)))
        .map(|gpu| gpu.name.as_str())
        .collect();
    (!names.is_empty()).then_some(names)
}

/// Reads one GPU from the text of a GPU file: the fields of a `[[gpu]]` of the catalog at the
/// top level.
///
/// # Errors
/// [`ErrorKind::InvalidFile`] when a field is missing, unknown or implausible.
pub fn parse_gpu(text: &str) -> Result<Gpu> {
    catalog::parse_gpu(text)
}

/// Brings a name into the one form in which names are compared.
fn normalize(name: &str) -> String {
    let dashed: String = name
        .trim()
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c == ' ' || c == '_' { '-' } else { c })
        .collect();
    let bare = dashed.strip_prefix("nvidia-").unwrap_or(&dashed);
    let bare = bare.strip_prefix("geforce-").unwrap_or(bare);
    bare.to_owned()
}

#[cfg(test)]
mod tests;
