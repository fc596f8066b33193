//! `vramfit diff`: why one run needs more memory than another.

use std::path::{Path, PathBuf};

use vramfit_core::diff::{RunDiff, diff_runs};
use vramfit_core::report::Report;
use vramfit_core::{Bytes, Result};

use crate::files::{is_standard_output, writable, write};
use crate::output::Output;
use crate::status::Status;
use crate::trace_progress::load_until;

/// Show why one dry run needs more memory than another, by owner and source line
///
/// The runs can differ in anything: code, batch size, flags, JAX, GPU. The comparison uses the bytes in
/// use at the peak of each run, or at its first out-of-memory error.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit diff before.trace after.trace
  vramfit diff before.trace after.trace --html diff.html
  vramfit diff main.trace branch.trace --fail-above 100MiB --json -

Exit codes:
  0  compared; with --fail-above: the increase is within the limit
  1  with --fail-above: the increase exceeds the limit
  2  unknown, or an error
")]
pub(crate) struct Args {
    /// Baseline trace, from `vramfit dryrun --trace FILE`
    #[arg(value_name = "A")]
    a: PathBuf,
    /// Trace to compare with the baseline
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Exit with 1 if B needs more memory than A by more than this amount
    #[arg(long, value_name = "BYTES")]
    fail_above: Option<Bytes>,
    /// Write the results as JSON to a file, or with `-` to standard output instead of the text
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as a self-contained HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Overwrite existing files
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

    let load = |trace: &Path| load_until(trace, u64::MAX, output);
    let difference = diff_runs(&load(&args.a)?, &load(&args.b)?);
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
    Ok(args.fail_above.map_or(Status::Yes, |most| verdict(&difference, most, output)))
}

/// Holds the gap against what is allowed.
fn verdict(difference: &RunDiff, most: Bytes, output: &mut Output) -> Status {
    match difference.grows_by_more_than(most.0) {
        Some(false) => Status::Yes,
        Some(true) => {
            let gap = Bytes(u64::try_from(difference.gap_bytes()).unwrap_or(u64::MAX));
            output.info(&format!("B needs {gap} more than A; `--fail-above` allows {most}"));
            Status::No
        }
        None => {
            output.info(
                "unknown whether B stays within `--fail-above`: a run was cut short or ran out of\n  \
                 memory, and its needs after that are unknown",
            );
            Status::Unknown
        }
    }
}
