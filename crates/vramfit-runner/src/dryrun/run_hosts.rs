//! Dry runs of the hosts that run a program together, one after the other.

use std::fs;
use std::path::{Path, PathBuf};

use vramfit_analysis::analysis::hosts::{HostRun, next_host, read_host_run};
use vramfit_base::{Bytes, Error, ErrorKind, Result};
use vramfit_model::run_config::{HostConfig, RunConfig};

use super::compile_cache::COMPILATION_CACHE;
use super::host_messages::HostMessages;
use super::hosts::{HostSelection, HostsSpec, fill_in};
use super::program_run::{ProgramRun, output_tail, with_output_tail};
use super::run_one::run_program;
use super::spec::DryrunSpec;
use crate::child::ExitReason;
use crate::context::Context;
use crate::messages::Messages;
use crate::scratch::TempDirectory;

/// Runs the hosts that are selected, and returns the program of each and its results, in the order in which they were run
/// first.
///
/// Hosts run one after the other, and read what those before them have published. One that asked for something of a host
/// that was run later is run once more, and again one that had read what has changed by that, until each has read what
/// the others have published last.
///
/// # Errors
/// Whatever prevents a run, or its result.
pub(super) fn run_hosts(
    spec: &DryrunSpec,
    hosts: &HostsSpec,
    context: &Context,
    messages: &dyn Messages,
) -> Result<(Vec<ProgramRun>, Vec<HostRun>)> {
    let scratch = TempDirectory::create()?;
    let folder = scratch.path().join("messages");
    fs::create_dir(&folder)
        .map_err(|error| Error::io("cannot create a temporary directory").cause(error))?;
    let sent = HostMessages::new(&folder);
    // What host 0 has compiled, the others need not compile.
    let cache = spec.run.compilation_cache.clone().or_else(|| {
        let users = spec.variable(COMPILATION_CACHE);
        let has_own = users.is_some_and(|folder| !folder.is_empty());
        (!has_own).then(|| scratch.path().join("compilations"))
    });
    let running = RunningHosts {
        spec: DryrunSpec {
            run: RunConfig { compilation_cache: cache, ..spec.run.clone() },
            ..spec.clone()
        },
        hosts,
        scratch: scratch.path(),
        folder: &folder,
        context,
    };
    let mut programs: Vec<ProgramRun> = Vec::new();
    let mut runs: Vec<HostRun> = Vec::new();
    // Hosts that failed before they used a GPU, because they wait for another.
    let mut waiting: Vec<u32> = Vec::new();
    loop {
        while let Some(index) = select_ready(hosts, &runs, &waiting, &sent) {
            if waiting.contains(&index) {
                sent.forget(index);
            }
            match running.run(index, &runs, messages) {
                Ok((program, result)) => {
                    programs.push(program);
                    runs.push(result);
                }
                Err(error) if !is_interrupted(&error) && !waiting.contains(&index) => {
                    waiting.push(index);
                    // Another may set what it waits for.
                    let can_wait = sent.misses_any(index);
                    if !can_wait || select_ready(hosts, &runs, &waiting, &sent) == Some(index) {
                        return Err(error);
                    }
                    messages.info(&format!(
                        "host {index} waits for another host: it is run again after that one"
                    ));
                }
                Err(error) => return Err(error),
            }
        }
        for reruns in 0..=MAX_RERUNS {
            let mut outdated = Vec::new();
            for at in 0..runs.len() {
                // Also what another one has sent in this round.
                let Some(message) = find_changed_message(&runs, at, &sent) else {
                    continue;
                };
                let index = runs[at].host;
                outdated.push(format!("host {index} `{message}`"));
                if reruns < MAX_RERUNS {
                    sent.forget(index);
                    (programs[at], runs[at]) = running.run(index, &runs, messages)?;
                }
            }
            if outdated.is_empty() {
                break;
            }
            if reruns == MAX_RERUNS {
                messages.info(&format!(
                    "warning: after {MAX_RERUNS} more runs of each, hosts have still read what another one has since sent \
                     with another value ({}): values that differ from run to run, such as times, or a decision that needs \
                     more rounds; where they decide what runs, the result may be another on the cluster",
                    outdated.join(", ")
                ));
            }
        }
        // With what is known now, other hosts may differ.
        if select(hosts, &runs).is_none() {
            break;
        }
    }
    Ok((programs, runs))
}

/// How often each host is run again at most. What they decide in turn needs a round for each decision, and what differs
/// from run to run, such as a time, never comes to rest.
const MAX_RERUNS: u32 = 3;

/// Returns a message that has changed since a run has read it.
fn find_changed_message(runs: &[HostRun], at: usize, sent: &HostMessages) -> Option<String> {
    let hosts: Vec<u32> = runs.iter().map(|run| run.host).collect();
    let has_decided = runs[at].summary.decisive_read().is_some();
    sent.find_changed(runs[at].host, &hosts, has_decided)
}

/// What the runs of all hosts have in common.
struct RunningHosts<'a> {
    spec: DryrunSpec,
    hosts: &'a HostsSpec,
    /// For the output of the programs.
    scratch: &'a Path,
    /// Where hosts leave what they tell each other.
    folder: &'a Path,
    context: &'a Context,
}

impl RunningHosts<'_> {
    /// Runs a host beside those that were run.
    fn run(
        &self,
        index: u32,
        runs: &[HostRun],
        messages: &dyn Messages,
    ) -> Result<(ProgramRun, HostRun)> {
        let host = HostConfig {
            index,
            count: self.hosts.count,
            launcher: self.hosts.launcher,
            folder: self.folder.to_owned(),
        };
        // The first host speaks for itself; the others would say the same again.
        let log = self.scratch.join(format!("host-{index}.log"));
        let is_first = runs.is_empty();
        let spec = &self.spec;
        let spec = DryrunSpec {
            hosts: None,
            command: spec.command.iter().map(|word| fill_in(&host, word)).collect(),
            run: RunConfig { host: Some(host), ..spec.run.clone() },
            log: spec.log.clone().or_else(|| (!is_first).then(|| log.clone())),
            trace: spec.trace.as_deref().map(|trace| trace_of_host(trace, index)),
            ..spec.clone()
        };
        if !is_first {
            let again = match runs.iter().any(|run| run.host == index) {
                true => {
                    "running again with what other hosts have sent: what it printed was without that"
                }
                false => "running",
            };
            messages.info(&format!("host {index}: {again}, output not shown"));
        }
        let run = run_program(&spec, self.context, messages)
            .and_then(|run| {
                let summary = run.summarize(messages)?;
                let result = read_host_run(index, summary, &run.trace)?;
                Ok((run, result))
            })
            .map_err(|error| match is_first {
                true => error,
                false => with_output_tail(error, &log).context(format!("host {index}")),
            });
        if run.as_ref().is_err_and(is_interrupted) {
            for run in runs {
                let peak = run.summary.devices.iter().map(|device| device.peak_bytes);
                let peak = Bytes(peak.max().unwrap_or(0));
                messages.info(&format!("host {}: peak {peak}", run.host));
            }
        }
        let (run, result) = run?;
        if !is_first && run.exit != ExitReason::Code(0) {
            messages.info(&format!("host {index}: the program {}", run.exit.describe()));
            // The report says where memory ran out; what a run that nobody sees prints is in its log.
            if !result.summary.is_refused() && self.spec.log.is_none() {
                messages.program_output(format!("{}\n", output_tail(&log)).as_bytes());
            }
        }
        Ok((run, result))
    }
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

/// Returns the host to run next: one that has failed because it waits for another host after that one, if there is one.
fn select_ready(
    hosts: &HostsSpec,
    runs: &[HostRun],
    waiting: &[u32],
    sent: &HostMessages,
) -> Option<u32> {
    let next = select(hosts, runs)?;
    let mut known: Vec<u32> = runs.iter().map(|run| run.host).collect();
    known.extend(waiting);
    if !waiting.contains(&next) || sent.find_changed(next, &known, true).is_some() {
        return Some(next);
    }
    let is_left = |host: &u32| !known.contains(host);
    let other = match &hosts.selection {
        HostSelection::Listed(listed) => listed.iter().copied().find(is_left),
        HostSelection::Differing | HostSelection::All => (0..hosts.count).rev().find(is_left),
    };
    Some(other.unwrap_or(next))
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
        for (trace, expected) in
            [("/tmp/run.trace", "/tmp/run-host-7.trace"), ("run", "run-host-7")]
        {
            assert_eq!(trace_of_host(Path::new(trace), 7), Path::new(expected));
        }
    }
}
