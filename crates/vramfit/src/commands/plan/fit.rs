//! `vramfit run --fit`: a plan with which a program fits on the GPUs at hand, searched once and kept.

use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use vramfit_analysis::planning::Plan;
use vramfit_analysis::report::{Extent, qualify_headline};
use vramfit_analysis::{Bytes, Error, ErrorKind, Result};
use vramfit_model::gpu::GpuSelection;
use vramfit_model::settings::Options;
use vramfit_runner::Context;
use vramfit_runner::dryrun::cache_home;
use vramfit_runner::files::cannot_write;
use vramfit_runner::interruption;
use vramfit_runner::plan::{all_moves, default_search, default_trial, find_plans, measure_plan};
use vramfit_runner::scratch::TempDirectory;

use super::results::PlanResults;
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
    let found = find_plans(&spec, context, output)?;
    let results = PlanResults { found: &found, spec: &spec };
    // Where nothing fits for certain, what may fit is worth a try; its headline says what it assumes.
    let may_fit = found.may_fit(&spec);
    if found.is_interrupted {
        if may_fit {
            write(&path, &results.plan_file()?)?;
            output.info("the plan that was found so far is kept for the next time");
        }
        interruption::ensure_none()?;
    }
    if !may_fit {
        output.info(&results.to_text(Extent::Plain));
        return Ok(None);
    }
    output.info(&results.headline());
    write(&path, &results.plan_file()?)?;
    Ok(Some(path))
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
