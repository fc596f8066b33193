//! `vramfit diff`: what makes one run need more memory than another.

use std::path::{Path, PathBuf};

use vramfit_core::analysis::RunSummary;
use vramfit_core::diff::{RunDiff, diff_runs};
use vramfit_core::report::Report;
use vramfit_core::{Bytes, ErrorKind, Result};

use crate::files::{is_standard_output, writable, write};
use crate::output::Output;
use crate::status::Status;
use crate::traces::answer_until;

/// Tell what makes one dry run need more memory than another, by owner and line
///
/// The runs may differ in anything: code, batch, flags, JAX, card. Compared are the bytes in use at
/// the peak of each, or at the first request that was refused.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit diff before.trace after.trace
  vramfit diff before.trace after.trace --html diff.html
  vramfit diff main.trace branch.trace --fail-above 100MiB --json -

Exit codes:
  0  compared; with --fail-above: B needs no more than that in addition
  1  with --fail-above: B needs more than that in addition
  2  could not be told
")]
pub(crate) struct Args {
    /// The trace to compare with, as `vramfit dryrun --trace FILE` kept it
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The trace that is compared
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Exit with 1 when B needs more than so many bytes more than A
    #[arg(long, value_name = "BYTES")]
    fail_above: Option<Bytes>,
    /// Write the answer as JSON to a file, or with `-` to standard output in place of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the page, one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Overwrite files that exist
    #[arg(long)]
    force: bool,
}

impl Args {
    pub(crate) fn prints_json(&self) -> bool {
        is_standard_output(self.json.as_deref())
    }
}

/// Runs `vramfit diff`.
pub(crate) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let free = |path: &PathBuf| writable(path, args.force);
    let named = args.json.as_ref().filter(|_| !args.prints_json());
    let json = named.map(free).transpose()?;
    let html = args.html.as_ref().map(free).transpose()?;

    let difference = diff_runs(&answer(&args.a, output)?, &answer(&args.b, output)?);
    let report = Report::from_diff(&difference);
    match args.prints_json() {
        true => output.data(&format!("{}\n", report.to_json()))?,
        false => output.text(&format!("{}\n", report.to_text()))?,
    }
    let json = json.map(|path| (path, report.to_json()));
    let html = html.map(|path| (path, report.to_html()));
    for (path, text) in json.into_iter().chain(html) {
        write(&path, &text, args.force)?;
        output.info(&format!("written to {}", path.display()));
    }
    Ok(args
        .fail_above
        .map_or(Status::Yes, |most| verdict(&difference, most, output)))
}

/// Reads a run. Of two files a refusal must say which one it is about.
fn answer(trace: &Path, output: &Output) -> Result<RunSummary> {
    answer_until(trace, u64::MAX, Some(output)).map_err(|error| match error.kind() {
        ErrorKind::InvalidFile => error.context(format_args!("`{}`", trace.display())),
        _ => error,
    })
}

/// Holds the gap against what is allowed.
fn verdict(difference: &RunDiff, most: Bytes, output: &mut Output) -> Status {
    match difference.is_above(most.0) {
        Some(false) => Status::Yes,
        Some(true) => {
            let gap = Bytes(u64::try_from(difference.gap_bytes()).unwrap_or(u64::MAX));
            output.info(&format!(
                "B needs {gap} more than A; `--fail-above` allows {most}"
            ));
            Status::No
        }
        None => {
            output.info(
                "cannot tell whether B stays within `--fail-above`: a run was cut short or was\n  \
                 refused memory, and what it would have needed after that is not known",
            );
            Status::Unknown
        }
    }
}
