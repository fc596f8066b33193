//! Whether a failure of the program comes from placeholder values: it is run again with others.

use std::time::Duration;

use vramfit_core::analysis::RunSummary;
use vramfit_core::run_config::{Fill, RunConfig};

use super::outcome::summarize_run;
use super::result_files::ResultFiles;
use super::run_one::run_program;
use super::spec::DryrunSpec;
use crate::context::Context;
use crate::output::Output;
use crate::scratch::TempDirectory;

/// The second run may take this many times as long as the first, which may have been cut short by its failure …
const TIME_FACTOR: u32 = 3;
/// … and no less than this.
const MIN_TIME: Duration = Duration::from_secs(20);

/// Errors that no value leads to.
const NEVER_BY_VALUES: [&str; 5] =
    ["ImportError", "KeyboardInterrupt", "ModuleNotFoundError", "NameError", "SyntaxError"];

/// Returns whether a program that read placeholders and failed, fails differently, or not at all, if they read as
/// other values. `false` where that cannot be found out in reasonable time.
pub(super) fn failure_depends_on_fill(
    first: &RunSummary,
    elapsed: Duration,
    spec: &DryrunSpec,
    context: &Context,
    output: &Output,
) -> bool {
    let by_values = |name: &str| !NEVER_BY_VALUES.contains(&name);
    let is_candidate = first.facts.unknown_reads.last.is_some()
        && !first.is_refused()
        && first.fits().is_none()
        && first.uncaught_error.as_ref().is_some_and(|it| by_values(&it.name));
    is_candidate && run_with_other_fill(first, elapsed, spec, context, output).unwrap_or(false)
}

fn run_with_other_fill(
    first: &RunSummary,
    elapsed: Duration,
    spec: &DryrunSpec,
    context: &Context,
    output: &Output,
) -> Option<bool> {
    let folder = TempDirectory::create().ok()?;
    let fill = if spec.run.fill == Fill::Zeros { Fill::Ones } else { Fill::Zeros };
    let second = DryrunSpec {
        run: RunConfig { fill, ..spec.run.clone() },
        time_limit: Some(MIN_TIME.max(elapsed * TIME_FACTOR)),
        log: Some(folder.path().join("output.log")),
        results: ResultFiles::default(),
        ..spec.clone()
    };
    let mut quiet = output.quiet();
    let run = run_program(&second, context, &mut quiet).ok()?;
    let summary = summarize_run(&run, &quiet).ok()?;
    Some(failure(&summary) != failure(first))
}

/// Returns where and by which error a program failed. Not the message, which may repeat the values.
fn failure(summary: &RunSummary) -> Option<(&str, &str)> {
    let error = summary.uncaught_error.as_ref()?;
    Some((&error.name, &error.site))
}
