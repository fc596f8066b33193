//! Measures entries by dry runs in a clean environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use vramfit_analysis::analysis::Condition;
use vramfit_analysis::check::{Entry, Figures, Lock, LockKey, LockLine, Program, WholeRun};
use vramfit_analysis::{Error, ErrorKind, Result};
use vramfit_model::gpu::GpuSelection;
use vramfit_model::run_config::{RunConfig, StepLimit};
use vramfit_model::settings::Options;
use vramfit_runner::Context;
use vramfit_runner::dryrun::{self, DryrunSpec, HostsSpec, SettingsSpec};
use vramfit_runner::interruption;
use vramfit_runner::parallel::map_dry_runs;
use vramfit_runner::program;
use vramfit_runner::python::{find_interpreter, query};

use super::environment::{cleared_variables, program_variables};
use super::row::{Measured, RowMeasurement};
use crate::output::Output;

/// What all dry runs of a check have in common.
pub(super) struct Measuring<'a> {
    /// In which commands run.
    directory: &'a Path,
    /// For traces.
    scratch: &'a Path,
    cache: PathBuf,
    deadline: Instant,
    timeout: Duration,
    /// How long a run may take that is measured to its end; `None` where none is.
    whole_run_timeout: Option<Duration>,
    context: &'a Context,
    runs: AtomicUsize,
}

impl<'a> Measuring<'a> {
    pub(super) fn new(
        directory: &'a Path,
        scratch: &'a Path,
        cache: PathBuf,
        timeout: Duration,
        whole_run_timeout: Option<Duration>,
        context: &'a Context,
    ) -> Self {
        Measuring {
            directory,
            scratch,
            cache,
            deadline: Instant::now() + timeout,
            timeout,
            whole_run_timeout,
            context,
            runs: AtomicUsize::new(0),
        }
    }

    /// Returns what is to be known about the environment.
    pub(super) fn notes(&self) -> Vec<String> {
        let cleared: Vec<String> = cleared_variables()
            .filter(|name| !name.starts_with("VRAMFIT_"))
            .map(|name| format!("`{name}`"))
            .collect();
        match cleared.is_empty() {
            true => Vec::new(),
            false => vec![format!(
                "not used: {} of this shell; an entry sets variables with `env`",
                cleared.join(", ")
            )],
        }
    }

    /// Measures entries on their GPUs. What differs from the lock file, or has no line in it, is measured
    /// twice.
    pub(super) fn measure_all(
        &self,
        entries: &[&'a Entry],
        lock: &Lock,
        jobs: usize,
        output: &Output,
    ) -> Vec<RowMeasurement<'a>> {
        let rows = entries.iter().flat_map(|entry| entry.gpus.iter().map(|gpus| (*entry, gpus)));
        let rows: Vec<_> = rows.collect();
        map_dry_runs(rows, jobs, output, |(entry, gpus)| {
            Some(self.measure_row(entry, gpus, lock, output))
        })
    }

    fn measure_row(
        &self,
        entry: &'a Entry,
        gpus: &'a GpuSelection,
        lock: &Lock,
        output: &Output,
    ) -> RowMeasurement<'a> {
        let gpu = gpus.label();
        let trace = self.trace_path();
        let result =
            self.measure(entry, gpus, self.directory, &trace, output).and_then(|mut first| {
                let key = &first.line.key;
                let accepted = lock.find(&key.entry, &key.gpu, &key.jax);
                if accepted.is_none_or(|line| line.figures != first.line.figures) {
                    let second = self.trace_path();
                    let second = self.measure(entry, gpus, self.directory, &second, output)?;
                    first.again = Some(second.line.figures);
                }
                self.measure_whole(entry, gpus, &mut first, output);
                Ok(first)
            });
        RowMeasurement { entry, gpu, gpus, result, trace }
    }

    /// Measures the run to its end, where that is wanted and it was ended after some steps; until it is steady, where its
    /// end is too far.
    fn measure_whole(
        &self,
        entry: &Entry,
        gpus: &GpuSelection,
        first: &mut Measured,
        output: &Output,
    ) {
        let Some(allowed) = self.whole_run_timeout else {
            return;
        };
        if !Condition::is_stopped(&first.run.conditions) {
            return;
        }
        let measure = |steps, allowed: Duration| {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let time_limit = allowed.min(left);
            let trace = self.trace_path();
            let mut spec = self.spec(entry, gpus, self.directory, time_limit, &trace);
            spec.run.steps = steps;
            dryrun::measure(&spec, self.context, output)
        };
        let is_too_long = |error: &Error| error.kind() == ErrorKind::TimeLimit;
        let mut whole = measure(None, allowed);
        let mut whole_run = match &whole {
            Ok(run) => WholeRun::Peak(run.peak_bytes),
            Err(error) if is_too_long(error) => WholeRun::TimeLimit(allowed.as_secs()),
            Err(_) => WholeRun::Failed,
        };
        if whole.as_ref().is_err_and(is_too_long)
            && let Ok(run) = measure(Some(StepLimit::Steady), Duration::MAX)
        {
            whole_run = WholeRun::Steady(run.peak_bytes);
            whole = Ok(run);
        }
        first.whole = Some(whole);
        first.line.whole_run = Some(whole_run);
    }

    /// Measures an entry on GPUs, with its program in a directory.
    ///
    /// # Errors
    /// Those of the dry run, `time-limit`, and `interrupted`.
    pub(super) fn measure(
        &self,
        entry: &Entry,
        gpus: &GpuSelection,
        directory: &Path,
        trace: &Path,
        output: &Output,
    ) -> Result<Measured> {
        interruption::ensure_none()?;
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let text = format!("the {} s of `--timeout` are over", self.timeout.as_secs());
            return Err(Error::new(ErrorKind::TimeLimit, text));
        }
        let spec = self.spec(entry, gpus, directory, left, trace);
        let run = dryrun::measure(&spec, self.context, output)?;
        let line = LockLine {
            key: LockKey {
                entry: entry.name.clone(),
                gpu: gpus.label(),
                jax: run.summary.header.jax.clone(),
            },
            figures: Figures::of(&run.summary),
            plugin: self.plugin_version(&spec),
            libraries: run
                .summary
                .environment
                .as_ref()
                .map(|environment| environment.libraries.clone())
                .unwrap_or_default(),
            programs: Figures::programs_digest(&run.summary),
            whole_run: None,
        };
        Ok(Measured { line, run, again: None, whole: None })
    }

    /// Returns a path for a new trace.
    pub(super) fn trace_path(&self) -> PathBuf {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        self.scratch.join(format!("{number}.trace"))
    }

    fn spec(
        &self,
        entry: &Entry,
        gpus: &GpuSelection,
        directory: &Path,
        time_limit: Duration,
        trace: &Path,
    ) -> DryrunSpec {
        let (command, steps, step) = match &entry.program {
            Program::Command { words, steps, step } => {
                let words = words.iter().map(OsString::from).collect();
                (words, Some(*steps), step.clone())
            }
            Program::Function { function, arguments } => {
                (self.function_command(function, arguments), None, None)
            }
        };
        let mut variables = program_variables(entry, directory, directory != self.directory);
        if matches!(entry.program, Program::Function { .. }) {
            // The zeros that stand for large arguments are no values to keep.
            variables.entry("VRAMFIT_UPLOAD_CAP".to_owned()).or_insert(Some("0".into()));
        }
        let hosts = entry.hosts.map(|count| HostsSpec { count, ..HostsSpec::default() });
        let options = Options { fraction: entry.fraction, ..Options::default() };
        let run = RunConfig {
            steps,
            step,
            compilation_cache: Some(self.cache.clone()),
            ..RunConfig::new(gpus.clone())
        };
        DryrunSpec {
            directory: Some(directory.to_owned()),
            variables,
            settings: SettingsSpec::new(options, &gpus.gpu),
            hosts,
            time_limit: Some(time_limit),
            trace: Some(trace.to_owned()),
            ..DryrunSpec::new(run, command)
        }
    }

    /// Returns the command that calls a function once.
    fn function_command(&self, function: &str, arguments: &serde_json::Value) -> Vec<OsString> {
        let python = self.context.python.clone().unwrap_or_default();
        vec![
            python.into_os_string(),
            "-m".into(),
            "vramfit._functions._run_function".into(),
            function.into(),
            arguments.to_string().into(),
        ]
    }

    /// Returns the version of the CUDA plugin that the program uses, such as `cuda13-0.10.2`.
    fn plugin_version(&self, spec: &DryrunSpec) -> String {
        let unknown = || "unknown".to_owned();
        let split =
            program::split_program(spec.command.clone(), spec.directory.as_deref(), self.context);
        let Ok((program, arguments)) = split else {
            return unknown();
        };
        let installed = find_interpreter(&program, &arguments)
            .and_then(|interpreter| query(&interpreter, |_| {}));
        let plugin = installed
            .into_iter()
            .flat_map(|installed| installed.plugins)
            .filter(|plugin| plugin.library)
            .max_by_key(|plugin| plugin.cuda);
        let version = plugin.and_then(|plugin| Some((plugin.cuda, plugin.version?)));
        version.map_or_else(unknown, |(cuda, version)| format!("cuda{cuda}-{version}"))
    }
}
