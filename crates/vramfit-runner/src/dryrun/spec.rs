//! A dry run as a value.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use vramfit_base::files::cannot_read;
use vramfit_base::{Bytes, Result};
use vramfit_model::gpu::{self, Gpu, GpuSelection};
use vramfit_model::run_config::RunConfig;
use vramfit_model::settings::{GpuBudgets, Options, ResolvedSettings, Target, Version, resolve};

use super::compile_cache::COMPILATION_CACHE;
use super::hosts::HostsSpec;
use super::remedies::RemedyLevel;
use crate::context::Context;
use crate::environment::{unicode_variables, variable};

/// A dry run: what it does, and how its program is started.
#[derive(Clone, Debug)]
pub struct DryrunSpec {
    /// What the run does. Its folder, its trace and what the environment says are filled in when it starts.
    pub run: RunConfig,
    /// The hosts that run the program together; `None` for one, and for one of several.
    pub hosts: Option<HostsSpec>,
    /// Settings of the program's JAX.
    pub settings: SettingsSpec,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The directory that the program runs in, if it is not the current one.
    pub directory: Option<PathBuf>,
    /// Variables of the program's environment that are set, or removed, before anything else is.
    pub variables: BTreeMap<String, Option<OsString>>,
    /// When to kill the program.
    pub time_limit: Option<Duration>,
    /// Where the output of the program goes, instead of to the terminal.
    pub log: Option<PathBuf>,
    /// Where the trace goes, if it is kept. An older one is replaced.
    pub trace: Option<PathBuf>,
    /// Which edits of the program are measured after it.
    pub remedies: RemedyLevel,
}

/// How the settings of the program are resolved.
#[derive(Clone, Debug)]
pub struct SettingsSpec {
    /// What is asked for.
    pub options: Options,
    /// What the pool of each GPU can have.
    pub gpu_budgets: GpuBudgets,
    /// Whether to correct values in the environment that JAX ignores or misreads.
    pub repair: bool,
    /// Whether to report what is wrong with the environment; what leaves no GPU is an error in any case.
    pub report_findings: bool,
}

impl SettingsSpec {
    /// Returns options for the pool of a GPU that nobody else uses; the environment is taken as it is.
    pub fn new(options: Options, gpu: &Gpu) -> Self {
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
    pub fn resolve(&self, jax: Version) -> Result<Option<ResolvedSettings>> {
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
    pub fn new(run: RunConfig, command: Vec<OsString>) -> Self {
        DryrunSpec {
            settings: SettingsSpec::new(Options::default(), &run.gpus.gpu),
            run,
            hosts: None,
            command,
            directory: None,
            variables: BTreeMap::new(),
            time_limit: None,
            log: None,
            trace: None,
            remedies: RemedyLevel::Off,
        }
    }

    /// Returns `true` if it is one program in front of the user.
    pub fn is_alone(&self, context: &Context) -> bool {
        self.hosts.is_none() && !context.in_session
    }

    /// Returns the same dry run on other GPUs.
    pub fn on(self, gpus: GpuSelection) -> Self {
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
    pub fn variable(&self, name: &str) -> Option<OsString> {
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

/// Reads `--autotune-results`, adapted to the GPU.
///
/// # Errors
/// `io` when the file cannot be read, `invalid-file` when it has no results for that model.
pub fn read_autotune_results(path: &Path, gpu: &Gpu) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|error| cannot_read(path, error))?;
    gpu::fit_autotune_results(&String::from_utf8_lossy(&bytes), gpu)
}
