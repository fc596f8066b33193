//! Programs that one host executes and another, which has devices of them too, does not: on the cluster they
//! wait for each other where the devices exchange data.

use serde::Serialize;

use super::host_run::{GlobalProgram, HostRun};

/// The first execution in which two hosts differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramMismatch {
    /// The two hosts, the lower one first.
    pub hosts: (u32, u32),
    /// Which execution it is, from 1, of those of programs that both have devices of.
    pub execution: u64,
    /// The program that each executes; `None` where it has executed its last.
    pub programs: (Option<String>, Option<String>),
    /// The line of a value that was not computed and decides what one of them runs, so that they may not differ on the
    /// cluster; empty if not known, `None` where there is no such value.
    pub placeholder: Option<String>,
}

/// Returns where two hosts differ first. What a host would have executed after the end of a run that failed is not
/// known, and no difference.
pub(super) fn find_mismatch(one: &HostRun, other: &HostRun) -> Option<ProgramMismatch> {
    let mut ones = common_executions(one, other.host);
    let mut others = common_executions(other, one.host);
    let mut execution = 1;
    let (mut left, mut right) = (ones.next(), others.next());
    let found = |left: Option<&GlobalProgram>, right: Option<&GlobalProgram>, execution| {
        let name = |program: Option<&GlobalProgram>| program.map(|program| program.name.clone());
        Some(ProgramMismatch {
            hosts: (one.host, other.host),
            execution,
            programs: (name(left), name(right)),
            placeholder: [one, other]
                .into_iter()
                .find_map(|run| run.summary.decisive_read())
                .map(|read| read.site.clone()),
        })
    };
    loop {
        match (left, right) {
            (None, None) => return None,
            (None, Some((right, _))) if one.is_whole() => {
                return found(None, Some(right), execution);
            }
            (Some((left, _)), None) if other.is_whole() => {
                return found(Some(left), None, execution);
            }
            (None, _) | (_, None) => return None,
            (Some((program, times)), Some((expected, expected_times))) => {
                if program != expected {
                    return found(Some(program), Some(expected), execution);
                }
                let both = times.min(expected_times);
                execution += both;
                left = rest(program, times - both).or_else(|| ones.next());
                right = rest(expected, expected_times - both).or_else(|| others.next());
            }
        }
    }
}

fn rest(program: &GlobalProgram, times: u64) -> Option<(&GlobalProgram, u64)> {
    (times > 0).then_some((program, times))
}

/// Returns the executions in which a host exchanges data with devices of programs that another host has, too.
fn common_executions(run: &HostRun, host: u32) -> impl Iterator<Item = (&GlobalProgram, u64)> {
    let executions = run.executions.iter();
    let executions = executions.map(|(index, times)| (&run.programs[*index], *times));
    executions.filter(move |(program, _)| program.communicates && program.hosts.contains(&host))
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::run;
    use super::*;

    fn mismatch(one: &[(&str, u64)], other: &[(&str, u64)]) -> Option<ProgramMismatch> {
        let both = [("init", vec![0, 1]), ("step", vec![0, 1]), ("eval", vec![0, 1])];
        find_mismatch(&run(0, &both, one), &run(1, &both, other))
    }

    #[test]
    fn equal_executions_are_no_mismatch_however_they_are_counted() {
        assert_eq!(mismatch(&[("init", 1), ("step", 3)], &[("init", 1), ("step", 3)]), None);
        assert_eq!(mismatch(&[("step", 3)], &[("step", 1), ("step", 2)]), None);
    }

    #[test]
    fn the_first_difference_is_found() {
        let found = mismatch(&[("init", 1), ("step", 2), ("eval", 1)], &[("init", 1), ("step", 4)]);
        let found = found.expect("they differ");
        assert_eq!(found.execution, 4);
        assert_eq!(found.programs, (Some("eval".to_owned()), Some("step".to_owned())));
        let found = mismatch(&[("step", 2)], &[("step", 3)]).expect("one is longer");
        assert_eq!((found.execution, found.programs), (3, (None, Some("step".to_owned()))));
    }

    #[test]
    fn programs_of_one_host_alone_do_not_matter() {
        let programs = [("step", vec![0, 1]), ("save", vec![0, 2])];
        let one = run(0, &programs, &[("step", 1), ("save", 1), ("step", 1)]);
        let other = run(1, &programs[..1], &[("step", 2)]);
        assert_eq!(find_mismatch(&one, &other), None);
    }

    #[test]
    fn programs_without_collectives_wait_for_nobody() {
        let programs = [("copy", vec![0, 1])];
        let mut one = run(0, &programs, &[("copy", 1)]);
        let other = run(1, &programs, &[]);
        assert!(find_mismatch(&one, &other).is_some());
        one.programs[0].communicates = false;
        assert_eq!(find_mismatch(&one, &other), None);
    }

    #[test]
    fn a_run_that_failed_may_end_early() {
        let both = [("step", vec![0, 1])];
        let mut one = run(0, &both, &[("step", 1)]);
        let other = run(1, &both, &[("step", 5)]);
        one.summary.process_exit = Some(crate::trace::ProcessExit { code: Some(1), signal: None });
        assert_eq!(find_mismatch(&one, &other), None);
    }
}
