//! Starts the run in a Python of its own, and waits for it.

use std::path::{Path, PathBuf};

use vramfit_core::train::Config;
use vramfit_core::{Error, Result};

use super::datasets::Look;
use super::processes::Processes;
use super::request::{Request, Resume, Written};
use super::{Args, ProgressMode};
use super::{check, ending};
use crate::child;
use crate::context::Context;
use crate::output::Output;
use crate::status::Status;

/// Trains, and tells what became of it.
pub(super) fn run(
    args: &Args,
    file: &Path,
    config: &Config,
    look: &Look,
    context: &Context,
    output: &mut Output,
) -> Result<Status> {
    let processes = Processes::read(|name| std::env::var(name).ok())?;
    let speaks = Processes::speaks(processes.as_ref());
    let python = python(context)?;
    // Made by the run, once there is nothing that it could be refused for.
    let directory = config.training.directory.clone().unwrap_or_default();
    let written = Written::new(&Request {
        config,
        data: look,
        fixed: config.fixed(),
        resume: match (args.resume, args.fresh) {
            (true, _) => Resume::Must,
            (_, true) => Resume::Never,
            _ => Resume::Auto,
        },
        force_resume: args.force_resume,
        progress: match output.is_quiet() || args.json {
            true => ProgressMode::None,
            false => args.progress,
        },
        processes,
        rehearsal: false,
        parent: Some(std::process::id()),
    })?;
    if !args.json && speaks {
        for line in check::summary(config, look) {
            output.info(&line);
        }
    }
    output.verbose(&format!("starts: {}", python.display()));
    let ended = child::run(&python, &written.arguments(), |_| {})?;
    let run = ending::Run {
        file,
        directory: &directory,
        json: args.json,
        speaks,
        ended,
        outcome: written.outcome(),
    };
    ending::tell(run, output)
}

/// Finds the Python that trains.
pub(super) fn python(context: &Context) -> Result<PathBuf> {
    let python = context.python.clone().unwrap_or_default();
    child::resolve_command(python.as_os_str()).map_err(|error| {
        Error::new(error.kind(), error.message())
            .hint("name a Python that has JAX and vramfit with `--python`")
    })
}
