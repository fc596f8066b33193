//! Options about memory, the same in every command that has them.
//!
//! [`PoolArgs`] are those of a pool on a GPU that is given, for `dryrun` and `replay`. [`PolicyArgs`]
//! are all of them, for commands about a real program on GPUs that have to be found.

use std::num::ParseFloatError;

use vramfit_analysis::{Bytes, Error, Result};
use vramfit_gpu::GpuOverrides;
use vramfit_model::allocator::AllocatorKind;
use vramfit_model::gpu::GpuSelection;
use vramfit_model::settings::{Options, SPILLED_PART};

/// The pool of JAX.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct PoolArgs {
    /// Fraction of GPU memory that JAX's pool may use: `0.9` or `90%`
    #[arg(long, value_name = "F", conflicts_with = "limit", allow_negative_numbers = true)]
    #[arg(value_parser = parse_fraction)]
    fraction: Option<f64>,
    /// Bytes that JAX's pool may use
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory)]
    limit: Option<Bytes>,
    /// Allocator: default, bfc, platform, cuda_async, vmm or address
    #[arg(long, value_name = "NAME")]
    allocator: Option<AllocatorKind>,
    /// Let the pool grow instead of preallocating it
    #[arg(long)]
    no_preallocate: bool,
}

impl From<&PoolArgs> for Options {
    fn from(args: &PoolArgs) -> Options {
        Options {
            fraction: args.fraction,
            limit: args.limit,
            allocator: args.allocator,
            preallocate: args.no_preallocate.then_some(false),
            ..Options::default()
        }
    }
}

/// Everything about memory, and about starting JAX.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct PolicyArgs {
    #[command(flatten)]
    pool: PoolArgs,
    /// Split the GPU evenly among N processes
    #[arg(long, value_name = "N", conflicts_with_all = ["fraction", "limit"])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    processes: Option<u32>,
    /// Let the pool use this much host memory besides the GPU's, of all GPUs together: unified memory, slow. Without
    /// BYTES, `vramfit run` takes what is free there
    #[arg(long, value_name = "BYTES", num_args = 0..=1, value_parser = parse_spill)]
    #[arg(conflicts_with_all = ["fraction", "limit", "processes", "keep_free"])]
    spill: Option<Option<Bytes>>,
    /// Memory to leave free for other processes
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory, conflicts_with_all = ["fraction", "limit"])]
    keep_free: Option<Bytes>,
    /// Preallocate the whole pool at startup
    #[arg(long, conflicts_with = "no_preallocate")]
    preallocate: bool,
    /// Fail if no GPU is available, instead of falling back to the CPU
    #[arg(long)]
    require_gpu: bool,
    /// Allow XLA rematerialization
    #[arg(long, value_name = "on|off")]
    remat: Option<Switch>,
    /// Enable 64-bit types
    #[arg(long, conflicts_with = "no_x64")]
    x64: bool,
    /// Disable 64-bit types
    #[arg(long)]
    no_x64: bool,
    /// Compile jitted functions
    #[arg(long, conflicts_with = "no_jit")]
    jit: bool,
    /// Run jitted functions operation by operation
    #[arg(long)]
    no_jit: bool,
    /// Number of virtual CPU devices (does not affect GPUs)
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4096))]
    host_devices: Option<u32>,
    /// GPU model to plan for, instead of the GPUs of this machine: `h100-80g`, `h100-80gx8`
    #[arg(long, value_name = "NAME[xN]")]
    gpu: Option<String>,
    /// Memory already used on each GPU, overriding what the driver reports
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory)]
    occupied: Option<Bytes>,
    /// Memory each process needs outside its pool, overriding the estimate
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory)]
    headroom: Option<Bytes>,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    /// Allowed
    On,
    /// Not allowed
    Off,
}

/// Parses a fraction, also if it is written in percent. Whether it is in range depends on other settings.
fn parse_fraction(text: &str) -> std::result::Result<f64, ParseFloatError> {
    match text.trim().strip_suffix('%') {
        Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
        None => text.trim().parse(),
    }
}

fn parse_spill(text: &str) -> Result<Bytes> {
    Bytes::parse_memory(text).map_err(|error| {
        error.hint("write `--spill -- COMMAND`, or the amount: `--spill 64GiB -- COMMAND`")
    })
}

impl PolicyArgs {
    /// Returns the options as they are for these GPUs and a host with so much free memory, which are only asked for
    /// if it matters.
    ///
    /// # Errors
    /// Those of `gpus`; `invalid-argument` if there is no memory but the GPU's, or nobody knows how much.
    pub(crate) fn options(
        &self,
        gpus: impl FnOnce() -> Result<GpuSelection>,
        host_free_bytes: impl FnOnce() -> Option<u64>,
    ) -> Result<Options> {
        let switch = |on: bool, off: bool| on.then_some(true).or(off.then_some(false));
        Ok(Options {
            processes: self.processes,
            keep_free: self.keep_free,
            preallocate: switch(self.preallocate, self.pool.no_preallocate),
            require_gpu: self.require_gpu.then_some(true),
            remat: self.remat.map(|remat| remat == Switch::On),
            x64: switch(self.x64, self.no_x64),
            jit: switch(self.jit, self.no_jit),
            host_devices: self.host_devices,
            spill: match self.spill {
                None => None,
                Some(bytes) => {
                    let free = || host_free_bytes().map(|free| (free as f64 * SPILLED_PART) as u64);
                    let bytes = bytes.map(|bytes| bytes.0).or_else(free).ok_or_else(|| {
                        Error::invalid_argument("how much host memory is free is unknown")
                            .hint("give the amount that the pool may use: `--spill 64GiB`")
                    })?;
                    Some(spill_of_each(Bytes(bytes), &gpus()?)?)
                }
            },
            ..Options::from(&self.pool)
        })
    }

    /// Returns what the options say about the GPUs.
    ///
    /// # Errors
    /// Those of parsing `--gpu`.
    pub(crate) fn gpu_overrides(&self) -> Result<GpuOverrides> {
        Ok(GpuOverrides {
            selection: self.gpu.as_deref().map(str::parse).transpose()?,
            occupied: self.occupied,
            headroom: self.headroom,
            processes: self.processes,
        })
    }

    /// Returns the options about the pool as they are written on a command line.
    pub(crate) fn pool_options_text(&self) -> String {
        let pool = &self.pool;
        let allocator = pool.allocator.map(|kind| kind.name());
        let words = [
            pool.fraction.map(|fraction| format!("--fraction {fraction}")),
            pool.limit.map(|limit| format!("--limit {limit}")),
            self.spill.map(|bytes| match bytes {
                Some(bytes) => format!("--spill {bytes}"),
                None => "--spill".to_owned(),
            }),
            self.processes.map(|count| format!("--processes {count}")),
            self.keep_free.map(|bytes| format!("--keep-free {bytes}")),
            allocator.map(|name| format!("--allocator {name}")),
            self.preallocate.then(|| "--preallocate".to_owned()),
            pool.no_preallocate.then(|| "--no-preallocate".to_owned()),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        words.join(" ")
    }
}

/// Returns how much of that host memory the pool of each GPU may use.
///
/// # Errors
/// `invalid-argument` if the GPUs have no memory but the host's.
pub(crate) fn spill_of_each(bytes: Bytes, gpus: &GpuSelection) -> Result<Bytes> {
    if gpus.gpu.shares_host_memory {
        let message = format!("the GPU {} has no memory but the host's", gpus.gpu.name);
        return Err(Error::invalid_argument(message).hint("leave out `--spill`"));
    }
    Ok(Bytes(bytes.0 / u64::from(gpus.count.max(1))))
}

/// Rejects more occupied memory than the GPU has.
///
/// # Errors
/// `invalid-argument`.
pub(crate) fn check_occupied(occupied: Option<Bytes>, total_bytes: u64) -> Result<()> {
    let total = Bytes(total_bytes);
    match occupied {
        Some(occupied) if occupied > total => Err(Error::invalid_argument(format!(
            "occupied memory of {occupied} is out of range on a GPU of {total}"
        ))
        .hint(format!("give at most {}", total.rounded_down()))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramfit_analysis::ErrorKind;

    #[test]
    fn no_more_can_be_occupied_than_the_gpu_has() {
        assert!(check_occupied(None, 100).is_ok());
        assert!(check_occupied(Some(Bytes(100)), 100).is_ok());
        let error = check_occupied(Some(Bytes(101)), 100).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}
