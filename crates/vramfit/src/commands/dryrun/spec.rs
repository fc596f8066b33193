//! What a dry run is to do, as plain values: built from the arguments of `vramfit dryrun`, or by another
//! command that makes one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use vramfit_core::gpu::{self, Gpu, GpuSelection};
use vramfit_core::planning::Plan;
use vramfit_core::settings::{GpuBudgets, Options, ResolvedSettings, Target, Version, resolve};
use vramfit_core::trace::StepLimit;
use vramfit_core::{Bytes, Error, Result};

use super::hosts::{HostSpec, HostsSpec};
use super::result_files::ResultFiles;
use crate::environment::{unicode_variables, variable};
use crate::files::cannot_read;

/// What a dry run is to do.
#[derive(Clone, Debug)]
pub(crate) struct DryrunSpec {
    /// The virtual GPUs, with the total memory that they are to have.
    pub(crate) gpus: GpuSelection,
    /// That total, where it is not the default of the catalog.
    pub(crate) total: Option<Bytes>,
    /// Memory already used on each GPU.
    pub(crate) occupied: Option<Bytes>,
    pub(crate) sharing: Sharing,
    /// The hosts that run the program together; `None` for one.
    pub(crate) hosts: Option<HostsSpec>,
    /// Which of several hosts this run is.
    pub(crate) host: Option<HostSpec>,
    /// Settings of the program's JAX.
    pub(crate) settings: SettingsSpec,
    /// After which training steps to stop.
    pub(crate) steps: Option<StepLimit>,
    /// Name of the function that is the training step.
    pub(crate) step: Option<String>,
    pub(crate) autotune_range: bool,
    /// The plan to apply to the program.
    pub(crate) plan: Option<PathBuf>,
    /// Where to record the sites that a plan could change.
    pub(crate) plan_sites: Option<PathBuf>,
    /// Whether memory is granted beyond what the GPU has, to measure a program that does not fit.
    pub(crate) unlimited: bool,
    pub(crate) attribution: bool,
    /// Autotuning results for these GPUs.
    pub(crate) autotune_results: Option<String>,
    /// The calibration of these GPUs, for estimates of time.
    pub(crate) calibration: Option<PathBuf>,
    pub(crate) fill: Option<Fill>,
    /// Whether small values are computed.
    pub(crate) values: bool,
    pub(crate) callbacks: Option<Callbacks>,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// The directory that the program runs in, if it is not the current one.
    pub(crate) directory: Option<PathBuf>,
    /// Variables of the program's environment that are set, or removed, before anything else is.
    pub(crate) variables: BTreeMap<String, Option<OsString>>,
    /// The folder in which the compiler's results are kept and found. JAX's own cache, which the user may have
    /// set, is not used with it.
    pub(crate) compilation_cache: Option<PathBuf>,
    /// When to kill the program.
    pub(crate) time_limit: Option<Duration>,
    /// Where the output of the program goes, instead of to the terminal.
    pub(crate) log: Option<PathBuf>,
    pub(crate) results: ResultFiles,
}

/// Which processes draw on the memory of the same virtual GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Each process has its own.
    Private,
    /// Those of this run.
    Run,
    /// Those of all dry runs with this name.
    Named(String),
}

/// How the settings of the program are resolved.
#[derive(Clone, Debug)]
pub(crate) struct SettingsSpec {
    pub(crate) options: Options,
    pub(crate) gpu_budgets: GpuBudgets,
    /// Whether to correct values in the environment that JAX ignores or misreads.
    pub(crate) repair: bool,
    /// Whether to report what is wrong with the environment; what leaves no GPU is an error in any case.
    pub(crate) report_findings: bool,
}

impl SettingsSpec {
    /// Returns options for the pool of a GPU that nobody else uses; the environment is taken as it is.
    pub(crate) fn new(options: Options, gpu: &Gpu) -> Self {
        SettingsSpec {
            options,
            gpu_budgets: GpuBudgets::TotalOnly(gpu.total_memory_bytes),
            repair: false,
            report_findings: false,
        }
    }

    /// Resolves them for the environment of this process; `None` where there is nothing to do.
    ///
    /// # Errors
    /// Those of [`resolve`].
    pub(crate) fn resolve(&self, jax: Version) -> Result<Option<ResolvedSettings>> {
        self.resolve_with(jax, &variable)
    }

    fn resolve_with(
        &self,
        jax: Version,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<ResolvedSettings>> {
        if self.options == Options::default() && !self.repair {
            return Ok(None);
        }
        let target = Target {
            jax: Some(jax),
            variable,
            gpu_budgets: &|| Ok(self.gpu_budgets.clone()),
            detailed: true,
            repair: self.repair,
            ..Target::default()
        };
        resolve(&self.options, &target).map(Some)
    }
}

/// Contents of values that were not computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fill {
    /// 0
    Zeros,
    /// 1
    Ones,
    /// NaN, where the type has it
    Nan,
    /// Pseudorandom numbers, the same in every run
    Random,
}

/// What to do with host callbacks whose arguments were not computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Callbacks {
    /// Call them with placeholder values
    Call,
    /// Do not call them
    Skip,
}

impl DryrunSpec {
    /// Returns the spec of a dry run of a command, everything else being the default.
    pub(crate) fn new(gpus: GpuSelection, command: Vec<OsString>) -> Self {
        DryrunSpec {
            settings: SettingsSpec::new(Options::default(), &gpus.gpu),
            gpus,
            total: None,
            occupied: None,
            sharing: Sharing::Run,
            hosts: None,
            host: None,
            steps: None,
            step: None,
            autotune_range: false,
            plan: None,
            plan_sites: None,
            unlimited: false,
            attribution: true,
            autotune_results: None,
            calibration: None,
            fill: None,
            values: true,
            callbacks: None,
            command,
            directory: None,
            variables: BTreeMap::new(),
            compilation_cache: None,
            time_limit: None,
            log: None,
            results: ResultFiles::default(),
        }
    }

    /// Returns a variable of the environment that the program would have without a dry run.
    pub(crate) fn variable(&self, name: &str) -> Option<OsString> {
        match self.variables.get(name) {
            Some(value) => value.clone(),
            None => std::env::var_os(name),
        }
    }

    /// Returns all of them, as far as they are Unicode.
    pub(super) fn unicode_variables(&self) -> BTreeMap<String, String> {
        let mut variables: BTreeMap<String, String> = unicode_variables().collect();
        for (name, value) in &self.variables {
            match value.as_ref().and_then(|value| value.to_str()) {
                Some(value) => variables.insert(name.clone(), value.to_owned()),
                None => variables.remove(name),
            };
        }
        variables
    }

    /// Resolves the settings of the program's JAX; `None` where there is nothing to do.
    ///
    /// # Errors
    /// Those of [`resolve`].
    pub(super) fn resolve_settings(&self, jax: Version) -> Result<Option<ResolvedSettings>> {
        let variable = |name: &str| self.variable(name)?.into_string().ok();
        self.settings.resolve_with(jax, &variable)
    }
}

/// The total memory that drivers report for a GPU of one model varies; which of them to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Total {
    /// The lowest that drivers report.
    Lowest,
    /// The highest that drivers report.
    Highest,
    /// What the user's driver reports.
    Exactly(Bytes),
}

impl Total {
    /// Returns the GPU with this total.
    ///
    /// # Errors
    /// `invalid-argument` for bytes that no driver can report for it.
    pub(super) fn apply(self, gpu: &Gpu) -> Result<Gpu> {
        match self {
            Total::Lowest => gpu.with_total(gpu.total_memory_bytes),
            Total::Highest => gpu.with_total(gpu.max_total_memory_bytes),
            Total::Exactly(bytes) => gpu.with_total(bytes.0),
        }
    }
}

/// Reads `--total`.
///
/// # Errors
/// `invalid-argument` for anything but `lowest`, `highest` or a number of bytes.
pub(crate) fn parse_total(text: &str) -> Result<Total> {
    match text {
        "lowest" => Ok(Total::Lowest),
        "highest" => Ok(Total::Highest),
        _ => Bytes::parse_memory(text).map(Total::Exactly),
    }
}

/// Reads `--share-as`.
///
/// # Errors
/// `invalid-argument` for what cannot be the name of a file everywhere.
pub(super) fn parse_share_name(text: &str) -> Result<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if text.is_empty() || text.starts_with('.') || !text.chars().all(allowed) {
        return Err(Error::invalid_argument(format!(
            "`{text}` is not a valid name for shared GPUs"
        ))
        .hint("use letters, digits and `-_.`, such as `desk`"));
    }
    Ok(text.to_owned())
}

/// Reads `--plan`, adds its settings to the options of the user's, and returns the absolute path: the program
/// may change its directory.
///
/// # Errors
/// Those of [`Plan::read`].
pub(crate) fn read_plan(
    path: Option<&Path>,
    options: Options,
) -> Result<(Option<PathBuf>, Options)> {
    let Some(path) = path else {
        return Ok((None, options));
    };
    let (plan, _) = Plan::read(path)?;
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Ok((Some(absolute), plan.settings.add_to(&options)))
}

/// Checks `--calibration`, and returns the absolute path of the file.
///
/// # Errors
/// `io` when the file cannot be read, `invalid-file` when it is no calibration of that model.
pub(crate) fn check_calibration(path: &Path, gpu: &Gpu) -> Result<PathBuf> {
    gpu::Calibration::read(path, gpu)?;
    Ok(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
}

/// Reads `--autotune-results`, adapted to the GPU.
///
/// # Errors
/// `io` when the file cannot be read, `invalid-file` when it has no results for that model.
pub(super) fn read_autotune_results(path: &Path, gpu: &Gpu) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|error| {
        cannot_read(path, error).hint("check the path; it is relative to the current directory")
    })?;
    gpu::fit_autotune_results(&String::from_utf8_lossy(&bytes), gpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramfit_core::ErrorKind;

    #[test]
    fn a_total_is_lowest_or_highest_or_bytes() {
        let t4 = gpu::find("t4").expect("in the catalog");
        for (text, bytes) in
            [("lowest", 15_642_329_088), ("highest", 15_843_721_216), ("15109MiB", 15_842_934_784)]
        {
            let gpu = parse_total(text).and_then(|total| total.apply(&t4)).expect(text);
            assert_eq!(gpu.total_memory_bytes, bytes, "{text}");
            assert_eq!(gpu.max_total_memory_bytes, bytes, "{text}");
        }
        for text in ["80GiB", "most", ""] {
            let error = parse_total(text).and_then(|total| total.apply(&t4)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{text}");
        }
    }
}
