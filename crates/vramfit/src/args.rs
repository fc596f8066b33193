//! The command line as clap sees it: global options, the list of commands, and which function runs each.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use vramfit_analysis::Result;
use vramfit_base::text::wrap;
use vramfit_runner::Context;
use vramfit_runner::program;

use crate::commands;
use crate::commands::results::JsonArgs;
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

`vramfit help COMMAND` shows the options and examples of a command.
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

/// The commands by the question that they answer, as help shows them.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Will it fit, and what makes it fit", &["dryrun", "plan", "check"]),
    ("Why it needs so much", &["explain", "report", "diff", "replay"]),
    ("This machine", &["run", "doctor", "top", "hold", "gpus", "env", "completions"]),
    ("Training", &["data", "train", "predict", "export"]),
];

/// Returns the definition of the command line.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command();
    let heading = command.get_styles().get_header();
    let literal = command.get_styles().get_literal();
    let mut list = String::new();
    for (title, names) in GROUPS {
        list += &format!("{heading}{title}:{heading:#}\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            // The names have 11 letters at most.
            let lines = wrap(&about, 85, 0);
            list +=
                &format!("  {literal}{name:<11}{literal:#}  {}\n", lines.join("\n               "));
        }
        list.push('\n');
    }
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{list}{heading}Options:{heading:#}\n{{options}}{{after-help}}"
    );
    command.help_template(template)
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
        let context = &match self.command.program() {
            Some(program) => program::with_own_python([program.as_os_str()], context, output),
            None => context.clone(),
        };
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
            Command::Diff(args) => commands::diff::run(&args, context, output),
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
    let line = &resolve_help(line);
    let mut command = command().color(color);
    let matches = command.try_get_matches_from_mut(line);
    let matches = matches.map_err(|error| usage::find_misspelled(&command, line, error))?;
    usage::check_program(&command, &matches)?;
    Cli::from_arg_matches(&matches)
}

/// Returns a line in which `help COMMAND` is the option `--help` of that command.
fn resolve_help(line: &[OsString]) -> Vec<OsString> {
    match line {
        [program, help, rest @ ..] if help == "help" => {
            let words = std::iter::once(program).chain(rest).cloned();
            words.chain(["--help".into()]).collect()
        }
        line => line.to_vec(),
    }
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
    /// Returns the first word of the user's command, for a command that starts it on a virtual GPU. `run` starts the program
    /// itself, which need not use JAX: it has the Python that it would have without vramfit.
    fn program(&self) -> Option<&OsString> {
        match self {
            Command::Dryrun(args) => args.command.first(),
            Command::Plan(args) => args.command.first(),
            Command::Explain(args) => args.command.first(),
            _ => None,
        }
    }

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
