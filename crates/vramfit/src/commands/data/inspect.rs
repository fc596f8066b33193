//! `vramfit data inspect`: the contents of an HDF5 file, its memory use, and what will be slow.

use std::path::PathBuf;

use serde::Serialize;
use vramfit_analysis::{Bytes, Error, Result};
use vramfit_base::JSON_SCHEMA;
use vramfit_data::inspect::{FileReport, InspectOptions, inspect_file};

use super::inspect_text::render_report;
use super::numbers::parse_count;
use crate::commands::results::JsonFileArgs;
use crate::output::Output;
use crate::status::Status;

/// Show the contents of an HDF5 file, the memory to load or stream it, and what will be slow
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit data inspect train.h5
  vramfit data inspect train.h5 --dataset train/x --dataset train/y --memory 64MiB
  vramfit data inspect train.h5 --rows 5
  vramfit data inspect train.h5 --sample 1000 --json -
")]
pub(crate) struct Args {
    /// The file to inspect
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Inspect only this dataset or group; can be repeated
    #[arg(long, value_name = "PATH")]
    dataset: Vec<String>,
    /// Show the first N rows of each dataset
    #[arg(long, value_name = "N", value_parser = parse_count)]
    rows: Option<u64>,
    /// Show statistics of N evenly spread rows of each dataset
    #[arg(long, value_name = "N", value_parser = parse_count)]
    sample: Option<u64>,
    /// Seed of the sample
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Memory budget for streaming
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory, default_value = "256MiB")]
    memory: Bytes,
    /// Measure the read speed on this machine (takes 0.2 s)
    #[arg(long)]
    measure: bool,
    /// List members of a group one by one, even if they are alike
    #[arg(long)]
    full: bool,
    /// Read a file whose writer did not close it: what it did not flush reads as zeros
    #[arg(long)]
    allow_unclosed: bool,
    #[command(flatten)]
    pub(super) results: JsonFileArgs,
}

#[derive(Serialize)]
struct InspectOutput<'a> {
    schema: u32,
    file: String,
    #[serde(flatten)]
    report: &'a FileReport,
}

/// Runs `vramfit data inspect`.
pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    for (option, rows, example) in [("--sample", args.sample, 1000), ("--rows", args.rows, 5)] {
        if rows == Some(0) {
            let message = format!("`{option}` must be at least 1");
            return Err(Error::invalid_argument(message)
                .hint(format!("omit it, or give a number of rows, such as `{option} {example}`")));
        }
    }
    let json = args.results.target()?;
    let report = inspect_file(
        &args.file,
        &InspectOptions {
            paths: args.dataset.clone(),
            sample: args.sample,
            rows: args.rows,
            seed: args.seed,
            budget: args.memory,
            measure: args.measure,
            allow_unclosed: args.allow_unclosed,
        },
    )?;
    let file = args.file.display().to_string();
    json.write(&InspectOutput { schema: JSON_SCHEMA, file, report: &report }, output)?;
    if !json.is_stdout() {
        output.text(&render_report(&args.file, &report, args.seed, args.full))?;
    }
    Ok(Status::Yes)
}
