//! `vramfit report`: the report of a run, from its trace or its metrics log, in any format.

use std::path::PathBuf;

use vramfit_analysis::report::{Outcome, Report};
use vramfit_analysis::{Error, Result};

use super::results::{FullArgs, JsonArgs, PageArgs, print_report, write_page};
use crate::metrics_logs;
use crate::output::Output;
use crate::status::Status;
use crate::trace_progress::load_until;

/// Show the report of a dry run or training run as text, HTML or JSON
///
/// If the run had several processes, their traces are in the same directory, and the report covers the
/// critical process: one that does not fit, else the one with least memory to spare.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit report run.trace
  vramfit report run.trace --html report.html
  vramfit report runs/train --html curves.html
  vramfit report run.trace --json -

Exit codes:
  0  it fits; the training run is finished
  1  it does not fit; the training run is not finished
  2  unknown, or an error
")]
pub(crate) struct Args {
    /// Trace from `vramfit dryrun --trace FILE`, or the directory of a training run
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    #[command(flatten)]
    text: FullArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    /// Report the run as if it had ended after this event, with the memory layout at that point
    #[arg(long, value_name = "EVENT")]
    until: Option<u64>,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
}

/// Runs `vramfit report`.
pub(crate) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let json = args.json.target(args.force)?;
    let html = args.page.file(args.force)?;

    let last = args.until.unwrap_or(u64::MAX);
    let metrics_log = metrics_logs::find(&args.trace);
    // A training run has few figures.
    let full_text = args.text.full || metrics_log.is_some();
    let report = match metrics_log {
        None => Report::from_dryrun(&load_until(&args.trace, last, output)?),
        Some(_) if args.until.is_some() => {
            let message = "`--until` applies to traces only, not to training runs";
            return Err(Error::invalid_argument(message).hint("omit it"));
        }
        Some(log) => Report::from_training(&metrics_logs::read(&log)?),
    };
    print_report(&report, full_text, &json, output)?;
    write_page(&report, html.as_deref(), args.force, output)?;
    Ok(match report.outcome {
        Outcome::Success | Outcome::Neutral => Status::Yes,
        Outcome::Failure => Status::No,
        Outcome::Unknown => Status::Unknown,
    })
}
