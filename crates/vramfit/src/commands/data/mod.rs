//! `vramfit data`: HDF5 files for training, one module per subcommand.

mod generate;
mod inspect;
mod inspect_rows;
mod inspect_text;
mod numbers;
mod statistics;

pub(super) use numbers::{grouped, grouped_list};

use clap::Subcommand;
use vramfit_analysis::Result;

use crate::commands::results::JsonArgs;
use crate::output::Output;
use crate::status::Status;

/// Inspect, measure and generate HDF5 files for training
#[derive(clap::Args, Debug)]
#[command(arg_required_else_help = true, disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  vramfit data inspect train.h5
  vramfit data stats train.h5 --output stats.json
  vramfit data generate train.h5 --kind sequences --samples 100k
  vramfit data generate images.h5 --kind images --samples 50k --compression zstd
")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Inspect(inspect::Args),
    Stats(statistics::Args),
    Generate(generate::Args),
}

impl Args {
    pub(crate) fn json(&self) -> &JsonArgs {
        match &self.action {
            Action::Inspect(args) => &args.results.json,
            Action::Stats(args) => &args.results.json,
            Action::Generate(args) => &args.json,
        }
    }
}

/// Runs `vramfit data`.
pub(crate) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    match &args.action {
        Action::Inspect(args) => inspect::run(args, output),
        Action::Stats(args) => statistics::run(args, output),
        Action::Generate(args) => generate::run(args, output),
    }
}
