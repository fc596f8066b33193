//! The options of many hosts that run a program together.

use clap::builder::{RangedI64ValueParser, TypedValueParser};
use vramfit_analysis::analysis::hosts::MAX_HOSTS;
use vramfit_analysis::{Error, Result};
use vramfit_model::run_config::Launcher;
use vramfit_runner::dryrun::{HostSelection, HostsSpec};

use super::values::named_values;

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
    named_values(ALL)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
