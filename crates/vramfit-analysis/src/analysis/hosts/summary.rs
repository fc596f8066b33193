//! All hosts of a program together.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::grouping::Groups;
use super::host_run::HostRun;
use super::mismatch::{ProgramMismatch, find_mismatch};
use crate::analysis::load::find_most_critical;
use crate::analysis::{EntryKind, RunSummary};
use crate::trace::UncaughtError;

/// What the hosts of a program came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostsSummary {
    /// How many hosts there are.
    pub count: u32,
    /// How many GPUs each has.
    pub gpus_per_host: u32,
    /// The host that the rest of the report is about: it decides the answer.
    pub critical_host: u32,
    /// The hosts that were run, by number.
    pub runs: Vec<HostSummary>,
    /// Hosts that were neither run nor are represented by one that was.
    pub not_run: Vec<u32>,
    /// The first execution in which two hosts differ, for each pair that does.
    pub mismatches: Vec<ProgramMismatch>,
}

/// What one host came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostSummary {
    /// Its number.
    pub host: u32,
    /// Hosts that were not run and take part in the same programs.
    pub represents: Vec<u32>,
    /// As [`crate::analysis::Verdict::fits`].
    pub fits: Option<bool>,
    /// Peak of the device that decides.
    pub peak_bytes: u64,
    /// What the process could have had there.
    pub capacity_bytes: u64,
    /// Requests that were refused.
    pub oom_count: u64,
    /// Whether the program called `jax.distributed.initialize`.
    pub initialized: bool,
    /// The exception that ended its program.
    pub error: Option<UncaughtError>,
    /// How its memory at the peak differs from the host's that represents most hosts, by kind of owner, the
    /// largest difference first.
    pub differences: Vec<OwnerDifference>,
    /// Programs that it executes and no other host that was run does.
    pub own_programs: Vec<String>,
}

/// Bytes of one kind of owner that a host has more than another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnerDifference {
    /// The kind of owner.
    pub owner: EntryKind,
    /// How many more; negative for fewer.
    pub bytes: i64,
}

/// Puts the runs of hosts together: returns the summary of the host that decides, with all others in it. `None`
/// without runs.
pub fn summarize_hosts(runs: &[HostRun], count: u32, gpus_per_host: u32) -> Option<RunSummary> {
    let groups = Groups::of(runs, count);
    let mut represented: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut not_run = Vec::new();
    for host in 0..count {
        match groups.representative(host) {
            Some(run) if run.host == host => {}
            Some(run) => represented.entry(run.host).or_default().push(host),
            None => not_run.push(host),
        }
    }
    let of = |host: u32| represented.get(&host).map_or(0, Vec::len);
    // Of equals the first.
    let usual = runs.iter().rev().max_by_key(|run| of(run.host))?;
    let summaries = runs.iter().map(|run| {
        let device = run.summary.critical_device();
        HostSummary {
            host: run.host,
            represents: represented.get(&run.host).cloned().unwrap_or_default(),
            fits: run.summary.fits(),
            peak_bytes: device.map_or(0, |device| device.peak_bytes),
            capacity_bytes: device.map_or(0, |device| device.capacity_bytes),
            oom_count: run.summary.failure_count,
            initialized: run.is_initialized(),
            error: run.summary.uncaught_error.clone(),
            differences: compare_owners(&run.summary, &usual.summary),
            own_programs: find_own_programs(run, runs),
        }
    });
    let mut summaries: Vec<_> = summaries.collect();
    summaries.sort_by_key(|summary| summary.host);
    let critical = &runs[find_most_critical(runs.iter().map(|run| &run.summary))?];
    let hosts = HostsSummary {
        count,
        gpus_per_host,
        critical_host: critical.host,
        runs: summaries,
        not_run,
        mismatches: find_mismatches(runs),
    };
    Some(RunSummary { hosts: Some(hosts), ..critical.summary.clone() })
}

/// Compares each run with the first one that takes part in some of its programs.
fn find_mismatches(runs: &[HostRun]) -> Vec<ProgramMismatch> {
    let pairs = runs.iter().enumerate().filter_map(|(index, run)| {
        let earlier = runs[..index].iter();
        earlier.filter_map(|other| find_mismatch(other, run)).next()
    });
    pairs.collect()
}

/// Returns how the bytes by kind of owner differ where two runs were fullest.
fn compare_owners(run: &RunSummary, usual: &RunSummary) -> Vec<OwnerDifference> {
    let sum = |summary: &RunSummary, sign: i64, sums: &mut BTreeMap<EntryKind, i64>| {
        let parts = summary.attribution.iter().flat_map(|it| &it.parts);
        for part in parts {
            *sums.entry(part.kind).or_default() += sign * part.bytes.min(i64::MAX as u64) as i64;
        }
    };
    let mut sums = BTreeMap::new();
    sum(run, 1, &mut sums);
    sum(usual, -1, &mut sums);
    let differences = sums.into_iter().filter(|(_, bytes)| *bytes != 0);
    let mut differences: Vec<_> =
        differences.map(|(owner, bytes)| OwnerDifference { owner, bytes }).collect();
    differences.sort_by_key(|difference| std::cmp::Reverse(difference.bytes.abs()));
    differences
}

/// Returns the names of programs that no other run has executed.
fn find_own_programs(run: &HostRun, runs: &[HostRun]) -> Vec<String> {
    let names = |run: &HostRun| -> BTreeSet<String> {
        let executed = run.summary.programs.iter().filter(|one| one.calls > 0);
        executed.map(|program| program.name.clone()).collect()
    };
    let others = runs.iter().filter(|other| other.host != run.host);
    let of_others: BTreeSet<String> = others.flat_map(names).collect();
    match runs.len() {
        1 => Vec::new(),
        _ => names(run).difference(&of_others).cloned().collect(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::super::host_run::GlobalProgram;
    use super::*;
    use crate::analysis::summarize;
    use crate::run_config::RunConfig;
    use crate::trace::{Footer, Header, Reader, Writer};

    #[derive(Clone, Default)]
    struct File(Arc<Mutex<Vec<u8>>>);

    impl Write for File {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("one thread").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Returns a run that did nothing else than execute these programs, each with its hosts.
    pub(in super::super) fn run(
        host: u32,
        programs: &[(&str, Vec<u32>)],
        executed: &[(&str, u64)],
    ) -> HostRun {
        let file = File::default();
        let header = Header {
            run: RunConfig::new("h100-80g".parse().expect("in the catalog")),
            host,
            hosts: 32,
            allocator: "default".to_owned(),
            memory_fraction: 0.75,
            devices: 1,
            ..Header::default()
        };
        let mut writer = Writer::new(file.clone(), &header).expect("written");
        let footer = Footer {
            bytes_in_use: vec![0],
            peak_bytes_in_use: vec![0],
            pool_bytes: vec![0],
            num_allocs: vec![0],
            ..Footer::default()
        };
        writer.finish(&footer).expect("written");
        let trace = file.0.lock().expect("one thread").clone();
        let summary = summarize(Reader::new(trace.as_slice()).expect("a trace")).expect("whole");
        let index = |name: &str| programs.iter().position(|(known, _)| *known == name);
        let program = |(name, hosts): &(&str, Vec<u32>)| GlobalProgram {
            name: (*name).to_owned(),
            fingerprint: (*name).to_owned(),
            hosts: hosts.clone(),
            communicates: true,
        };
        let executed = executed.iter();
        HostRun {
            host,
            summary,
            programs: programs.iter().map(program).collect(),
            executions: executed
                .map(|(name, times)| (index(name).expect("a program"), *times))
                .collect(),
        }
    }

    #[test]
    fn hosts_are_run_or_represented_or_neither() {
        let all: Vec<u32> = (0..4).collect();
        let programs = [("step", all)];
        let runs = [run(0, &programs, &[("step", 2)]), run(1, &programs, &[("step", 2)])];
        let summary = summarize_hosts(&runs, 4, 8).expect("two runs");
        let hosts = summary.hosts.expect("put in");
        assert!(hosts.runs[0].represents.is_empty());
        assert_eq!(hosts.runs[1].represents, [2]);
        assert_eq!((hosts.not_run, hosts.mismatches), (vec![3], vec![]));
        let only = summarize_hosts(&runs[..1], 4, 8).and_then(|summary| summary.hosts);
        assert_eq!(only.expect("one run").not_run, [1, 2, 3]);
    }

    #[test]
    fn a_mismatch_leaves_the_answer_open() {
        let programs = [("step", vec![0, 1]), ("eval", vec![0, 1])];
        let runs =
            [run(0, &programs, &[("step", 2), ("eval", 1)]), run(1, &programs, &[("step", 2)])];
        let summary = summarize_hosts(&runs, 2, 8).expect("two runs");
        assert_eq!(summary.hosts.as_ref().expect("put in").mismatches.len(), 1);
        assert_eq!(summary.fits(), None);
    }
}
