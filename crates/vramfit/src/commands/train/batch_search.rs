//! `vramfit train --dry-run GPU`: whether the step fits on that GPU, and the largest batch size that does.
//! Each trial is a dry run of the program that trains, on synthetic batches.

use std::path::Path;

use serde_json::json;
use vramfit_analysis::analysis::{Condition, RunSummary, load_summary};
use vramfit_analysis::{Bytes, Error, ErrorKind, Result};
use vramfit_base::JSON_SCHEMA;
use vramfit_model::run_config::RunConfig;
use vramfit_runner::Context;
use vramfit_runner::dryrun::{self, DryrunSpec, with_output_tail};
use vramfit_train::{BatchSearchResult, Config, Trial, largest_batch};

use super::datasets::DatasetInfo;
use super::request::{OutcomeKind, Request, RequestDir, Resume};
use super::start::python;
use super::{ProgressMode, command_with};
use crate::commands::data::grouped;
use crate::commands::results::JsonTarget;
use crate::output::Output;
use crate::status::Status;

/// Each trial compiles the step, which takes seconds.
const MAX_TRIALS: u32 = 10;

/// Tries batch sizes, and reports which fit.
pub(super) fn run(
    gpu: &str,
    file: &Path,
    config: &Config,
    info: &DatasetInfo,
    json: &JsonTarget,
    context: &Context,
    output: &mut Output,
) -> Result<Status> {
    let wanted = config.data.batch_size;
    let rows = info.train_rows / config.training.steps_per_dispatch;
    if !json.is_stdout() {
        output.info(&format!(
            "dry runs of {} on {gpu} (at most {MAX_TRIALS}); no data is read",
            file.display()
        ));
    }
    let mut first = None;
    let search = largest_batch(wanted, rows, MAX_TRIALS, |batch| {
        let trial = try_batch(gpu, batch, config, info, context, output)?;
        if !json.is_stdout() {
            output.info(&trial_line(&trial));
        }
        first.get_or_insert(trial);
        Ok(trial)
    })?;
    let Some(first) = first else {
        return Err(Error::new(ErrorKind::Internal, "no batch size was tried"));
    };
    let found = json!({
        "schema": JSON_SCHEMA,
        "gpu": gpu,
        "fits": first.fits,
        "batch_size": wanted,
        "peak_bytes": first.peak_bytes,
        "limit_bytes": first.limit_bytes,
        "largest_batch": search.largest.map(|trial| trial.batch),
        "largest_peak_bytes": search.largest.map(|trial| trial.peak_bytes),
        "smallest_too_large": search.too_large.map(|trial| trial.batch),
        "trials": search.trials,
    });
    json.write(&found, output)?;
    if !json.is_stdout() {
        output.answer(Some(first.fits), &summary(gpu, &first, &search, rows, context))?;
    }
    Ok(if first.fits { Status::Yes } else { Status::No })
}

/// Returns `true` if a run fits only where a library takes little of the scratch memory that it may take.
fn depends_on_scratch(summary: &RunSummary) -> bool {
    summary.verdict().conditions.iter().any(Condition::is_library_scratch)
}

/// Runs one trial.
fn try_batch(
    gpu: &str,
    batch: u64,
    config: &Config,
    info: &DatasetInfo,
    context: &Context,
    output: &mut Output,
) -> Result<Trial> {
    let mut config = config.clone();
    config.data.batch_size = batch;
    config.training.device = Some("gpu".to_owned());
    let request = RequestDir::new(&Request {
        action: "train",
        command: String::new(),
        checkpoint_config: config.checkpoint_config(),
        config: &config,
        data: info,
        resume: Resume::Never,
        force_resume: false,
        progress: ProgressMode::None,
        processes: None,
        dry_run: true,
        parent_pid: None,
    })?;
    let mut command = vec![python(context)?.into_os_string()];
    command.extend(request.arguments());
    let (trace, log) = (request.file("run.trace"), request.file("output.log"));
    let spec = DryrunSpec {
        log: Some(log.clone()),
        trace: Some(trace.clone()),
        ..DryrunSpec::new(RunConfig::new(gpu.parse()?), command)
    };
    let run = dryrun::record(&spec, context, output);
    // The error of the run itself says more than that it ended.
    if let Some(failure) = request.outcome().and_then(|outcome| match outcome.kind {
        OutcomeKind::Rejected | OutcomeKind::Failed => outcome.error,
        _ => None,
    }) {
        return Err(failure.into());
    }
    let run = run.map_err(|error| with_output_tail(error, &log))?;
    let answer = load_summary(&trace);
    let may_fit = answer.as_ref().is_ok_and(depends_on_scratch);
    if run.summary.fits().is_none() && !may_fit {
        let error = Error::new(ErrorKind::ProgramFailed, "the dry run ended too early")
            .hint("see the end of its output above; `vramfit doctor` checks JAX and its compiler");
        return Err(with_output_tail(error, &log));
    }
    let answer = answer?;
    let fullest = answer.devices.iter().max_by_key(|device| device.peak_bytes);
    let fullest = fullest.ok_or_else(|| {
        Error::new(ErrorKind::GpuNotUsed, "the dry run used no virtual GPU")
            .hint("`vramfit doctor` checks whether JAX finds a GPU")
    })?;
    Ok(Trial {
        batch,
        fits: !answer.is_refused() && !may_fit,
        peak_bytes: fullest.peak_bytes,
        limit_bytes: fullest.limit_bytes.unwrap_or(fullest.capacity_bytes),
    })
}

fn trial_line(trial: &Trial) -> String {
    let batch = format!("batch {:>8}", grouped(trial.batch));
    let limit = Bytes(trial.limit_bytes);
    match trial.fits {
        true => format!("  {batch}  fits: peak {} of {limit}", Bytes(trial.peak_bytes)),
        false => format!("  {batch}  does not fit in {limit}"),
    }
}

fn summary(
    gpu: &str,
    first: &Trial,
    search: &BatchSearchResult,
    rows: u64,
    context: &Context,
) -> String {
    let limit = Bytes(first.limit_bytes);
    let wanted = grouped(first.batch);
    let mut text = match first.fits {
        true => format!(
            "fits: a batch of {wanted} needs {} of {limit} on {gpu}\n",
            Bytes(first.peak_bytes)
        ),
        false => format!("does not fit: a batch of {wanted} needs more than {limit} on {gpu}\n"),
    };
    text += &match (search.largest, search.too_large) {
        (Some(fits), _) if fits.batch == rows => {
            format!("all {} rows of an epoch fit in one batch\n", grouped(rows))
        }
        (Some(fits), fails) => {
            let next = match fails {
                Some(fails) => format!("; {} does not", grouped(fails.batch)),
                None => format!(
                    "; larger ones were not tried (stopped after {} dry runs)",
                    search.trials
                ),
            };
            let batch_size = format!("data.batch_size={}", fits.batch);
            let use_it = command_with(context, &["--set", &batch_size]);
            format!(
                "the largest batch size that fits is {} ({}){next}: `{use_it}`\n",
                grouped(fits.batch),
                Bytes(fits.peak_bytes)
            )
        }
        (None, _) => "no batch size fits: the model and its optimizer are too large for this GPU\n"
            .to_owned(),
    };
    text
}
