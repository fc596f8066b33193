//! `vramfit run --fit`: a plan with which a program fits on the GPUs at hand, searched once and kept.

use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use vramfit_analysis::planning::{Moves, Plan};
use vramfit_analysis::report::{Extent, qualify_headline};
use vramfit_analysis::{Bytes, Error, ErrorKind, Result};
use vramfit_model::gpu::GpuSelection;
use vramfit_model::run_config::{RunConfig, StepLimit};
use vramfit_model::settings::Options;
use vramfit_runner::Context;
use vramfit_runner::dryrun::{DryrunSpec, SettingsSpec, cache_home, open_compilation_cache};
use vramfit_runner::files::cannot_write;
use vramfit_runner::interruption;
use vramfit_runner::scratch::TempDirectory;

use super::search::SearchSpec;
use super::trial::{DEFAULT_TIME_LIMIT, measure_plan};
use super::vary;
use super::{DEFAULT_JOBS, DEFAULT_MAX_TRIALS, all_moves, run_search};
use crate::output::Output;

/// Returns the file of a plan with which a program fits; `None` where none was found, which is reported.
///
/// `occupied` is what other processes hold on each of the GPUs. A plan that was found before for the same command is measured again: programs change.
///
/// # Errors
/// Those of the dry run of the program as it is, `interrupted`, and `io` where the plan cannot be kept.
pub(crate) fn find_fitting_plan(
    gpus: GpuSelection,
    occupied: Option<Bytes>,
    options: Options,
    command: &[OsString],
    context: &Context,
    output: &mut Output,
) -> Result<Option<PathBuf>> {
    let scratch = TempDirectory::create()?;
    let path = plan_path(&gpus, &options, command)?;
    let trial = default_trial(gpus, occupied, options, command, &scratch);
    if let Ok((plan, _)) = Plan::read(&path) {
        output.info("dry run with the plan that was found before");
        match measure_plan(&trial, &plan, context, output) {
            Ok(measured) if measured.fits != Some(false) => {
                let peak = format!("peak {}", Bytes(measured.peak_bytes));
                let text = qualify_headline("fits", &peak, &measured.conditions, "the dry run");
                output.info(&format!("  {text}"));
                return Ok(Some(path));
            }
            Ok(measured) => {
                output
                    .info(&format!("  peak {}, does not fit any more", Bytes(measured.peak_bytes)));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                output.info("  it cannot be applied to the program any more");
                output.verbose(&error.to_string());
            }
        }
    }
    let spec = default_search(all_moves(&trial.run.gpus.gpu, &options), trial);
    let found = run_search::run(&spec, context, output)?;
    // Where nothing fits for certain, what may fit is worth a try; its headline says what it assumes.
    let may_fit = found.may_fit(&spec);
    if found.is_interrupted {
        if may_fit {
            write(&path, &found.plan_file(&spec)?)?;
            output.info("the plan that was found so far is kept for the next time");
        }
        interruption::ensure_none()?;
    }
    if !may_fit {
        output.info(&found.to_text(&spec, Extent::Plain));
        return Ok(None);
    }
    output.info(&found.headline(&spec));
    write(&path, &found.plan_file(&spec)?)?;
    Ok(Some(path))
}

/// Returns the dry run of a command that others of a search begin from, where the user says no more.
pub(super) fn default_trial(
    gpus: GpuSelection,
    occupied: Option<Bytes>,
    options: Options,
    command: &[OsString],
    scratch: &TempDirectory,
) -> DryrunSpec {
    let settings = SettingsSpec::new(options, &gpus.gpu);
    let run = RunConfig {
        occupied_bytes: occupied.unwrap_or_default().0,
        steps: Some(StepLimit::Steady),
        compilation_cache: Some(open_compilation_cache(true, scratch)),
        ..RunConfig::new(gpus)
    };
    DryrunSpec {
        settings: SettingsSpec { repair: true, ..settings },
        time_limit: Some(DEFAULT_TIME_LIMIT),
        ..DryrunSpec::new(run, command.to_vec())
    }
}

pub(super) fn default_search(moves: Moves, trial: DryrunSpec) -> SearchSpec {
    SearchSpec {
        moves,
        others: Vec::new(),
        commands: vary::commands(&[], &trial.command),
        trial,
        budget: None,
        host_budget: None,
        wants_fastest: false,
        max_trials: DEFAULT_MAX_TRIALS,
        jobs: DEFAULT_JOBS,
    }
}

/// Returns where the plan of a command is kept: in `$XDG_CACHE_HOME/vramfit/plans`.
fn plan_path(gpus: &GpuSelection, options: &Options, command: &[OsString]) -> Result<PathBuf> {
    let home = cache_home().ok_or_else(|| {
        Error::new(ErrorKind::Io, "there is no directory to keep a plan in")
            .hint("set `XDG_CACHE_HOME` to a directory that is writable")
    })?;
    let mut key = DefaultHasher::new();
    (env!("CARGO_PKG_VERSION"), &gpus.name, gpus.count).hash(&mut key);
    // What the host has free differs from run to run.
    let lasting = Options { spill: options.spill.map(|_| Bytes(0)), ..*options };
    (gpus.gpu.total_memory_bytes, format!("{lasting:?}")).hash(&mut key);
    (command, std::env::current_dir().ok()).hash(&mut key);
    let name = format!("{}-{:016x}.toml", gpus.gpu.name, key.finish());
    Ok(home.join("plans").join(name))
}

fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| cannot_write(path, error))
}
