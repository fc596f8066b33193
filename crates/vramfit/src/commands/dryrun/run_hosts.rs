//! Dry runs of the hosts that run a program together, one after the other.

use std::fs;
use std::path::{Path, PathBuf};

use vramfit_core::analysis::hosts::{HostRun, next_host, read_host_run, summarize_hosts};
use vramfit_core::report::Report;
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::compile_cache::COMPILATION_CACHE;
use super::execute::run_program;
use super::hosts::{HostSelection, HostSpec, HostsSpec};
use super::measure::{output_tail, with_output_tail};
use super::outcome::{self, FinishedRun};
use super::spec::DryrunSpec;
use crate::child::ExitReason;
use crate::context::Context;
use crate::output::{Output, write_to_stderr};
use crate::scratch::TempDirectory;
use crate::status::Status;

/// Makes the dry runs, and reports what they come to together.
///
/// # Errors
/// Whatever prevents a run, or a result.
pub(super) fn execute(
    spec: &DryrunSpec,
    hosts: &HostsSpec,
    context: &Context,
    output: &mut Output,
) -> Result<Status> {
    let mut finished = Vec::new();
    let runs = run_hosts(spec, hosts, context, output, |run, _, spec| {
        finished.push((run, spec.results.clone()));
        Ok(())
    })?;
    let summary = summarize_hosts(&runs, hosts.count, spec.gpus.count)
        .expect("a host without a result is an error");
    outcome::write_report(&Report::from_dryrun(&summary), &spec.results, output)?;
    for (run, files) in &finished {
        outcome::finish_kept_trace(run, files, output);
    }
    Ok(Status::from_answer(summary.fits()))
}

/// Runs the hosts that are selected, and hands each to `keep` when it has ended.
///
/// # Errors
/// Whatever prevents a run, or its result, and what `keep` returns.
pub(super) fn run_hosts(
    spec: &DryrunSpec,
    hosts: &HostsSpec,
    context: &Context,
    output: &mut Output,
    mut keep: impl FnMut(FinishedRun, &HostRun, &DryrunSpec) -> Result<()>,
) -> Result<Vec<HostRun>> {
    let scratch = TempDirectory::create()?;
    let messages = scratch.path().join("messages");
    fs::create_dir(&messages)
        .map_err(|error| Error::io("cannot create a temporary directory").cause(error))?;
    // What host 0 has compiled, the others need not compile.
    let cache = spec.compilation_cache.clone().or_else(|| {
        let users = spec.variable(COMPILATION_CACHE);
        let has_own = users.is_some_and(|folder| !folder.is_empty());
        (!has_own).then(|| scratch.path().join("compilations"))
    });
    let mut runs: Vec<HostRun> = Vec::new();
    while let Some(index) = select(hosts, &runs) {
        let host = HostSpec {
            index,
            count: hosts.count,
            launcher: hosts.launcher,
            folder: messages.clone(),
        };
        // The first host speaks for itself; the others would say the same again.
        let log = scratch.path().join(format!("host-{index}.log"));
        let is_first = runs.is_empty();
        let spec = DryrunSpec {
            hosts: None,
            command: spec.command.iter().map(|word| host.fill_in(word)).collect(),
            host: Some(host),
            compilation_cache: cache.clone(),
            log: spec
                .log
                .clone()
                .or_else(|| (!is_first).then(|| log.clone())),
            results: super::ResultFiles {
                trace: spec
                    .results
                    .trace
                    .as_deref()
                    .map(|trace| trace_of_host(trace, index)),
                force: true,
                ..spec.results.clone()
            },
            ..spec.clone()
        };
        if !is_first {
            output.info(&format!("host {index}: running, output not shown"));
        }
        let run = run_program(&spec, context, output)
            .and_then(|run| {
                let summary = outcome::summarize_run(&run, output)?;
                let result = read_host_run(index, summary, &run.trace)?;
                Ok((run, result))
            })
            .map_err(|error| match is_first {
                true => error,
                false => with_output_tail(error, &log).context(format!("host {index}")),
            });
        if run.as_ref().is_err_and(is_interrupted) {
            for run in &runs {
                let peak = run.summary.devices.iter().map(|device| device.peak_bytes);
                let peak = Bytes(peak.max().unwrap_or(0));
                output.info(&format!("host {}: peak {peak}", run.host));
            }
        }
        let (run, result) = run?;
        if !is_first && run.exit != ExitReason::Code(0) {
            let tail = output_tail(&log);
            output.info(&format!(
                "host {index}: the program {}",
                run.exit.describe()
            ));
            write_to_stderr(format!("{tail}\n").as_bytes());
        }
        keep(run, &result, &spec)?;
        runs.push(result);
    }
    Ok(runs)
}

fn is_interrupted(error: &Error) -> bool {
    error.kind() == ErrorKind::Interrupted
}

/// Returns the host to run next.
fn select(hosts: &HostsSpec, runs: &[HostRun]) -> Option<u32> {
    let is_left = |host: &u32| runs.iter().all(|run| run.host != *host);
    match &hosts.selection {
        HostSelection::Differing => next_host(runs, hosts.count),
        HostSelection::All => (0..hosts.count).find(is_left),
        HostSelection::Listed(listed) => listed.iter().copied().find(is_left),
    }
}

/// Returns where the trace of a host is kept: `run.trace` becomes `run-host-7.trace`.
fn trace_of_host(trace: &Path, host: u32) -> PathBuf {
    let stem = trace.file_stem().unwrap_or_default().to_string_lossy();
    let name = match trace.extension() {
        Some(extension) => format!("{stem}-host-{host}.{}", extension.to_string_lossy()),
        None => format!("{stem}-host-{host}"),
    };
    trace.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_keeps_its_own_trace() {
        for (trace, expected) in [
            ("/tmp/run.trace", "/tmp/run-host-7.trace"),
            ("run", "run-host-7"),
        ] {
            assert_eq!(trace_of_host(Path::new(trace), 7), Path::new(expected));
        }
    }
}
