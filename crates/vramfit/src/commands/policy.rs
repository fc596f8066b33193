//! Options about memory, the same in every command that has them.
//!
//! [`PoolArgs`] are those of a pool on a GPU that is given, for `dryrun` and `replay`. [`PolicyArgs`]
//! are all of them, for commands about a real program on GPUs that have to be found.

use vramfit_core::allocator::AllocatorKind;
use vramfit_core::settings::Options;
use vramfit_core::{Bytes, Error, Result};
use vramfit_gpu::GpuOverrides;

/// The pool of JAX.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct PoolArgs {
    /// Fraction of GPU memory that JAX's pool may use
    #[arg(long, value_name = "F", conflicts_with = "limit", allow_negative_numbers = true)]
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

impl From<&PolicyArgs> for Options {
    fn from(args: &PolicyArgs) -> Options {
        let switch = |on: bool, off: bool| on.then_some(true).or(off.then_some(false));
        Options {
            processes: args.processes,
            keep_free: args.keep_free,
            preallocate: switch(args.preallocate, args.pool.no_preallocate),
            require_gpu: args.require_gpu.then_some(true),
            remat: args.remat.map(|remat| remat == Switch::On),
            x64: switch(args.x64, args.no_x64),
            jit: switch(args.jit, args.no_jit),
            host_devices: args.host_devices,
            ..Options::from(&args.pool)
        }
    }
}

impl PolicyArgs {
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
    use vramfit_core::ErrorKind;

    #[test]
    fn no_more_can_be_occupied_than_the_gpu_has() {
        assert!(check_occupied(None, 100).is_ok());
        assert!(check_occupied(Some(Bytes(100)), 100).is_ok());
        let error = check_occupied(Some(Bytes(101)), 100).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}
