//! `vramfit hold`: occupy a GPU's memory, so that something else can be tried on a full GPU.
//!
//! The memory is taken in steps, each of which is told, and given back however the command ends.

mod amount;
mod by_driver;
mod by_jax;
mod ending;
mod holder;
mod tell;

use std::time::Duration;

use clap::ValueEnum;
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use self::amount::{Amount, duration};
use self::ending::{Ending, Endings};
use self::holder::Holder;
use self::tell::{Shortage, Told};
use crate::context::Context;
use crate::output::Output;
use crate::status::Status;

/// Occupy memory of a GPU, to see what other programs do without it
///
/// Takes the memory in steps, says what is left after each, and gives it back on Ctrl-C, at the end
/// of the time or when it is killed.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit hold 8GiB
  vramfit hold 90% --gpu 1 --for 10m --verify
  vramfit dryrun --gpu t4 -- vramfit hold 8GiB --for 0s

Exit codes:
  0  all of it was held
  1  not all of it could be held, or --verify found that it was not there
  2  could not be tried
")]
pub(crate) struct Args {
    /// Amount: bytes such as `8GiB`, or a percentage of the memory that programs can use, such as `90%`
    #[arg(value_name = "AMOUNT")]
    amount: Amount,
    /// The GPU: its index as CUDA and JAX count, or its UUID
    #[arg(long, value_name = "N", default_value = "0")]
    gpu: String,
    /// How long to hold it: `60s`, `5m`, `1h` [default: until interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Step size [default: 1/8 of the amount]
    #[arg(long, value_name = "BYTES")]
    step: Option<Bytes>,
    /// Allocate through the CUDA driver or JAX's pool [default: jax on a virtual GPU, else driver]
    #[arg(long, value_name = "WAY")]
    backend: Option<HoldBackend>,
    /// Write and read back the memory, and compare with what the driver reports
    #[arg(long)]
    verify: bool,
    /// Print one JSON object per step
    #[arg(long)]
    json: bool,
}

/// What allocates the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HoldBackend {
    /// The CUDA driver: exactly this many bytes, without JAX
    Driver,
    /// JAX: arrays in its pool
    Jax,
}

impl Args {
    pub(crate) fn prints_json(&self) -> bool {
        self.json
    }
}

/// Runs `vramfit hold`.
pub(crate) fn run(args: &Args, context: &Context, output: &mut Output) -> Result<Status> {
    if args.step.is_some_and(|step| step.0 == 0) {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "a step of 0 bytes never arrives",
        )
        .hint("write how much to take at a time, such as `--step 1GiB`"));
    }
    // Before anything is held, so that no signal can end us without giving it back.
    let endings = Endings::watch()?;
    let virtual_gpu = std::env::var_os("VRAMFIT_GPU").is_some_and(|name| !name.is_empty());
    let mut holder: Box<dyn Holder> = match args.backend {
        Some(HoldBackend::Jax) | None if virtual_gpu => by_jax::start(&args.gpu, context)?,
        Some(HoldBackend::Jax) => {
            // JAX would print a page about a missing driver, and go on without a GPU.
            by_driver::check()?;
            by_jax::start(&args.gpu, context)?
        }
        Some(HoldBackend::Driver) | None => by_driver::start(&args.gpu)?,
    };
    let told = &mut Told::new(output, args.json);
    let status = hold(args, holder.as_mut(), virtual_gpu, &endings, told);
    // Dropped in every case, also after a failure: that gives the memory back.
    drop(holder);
    status
}

fn hold(
    args: &Args,
    holder: &mut dyn Holder,
    virtual_gpu: bool,
    endings: &Endings,
    told: &mut Told<'_>,
) -> Result<Status> {
    let room = holder.room().clone();
    let wanted = args.amount.of(&room)?;
    if wanted > room.free_bytes {
        if virtual_gpu {
            // Asked for all the same: the dry run around us answers what is asked of its GPU.
            holder.take(wanted)?;
        }
        told.refused(&Shortage::new(wanted, &room, holder.others()))?;
        return Ok(Status::No);
    }
    told.begin(wanted, &room)?;
    let step = args.step.map_or_else(|| wanted.div_ceil(8), |step| step.0);
    let mut held = 0;
    while held < wanted {
        if let Some(ending) = endings.so_far() {
            told.stopped(held, wanted, ending.words())?;
            return Ok(Status::No);
        }
        let next = step.min(wanted - held);
        if !holder.take(next)? {
            let reason = format!("{} had no {} more in one piece", room.whose, Bytes(next));
            told.stopped(held, wanted, &reason)?;
            return Ok(Status::No);
        }
        held += next;
        told.step(held, holder.free_bytes()?)?;
    }
    if args.verify {
        let verdict = holder.verify()?;
        told.verified(&verdict)?;
        if !verdict.is_right() {
            return Ok(Status::No);
        }
    }
    told.holding(held, args.time)?;
    match endings.wait(args.time) {
        Ending::Lost => {
            told.stopped(held, wanted, Ending::Lost.words())?;
            Ok(Status::No)
        }
        ending => {
            told.done(held, ending.words())?;
            Ok(Status::Yes)
        }
    }
}
