//! The processes of a distributed run, described by the environment of each.
//!
//! Without joining them each process would train by itself, and all would write into one directory, so an
//! incomplete description is an error.

use serde::Serialize;
use vramfit_analysis::{Error, Result};

const COORDINATOR: &str = "JAX_COORDINATOR_ADDRESS";
const PROCESS_COUNT: &str = "JAX_NUM_PROCESSES";
const PROCESS_INDEX: &str = "JAX_PROCESS_ID";

/// Variables of launchers: the number of processes, and the index of this one. JAX finds the rest by itself.
const LAUNCHERS: [(&str, &str); 2] =
    [("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")];

/// One of several processes of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ProcessInfo {
    /// The address of the first process; none where JAX finds it by itself.
    pub(super) coordinator: Option<String>,
    pub(super) count: u32,
    /// The index of this process, from 0.
    pub(super) index: u32,
}

impl ProcessInfo {
    /// Reads the environment; none for a single process.
    ///
    /// # Errors
    /// `invalid-argument` when variables are missing or inconsistent.
    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<ProcessInfo>> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let coordinator = variable(COORDINATOR);
        let launcher = LAUNCHERS
            .into_iter()
            .find(|(count, index)| variable(count).is_some() && variable(index).is_some());
        let (count, index) = match (launcher, variable(PROCESS_COUNT), variable(PROCESS_INDEX)) {
            (Some((count, index)), None, None) => (count, index),
            (None, None, None) if coordinator.is_none() => return Ok(None),
            _ => (PROCESS_COUNT, PROCESS_INDEX),
        };
        let of_jax = count == PROCESS_COUNT;
        for name in [PROCESS_COUNT, PROCESS_INDEX] {
            if of_jax && variable(name).is_none() {
                return Err(incomplete_config(name));
            }
        }
        let (count, index) = (number(count, variable(count))?, number(index, variable(index))?);
        if index >= count {
            let message = format!("process index {index} is out of range for {count} processes");
            return Err(Error::invalid_argument(message).hint(format!(
                "`{PROCESS_INDEX}` counts from 0 and must be below `{PROCESS_COUNT}`"
            )));
        }
        if count == 1 {
            return Ok(None);
        }
        if of_jax && coordinator.is_none() {
            return Err(incomplete_config(COORDINATOR));
        }
        Ok(Some(ProcessInfo { coordinator, count, index }))
    }

    /// Returns whether this process reports; one of several does.
    pub(super) fn is_primary(processes: Option<&ProcessInfo>) -> bool {
        processes.is_none_or(|processes| processes.index == 0)
    }
}

fn incomplete_config(missing: &str) -> Error {
    let message = format!("`{missing}` is not set, but other variables of a distributed run are");
    Error::invalid_argument(message).hint(format!(
        "set `{COORDINATOR}`, such as `host:1234`, `{PROCESS_COUNT}` and `{PROCESS_INDEX}` in each process, or none of them"
    ))
}

fn number(name: &str, value: Option<String>) -> Result<u32> {
    let value = value.unwrap_or_default();
    value.trim().parse().map_err(|_| {
        let message = format!("`{name}` is `{value}`, but must be a non-negative integer");
        Error::invalid_argument(message).hint("the launcher of the processes sets it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<ProcessInfo>> {
        ProcessInfo::read(|name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn three_variables_name_a_process() {
        let set = [(COORDINATOR, "host:1234"), (PROCESS_COUNT, "4"), (PROCESS_INDEX, "3")];
        let found = read(&set).unwrap().unwrap();
        assert_eq!(found.coordinator.as_deref(), Some("host:1234"));
        assert_eq!((found.count, found.index), (4, 3));
        assert!(!ProcessInfo::is_primary(Some(&found)));
    }

    #[test]
    fn a_launcher_names_it_and_jax_finds_the_coordinator() {
        for (count, index) in LAUNCHERS {
            let found = read(&[(count, "2"), (index, "0")]).unwrap().unwrap();
            assert_eq!(found.coordinator, None);
            assert_eq!((found.count, found.index), (2, 0));
            assert!(ProcessInfo::is_primary(Some(&found)));
        }
    }

    #[test]
    fn the_variables_of_jax_win_over_a_launcher() {
        let set = [
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_PROCID", "7"),
            (COORDINATOR, "host:1234"),
            (PROCESS_COUNT, "2"),
            (PROCESS_INDEX, "1"),
        ];
        assert_eq!(read(&set).unwrap().unwrap().count, 2);
    }

    #[test]
    fn one_process_is_alone() {
        for set in [
            &[][..],
            &[("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0")],
            &[("SLURM_PROCID", "0")],
            &[(PROCESS_COUNT, "1"), (PROCESS_INDEX, "0")],
            &[(COORDINATOR, "")],
        ] {
            assert_eq!(read(set).unwrap(), None, "{set:?}");
        }
    }

    #[test]
    fn missing_variables_are_named() {
        for (set, named) in [
            (&[(COORDINATOR, "host:1234")][..], PROCESS_COUNT),
            (&[(COORDINATOR, "host:1234"), (PROCESS_COUNT, "2")], PROCESS_INDEX),
            (&[(PROCESS_COUNT, "2"), (PROCESS_INDEX, "1")], COORDINATOR),
            (&[(PROCESS_INDEX, "1")], PROCESS_COUNT),
        ] {
            let error = read(set).unwrap_err();
            assert!(error.message().contains(&format!("`{named}` is not set")), "{set:?}");
        }
        let described = |count, index| {
            let set = [(COORDINATOR, "h:1"), (PROCESS_COUNT, count), (PROCESS_INDEX, index)];
            read(&set).unwrap_err().message().to_owned()
        };
        assert!(described("two", "0").contains("is `two`"));
        let out_of_range = "process index 2 is out of range for 2 processes";
        assert!(described("2", "2").contains(out_of_range));
    }
}
