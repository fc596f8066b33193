//! The command line as clap sees it: global options, the list of commands, and which function runs each.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ColorChoice, CommandFactory, Parser, Subcommand, ValueEnum};
use vramfit_core::Result;

use crate::commands;
use crate::context::Context;
use crate::output::{Output, OutputOptions};
use crate::status::Status;

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
            json: self.command.prints_json(),
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
    /// Returns `true` if standard output is to be JSON, so that errors are JSON too.
    pub(crate) fn prints_json(&self) -> bool {
        match self {
            Command::Dryrun(args) => args.prints_json(),
            Command::Plan(args) => args.prints_json(),
            Command::Explain(args) => args.prints_json(),
            Command::Doctor(args) => args.json,
            Command::Check(args) => args.prints_json(),
            Command::Report(args) => args.prints_json(),
            Command::Replay(args) => args.prints_json(),
            Command::Diff(args) => args.prints_json(),
            Command::Top(args) => args.json,
            Command::Data(args) => args.prints_json(),
            Command::Train(args) => args.json,
            Command::Predict(args) => args.json,
            Command::Export(args) => args.json,
            Command::Gpus(args) => args.prints_json(),
            Command::Hold(args) => args.json,
            Command::Completions(_) | Command::Env(_) | Command::Run(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(path: &str) -> String {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }

    #[test]
    fn colors_are_read_from_an_invalid_line() {
        for (line, choice) in [
            ("vramfit --color always --help", ColorChoice::Always),
            ("vramfit gpus --color=never --wrong", ColorChoice::Never),
            ("vramfit --color", ColorChoice::Auto),
            ("vramfit --color sometimes", ColorChoice::Auto),
            ("vramfit dryrun -- train.py --color always", ColorChoice::Auto),
            ("vramfit --colors always", ColorChoice::Auto),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(color_choice(&words), choice, "{line}");
        }
    }

    #[test]
    fn definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_recorded_lines_and_a_page_with_its_options() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = format!("vramfit {name}");
            assert!(help.matches(&example).count() >= 3, "`{name} --help` lacks three examples");
            let recorded = read(&format!("tests/cli/{name}.trycmd"));
            assert!(
                recorded.contains(&format!("$ {example}")),
                "{name}.trycmd runs another command"
            );
            let page = read(&format!("../../docs/commands/{name}.md"));
            let actions = command.get_subcommands();
            for option in actions
                .chain([command])
                .flat_map(clap::Command::get_arguments)
                .filter(|argument| !argument.is_hide_set())
                .filter_map(|argument| argument.get_long())
            {
                assert!(page.contains(&format!("`--{option}")), "{name}.md lacks `--{option}`");
            }
        }
    }
}
