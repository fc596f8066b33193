//! Which hosts stand for which.

use std::collections::BTreeSet;

use super::host_run::{GlobalProgram, HostRun};

/// Returns the host to run next; `None` when each of `count` hosts was run or is represented.
///
/// The first and the last host represent no other: programs often give them more to do, such as writing
/// checkpoints, or the end of a pipeline.
pub fn next_host(runs: &[HostRun], count: u32) -> Option<u32> {
    let groups = Groups::of(runs, count);
    let ends = [0, count.saturating_sub(1)];
    let hosts = ends.into_iter().chain(0..count);
    hosts.into_iter().find(|host| groups.representative(*host).is_none())
}

/// The hosts by the programs that they are known to take part in.
pub(super) struct Groups<'r> {
    runs: &'r [HostRun],
    /// For each host the programs of all runs that it has devices of.
    programs: Vec<BTreeSet<&'r GlobalProgram>>,
}

impl<'r> Groups<'r> {
    pub(super) fn of(runs: &'r [HostRun], count: u32) -> Self {
        let mut programs = vec![BTreeSet::new(); count as usize];
        for program in runs.iter().flat_map(|run| &run.programs) {
            for host in &program.hosts {
                if let Some(of_host) = programs.get_mut(*host as usize) {
                    of_host.insert(program);
                }
            }
        }
        Groups { runs, programs }
    }

    /// Returns the run of a host, or the first of one that takes part in the same programs; the ends stand for no
    /// other host, and none for them.
    pub(super) fn representative(&self, host: u32) -> Option<&'r HostRun> {
        let own = self.runs.iter().find(|run| run.host == host);
        own.or_else(|| {
            let of = |host: u32| self.programs.get(host as usize);
            let is_end = |host: u32| host == 0 || host as usize + 1 == self.programs.len();
            let is_same = |run: &&HostRun| !is_end(run.host) && of(run.host) == of(host);
            self.runs.iter().find(is_same).filter(|_| !is_end(host))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::run;
    use super::*;

    /// Runs hosts as they come, where `stage` says which program each takes part in.
    fn hosts_run(count: u32, stage: impl Fn(u32) -> Vec<(&'static str, Vec<u32>)>) -> Vec<u32> {
        let mut runs = Vec::new();
        while let Some(host) = next_host(&runs, count) {
            runs.push(run(host, &stage(host), &[]));
        }
        runs.iter().map(|run| run.host).collect()
    }

    #[test]
    fn one_host_stands_for_all_between_the_ends_that_run_the_same_programs() {
        let all: Vec<u32> = (0..32).collect();
        assert_eq!(hosts_run(32, |_| vec![("step", all.clone())]), [0, 31, 1]);
    }

    #[test]
    fn each_stage_of_a_pipeline_is_run_once() {
        let stage = |host: u32| {
            let first = host / 4 * 4;
            vec![("stage", (first..first + 4).collect())]
        };
        assert_eq!(hosts_run(16, stage), [0, 15, 1, 4, 8, 12]);
    }

    #[test]
    fn hosts_that_share_no_program_are_taken_to_be_equal() {
        assert_eq!(hosts_run(8, |_| Vec::new()), [0, 7, 1]);
        assert_eq!(hosts_run(2, |_| Vec::new()), [0, 1]);
        assert_eq!(hosts_run(1, |_| Vec::new()), [0]);
    }
}
