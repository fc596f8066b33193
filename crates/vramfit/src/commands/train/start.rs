//! Runs the training in a Python process of its own.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use vramfit_analysis::{Error, Result};
use vramfit_runner::Context;
use vramfit_runner::child;
use vramfit_train::Config;

use super::datasets::DatasetInfo;
use super::processes::ProcessInfo;
use super::request::{Request, RequestDir, Resume};
use super::stop_requests::StopRequests;
use super::{Args, ProgressMode};
use super::{check, command_with, given_command, outcome};
use crate::commands::results::JsonTarget;
use crate::output::{Output, terminal_columns};
use crate::status::Status;

/// Trains, and reports the outcome.
pub(super) fn run(
    args: &Args,
    config: &Config,
    info: &DatasetInfo,
    json: JsonTarget,
    context: &Context,
    output: &mut Output,
) -> Result<Status> {
    let processes = ProcessInfo::read(|name| std::env::var(name).ok())?;
    let is_primary = ProcessInfo::is_primary(processes.as_ref());
    let python = python(context)?;
    // Created by the run, once everything has been checked.
    let directory = config.training.directory.clone().unwrap_or_default();
    let request = RequestDir::new(&Request {
        action: "train",
        command: given_command(context),
        config,
        data: info,
        checkpoint_config: config.checkpoint_config(),
        resume: match (args.resume, args.fresh) {
            (true, _) => Resume::Require,
            (_, true) => Resume::Never,
            _ => Resume::Auto,
        },
        force_resume: args.force_resume,
        progress: match output.is_quiet() || json.is_stdout() {
            true => ProgressMode::None,
            false => args.progress,
        },
        processes,
        dry_run: false,
        parent_pid: Some(std::process::id()),
    })?;
    if !json.is_stdout() && is_primary {
        let columns = terminal_columns(std::io::stderr());
        for line in check::summary(config, info) {
            output.info(&check::fitted(&line, columns));
        }
    }
    output.verbose(&format!("starts: {}", python.display()));
    let mut requests = StopRequests::new();
    let forced_by = requests.forced_by();
    let ended = child::run_with_signals(
        &python,
        &request.arguments(),
        None,
        |_| {},
        move |run, signal| requests.handle(run, signal),
    )?;
    let run = outcome::FinishedRun {
        command: given_command(context),
        resume_command: command_with(context, &[]),
        dry_run_command: command_with(context, &["--dry-run", "GPU"]),
        forced_by: Some(forced_by.load(Ordering::SeqCst)).filter(|signal| *signal != 0),
        directory: &directory,
        json,
        is_primary,
        ended,
        outcome: request.outcome(),
    };
    outcome::report(run, output)
}

/// Finds the Python that trains.
pub(super) fn python(context: &Context) -> Result<PathBuf> {
    let python = context.python.clone().unwrap_or_default();
    child::resolve_command(python.as_os_str()).map_err(|error| {
        Error::new(error.kind(), error.message())
            .hint("choose a Python that has JAX and vramfit with `--python`")
    })
}
