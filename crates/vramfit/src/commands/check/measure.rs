//! Measures entries by dry runs in a clean environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::SIGINT;
use vramfit_core::analysis::RunSummary;
use vramfit_core::check::{Entry, Figures, Lock, LockKey, LockLine, Outcome, Program, Row, judge};
use vramfit_core::gpu::GpuSelection;
use vramfit_core::settings::{GpuBudgets, Options};
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use crate::command_line;
use crate::commands::dryrun::{
    self, CompileCache, DryrunSpec, MeasuredRun, ResultFiles, SettingsSpec,
};
use crate::context::Context;
use crate::environment::unicode_variables;
use crate::output::Output;
use crate::parallel::map_parallel;
use crate::python::{find_interpreter, query};

/// The beginnings of names of variables that change what a program needs. They are those of a machine, not
/// of the program; an entry sets its own with `env`.
const CLEARED: [&str; 8] = [
    "CUDA_VISIBLE_DEVICES",
    "JAX_",
    "NVIDIA_TF32_OVERRIDE",
    "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC",
    "TF_FORCE_UNIFIED_MEMORY",
    "TF_GPU_ALLOCATOR",
    "VRAMFIT_UNLIMITED",
    "XLA_",
];

/// The order of sets of texts in Python, which may decide about the order of a program's parameters.
const HASH_SEED: &str = "PYTHONHASHSEED";

/// What all dry runs of a check have in common.
pub(super) struct Measuring<'a> {
    /// In which commands run.
    directory: &'a Path,
    /// For traces.
    scratch: &'a Path,
    cache: CompileCache,
    deadline: Instant,
    timeout: Duration,
    context: &'a Context,
    interrupted: Arc<AtomicBool>,
    runs: AtomicUsize,
}

/// What an entry came to on a GPU.
pub(super) struct RowMeasurement<'a> {
    pub(super) entry: &'a Entry,
    /// The GPUs, as `NAME` or `NAMExN`.
    pub(super) gpu: String,
    pub(super) gpus: &'a GpuSelection,
    pub(super) result: Result<Measured>,
    /// Its trace.
    pub(super) trace: PathBuf,
}

/// What was measured.
pub(super) struct Measured {
    pub(super) line: LockLine,
    pub(super) run: MeasuredRun,
    /// What a second run of the same program came to, where it was made.
    pub(super) again: Option<Figures>,
}

impl<'a> Measuring<'a> {
    pub(super) fn new(
        directory: &'a Path,
        scratch: &'a Path,
        cache: CompileCache,
        timeout: Duration,
        context: &'a Context,
    ) -> Self {
        let interrupted = Arc::new(AtomicBool::new(false));
        let _ = signal_hook::flag::register(SIGINT, Arc::clone(&interrupted));
        Measuring {
            directory,
            scratch,
            cache,
            deadline: Instant::now() + timeout,
            timeout,
            context,
            interrupted,
            runs: AtomicUsize::new(0),
        }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
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
        let rows = entries
            .iter()
            .flat_map(|entry| entry.gpus.iter().map(|gpus| (*entry, gpus)));
        let rows: Vec<_> = rows.collect();
        let bar = output.progress_bar("dry runs");
        let (total, done) = (rows.len() as u64, AtomicUsize::new(0));
        let measured = map_parallel(rows, jobs, |(entry, gpus)| {
            let row = self.measure_row(entry, gpus, lock, output);
            bar.show(done.fetch_add(1, Ordering::Relaxed) as u64 + 1, 0, total);
            Some(row)
        });
        bar.remove();
        measured
    }

    fn measure_row(
        &self,
        entry: &'a Entry,
        gpus: &'a GpuSelection,
        lock: &Lock,
        output: &Output,
    ) -> RowMeasurement<'a> {
        let gpu = gpu_name(gpus);
        let trace = self.trace_path();
        let result = self
            .measure(entry, gpus, self.directory, &trace, output)
            .and_then(|mut first| {
                let key = &first.line.key;
                let accepted = lock.find(&key.entry, &key.gpu, &key.jax);
                if accepted.is_none_or(|line| line.figures != first.line.figures) {
                    let second = self.trace_path();
                    let second = self.measure(entry, gpus, self.directory, &second, output)?;
                    first.again = Some(second.line.figures);
                }
                Ok(first)
            });
        RowMeasurement {
            entry,
            gpu,
            gpus,
            result,
            trace,
        }
    }

    /// Measures an entry on GPUs, with its program in a directory.
    ///
    /// # Errors
    /// Those of the dry run, and `time-limit`.
    pub(super) fn measure(
        &self,
        entry: &Entry,
        gpus: &GpuSelection,
        directory: &Path,
        trace: &Path,
        output: &Output,
    ) -> Result<Measured> {
        if self.is_interrupted() {
            return Err(Error::new(ErrorKind::CompilerFailed, "interrupted"));
        }
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
                gpu: gpu_name(gpus),
                jax: run.summary.header.jax.clone(),
            },
            figures: Figures::of(&run.summary),
            plugin: self.plugin_version(&spec),
            programs: Figures::programs_digest(&run.summary),
        };
        Ok(Measured {
            line,
            run,
            again: None,
        })
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
            Program::Function {
                function,
                arguments,
            } => (self.function_command(function, arguments), None, None),
        };
        let spec = DryrunSpec {
            steps,
            step,
            directory: Some(directory.to_owned()),
            variables: variables(entry, directory, directory != self.directory),
            settings: SettingsSpec {
                options: Options {
                    fraction: entry.fraction,
                    ..Options::default()
                },
                gpu_budgets: GpuBudgets::TotalOnly(gpus.gpu.total_memory_bytes),
                repair: false,
                report_findings: false,
            },
            time_limit: Some(time_limit),
            results: ResultFiles {
                trace: Some(trace.to_owned()),
                ..ResultFiles::default()
            },
            ..DryrunSpec::new(gpus.clone(), command)
        };
        DryrunSpec {
            compilation_cache: Some(self.cache.directory(&spec)),
            ..spec
        }
    }

    /// Returns the command that calls a function once.
    fn function_command(&self, function: &str, arguments: &serde_json::Value) -> Vec<OsString> {
        let python = self.context.python.clone().unwrap_or_default();
        let module = ["-m", "vramfit._run_function"].map(OsString::from);
        let call = [function.to_owned(), arguments.to_string()].map(OsString::from);
        let python = std::iter::once(python.into_os_string());
        python.chain(module).chain(call).collect()
    }

    /// Returns the version of the CUDA plugin that the program uses, such as `cuda13-0.10.2`.
    fn plugin_version(&self, spec: &DryrunSpec) -> String {
        let unknown = || "unknown".to_owned();
        let split = command_line::split_program(
            spec.command.clone(),
            spec.directory.as_deref(),
            self.context,
        );
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

impl RowMeasurement<'_> {
    /// Returns the release of JAX that the program used; empty where it could not be measured.
    pub(super) fn jax(&self) -> &str {
        self.result
            .as_ref()
            .map_or("", |measured| &*measured.line.key.jax)
    }

    /// Returns the run, if it was measured.
    pub(super) fn summary(&self) -> Option<&RunSummary> {
        self.result
            .as_ref()
            .ok()
            .map(|measured| &measured.run.summary)
    }

    /// Judges the row.
    pub(super) fn to_report_row(&self, lock: &Lock, no_lock: bool) -> Row {
        let found = lock.find(&self.entry.name, &self.gpu, self.jax());
        let (outcome, limit_bytes) = match &self.result {
            Err(error) => (failed(error), 0),
            Ok(measured) => {
                let outcome = self.judge(measured, found.map(|line| &line.figures));
                let outcome = match outcome {
                    Outcome::NotAccepted if no_lock => Outcome::WithinLimits,
                    outcome => outcome,
                };
                (outcome, measured.run.limit_bytes)
            }
        };
        Row {
            entry: self.entry.name.clone(),
            gpu: self.gpu.clone(),
            outcome,
            measured: self
                .result
                .as_ref()
                .ok()
                .map(|measured| measured.line.clone()),
            limit_bytes,
            limits: self.entry.limits,
            accepted: found.cloned(),
            base: None,
            growth: None,
            history: Vec::new(),
        }
    }

    /// Judges what was measured. Two runs that differ by more than the tolerance cannot be compared.
    pub(super) fn judge(&self, measured: &Measured, accepted: Option<&Figures>) -> Outcome {
        let judge = |figures| {
            let run = &measured.run;
            judge(
                figures,
                run.fits,
                run.limit_bytes,
                accepted,
                &self.entry.limits,
            )
        };
        let first = judge(&measured.line.figures);
        let Some(again) = &measured.again else {
            return first;
        };
        let is_kept = |outcome: &Outcome| outcome.passes() == Some(true);
        if again == &measured.line.figures || is_kept(&first) && is_kept(&judge(again)) {
            return first;
        }
        let pairs = measured.line.figures.named().into_iter().zip(again.named());
        let tolerance = self.entry.limits.tolerance;
        let differing: Vec<String> = pairs
            .filter(|((_, a), (_, b))| a.abs_diff(*b) > tolerance.of(*a))
            .map(|((name, a), (_, b))| {
                format!(
                    "{name} {} ({a} bytes), then {} ({b} bytes)",
                    Bytes(a),
                    Bytes(b)
                )
            })
            .collect();
        match differing.is_empty() {
            true => first,
            false => Outcome::NotReproducible {
                reason: differing.join("; "),
            },
        }
    }
}

/// Returns the outcome of what could not be measured.
fn failed(error: &Error) -> Outcome {
    Outcome::Failed {
        reason: describe_failure(error),
    }
}

/// Describes an error of a dry run in one line: with the exception of the program, or what it printed last
/// before it ended by itself.
pub(super) fn describe_failure(error: &Error) -> String {
    let message = error.message();
    let Some(output) = error.cause_text() else {
        return message.to_owned();
    };
    let last = || {
        output
            .lines()
            .last()
            .filter(|_| message.contains("exit code"))
    };
    let line = output
        .lines()
        .rev()
        .find(|line| is_exception(line))
        .or_else(last);
    let Some(line) = line.map(str::trim).filter(|line| !line.is_empty()) else {
        return message.to_owned();
    };
    // The message of an exception that nothing caught is known already, without its class.
    match message.split_once(": ") {
        Some((head, tail)) if line.ends_with(tail) => format!("{head}: {line}"),
        _ => format!("{message}: {line}"),
    }
}

/// Says whether a line is the last of a Python traceback.
fn is_exception(line: &str) -> bool {
    let kind = line.split(':').next().unwrap_or_default();
    let is_name = |c: char| c.is_alphanumeric() || "._".contains(c);
    let ends = ["Error", "Exception", "Interrupt", "Exit"];
    kind.chars().all(is_name) && ends.iter().any(|end| kind.ends_with(end))
}

/// Returns the name of GPUs in the lock file.
pub(super) fn gpu_name(gpus: &GpuSelection) -> String {
    match gpus.count {
        1 => gpus.gpu.name.clone(),
        count => format!("{}x{count}", gpus.gpu.name),
    }
}

/// Returns the variables of this process that are not passed on.
fn cleared_variables() -> impl Iterator<Item = String> {
    let names = unicode_variables().map(|(name, _)| name);
    names.filter(|name| CLEARED.iter().any(|start| name.starts_with(start)))
}

/// Returns the changes to the environment of an entry's program. What is checked out elsewhere is imported
/// from there, and not from where it is installed.
fn variables(
    entry: &Entry,
    directory: &Path,
    is_elsewhere: bool,
) -> BTreeMap<String, Option<OsString>> {
    let mut variables: BTreeMap<String, Option<OsString>> =
        cleared_variables().map(|name| (name, None)).collect();
    variables.insert(HASH_SEED.to_owned(), Some("0".into()));
    let own = entry.env.iter();
    variables.extend(own.map(|(name, value)| (name.clone(), Some(value.into()))));
    if is_elsewhere {
        let name = "PYTHONPATH";
        let before = match variables.get(name) {
            Some(value) => value.clone(),
            None => std::env::var_os(name),
        };
        let folders = [directory.to_owned(), directory.join("src")];
        let before = before.unwrap_or_default();
        let before = std::env::split_paths(&before).filter(|path| !path.as_os_str().is_empty());
        let folders = folders.into_iter().filter(|folder| folder.is_dir());
        if let Ok(path) = std::env::join_paths(folders.chain(before)) {
            variables.insert(name.to_owned(), Some(path));
        }
    }
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_exception_once() {
        let described = |message: &str, output: &str| {
            describe_failure(&Error::new(ErrorKind::CompilerFailed, message).cause(output))
        };
        let output = "Traceback:\n  File x\nvramfit._errors.InvalidArgumentError: no `a`\nhint: b";
        let exception = "vramfit._errors.InvalidArgumentError: no `a`";
        assert_eq!(
            described("it failed", output),
            format!("it failed: {exception}")
        );
        assert_eq!(
            described("it failed: no `a`", output),
            format!("it failed: {exception}")
        );
        assert_eq!(
            described("it ended with exit code 2", "a\nlast"),
            "it ended with exit code 2: last"
        );
        assert_eq!(
            described("it never used the GPU", "Error in line 3\nlast"),
            "it never used the GPU"
        );
    }
}
