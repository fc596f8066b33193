//! Runs the program of a dry run, on one host.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use vramfit_analysis::analysis::trace_files;
use vramfit_base::{Error, ErrorKind, Result};
use vramfit_model::run_config::RunConfig;
use vramfit_model::settings::Version;

use super::env::EnvDelta;
use super::program_run::ProgramRun;
use super::spec::{DryrunSpec, read_autotune_results};
use super::{compiler, compiler_log, env, env_check, trace_failure};
use crate::child;
use crate::context::Context;
use crate::files::{cannot_write, check_space};
use crate::messages::Messages;
use crate::program;
use crate::python::{self, Installed, Interpreter};
use crate::scratch::TempDirectory;

/// A trace is rarely larger; where not even that can be written, the run need not start.
const MIN_TRACE_SPACE: usize = 256 << 10;

/// Says where the checkpoints of the program went.
const CHECKPOINTS_NOTE: &str = "note: the program's checkpoint directories were read but not changed; checkpoints that \
    it saved in this dry run hold placeholders and are removed";

/// The release to assume of a program whose Python is unknown.
const LATEST_TESTED: Version = Version::new(0, 10, 2);

/// Runs the program of a dry run to its end, and reports nothing.
///
/// # Errors
/// Whatever prevents the run.
pub(super) fn run_program(
    spec: &DryrunSpec,
    context: &Context,
    messages: &dyn Messages,
) -> Result<ProgramRun> {
    env::check_platforms(|name| spec.variable(name))?;
    let (program, arguments) =
        program::split_program(spec.command.clone(), spec.directory.as_deref(), context)?;
    let scratch = TempDirectory::create()?;
    trace_failure::prepare(scratch.path())?;
    let kept = spec.trace.as_deref();
    let trace = kept.map_or_else(|| scratch.path().join("run.trace"), Path::to_owned);
    check_space(&trace, MIN_TRACE_SPACE)?;
    let (run, mut delta) = prepare(spec, scratch.path(), &trace, &find_shim(context)?)?;
    let installed = probe(spec, &program, &arguments, &delta)?;
    let jax = installed.as_ref().and_then(Installed::jax_version);
    if let Some(settings) = spec.resolve_settings(jax.unwrap_or(LATEST_TESTED))? {
        for note in &settings.notes {
            messages.info(&format!("note: {note}"));
        }
        delta.add(&settings);
    }
    for line in delta.lines() {
        messages.verbose(&format!("environment: {line}"));
    }
    env_check::check(spec, &delta, jax, env_check::is_vramfit(&program, &arguments), messages)?;
    if installed.is_none() {
        let shown = program.display();
        messages.verbose(&format!("cannot find out which Python `{shown}` runs"));
    }

    if let Some(trace) = kept {
        remove_traces(trace)?;
    }
    let log = spec.log.as_deref();
    let streams = log.map(open_output_log).transpose()?;
    let exit = child::run(&program, &arguments, spec.time_limit, |command| {
        delta.apply(command);
        if let Some(directory) = &spec.directory {
            command.current_dir(directory);
        }
        if let Some((out, err)) = streams {
            command.stdin(Stdio::null()).stdout(out).stderr(err);
        }
    })?;
    compiler_log::pass_on_remaining(scratch.path(), log, messages);
    if run.checkpoints.exists() {
        if log.is_none() {
            messages.info(CHECKPOINTS_NOTE);
        }
        if run.host.is_some() {
            remove_checkpoints(&run.checkpoints)?;
        }
    }
    let trace_failure = trace_failure::read(scratch.path());
    Ok(ProgramRun {
        exit,
        rejected_settings: env_check::rejected(scratch.path(), &run.gpus, jax),
        is_python_known: installed.is_some(),
        program,
        trace,
        is_trace_kept: kept.is_some(),
        trace_failure,
        _scratch: scratch,
    })
}

/// Removes the traces of an older run, so that what lies there afterwards is of this one.
///
/// # Errors
/// `io` when one cannot be removed.
pub(super) fn remove_traces(path: &Path) -> Result<()> {
    for old in trace_files(path) {
        std::fs::remove_file(&old).map_err(|error| {
            Error::io(format!("cannot replace `{}`", old.display())).cause(error)
        })?;
    }
    Ok(())
}

/// Removes the checkpoints that a host saved: the next one begins without them. Those of other runs go with
/// the folder of the run.
fn remove_checkpoints(folder: &Path) -> Result<()> {
    std::fs::remove_dir_all(folder)
        .map_err(|error| Error::io(format!("cannot remove `{}`", folder.display())).cause(error))
}

/// Opens the file that both streams of a program go to.
fn open_output_log(path: &Path) -> Result<(File, File)> {
    File::create(path)
        .and_then(|file| Ok((file.try_clone()?, file)))
        .map_err(|error| cannot_write(path, error))
}

/// Writes what the processes of the run read into its folder. Returns the configuration, and the changes to the
/// environment with which they find it.
fn prepare(
    spec: &DryrunSpec,
    folder: &Path,
    trace: &Path,
    shim: &Path,
) -> Result<(RunConfig, EnvDelta)> {
    let mut run = spec.start_config(folder, trace)?;
    if let Some(path) = &spec.run.autotune_results {
        // The compiler takes them for text by their name.
        let adapted = folder.join("autotune-results.txt");
        std::fs::write(&adapted, read_autotune_results(path, &run.gpus.gpu)?)
            .map_err(|error| cannot_write(&adapted, error))?;
        run.autotune_results = Some(adapted);
    }
    let config = folder.join("run.json");
    let delta = EnvDelta::for_dryrun(spec, &config, shim, |name| spec.variable(name));
    run.set_by_vramfit = delta.own().to_vec();
    run.write(&config)?;
    Ok((run, delta))
}

/// Asks the Python that will run the program what it has installed, and rejects what cannot work.
///
/// Returns `None` when it is not known which Python that is, or when it does not answer.
fn probe(
    spec: &DryrunSpec,
    program: &Path,
    arguments: &[OsString],
    delta: &EnvDelta,
) -> Result<Option<Installed>> {
    let Some(interpreter) = python::find_interpreter(program, arguments) else {
        return Ok(None);
    };
    let installed = python::query(&interpreter, |command| delta.apply(command));
    if let Some(installed) = &installed {
        compiler::check(&interpreter, installed, &spec.run.gpus.gpu)?;
    }
    Ok(installed)
}

/// Returns the directory of the modules that JAX discovers: of the package that the caller knows, else of that of the
/// context's Python.
///
/// # Errors
/// `compiler-missing` where that Python does not have vramfit.
fn find_shim(context: &Context) -> Result<PathBuf> {
    let python = context.python.clone().unwrap_or_default();
    let package = context.package.clone().or_else(|| {
        let interpreter = Interpreter::bare(python.clone());
        python::query(&interpreter, |_| {})?.package
    });
    let package = package.ok_or_else(|| {
        Error::new(
            ErrorKind::CompilerMissing,
            format!(
                "`{}` does not have the package `vramfit`, which contains the virtual GPU",
                python.display()
            ),
        )
        .hint("install it there, or name the Python that has it with `--python`")
    })?;
    if !has_extension_module(&package) {
        let text = format!("no extension module in `{}`", package.display());
        return Err(Error::new(ErrorKind::CompilerMissing, text)
            .hint("build it with `make build`, or install a wheel"));
    }
    Ok(python::shim_of(&package))
}

/// Returns `true` if a package has the extension module, which is the PJRT plugin, too.
fn has_extension_module(package: &Path) -> bool {
    let files = std::fs::read_dir(package).into_iter().flatten().flatten();
    let mut names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    names.any(|name| name.starts_with("_native.") && name.ends_with(".so"))
}
