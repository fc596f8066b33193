//! The processes of a run, as the environment of each of them tells.
//!
//! Whoever starts several says so by variables. Without joining them each would train by itself, and all
//! write into one directory, so what is half said is refused.

use serde::Serialize;
use vramfit_core::{Error, ErrorKind, Result};

const COORDINATOR: &str = "JAX_COORDINATOR_ADDRESS";
const COUNT: &str = "JAX_NUM_PROCESSES";
const INDEX: &str = "JAX_PROCESS_ID";

/// Launchers that tell each process how many there are and which it is. JAX finds the rest by itself.
const LAUNCHERS: [(&str, &str); 2] = [
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
];

/// One of several processes of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Processes {
    /// Where the first one listens; none where JAX finds that out.
    pub(super) coordinator: Option<String>,
    pub(super) count: u32,
    /// Which this one is, from 0.
    pub(super) index: u32,
}

impl Processes {
    /// Reads the environment; none where this process is alone.
    ///
    /// # Errors
    /// `invalid-argument` when only some of the variables are there, or do not fit each other.
    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Processes>> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let coordinator = variable(COORDINATOR);
        let launcher = LAUNCHERS
            .into_iter()
            .find(|(count, index)| variable(count).is_some() && variable(index).is_some());
        let (count, index) = match (launcher, variable(COUNT), variable(INDEX)) {
            (Some((count, index)), None, None) => (count, index),
            (None, None, None) if coordinator.is_none() => return Ok(None),
            _ => (COUNT, INDEX),
        };
        let of_jax = count == COUNT;
        for name in [COUNT, INDEX] {
            if of_jax && variable(name).is_none() {
                return Err(half(name));
            }
        }
        let (count, index) = (
            number(count, variable(count))?,
            number(index, variable(index))?,
        );
        if index >= count {
            let message = format!("this is process {index}, counted from 0, of {count}");
            return Err(Error::new(ErrorKind::InvalidArgument, message)
                .hint(format!("`{INDEX}` is below `{COUNT}` in each process")));
        }
        if count == 1 {
            return Ok(None);
        }
        if of_jax && coordinator.is_none() {
            return Err(half(COORDINATOR));
        }
        Ok(Some(Processes {
            coordinator,
            count,
            index,
        }))
    }

    /// Says whether a process tells what there is to tell: one of several does.
    pub(super) fn speaks(processes: Option<&Processes>) -> bool {
        processes.is_none_or(|processes| processes.index == 0)
    }
}

fn half(missing: &str) -> Error {
    let message = format!("`{missing}` is not set, beside other variables of several processes");
    Error::new(ErrorKind::InvalidArgument, message).hint(format!(
        "set `{COORDINATOR}`, such as `host:1234`, `{COUNT}` and `{INDEX}` in each process, or none of them"
    ))
}

fn number(name: &str, value: Option<String>) -> Result<u32> {
    let value = value.unwrap_or_default();
    value.trim().parse().map_err(|_| {
        let message = format!("`{name}` is `{value}`, and has to be a whole number from 0");
        Error::new(ErrorKind::InvalidArgument, message)
            .hint("whoever starts the processes sets it for each")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Processes>> {
        Processes::read(|name| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn three_variables_name_a_process() {
        let set = [(COORDINATOR, "host:1234"), (COUNT, "4"), (INDEX, "3")];
        let found = read(&set).unwrap().unwrap();
        assert_eq!(found.coordinator.as_deref(), Some("host:1234"));
        assert_eq!((found.count, found.index), (4, 3));
        assert!(!Processes::speaks(Some(&found)));
    }

    #[test]
    fn a_launcher_names_it_and_jax_finds_the_coordinator() {
        for (count, index) in LAUNCHERS {
            let found = read(&[(count, "2"), (index, "0")]).unwrap().unwrap();
            assert_eq!(found.coordinator, None);
            assert_eq!((found.count, found.index), (2, 0));
            assert!(Processes::speaks(Some(&found)));
        }
    }

    #[test]
    fn the_variables_of_jax_win_over_a_launcher() {
        let set = [
            ("SLURM_STEP_NUM_TASKS", "8"),
            ("SLURM_PROCID", "7"),
            (COORDINATOR, "host:1234"),
            (COUNT, "2"),
            (INDEX, "1"),
        ];
        assert_eq!(read(&set).unwrap().unwrap().count, 2);
    }

    #[test]
    fn one_process_is_alone() {
        for set in [
            &[][..],
            &[("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0")],
            &[("SLURM_PROCID", "0")],
            &[(COUNT, "1"), (INDEX, "0")],
            &[(COORDINATOR, "")],
        ] {
            assert_eq!(read(set).unwrap(), None, "{set:?}");
        }
    }

    #[test]
    fn what_is_half_said_is_refused_by_name() {
        for (set, named) in [
            (&[(COORDINATOR, "host:1234")][..], COUNT),
            (&[(COORDINATOR, "host:1234"), (COUNT, "2")], INDEX),
            (&[(COUNT, "2"), (INDEX, "1")], COORDINATOR),
            (&[(INDEX, "1")], COUNT),
        ] {
            let error = read(set).unwrap_err();
            assert!(
                error.message().contains(&format!("`{named}` is not set")),
                "{set:?}"
            );
        }
        let error = read(&[(COUNT, "two"), (INDEX, "0")]).unwrap_err();
        assert!(error.message().contains("is `two`"));
        let error = read(&[(COORDINATOR, "h:1"), (COUNT, "2"), (INDEX, "2")]).unwrap_err();
        assert!(error.message().contains("process 2, counted from 0, of 2"));
    }
}
