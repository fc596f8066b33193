//! One file per command: its arguments, and what it does with them.

pub(crate) mod completions;
pub(crate) mod dryrun;
pub(crate) mod gpus;

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
    /// The user's own program failed in its own way; its exit code is passed on.
    Child(u8),
}

impl Status {
    /// Returns the exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Status::Yes => 0,
            Status::No => 1,
            Status::Child(code) => code,
        }
    }
}

/// Runs the command that was asked for.
pub(crate) fn run(cli: Cli, context: &Context, output: &mut Output) -> Result<Status> {
    let context = match cli.global.python {
        Some(python) => &Context {
            python: Some(python),
            ..context.clone()
        },
        None => context,
    };
    match cli.command {
        Command::Dryrun(args) => dryrun::run(args, context, output),
        Command::Gpus(args) => gpus::run(&args, output),
        Command::Completions(args) => completions::run(&args, output),
    }
}
