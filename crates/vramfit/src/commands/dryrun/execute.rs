//! Runs a program on virtual GPUs and reports.

use std::time::{Duration, Instant};

use vramfit_analysis::Result;
use vramfit_analysis::analysis::RunSummary;
use vramfit_runner::Context;

use super::outcome::FinishedRun;
use super::run_one::run_program;
use super::second_fill::SecondRun;
use super::spec::DryrunSpec;
use super::{outcome, remedies, run_hosts};
use crate::output::Output;
use crate::status::Status;

/// Makes a dry run.
///
/// # Errors
/// Whatever prevents the run, or a result.
pub(crate) fn execute(spec: &DryrunSpec, context: &Context, output: &mut Output) -> Result<Status> {
    if let Some(hosts) = &spec.hosts {
        return run_hosts::execute(spec, hosts, context, output);
    }
    let begin = Instant::now();
    let run = run_program(spec, context, output)?;
    let elapsed = begin.elapsed();
    let mut summary = outcome::summarize_run(&run, output)?;
    let second = SecondRun::after(&summary, elapsed, spec, context, output);
    summary.is_placeholder_cause = second.is_some();
    let Some(mut second) = second.filter(|second| second.summary.fits().is_some()) else {
        return report(spec, &run, summary, elapsed, context, output);
    };
    second.replace(&summary, output)?;
    report(&second.spec, &second.run, second.summary, elapsed, context, output)
}

/// Measures what would help, and reports.
fn report(
    spec: &DryrunSpec,
    run: &FinishedRun,
    mut summary: RunSummary,
    elapsed: Duration,
    context: &Context,
    output: &mut Output,
) -> Result<Status> {
    summary.measured_edits = remedies::measure_edits(spec, &summary, elapsed, context, output);
    outcome::report_outcome(run, &summary, &spec.results, output)
}
