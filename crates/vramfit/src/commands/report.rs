//! `vramfit report`: the report of a run, from its trace or its metrics log, in any format.

use std::path::PathBuf;

use vramfit_core::report::{Outcome, Report};
use vramfit_core::{Error, Result};

use crate::files::{is_standard_output, writable, write};
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
    /// Print all of the report, not only the 30 most important lines
    #[arg(long)]
    full: bool,
    /// Write the report as a self-contained HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the results as JSON to a file, or with `-` to standard output instead of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Report the run as if it had ended after this event, with the memory layout at that point
    #[arg(long, value_name = "EVENT")]
    until: Option<u64>,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
}

impl Args {
    pub(crate) fn prints_json(&self) -> bool {
        is_standard_output(self.json.as_deref())
    }
}

/// Runs `vramfit report`.
pub(crate) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let free = |path: &PathBuf| writable(path, args.force);
    let json = args.json.as_ref().filter(|_| !args.prints_json()).map(free).transpose()?;
    let html = args.html.as_ref().map(free).transpose()?;

    let last = args.until.unwrap_or(u64::MAX);
    let metrics_log = metrics_logs::find(&args.trace);
    // A training run has few figures.
    let full_text = args.full || metrics_log.is_some();
    let report = match metrics_log {
        None => Report::from_dryrun(&load_until(&args.trace, last, output)?),
        Some(_) if args.until.is_some() => {
            let message = "`--until` applies to traces only, not to training runs";
            return Err(Error::invalid_argument(message).hint("omit it"));
        }
        Some(log) => Report::from_training(&metrics_logs::read(&log)?),
    };
    // Everything is rendered before the first output, so that an error comes alone.
    let mut files = Vec::new();
    if let Some(path) = html {
        files.push((path, report.to_html()));
    }
    if let Some(path) = json {
        files.push((path, report.to_json()));
    }
    match args.prints_json() {
        true => output.data(&format!("{}\n", report.to_json()))?,
        false if full_text => output.text(&format!("{}\n", report.to_full_text()))?,
        false => output.text(&format!("{}\n", report.to_brief_text()))?,
    }
    for (path, text) in &files {
        write(path, text, args.force)?;
        output.info(&format!("written to {}", path.display()));
    }
    Ok(match report.outcome {
        Outcome::Success | Outcome::Neutral => Status::Yes,
        Outcome::Failure => Status::No,
        Outcome::Unknown => Status::Unknown,
    })
}
