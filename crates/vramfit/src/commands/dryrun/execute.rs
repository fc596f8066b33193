//! Runs a program on virtual GPUs and reports.

use std::time::Instant;

use vramfit_core::Result;

use super::run_one::run_program;
use super::spec::DryrunSpec;
use super::{outcome, remedies, run_hosts, second_fill};
use crate::context::Context;
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
    summary.is_placeholder_cause =
        second_fill::failure_depends_on_fill(&summary, elapsed, spec, context, output);
    summary.measured_edits = remedies::measure_edits(spec, &summary, elapsed, context, output);
    outcome::report_outcome(&run, &summary, &spec.results, output)
}
