//! The command line as clap sees it: global options and the list of commands, nothing else.

use std::path::PathBuf;

use clap::{ColorChoice, Parser, Subcommand};

use crate::commands::{completions, gpus};

/// Know how much GPU memory your JAX program needs, before it runs out.
#[derive(Debug, Parser)]
#[command(
    name = "vramfit",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
#[command(max_term_width = 100)]
#[command(after_help = "\
Exit codes:
  0  done, or the answer is yes
  1  the answer is no, such as \"does not fit\"
  2  could not be done, or could not tell
")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command takes.
#[derive(clap::Args, Debug)]
pub(crate) struct Global {
    /// Say only errors and data
    #[arg(
        long,
        short,
        global = true,
        conflicts_with = "verbose",
        help_heading = "Global options"
    )]
    pub(crate) quiet: bool,
    /// Say more about what is done and why
    #[arg(long, short, global = true, help_heading = "Global options")]
    pub(crate) verbose: bool,
    /// Colour the output
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    #[arg(help_heading = "Global options")]
    pub(crate) color: ColorChoice,
    /// The Python to use, instead of the one that started vramfit
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = "Global options"
    )]
    pub(crate) python: Option<PathBuf>,
}

/// The commands; each is one file in `commands/`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Gpus(gpus::Args),
    Completions(completions::Args),
}

impl Command {
    /// Says whether standard output is promised to hold JSON, so that errors are JSON too.
    pub(crate) fn prints_json(&self) -> bool {
        match self {
            Command::Gpus(args) => args.prints_json(),
            Command::Completions(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
