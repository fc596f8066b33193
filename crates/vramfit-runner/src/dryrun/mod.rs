//! Dry runs: a program that runs on virtual GPUs, and what it came to.
//!
//! [`DryrunSpec`] says what is run. [`run`] prepares the environment (`env`, `env_check`, `compiler`), runs the program in it
//! (`run_one`, or `run_hosts` for each host), reads the traces (`program_run`), and measures what would help (`remedies`).
//! The virtual GPU itself is in the child, inside JAX. [`measure`] is for commands that make many dry runs.

mod compile_cache;
mod compiler;
mod compiler_log;
mod env;
mod env_check;
mod finished;
mod host_messages;
mod hosts;
mod measure;
mod program_run;
mod remedies;
mod run_hosts;
mod run_one;
mod second_fill;
mod spec;
mod trace_failure;

pub use compile_cache::{cache_home, open_compilation_cache, remove_oldest};
pub use compiler::check as check_compiler;
pub use env::PLAN_VARIABLE;
pub use finished::FinishedRun;
pub use hosts::{HostSelection, HostsSpec};
pub use measure::{MeasuredRun, measure};
pub use program_run::with_output_tail;
pub use remedies::RemedyLevel;
pub use spec::{DryrunSpec, SettingsSpec, read_autotune_results};

use std::time::Instant;

use vramfit_analysis::analysis::hosts::summarize_hosts;
use vramfit_base::Result;

use self::remedies::measure_edits;
use self::run_hosts::run_hosts;
use self::run_one::run_program;
use self::second_fill::SecondRun;
use crate::context::Context;
use crate::messages::{ErrorsOnly, Messages};

/// Makes a dry run, and measures what would help.
///
/// # Errors
/// Whatever prevents the run, or a result.
pub fn run(spec: &DryrunSpec, context: &Context, messages: &dyn Messages) -> Result<FinishedRun> {
    match &spec.hosts {
        Some(hosts) => run_on_hosts(spec, hosts, context, messages),
        None => run_alone(spec, context, messages),
    }
}

/// As [`run`], for one of which the results alone are wanted: says nothing, and completes the traces. A program that crashed
/// before it was known whether it fits is an error.
///
/// # Errors
/// Those of [`run`], and `compiler-failed`.
pub fn record(
    spec: &DryrunSpec,
    context: &Context,
    messages: &dyn Messages,
) -> Result<FinishedRun> {
    let quiet = ErrorsOnly(messages);
    let finished = run(spec, context, &quiet)?;
    finished.complete_traces(&quiet);
    finished.crash().map_or(Ok(finished), Err)
}

fn run_on_hosts(
    spec: &DryrunSpec,
    hosts: &HostsSpec,
    context: &Context,
    messages: &dyn Messages,
) -> Result<FinishedRun> {
    let begin = Instant::now();
    let (programs, results) = run_hosts(spec, hosts, context, messages)?;
    let mut summary = summarize_hosts(&results, hosts.count, spec.run.gpus.count)
        .expect("a host without a result is an error");
    summary.measured_edits = measure_edits(spec, &summary, begin.elapsed(), context, messages);
    Ok(FinishedRun { summary, exit: None, programs })
}

fn run_alone(spec: &DryrunSpec, context: &Context, messages: &dyn Messages) -> Result<FinishedRun> {
    let begin = Instant::now();
    let program = run_program(spec, context, messages)?;
    let elapsed = begin.elapsed();
    let mut summary = program.summarize(messages)?;
    let second = SecondRun::after(&summary, elapsed, spec, context, messages);
    summary.is_placeholder_cause = second.is_some();
    let (spec, program, mut summary) = match second.filter(|second| second.summary.fits().is_some())
    {
        Some(mut second) => {
            second.replace(&summary, messages)?;
            (second.spec, second.program, second.summary)
        }
        None => (spec.clone(), program, summary),
    };
    summary.measured_edits = measure_edits(&spec, &summary, elapsed, context, messages);
    Ok(FinishedRun { summary, exit: Some(program.exit), programs: vec![program] })
}
