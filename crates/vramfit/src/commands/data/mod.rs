//! `vramfit data`: HDF5 files for training. Each thing that can be done with them is a file beside this.

mod generate;
mod inspect;
mod inspect_text;
mod words;

pub(super) use words::grouped;

use clap::Subcommand;
use vramfit_core::Result;

use super::Status;
use crate::output::Output;

/// Look at HDF5 files for training, and make some
#[derive(clap::Args, Debug)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  vramfit data inspect train.h5
  vramfit data generate train.h5 --kind sequences --samples 100k
  vramfit data generate images.h5 --kind images --samples 50k --compression zstd
  vramfit data generate --help
")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Inspect(inspect::Args),
    Generate(generate::Args),
}

impl Args {
    pub(crate) fn prints_json(&self) -> bool {
        match &self.action {
            Action::Inspect(args) => args.prints_json(),
            Action::Generate(args) => args.prints_json(),
        }
    }
}

/// Runs `vramfit data`.
pub(crate) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    match &args.action {
        Action::Inspect(args) => inspect::run(args, output),
        Action::Generate(args) => generate::run(args, output),
    }
}
