//! `vramfit train --dry-run GPU`: does the step fit on that card, and which is the largest batch that
//! does? Each try is a dry run of the same entry that trains, on made-up batches.

use std::path::{Path, PathBuf};

use serde::Serialize;
use vramfit_core::train::{Config, Largest, Tried, largest_batch};
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::ProgressMode;
use super::datasets::Look;
use super::request::{Request, Resume, Written};
use super::start::python;
use crate::commands::data::grouped;
use crate::commands::dryrun::{self, DryrunSpec, ResultFiles};
use crate::context::Context;
use crate::output::Output;
use crate::status::Status;
use crate::traces::answer_of;

/// How many dry runs there are at most; each compiles the step, which takes seconds.
const MAX_TRIES: u32 = 10;

#[derive(Serialize)]
struct BatchSearchOutput<'a> {
    schema: u32,
    gpu: &'a str,
    fits: bool,
    batch_size: u64,
    peak_bytes: u64,
    limit_bytes: u64,
    largest_batch: Option<u64>,
    largest_peak_bytes: Option<u64>,
    smallest_that_fails: Option<u64>,
    tries: u32,
}

/// Tries batches, and tells which fit.
pub(super) fn run(
    gpu: &str,
    file: &Path,
    config: &Config,
    look: &Look,
    json: bool,
    context: &Context,
    output: &mut Output,
) -> Result<Status> {
    let wanted = config.data.batch_size;
    let rows = look.train_rows / config.training.steps_per_dispatch;
    if !json {
        output.info(&format!(
            "dry runs of {} on {gpu}, at most {MAX_TRIES}; nothing is computed, and no data is read",
            file.display()
        ));
    }
    let mut first = None;
    let found = largest_batch(wanted, rows, MAX_TRIES, |batch| {
        let tried = attempt(gpu, batch, config, look, context, output)?;
        if !json {
            output.info(&told(&tried));
        }
        first.get_or_insert(tried);
        Ok(tried)
    })?;
    let Some(first) = first else {
        return Err(Error::new(ErrorKind::Internal, "no batch was tried"));
    };
    if json {
        output.json(&BatchSearchOutput {
            schema: 1,
            gpu,
            fits: first.fits,
            batch_size: wanted,
            peak_bytes: first.peak_bytes,
            limit_bytes: first.limit_bytes,
            largest_batch: found.fits.map(|tried| tried.batch),
            largest_peak_bytes: found.fits.map(|tried| tried.peak_bytes),
            smallest_that_fails: found.fails.map(|tried| tried.batch),
            tries: found.tries,
        })?;
    } else {
        output.text(&conclusion(gpu, file, &first, &found, rows))?;
    }
    Ok(if first.fits { Status::Yes } else { Status::No })
}

/// Makes one dry run.
fn attempt(
    gpu: &str,
    batch: u64,
    config: &Config,
    look: &Look,
    context: &Context,
    output: &mut Output,
) -> Result<Tried> {
    let mut config = config.clone();
    config.data.batch_size = batch;
    config.training.device = Some("gpu".to_owned());
    let written = Written::new(&Request {
        fixed: config.fixed(),
        config: &config,
        data: look,
        resume: Resume::Never,
        force_resume: false,
        progress: ProgressMode::None,
        processes: None,
        rehearsal: true,
        parent: None,
    })?;
    let mut command = vec![python(context)?.into_os_string()];
    command.extend(written.arguments());
    let (trace, log) = (written.file("run.trace"), written.file("said.txt"));
    let spec = DryrunSpec {
        log: Some(log.clone()),
        results: ResultFiles {
            trace: Some(trace.clone()),
            ..ResultFiles::default()
        },
        ..DryrunSpec::new(gpu.parse()?, command)
    };
    let told = dryrun::execute(spec, context, &mut output.quiet());
    // What the run itself refused says more than that it ended.
    if let Some(failure) = written.outcome().and_then(|outcome| match outcome.ended {
        super::request::Ended::Refused => outcome.error,
        _ => None,
    }) {
        return Err(failure.into());
    }
    match told {
        Ok(Status::Yes | Status::No) => {}
        Ok(_) => {
            let error = Error::new(
                ErrorKind::CompilerFailed,
                "the dry run ended before its time",
            )
            .hint("what the program said last is above; `vramfit doctor` says whether JAX and its compiler are all right");
            return Err(with_last_words(error, &log));
        }
        Err(error) => return Err(with_last_words(error, &log)),
    }
    let answer = answer_of(&trace)?;
    let fullest = answer.devices.iter().max_by_key(|device| device.peak_bytes);
    let fullest = fullest.ok_or_else(|| {
        Error::new(ErrorKind::GpuNotUsed, "the dry run used no virtual GPU")
            .hint("`vramfit doctor` says whether JAX finds a GPU")
    })?;
    Ok(Tried {
        batch,
        fits: !answer.is_refused(),
        peak_bytes: fullest.peak_bytes,
        limit_bytes: fullest.limit_bytes.unwrap_or(fullest.capacity_bytes),
    })
}

/// Adds what the program said last, where it was kept from the terminal.
fn with_last_words(error: Error, log: &PathBuf) -> Error {
    const LINES: usize = 12;
    let said = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = said.lines().collect();
    match lines[lines.len().saturating_sub(LINES)..].join("\n") {
        words if words.is_empty() => error,
        words => error.cause(words),
    }
}

fn told(tried: &Tried) -> String {
    let batch = format!("batch {:>8}", grouped(tried.batch));
    let limit = Bytes(tried.limit_bytes);
    match tried.fits {
        true => format!(
            "  {batch}  fits: peak {} of {limit}",
            Bytes(tried.peak_bytes)
        ),
        false => format!("  {batch}  does not fit in {limit}"),
    }
}

fn conclusion(gpu: &str, file: &Path, first: &Tried, found: &Largest, rows: u64) -> String {
    let limit = Bytes(first.limit_bytes);
    let wanted = grouped(first.batch);
    let mut text = match first.fits {
        true => format!(
            "fits: a batch of {wanted} has its peak at {} of {limit} on {gpu}\n",
            Bytes(first.peak_bytes)
        ),
        false => format!("does not fit: a batch of {wanted} needs more than {limit} on {gpu}\n"),
    };
    text += &match (found.fits, found.fails) {
        (Some(fits), _) if fits.batch == rows => {
            format!("all {} rows of an epoch fit in one batch\n", grouped(rows))
        }
        (Some(fits), fails) => {
            let next = match fails {
                Some(fails) => format!("; {} does not", grouped(fails.batch)),
                None => format!(
                    "; larger ones were not tried, after {} dry runs",
                    found.tries
                ),
            };
            let use_it = format!(
                "vramfit train {} --set data.batch_size={}",
                file.display(),
                fits.batch
            );
            format!(
                "the largest batch found to fit is {} ({}){next}: `{use_it}`\n",
                grouped(fits.batch),
                Bytes(fits.peak_bytes)
            )
        }
        (None, _) => {
            "no batch fits: the model and its optimiser are too large for this card\n".to_owned()
        }
    };
    text
}
