//! `vramfit diff`: why one run needs more memory than another.

mod dry_runs;

use std::path::{Path, PathBuf};

use vramfit_analysis::diff::{RunDiff, diff_runs};
use vramfit_analysis::report::Report;
use vramfit_analysis::{Bytes, Result};

use self::dry_runs::DryRunArgs;
use super::results::{FullArgs, JsonArgs, PageArgs, print_report, write_page};
use crate::output::Output;
use crate::status::Status;
use crate::trace_progress::load_until;
use vramfit_runner::Context;

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
  vramfit diff --gpu h100-80g --python old/bin/python --python new/bin/python -- python train.py

Exit codes:
  0  compared; with --fail-above: the increase is within the limit
  1  with --fail-above: the increase exceeds the limit
  2  unknown, or an error
")]
pub(crate) struct Args {
    /// Baseline trace, from `vramfit dryrun --trace FILE`
    #[arg(value_name = "A", required_unless_present = "python")]
    a: Option<PathBuf>,
    /// Trace to compare with the baseline
    #[arg(value_name = "B", required_unless_present = "python")]
    b: Option<PathBuf>,
    #[command(flatten)]
    runs: DryRunArgs,
    /// Exit with 1 if B needs more memory than A by more than this amount
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory)]
    fail_above: Option<Bytes>,
    #[command(flatten)]
    text: FullArgs,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    #[command(flatten)]
    page: PageArgs,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
}

/// Runs `vramfit diff`.
pub(crate) fn run(args: &Args, context: &Context, output: &mut Output) -> Result<Status> {
    let json = args.json.target(args.force)?;
    let html = args.page.file(args.force)?;

    let (made, traces);
    let [a, b] = match (&args.a, &args.b) {
        (Some(a), Some(b)) => {
            traces = [a.clone(), b.clone()];
            &traces
        }
        _ => {
            made = args.runs.run(context, output)?;
            &made.traces
        }
    };
    let load = |trace: &Path| load_until(trace, u64::MAX, output);
    let difference = diff_runs(&load(a)?, &load(b)?);
    let report = Report::from_diff(&difference);
    print_report(&report, args.text.full, &json, output)?;
    write_page(&report, html.as_deref(), args.force, output)?;
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
