//! `vramfit data bench`: how fast a file is read for training, by vramfit's loader and by other packages.
//!
//! A separate Python process, `vramfit._data_bench`, measures; this module decides what, and prints the result.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vramfit_core::{Bytes, Error, ErrorKind, Result};
use vramfit_data::inspect::{DatasetInfo, FileReport, InspectOptions, inspect_file};

use super::bench_text::render_result;
use super::numbers::parse_count;
use crate::context::Context;
use crate::output::Output;
use crate::python_child::{PythonChild, PythonFailure};
use crate::status::Status;

/// Compare how fast vramfit, h5py, PyTorch, Grain and others read shuffled batches
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit data bench train.h5
  vramfit data bench train.h5 --datasets train/x,train/y --batch-size 1024
  vramfit data bench train.h5 --seconds 5 --memory 256MiB --json
")]
pub(crate) struct Args {
    /// The file to read
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The datasets to read (comma-separated) [default: the largest group with the same number of rows]
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    datasets: Vec<String>,
    /// Batch size
    #[arg(long, value_name = "N", default_value = "256", value_parser = parse_count)]
    batch_size: u64,
    /// Minimum duration of each run (five runs per backend)
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    seconds: f64,
    /// Shuffle buffer size
    #[arg(long, value_name = "SIZE", value_parser = Bytes::parse_memory, default_value = "64MiB")]
    memory: Bytes,
    /// Reader threads of vramfit's loader [default: chosen by the loader]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Runs per backend: the median of fewer is not reliable.
pub(super) const RUNS: u32 = 5;

/// See `vramfit._data_bench.options`.
#[derive(Debug, Serialize)]
pub(super) struct BenchOptions {
    pub(super) file: String,
    pub(super) datasets: Vec<String>,
    pub(super) rows: u64,
    pub(super) row_bytes: u64,
    pub(super) band_rows: Option<u64>,
    pub(super) batch_size: u64,
    pub(super) memory: u64,
    pub(super) seconds: f64,
    pub(super) runs: u32,
    pub(super) threads: Option<usize>,
}

/// A line of its output.
#[derive(Deserialize)]
struct Line {
    done: Option<u64>,
    total: Option<u64>,
    result: Option<BenchResult>,
    error: Option<PythonFailure>,
}

/// The measurements.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct BenchResult {
    pub(super) backends: Vec<BenchBackend>,
    pub(super) cores: u64,
    pub(super) load_before: f64,
    pub(super) load_after: f64,
    pub(super) was_warmed: bool,
    pub(super) cached_before: Option<f64>,
    pub(super) cached_after: Option<f64>,
    pub(super) python: String,
}

/// One way to read the file.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct BenchBackend {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) version: Option<String>,
    pub(super) skipped: Option<String>,
    pub(super) not_installed: Vec<String>,
    pub(super) megabytes_per_second: Option<f64>,
    pub(super) first_batch_seconds: Option<f64>,
    pub(super) slowest: Option<f64>,
    pub(super) fastest: Option<f64>,
    pub(super) processor_seconds_per_gigabyte: Option<f64>,
    pub(super) speedup: Option<f64>,
    pub(super) cpu_speedup: Option<f64>,
    runs: Vec<Run>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Run {
    rows: u64,
    seconds: f64,
    first_batch_seconds: f64,
    processor_seconds: f64,
}

#[derive(Serialize)]
struct BenchOutput<'a> {
    schema: u32,
    #[serde(flatten)]
    options: &'a BenchOptions,
    #[serde(flatten)]
    result: &'a BenchResult,
}

impl Args {
    /// Decides what to read.
    fn options(&self) -> Result<BenchOptions> {
        let invalid = |what: String| Error::invalid_argument(what);
        if !(0.05..=3600.0).contains(&self.seconds) {
            return Err(invalid(format!("`--seconds {}` is out of range", self.seconds))
                .hint("use 0.05 to 3600"));
        }
        if self.batch_size == 0 || self.threads == Some(0) {
            return Err(invalid("`--batch-size` and `--threads` must be at least 1".to_owned()));
        }
        let report = inspect_file(
            &self.file,
            &InspectOptions {
                paths: self.datasets.clone(),
                sample: None,
                rows: None,
                seed: 0,
                budget: self.memory,
                measure: false,
            },
        )?;
        let Some(plan) = &report.streaming else {
            return Err(invalid(format!(
                "`{}` contains no dataset with rows of numbers",
                self.file.display()
            ))
            .hint(format!("`vramfit data inspect {}` shows its contents", self.file.display())));
        };
        let datasets: Vec<(&str, &DatasetInfo)> = (plan.datasets.iter())
            .filter_map(|path| Some((path.as_str(), dataset_info(&report, path)?)))
            .collect();
        self.ensure_all_are_read(&report, &datasets)?;
        let bytes: u64 =
            datasets.iter().filter_map(|(_, info)| info.memory_bytes).map(|bytes| bytes.0).sum();
        let bands = datasets.iter().filter_map(|(_, info)| info.chunk.as_ref()?.first().copied());
        let file = self.file.to_str().map(str::to_owned);
        Ok(BenchOptions {
            file: file.ok_or_else(|| invalid("the file path is not valid UTF-8".to_owned()))?,
            datasets: plan.datasets.clone(),
            rows: plan.rows,
            row_bytes: (bytes / plan.rows.max(1)).max(1),
            band_rows: bands.max(),
            batch_size: self.batch_size.min(plan.rows),
            memory: self.memory.0,
            seconds: self.seconds,
            runs: RUNS,
            threads: self.threads,
        })
    }

    /// Rejects a dataset that was named but cannot be read.
    fn ensure_all_are_read(
        &self,
        report: &FileReport,
        read: &[(&str, &DatasetInfo)],
    ) -> Result<()> {
        for path in &self.datasets {
            let path = format!("/{}", path.trim_matches('/'));
            let Some(entry) = report.entries.iter().find(|entry| entry.path == path) else {
                continue;
            };
            if entry.kind == "group" || read.iter().any(|(other, _)| *other == path) {
                continue;
            }
            let what = format!("`{path}` cannot be read together with the other datasets");
            let error = Error::invalid_argument(what);
            return Err(match &entry.problem {
                Some(problem) => error.cause(&problem.message),
                None => error.hint("choose numeric datasets with the same number of rows"),
            });
        }
        Ok(())
    }
}

fn dataset_info<'a>(report: &'a FileReport, path: &str) -> Option<&'a DatasetInfo> {
    let entry = report.entries.iter().find(|entry| entry.path == path)?;
    entry.dataset.as_ref()
}

/// Runs `vramfit data bench`.
pub(super) fn run(args: &Args, context: &Context, output: &mut Output) -> Result<Status> {
    let options = args.options()?;
    let python = context.python.clone().unwrap_or_else(|| "python3".into());
    let result = measure(&python, &options, output)?;
    if args.json {
        output.json(&BenchOutput { schema: 1, options: &options, result: &result })?;
    } else {
        output.text(&render_result(&options, &result))?;
    }
    Ok(Status::Yes)
}

/// Measures in a Python process, and shows the progress.
fn measure(python: &Path, options: &BenchOptions, output: &Output) -> Result<BenchResult> {
    let text = serde_json::to_string(options).expect("numbers and strings have a JSON form");
    let mut child = PythonChild::spawn_module(python, "vramfit._data_bench", &[&text])?;
    child.close_stdin();
    let bar = output.progress_bar("runs");
    let mut outcome = None;
    while let Some(line) = child.receive_message::<Line>(None) {
        if let (Some(done), Some(total)) = (line.done, line.total) {
            bar.show(done, 0, total);
        }
        if let Some(failure) = line.error {
            outcome = Some(Err(failure.into()));
        }
        if let Some(result) = line.result {
            outcome = Some(Ok(result));
        }
    }
    bar.remove();
    outcome.unwrap_or_else(|| {
        Err(Error::new(
            ErrorKind::CommandNotFound,
            format!("`{}` exited unexpectedly; its output is above", python.display()),
        )
        .hint("select a Python with vramfit and NumPy installed with `--python`"))
    })
}
