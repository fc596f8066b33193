//! `vramfit export`: a trained model for programs without vramfit.

use std::path::PathBuf;

use serde_json::json;
use vramfit_analysis::{Bytes, Result};
use vramfit_base::JSON_SCHEMA;
use vramfit_runner::Context;

use super::results::JsonArgs;
use super::train::trained_run::{ModelArgs, TrainedRun};
use crate::files::writable;
use crate::output::Output;
use crate::status::Status;

/// Export a trained model for programs that do not have vramfit
///
/// `stablehlo` is a program for any number of rows, for CPUs and NVIDIA GPUs, with all parameters and
/// normalization in it; `jax.export.deserialize` reads it. `safetensors` has the parameters by their names in the
/// module.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit export runs/train --format stablehlo
  vramfit export runs/train --format safetensors --output model.safetensors
  vramfit export runs/train --format safetensors --checkpoint last --force

Exit codes:
  0  written
  2  an error: no such run, a file that exists, a model that cannot be exported in this format
")]
pub(crate) struct Args {
    /// Directory of a run of `vramfit train`
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Format of the file
    #[arg(long, value_name = "FORMAT", value_enum)]
    format: Format,
    /// File to write; the name of the run and of the format if not set
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// The predictions as a program, by `jax.export`
    #[value(name = "stablehlo")]
    StableHlo,
    /// The parameters, by their names
    #[value(name = "safetensors")]
    Safetensors,
}

/// Runs `vramfit export`.
pub(crate) fn run(args: &Args, context: &Context, output: &mut Output) -> Result<Status> {
    let run = TrainedRun::read(&args.run)?;
    let ending = match args.format {
        Format::StableHlo => "stablehlo",
        Format::Safetensors => "safetensors",
    };
    let path = args.output.clone().unwrap_or_else(|| {
        let directory = std::fs::canonicalize(&args.run).unwrap_or_else(|_| args.run.clone());
        let mut name = directory.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{ending}"));
        PathBuf::from(name)
    });
    let path = writable(&path, args.force)?;
    let json = args.json.target(args.force)?;
    let request = json!({ "format": args.format, "output": path });
    let result = run.perform("export", &args.model, request, context, output, &json)?;
    json.write(&json!({ "schema": JSON_SCHEMA, "result": result }), output)?;
    if json.is_stdout() {
        return Ok(Status::Yes);
    }
    output.text(&format!(
        "exported the model of step {} to `{}`, {}\n",
        result["step"],
        path.display(),
        Bytes(result["file_bytes"].as_u64().unwrap_or(0)),
    ))?;
    Ok(Status::Yes)
}
