//! `vramfit data inspect`: what is in an HDF5 file, what it costs, and what will be slow.

use std::path::PathBuf;

use serde::Serialize;
use vramfit_core::{Bytes, Error, ErrorKind, Result};
use vramfit_data::inspect::{FileReport, InspectOptions, inspect_file};

use super::inspect_text::render_report;
use super::numbers::parse_count;
use crate::output::Output;
use crate::status::Status;

/// Show what is in an HDF5 file, what it costs to load or stream, and what will be slow
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit data inspect train.h5
  vramfit data inspect train.h5 --dataset train/x --dataset train/y --memory 64MiB
  vramfit data inspect train.h5 --rows 5
  vramfit data inspect train.h5 --sample 1000 --json
")]
pub(crate) struct Args {
    /// The file to look at
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Only this dataset or group; can be given several times
    #[arg(long, value_name = "PATH")]
    dataset: Vec<String>,
    /// Show the first N rows of each dataset
    #[arg(long, value_name = "N", value_parser = parse_count)]
    rows: Option<u64>,
    /// Read so many rows of each dataset, evenly spread, and show what their numbers are like
    #[arg(long, value_name = "N", value_parser = parse_count)]
    sample: Option<u64>,
    /// Decides which rows are sampled
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The memory that streaming may use
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    memory: Bytes,
    /// Read rows for a fifth of a second, to see how quickly they come on this machine
    #[arg(long)]
    measure: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct InspectOutput<'a> {
    schema: u32,
    file: String,
    #[serde(flatten)]
    report: &'a FileReport,
}

impl Args {
    pub(super) fn prints_json(&self) -> bool {
        self.json
    }
}

/// Runs `vramfit data inspect`.
pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    for (option, rows, example) in [("--sample", args.sample, 1000), ("--rows", args.rows, 5)] {
        if rows == Some(0) {
            let message = format!("`{option} 0` reads no rows");
            return Err(
                Error::new(ErrorKind::InvalidArgument, message).hint(format!(
                    "leave it out, or write how many, such as `{option} {example}`"
                )),
            );
        }
    }
    let report = inspect_file(
        &args.file,
        &InspectOptions {
            paths: args.dataset.clone(),
            sample: args.sample,
            rows: args.rows,
            seed: args.seed,
            budget: args.memory,
            measure: args.measure,
        },
    )?;
    if args.json {
        output.json(&InspectOutput {
            schema: 1,
            file: args.file.display().to_string(),
            report: &report,
        })?;
    } else {
        output.text(&render_report(&args.file, &report, args.seed))?;
    }
    Ok(Status::Yes)
}
