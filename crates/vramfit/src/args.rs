//! The command line as clap sees it: global options, the list of commands, and which function runs each.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use vramfit_core::Result;

use crate::commands;
use crate::commands::results::JsonArgs;
use crate::context::Context;
use crate::output::{Output, OutputOptions};
use crate::status::Status;
use crate::usage;

/// Know how much GPU memory your JAX program needs, before it runs out.
#[derive(Debug, Parser)]
#[command(name = "vramfit", version, arg_required_else_help = true, disable_help_subcommand = true)]
#[command(max_term_width = 100)]
#[command(after_help = "\
Exit codes:
  0  success
  1  negative result, such as \"does not fit\"
  2  error, or unknown result
")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command accepts.
#[derive(clap::Args, Debug)]
pub(crate) struct Global {
    /// Print only errors and results
    #[arg(long, short, global = true, conflicts_with = "verbose", help_heading = "Global options")]
    pub(crate) quiet: bool,
    /// Print additional detail
    #[arg(long, short, global = true, help_heading = "Global options")]
    pub(crate) verbose: bool,
    /// When to use colors
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    #[arg(help_heading = "Global options")]
    pub(crate) color: ColorChoice,
    /// Python interpreter to use, instead of the one that started vramfit
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub(crate) python: Option<PathBuf>,
}

/// The commands; each is one file in `commands/`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Dryrun(commands::dryrun::Args),
    Plan(commands::plan::Args),
    Check(commands::check::Args),
    Run(commands::run::Args),
    Explain(commands::explain::Args),
    Doctor(commands::doctor::Args),
    Top(commands::top::Args),
    Report(commands::report::Args),
    Replay(commands::replay::Args),
    Diff(commands::diff::Args),
    Data(commands::data::Args),
    Train(commands::train::Args),
    Predict(commands::predict::Args),
    Export(commands::export::Args),
    Env(commands::env::Args),
    Gpus(commands::gpus::Args),
    Hold(commands::hold::Args),
    Completions(commands::completions::Args),
}

impl Cli {
    /// Returns what the options say about the output.
    pub(crate) fn output_options(&self) -> OutputOptions {
        OutputOptions {
            quiet: self.global.quiet,
            verbose: self.global.verbose,
            color: self.global.color,
            json: self.command.json().is_some_and(JsonArgs::is_stdout),
        }
    }

    /// Runs the command.
    pub(crate) fn run(self, context: &Context, output: &mut Output) -> Result<Status> {
        let python_is_named = self.global.python.is_some();
        let context = &context.with_python(self.global.python);
        match self.command {
            Command::Dryrun(args) => commands::dryrun::run(args, context, output),
            Command::Plan(args) => commands::plan::run(&args, context, output),
            Command::Check(args) => commands::check::run(&args, context, output),
            Command::Run(args) => commands::run::run(&args, context, output),
            Command::Explain(args) => commands::explain::run(&args, context, output),
            Command::Doctor(args) => commands::doctor::run(&args, python_is_named, context, output),
            Command::Top(args) => commands::top::run(&args, output),
            Command::Replay(args) => commands::replay::run(&args, output),
            Command::Report(args) => commands::report::run(&args, output),
            Command::Diff(args) => commands::diff::run(&args, output),
            Command::Data(args) => commands::data::run(&args, output),
            Command::Train(args) => commands::train::run(&args, context, output),
            Command::Predict(args) => commands::predict::run(&args, context, output),
            Command::Export(args) => commands::export::run(&args, context, output),
            Command::Env(args) => commands::env::run(&args, output),
            Command::Gpus(args) => commands::gpus::run(&args, output),
            Command::Hold(args) => commands::hold::run(&args, context, output),
            Command::Completions(args) => commands::completions::run(&args, Cli::command(), output),
        }
    }
}

/// Parses a command line.
///
/// # Errors
/// Those of clap, which are help and version, too.
pub(crate) fn parse(
    line: &[OsString],
    color: ColorChoice,
) -> std::result::Result<Cli, clap::Error> {
    let mut command = Cli::command().color(color);
    let matches = command.try_get_matches_from_mut(line);
    let matches = matches.map_err(|error| usage::find_misspelled(&command, line, error))?;
    usage::check_program(&command, &matches)?;
    Cli::from_arg_matches(&matches)
}

/// Returns what a command line says about colors before it is parsed, since errors in it are colored
/// too. Arguments after `--` belong to a program.
pub(crate) fn color_choice(line: &[OsString]) -> ColorChoice {
    let words = line.iter().map(|word| word.to_string_lossy());
    let words: Vec<_> = words.take_while(|word| word != "--").collect();
    let mut values = words.iter().enumerate().filter_map(|(index, word)| {
        match word.strip_prefix("--color")? {
            "" => words.get(index + 1).map(AsRef::as_ref),
            rest => rest.strip_prefix('='),
        }
    });
    let last = values.next_back().unwrap_or_default();
    ColorChoice::from_str(last, true).unwrap_or(ColorChoice::Auto)
}

impl Command {
    /// Returns where its results go as JSON. If that is standard output, errors are JSON too.
    fn json(&self) -> Option<&JsonArgs> {
        Some(match self {
            Command::Dryrun(args) => &args.json,
            Command::Plan(args) => &args.json,
            Command::Explain(args) => &args.json,
            Command::Doctor(args) => &args.results.json,
            Command::Check(args) => &args.json,
            Command::Report(args) => &args.json,
            Command::Replay(args) => &args.json,
            Command::Diff(args) => &args.json,
            Command::Top(args) => &args.results.json,
            Command::Data(args) => args.json(),
            Command::Train(args) => &args.json,
            Command::Predict(args) => &args.json,
            Command::Export(args) => &args.json,
            Command::Gpus(args) => &args.results().json,
            Command::Hold(args) => &args.results.json,
            Command::Completions(_) | Command::Env(_) | Command::Run(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests;
