//! `vramfit predict`: a prediction for each row of an HDF5 file.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use vramfit_analysis::{Bytes, Error, Result};
use vramfit_base::JSON_SCHEMA;
use vramfit_runner::Context;

use super::data::grouped;
use super::results::JsonArgs;
use super::train::datasets::column;
use super::train::trained_run::{ModelArgs, TrainedRun, stored_type};
use crate::output::Output;
use crate::status::Status;

/// Predict each row of an HDF5 file with a trained model
///
/// Rows are streamed in bounded memory. The output has a dataset `predictions`, and `probabilities` where the
/// targets are classes or labels. The same command resumes an attempt that was stopped.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit predict runs/train new.h5 predictions.h5
  vramfit predict runs/train new.h5 predictions.h5 --keep id --keep time
  vramfit predict runs/train new.h5 predictions.h5 --checkpoint last --device cpu

Exit codes:
  0  all rows are predicted
  2  an error: no such run, other rows than in training, an output that exists, a full disk
")]
pub(crate) struct Args {
    /// Directory of a run of `vramfit train`
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// HDF5 file with inputs
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// HDF5 file to write
    #[arg(value_name = "OUTPUT")]
    out: PathBuf,
    /// Dataset of the inputs, if it is not the one of the training data
    #[arg(long, value_name = "DATASET")]
    inputs: Option<String>,
    /// Copy this dataset of numbers to the output, too; may be repeated
    #[arg(long, value_name = "DATASET")]
    keep: Vec<String>,
    /// Rows per batch, if not those of the training
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    batch_size: Option<u64>,
    #[command(flatten)]
    model: ModelArgs,
    /// Overwrite existing files, and start over after an unfinished attempt
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

/// Ensures that the file with the inputs is not replaced by the output.
fn ensure_other_file(data: &Path, out: &Path) -> Result<()> {
    let identity = |path: &Path| {
        let data = std::fs::metadata(path).ok()?;
        Some((data.dev(), data.ino()))
    };
    match identity(out) {
        Some(file) if identity(data) == Some(file) => Err(Error::invalid_argument(format!(
            "the output `{}` is the file with the inputs",
            out.display()
        ))
        .hint("name another file; `--keep` copies datasets of the inputs to it")),
        _ => Ok(()),
    }
}

/// Runs `vramfit predict`.
pub(crate) fn run(args: &Args, context: &Context, output: &mut Output) -> Result<Status> {
    let run = TrainedRun::read(&args.run)?;
    let inputs = run.inputs(&args.data, args.inputs.as_deref())?;
    ensure_other_file(&args.data, &args.out)?;
    let json = args.json.target(args.force)?;
    run.check_tokens(&args.data, &inputs.dataset)?;
    let mut keep = Vec::new();
    for name in &args.keep {
        let found = column(&args.data, name)?;
        if found.shape[0] != inputs.shape[0] {
            let message = format!(
                "`{name}` has {} rows, but `{}` has {}",
                grouped(found.shape[0]),
                inputs.dataset,
                grouped(inputs.shape[0])
            );
            return Err(Error::invalid_argument(message).hint("keep datasets with as many rows"));
        }
        let first = name.trim_matches('/').split('/').next();
        if matches!(first, Some("predictions" | "probabilities")) {
            let message =
                format!("`{name}` cannot be kept: the output has predictions of that name");
            return Err(Error::invalid_argument(message));
        }
        keep.push(json!({
            "dataset": name.trim_start_matches('/'),
            "dtype": stored_type(&found),
            "stored_dtype": found.dtype,
            "shape": found.shape,
        }));
    }
    let request = json!({
        "data": args.data,
        "inputs": inputs.dataset,
        "output": args.out,
        "keep": keep,
        "batch_size": args.batch_size.unwrap_or(run.config.data.batch_size),
        "memory": run.config.data.memory,
        "force": args.force,
    });
    let result = run.perform("predict", &args.model, request, context, output, &json)?;
    json.write(&json!({ "schema": JSON_SCHEMA, "result": result }), output)?;
    if json.is_stdout() {
        return Ok(Status::Yes);
    }
    let number = |name: &str| result[name].as_u64().unwrap_or(0);
    let resumed = match number("resumed_rows") {
        0 => String::new(),
        rows => format!(", {} of them by an earlier attempt", grouped(rows)),
    };
    output.text(&format!(
        "predicted {} rows{resumed} with the model of step {}; wrote `{}`, {}\n",
        grouped(number("rows")),
        number("step"),
        args.out.display(),
        Bytes(number("file_bytes")),
    ))?;
    Ok(Status::Yes)
}
