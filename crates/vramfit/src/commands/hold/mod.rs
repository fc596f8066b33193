//! `vramfit hold`: occupy GPU memory, to test other programs on a GPU that is nearly full.
//!
//! The memory is allocated in steps, each of which is reported, and freed however the command ends.

mod amount;
mod backend;
mod driver_backend;
mod jax_backend;
mod progress;
mod stop;

use std::time::Duration;

use clap::ValueEnum;
use vramfit_analysis::{Bytes, Error, Result};
use vramfit_base::duration::parse_duration;
use vramfit_model::run_config::RunConfig;
use vramfit_runner::Context;

use self::amount::Amount;
use self::backend::Backend;
use self::progress::HoldReporter;
use self::stop::{StopReason, StopSignals};
use crate::commands::results::JsonFileArgs;
use crate::output::Output;
use crate::status::Status;

/// Occupy GPU memory, to test how other programs behave without it
///
/// Allocates the memory in steps, reports the free memory after each, and releases it on Ctrl-C, after the
/// duration, or when killed.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit hold 8GiB
  vramfit hold 90% --gpu 1 --for 10m --verify
  vramfit dryrun --gpu t4 -- vramfit hold 8GiB --for 0s

Exit codes:
  0  the full amount was allocated
  1  not enough memory, or --verify failed
  2  invalid arguments, or no GPU or driver
")]
pub(crate) struct Args {
    /// Amount: bytes such as `8GiB`, or a percentage of the memory that programs can use, such as `90%`
    #[arg(value_name = "AMOUNT")]
    amount: Amount,
    /// The GPU: its index as CUDA and JAX count, or its UUID
    #[arg(long, value_name = "N", default_value = "0")]
    gpu: String,
    /// How long to hold it: `60s`, `5m`, `1h` [default: until interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Step size [default: 1/8 of the amount]
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory)]
    step: Option<Bytes>,
    /// Allocate through the CUDA driver or JAX's pool [default: jax on a virtual GPU, else driver]
    #[arg(long, value_name = "BACKEND")]
    backend: Option<HoldBackend>,
    /// Write and read back the memory, and compare with what the driver reports
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    pub(crate) results: JsonFileArgs,
}

/// What allocates the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HoldBackend {
    /// The CUDA driver: exactly this many bytes, without JAX
    Driver,
    /// JAX: arrays in its pool
    Jax,
}

/// Runs `vramfit hold`.
pub(crate) fn run(args: &Args, context: &Context, output: &mut Output) -> Result<Status> {
    if args.step.is_some_and(|step| step.0 == 0) {
        return Err(Error::invalid_argument("`--step` must be greater than 0")
            .hint("example: `--step 1GiB`"));
    }
    let json = args.results.lines()?;
    // Before anything is allocated, so that no signal can end this process without freeing it.
    let stop_signals = StopSignals::listen()?;
    let virtual_gpu = RunConfig::from_environment(|name| std::env::var_os(name))?.is_some();
    let mut backend: Box<dyn Backend> = match args.backend {
        Some(HoldBackend::Jax) | None if virtual_gpu => jax_backend::start(&args.gpu, context)?,
        Some(HoldBackend::Jax) => {
            // Without a driver JAX would print a long message, and fall back to the CPU.
            driver_backend::ensure_available()?;
            jax_backend::start(&args.gpu, context)?
        }
        Some(HoldBackend::Driver) | None => driver_backend::start(&args.gpu)?,
    };
    let reporter = &mut HoldReporter::new(output, json);
    let status = hold(args, backend.as_mut(), virtual_gpu, &stop_signals, reporter);
    // This frees the memory, also after a failure.
    drop(backend);
    status
}

fn hold(
    args: &Args,
    backend: &mut dyn Backend,
    virtual_gpu: bool,
    stop_signals: &StopSignals,
    reporter: &mut HoldReporter<'_>,
) -> Result<Status> {
    let memory = backend.status().clone();
    let requested = args.amount.in_bytes(&memory)?;
    if requested > memory.free_bytes {
        if virtual_gpu {
            // Requested all the same, so that the dry run around this process reports it.
            backend.allocate(requested)?;
        }
        let processes = backend.other_processes();
        reporter.on_insufficient(requested, &memory, &processes)?;
        return Ok(Status::No);
    }
    reporter.on_start(requested, &memory)?;
    let step = args.step.map_or_else(|| requested.div_ceil(8), |step| step.0);
    let mut allocated = 0;
    while allocated < requested {
        if let Some(reason) = stop_signals.poll() {
            reporter.on_stop(allocated, requested, reason.describe())?;
            return Ok(Status::No);
        }
        let next = step.min(requested - allocated);
        if !backend.allocate(next)? {
            let reason = format!("{} has no free block of {}", memory.source, Bytes(next));
            reporter.on_stop(allocated, requested, &reason)?;
            return Ok(Status::No);
        }
        allocated += next;
        reporter.on_step(allocated, backend.free_bytes()?)?;
    }
    if args.verify {
        let verification = backend.verify()?;
        reporter.on_verified(&verification)?;
        if !verification.matches() {
            return Ok(Status::No);
        }
    }
    reporter.on_holding(allocated, args.duration)?;
    let reason = stop_signals.wait(args.duration);
    if reason == StopReason::SignalsLost {
        reporter.on_stop(allocated, requested, reason.describe())?;
        return Ok(Status::No);
    }
    reporter.on_released(allocated, reason.describe())?;
    Ok(Status::Yes)
}
