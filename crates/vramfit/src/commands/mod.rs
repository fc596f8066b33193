//! One file per command: its arguments, and what it does with them.

pub(crate) mod completions;
pub(crate) mod data;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod dryrun;
pub(crate) mod env;
pub(crate) mod gpus;
pub(crate) mod hold;
pub(crate) mod policy;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod top;
pub(crate) mod train;

use std::path::PathBuf;

use vramfit_core::Result;

use crate::Context;
use crate::args::{Cli, Command};
use crate::output::Output;

/// How a command that did its work ended. What could not be done is an [`vramfit_core::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Done, or the answer is yes.
    Yes,
    /// The answer is no.
    No,
    /// There is no answer, for a reason that was told.
    Unknown,
    /// The user's own program failed in its own way; its exit code is passed on.
    Child(u8),
}

impl Status {
    /// Returns the status of an answer; `None` is one that cannot be given.
    pub(crate) fn of(answer: Option<bool>) -> Self {
        match answer {
            Some(true) => Status::Yes,
            Some(false) => Status::No,
            None => Status::Unknown,
        }
    }

    /// Returns the exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Status::Yes => 0,
            Status::No => 1,
            Status::Unknown => 2,
            Status::Child(code) => code,
        }
    }
}

/// Runs the command that was asked for.
pub(crate) fn run(cli: Cli, context: &Context, output: &mut Output) -> Result<Status> {
    let python_is_named = cli.global.python.is_some();
    let context = &Context {
        python: Some(python(cli.global.python, context)),
        ..context.clone()
    };
    match cli.command {
        Command::Dryrun(args) => dryrun::run(args, context, output),
        Command::Run(args) => run::run(args, context, output),
        Command::Doctor(args) => doctor::run(&args, python_is_named, context, output),
        Command::Top(args) => top::run(&args, output),
        Command::Replay(args) => replay::run(&args, output),
        Command::Report(args) => report::run(&args, output),
        Command::Diff(args) => diff::run(&args, output),
        Command::Data(args) => data::run(&args, context, output),
        Command::Train(args) => train::run(&args, context, output),
        Command::Env(args) => env::run(&args, output),
        Command::Gpus(args) => gpus::run(&args, output),
        Command::Hold(args) => hold::run(&args, context, output),
        Command::Completions(args) => completions::run(&args, output),
    }
}

/// Decides which Python to use where the user's command does not name one: `--python`, else
/// `VRAMFIT_PYTHON`, else the one that started us, else what `python3` is.
fn python(option: Option<PathBuf>, context: &Context) -> PathBuf {
    let variable = std::env::var_os("VRAMFIT_PYTHON").filter(|name| !name.is_empty());
    option
        .or_else(|| variable.map(PathBuf::from))
        .or_else(|| context.python.clone())
        .unwrap_or_else(|| "python3".into())
}
