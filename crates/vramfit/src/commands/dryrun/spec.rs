//! A dry run as a value: made from the arguments of `vramfit dryrun`, or by another command that makes one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vramfit_analysis::planning::Plan;
use vramfit_analysis::{Bytes, Error, Result};
use vramfit_model::gpu::{self, Gpu, GpuSelection};
use vramfit_model::run_config::RunConfig;
use vramfit_model::settings::{GpuBudgets, Options, ResolvedSettings, Target, Version, resolve};
use vramfit_runner::Context;
use vramfit_runner::environment::{unicode_variables, variable};
use vramfit_runner::files::cannot_read;

use super::compile_cache::COMPILATION_CACHE;
use super::hosts::HostsSpec;
use super::remedies::RemedyLevel;
use super::result_files::ResultFiles;

/// A dry run: what it does, how its program is started, and where results go.
#[derive(Clone, Debug)]
pub(crate) struct DryrunSpec {
    /// What the run does. Its folder, its trace and what the environment says are filled in when it starts.
    pub(crate) run: RunConfig,
    /// The hosts that run the program together; `None` for one, and for one of several.
    pub(crate) hosts: Option<HostsSpec>,
    /// Settings of the program's JAX.
    pub(crate) settings: SettingsSpec,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// The directory that the program runs in, if it is not the current one.
    pub(crate) directory: Option<PathBuf>,
    /// Variables of the program's environment that are set, or removed, before anything else is.
    pub(crate) variables: BTreeMap<String, Option<OsString>>,
    /// When to kill the program.
    pub(crate) time_limit: Option<Duration>,
    /// Where the output of the program goes, instead of to the terminal.
    pub(crate) log: Option<PathBuf>,
    pub(crate) results: ResultFiles,
    /// Which edits of the program are measured after it.
    pub(crate) remedies: RemedyLevel,
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

impl DryrunSpec {
    /// Returns the spec of a dry run of a command, everything else being the default.
    pub(crate) fn new(run: RunConfig, command: Vec<OsString>) -> Self {
        DryrunSpec {
            settings: SettingsSpec::new(Options::default(), &run.gpus.gpu),
            run,
            hosts: None,
            command,
            directory: None,
            variables: BTreeMap::new(),
            time_limit: None,
            log: None,
            results: ResultFiles::default(),
            remedies: RemedyLevel::Off,
        }
    }

    /// Returns `true` if it is one program in front of the user.
    pub(crate) fn is_alone(&self, context: &Context) -> bool {
        self.hosts.is_none() && !context.in_session
    }

    /// Returns the same dry run on other GPUs.
    pub(crate) fn on(self, gpus: GpuSelection) -> Self {
        let budgets = GpuBudgets::TotalOnly(gpus.gpu.total_memory_bytes);
        DryrunSpec {
            settings: SettingsSpec { gpu_budgets: budgets, ..self.settings },
            run: RunConfig {
                context_bytes: gpus.gpu.context_bytes_estimate,
                gpus,
                calibration: None,
                ..self.run
            },
            ..self
        }
    }

    /// Returns what the run does, with what is known when it starts.
    ///
    /// # Errors
    /// `invalid-argument` for a variable that is no amount of memory.
    pub(super) fn start_config(&self, folder: &Path, trace: &Path) -> Result<RunConfig> {
        let bytes = |name: &str| -> Result<Option<u64>> {
            let value = self.variable(name).filter(|value| !value.is_empty());
            let bytes = value.map(|value| value.to_string_lossy().parse::<Bytes>()).transpose();
            let bytes = bytes.map_err(|error| error.context(format!("`{name}`")))?;
            Ok(bytes.map(|bytes| bytes.0))
        };
        let cache = self.variable(COMPILATION_CACHE).filter(|folder| !folder.is_empty());
        let run = &self.run;
        // Hosts save to the same path, as Orbax requires of them.
        let of_hosts = run.host.as_ref().map(|host| host.folder.as_path());
        Ok(RunConfig {
            folder: folder.to_owned(),
            trace: trace.to_owned(),
            checkpoints: of_hosts.unwrap_or(folder).join("checkpoints"),
            requested_limit_bytes: self.settings.options.limit.map(|limit| limit.0),
            context_bytes: bytes("VRAMFIT_CONTEXT")?.unwrap_or(run.context_bytes),
            upload_cap_bytes: bytes("VRAMFIT_UPLOAD_CAP")?.unwrap_or(run.upload_cap_bytes),
            compilation_cache: run.compilation_cache.clone().or(cache.map(PathBuf::from)),
            ..run.clone()
        })
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
    use vramfit_analysis::ErrorKind;

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
