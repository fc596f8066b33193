//! Many hosts that run the program together: the options, and what one of them finds in its environment.

use std::ffi::OsString;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, RangedI64ValueParser, TypedValueParser};
use vramfit_analysis::analysis::hosts::MAX_HOSTS;
use vramfit_analysis::{Error, Result};
use vramfit_model::run_config::{HostConfig, Launcher};

/// Options of every command that makes dry runs of several hosts.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct HostArgs {
    /// Run the program as one of N hosts, each with the GPUs of --gpu
    #[arg(long, value_name = "N", value_parser = host_count_parser())]
    hosts: Option<u32>,
    /// Which hosts to run: `7`, `0-3,31` or `all` [default: the first, the last, and each that differs]
    #[arg(long, value_name = "LIST", requires = "hosts")]
    host: Option<HostSelection>,
    /// Launcher whose variables the program finds in its environment
    #[arg(long, value_name = "NAME", requires = "hosts", value_parser = launcher_parser())]
    launcher: Option<Launcher>,
}

pub(crate) fn host_count_parser() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(MAX_HOSTS))
}

impl HostArgs {
    /// Returns the hosts; `None` for one.
    ///
    /// # Errors
    /// `invalid-argument` for a host that does not exist.
    pub(crate) fn to_spec(&self) -> Result<Option<HostsSpec>> {
        let Some(count) = self.hosts else {
            return Ok(None);
        };
        let selection = self.host.clone().unwrap_or_default();
        if let HostSelection::Listed(hosts) = &selection
            && let Some(host) = hosts.iter().find(|host| **host >= count)
        {
            return Err(Error::invalid_argument(format!(
                "there is no host {host}: `--hosts {count}` has hosts 0 to {}",
                count - 1
            )));
        }
        Ok(Some(HostsSpec { count, selection, launcher: self.launcher }))
    }
}

/// The hosts of a dry run.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostsSpec {
    pub(crate) count: u32,
    pub(crate) selection: HostSelection,
    pub(crate) launcher: Option<Launcher>,
}

/// Which hosts are run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum HostSelection {
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

fn launcher_parser() -> impl TypedValueParser<Value = Launcher> {
    const ALL: [(Launcher, &str, &str); 3] = [
        (
            Launcher::Slurm,
            "slurm",
            "One task per node; JAX then takes one GPU per task unless the program names others",
        ),
        (
            Launcher::Openmpi,
            "openmpi",
            "One process per node; JAX then takes one GPU per process unless the program names others",
        ),
        (Launcher::Kubernetes, "kubernetes", "An indexed job, one pod per node"),
    ];
    let values = ALL.map(|(_, name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).map(|name| {
        let named = ALL.iter().find(|(_, known, _)| *known == name);
        named.expect("one of the possible values").0
    })
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
    fn a_host_that_does_not_exist_is_rejected() {
        let args = |host: &str| HostArgs {
            hosts: Some(4),
            host: Some(host.parse().expect("a list")),
            launcher: None,
        };
        assert!(args("3").to_spec().is_ok());
        let error = args("0-4").to_spec().unwrap_err();
        assert!(error.to_string().contains("no host 4"), "{error}");
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
