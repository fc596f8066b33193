//! One file per command: its arguments, and what it does with them.

pub(crate) mod completions;
pub(crate) mod gpus;

use vramfit_core::Result;

use crate::args::{Cli, Command};
use crate::output::Output;

/// How a command that did its work ended. What could not be done is an [`vramfit_core::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Done, or the answer is yes.
    Yes,
}

impl Status {
    /// Returns the exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Status::Yes => 0,
        }
    }
}

/// Runs the command that was asked for.
pub(crate) fn run(cli: Cli, output: &mut Output) -> Result<Status> {
    match cli.command {
        Command::Gpus(args) => gpus::run(&args, output),
        Command::Completions(args) => completions::run(&args, output),
    }
}
