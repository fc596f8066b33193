//! Hosts that run a program together, and what one of them finds in its environment.

use std::ffi::OsString;
use std::str::FromStr;

use vramfit_base::{Error, Result};
use vramfit_model::run_config::{HostConfig, Launcher};

/// The hosts of a dry run.
#[derive(Clone, Debug, Default)]
pub struct HostsSpec {
    /// How many there are.
    pub count: u32,
    /// Which of them are run.
    pub selection: HostSelection,
    /// Whose variables their programs find; `None` for those that people set by hand.
    pub launcher: Option<Launcher>,
}

/// Which hosts are run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostSelection {
    /// The first, the last, and each that takes part in other programs than those that were run.
    #[default]
    Differing,
    /// All of them.
    All,
    /// These, in this order.
    Listed(Vec<u32>),
}

impl FromStr for HostSelection {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "all" {
            return Ok(HostSelection::All);
        }
        let invalid = || {
            Error::invalid_argument(format!("`{text}` is no list of hosts"))
                .hint("write numbers and ranges such as `0,7` or `0-3,31`, or `all`")
        };
        let mut hosts: Vec<u32> = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<u16>().map(u32::from);
            let (Ok(first), Ok(last)) = (number(first), number(last)) else {
                return Err(invalid());
            };
            if last < first {
                return Err(invalid());
            }
            for host in first..=last {
                if !hosts.contains(&host) {
                    hosts.push(host);
                }
            }
        }
        Ok(HostSelection::Listed(hosts))
    }
}

/// Returns the variables that the launcher of a host sets for a process; without one, those that people set by hand.
pub(super) fn launcher_variables(host: &HostConfig) -> Vec<(&'static str, String)> {
    let (index, count) = (host.index.to_string(), host.count.to_string());
    let one = || "1".to_owned();
    let none = || "0".to_owned();
    let nodes = || match host.count {
        1 => "host0".to_owned(),
        count => format!("host[0-{}]", count - 1),
    };
    match host.launcher {
        // What `vramfit train` reads, and many scripts do that pass it on to JAX.
        None => vec![
            ("JAX_COORDINATOR_ADDRESS", "host0:1234".to_owned()),
            ("JAX_NUM_PROCESSES", count),
            ("JAX_PROCESS_ID", index),
        ],
        Some(Launcher::Slurm) => vec![
            ("SLURM_JOB_ID", one()),
            ("SLURM_JOB_NODELIST", nodes()),
            ("SLURM_JOB_NUM_NODES", count.clone()),
            ("SLURM_LOCALID", none()),
            ("SLURM_NNODES", count.clone()),
            ("SLURM_NODEID", index.clone()),
            ("SLURM_NTASKS", count.clone()),
            ("SLURM_NTASKS_PER_NODE", one()),
            ("SLURM_PROCID", index),
            ("SLURM_STEP_NODELIST", nodes()),
            ("SLURM_STEP_NUM_NODES", count.clone()),
            ("SLURM_STEP_NUM_TASKS", count),
        ],
        Some(Launcher::Openmpi) => vec![
            ("OMPI_COMM_WORLD_LOCAL_RANK", none()),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", one()),
            ("OMPI_COMM_WORLD_RANK", index),
            ("OMPI_COMM_WORLD_SIZE", count),
            // JAX takes the coordinator's address and port from it, which nobody connects to.
            ("OMPI_MCA_orte_hnp_uri", "4096.0;tcp://10.0.0.1:34911".to_owned()),
        ],
        Some(Launcher::Kubernetes) => vec![("JOB_COMPLETION_INDEX", index)],
    }
}

/// Puts the number of the host in the place of `{host}`, and how many there are in that of `{hosts}`.
pub(super) fn fill_in(host: &HostConfig, word: &OsString) -> OsString {
    match word.to_str() {
        Some(text) => text
            .replace("{host}", &host.index.to_string())
            .replace("{hosts}", &host.count.to_string())
            .into(),
        None => word.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn hosts_are_selected_by_numbers_and_ranges() {
        let listed = |hosts: &[u32]| HostSelection::Listed(hosts.to_vec());
        for (text, expected) in
            [("all", HostSelection::All), ("7", listed(&[7])), ("0-2,31,1", listed(&[0, 1, 2, 31]))]
        {
            assert_eq!(text.parse::<HostSelection>().expect(text), expected);
        }
        for text in ["", "a", "3-1", "-1", "0,", "0-70000"] {
            text.parse::<HostSelection>().expect_err(text);
        }
    }

    #[test]
    fn each_host_finds_its_own_number() {
        let host = |launcher| HostConfig { index: 7, count: 32, launcher, folder: PathBuf::new() };
        let value = |launcher, name: &str| {
            let variables = launcher_variables(&host(launcher));
            variables.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
        };
        for (launcher, name) in [
            (None, "JAX_PROCESS_ID"),
            (Some(Launcher::Slurm), "SLURM_PROCID"),
            (Some(Launcher::Openmpi), "OMPI_COMM_WORLD_RANK"),
            (Some(Launcher::Kubernetes), "JOB_COMPLETION_INDEX"),
        ] {
            assert_eq!(value(launcher, name).as_deref(), Some("7"), "{name}");
        }
        assert_eq!(value(Some(Launcher::Slurm), "SLURM_NTASKS").as_deref(), Some("32"));
        let word = fill_in(&host(None), &"--rank={host}/{hosts}".into());
        assert_eq!(word, "--rank=7/32");
    }
}
