//! `vramfit doctor`: is this machine, this environment, this JAX all right?
//!
//! Gathers what there is to know, tries JAX in a process of its own, and tells what the checks of
//! `vramfit_core::doctor` make of it.

mod ask;
mod driver;
mod gather;
mod trial;

use std::time::Duration;

use clap::ValueEnum;
use vramfit_core::Result;
use vramfit_core::doctor::{self, Examination, Record};

use self::gather::Wish;
use crate::context::Context;
use crate::output::Output;
use crate::status::Status;

/// Examine this machine, this environment and this JAX
///
/// Looks at driver, GPUs, container, Python and settings; then tries JAX in a process of its own:
/// which devices it has, whether its pool is what was asked for, whether the GPU computes. What is
/// not as it should be comes with one thing to do.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit doctor
  vramfit doctor --quiet --require gpu
  vramfit doctor --train
  vramfit dryrun --gpu t4 -- vramfit doctor

Exit codes:
  0  all right; there may be warnings
  1  something fails, or the GPU that is required does not compute
  2  could not examine
")]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Examine only whether one can train here, in five checks
    #[arg(long)]
    train: bool,
    /// Fail unless this computes
    #[arg(long, value_name = "WHAT")]
    require: Option<Required>,
    /// Let the trial take only the memory it needs, beside a program that is running
    #[arg(long)]
    no_preallocate: bool,
    /// The most that the driver, and each step of the trial, may take
    #[arg(long, value_name = "SECONDS", default_value = "60")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

/// What must compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Required {
    /// A GPU, and not a virtual one
    Gpu,
}

impl Args {
    pub(crate) fn prints_json(&self) -> bool {
        self.json
    }
}

/// Runs `vramfit doctor`.
pub(crate) fn run(
    args: &Args,
    python_is_named: bool,
    context: &Context,
    output: &mut Output,
) -> Result<Status> {
    let wish = Wish {
        training: args.train,
        preallocate: !args.no_preallocate,
        require_gpu: args.require == Some(Required::Gpu),
        limit: Duration::from_secs(args.timeout),
        python_is_named,
    };
    let facts = gather::facts(&wish, context)?;
    for line in &facts.trial.log {
        output.verbose(&format!("log: {line}"));
    }
    let examination = match args.train {
        true => Examination::from_training(&facts),
        false => Examination::of(&facts),
    };
    if args.json {
        output.json(&Record::of(&examination, &facts))?;
    } else {
        let lines = doctor::lines(&examination, output.is_quiet(), output.is_verbose());
        output.doctor_report(&lines)?;
        output.text(&format!("{}\n", doctor::summary(&examination)))?;
    }
    Ok(match examination.is_all_right() {
        true => Status::Yes,
        false => Status::No,
    })
}
