//! `vramfit data bench`: how fast a file is read for training, by our loader and by what else is installed.
//!
//! It is measured in a Python of its own, `vramfit._data_bench`; here is decided what, and told what came out.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vramfit_core::{Bytes, Error, ErrorKind, Result};
use vramfit_data::inspect::{DatasetInfo, FileReport, InspectOptions, inspect_file};

use super::bench_text::told;
use super::numbers::parse_count;
use crate::context::Context;
use crate::output::Output;
use crate::python_child::{PythonChild, PythonFailure};
use crate::status::Status;

/// Measure how fast shuffled batches come from a file: our loader beside h5py, PyTorch, Grain and others
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
    /// The datasets to read, with commas between them; those with equally many rows that take most memory
    /// unless told
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    datasets: Vec<String>,
    /// Rows of a batch
    #[arg(long, value_name = "N", default_value = "256", value_parser = parse_count)]
    batch_size: u64,
    /// How long each run is at least; every way has five
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    seconds: f64,
    /// The memory that rows may be mixed in
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    memory: Bytes,
    /// Reader threads of our loader; as many as it takes by itself unless told
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs of each way: the median of fewer says little.
pub(super) const RUNS: u32 = 5;

/// What the Python is asked for; see `vramfit._data_bench.request`.
#[derive(Debug, Serialize)]
pub(super) struct Request {
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

/// A line of what it says.
#[derive(Deserialize)]
struct Line {
    done: Option<u64>,
    total: Option<u64>,
    answer: Option<Measured>,
    error: Option<PythonFailure>,
}

/// What came out.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Measured {
    pub(super) ways: Vec<Way>,
    pub(super) cores: u64,
    pub(super) load_before: f64,
    pub(super) load_after: f64,
    pub(super) was_warmed: bool,
    pub(super) cached_before: Option<f64>,
    pub(super) cached_after: Option<f64>,
    pub(super) python: String,
}

/// One way to read.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Way {
    pub(super) id: String,
    pub(super) title: String,
    pub(super) version: Option<String>,
    pub(super) absent: Option<String>,
    pub(super) not_installed: Vec<String>,
    pub(super) megabytes_per_second: Option<f64>,
    pub(super) first_batch_seconds: Option<f64>,
    pub(super) slowest: Option<f64>,
    pub(super) fastest: Option<f64>,
    pub(super) processor_seconds_per_gigabyte: Option<f64>,
    pub(super) ours_is_faster: Option<f64>,
    pub(super) ours_is_cheaper: Option<f64>,
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
    request: &'a Request,
    #[serde(flatten)]
    measured: &'a Measured,
}

impl Args {
    pub(super) fn prints_json(&self) -> bool {
        self.json
    }

    /// Decides what is read, and refuses what cannot be.
    fn request(&self) -> Result<Request> {
        let refuse = |what: String| Error::new(ErrorKind::InvalidArgument, what);
        if !(0.05..=3600.0).contains(&self.seconds) {
            return Err(
                refuse(format!("`--seconds {}` is not possible", self.seconds))
                    .hint("it can be 0.05 to 3600"),
            );
        }
        if self.batch_size == 0 || self.threads == Some(0) {
            return Err(
                refuse("nothing is read with 0 rows or 0 threads".to_owned())
                    .hint("leave out `--batch-size` or `--threads`, or give 1 or more"),
            );
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
            return Err(refuse(format!(
                "`{}` has no dataset with rows of numbers",
                self.file.display()
            ))
            .hint(format!(
                "`vramfit data inspect {}` shows what is in it",
                self.file.display()
            )));
        };
        let datasets: Vec<(&str, &DatasetInfo)> = (plan.datasets.iter())
            .filter_map(|path| Some((path.as_str(), dataset_info(&report, path)?)))
            .collect();
        self.ensure_all_are_read(&report, &datasets)?;
        let bytes: u64 = datasets
            .iter()
            .filter_map(|(_, info)| info.memory_bytes)
            .map(|bytes| bytes.0)
            .sum();
        let bands = datasets
            .iter()
            .filter_map(|(_, info)| info.chunk.as_ref()?.first().copied());
        let file = self.file.to_str().map(str::to_owned);
        Ok(Request {
            file: file.ok_or_else(|| refuse("the path of the file is not in UTF-8".to_owned()))?,
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

    /// Refuses to leave out a dataset that was named.
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
            let what = format!("`{path}` cannot be read together with the others");
            let error = Error::new(ErrorKind::InvalidArgument, what);
            return Err(match &entry.problem {
                Some(problem) => error.cause(&problem.message),
                None => error.hint("name datasets of numbers with equally many rows"),
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
    let request = args.request()?;
    let python = context.python.clone().unwrap_or_else(|| "python3".into());
    let measured = measure(&python, &request, output)?;
    if args.json {
        output.json(&BenchOutput {
            schema: 1,
            request: &request,
            measured: &measured,
        })?;
    } else {
        output.text(&told(&request, &measured))?;
    }
    Ok(Status::Yes)
}

/// Has it measured by a Python, and shows how far it is meanwhile.
fn measure(python: &Path, request: &Request, output: &Output) -> Result<Measured> {
    let text = serde_json::to_string(request).expect("numbers and texts have a JSON form");
    let mut child = PythonChild::spawn_module(python, "vramfit._data_bench", &[&text])?;
    child.close_stdin();
    let bar = output.progress("runs");
    let mut result = None;
    while let Some(line) = child.receive_message::<Line>(None) {
        if let (Some(done), Some(total)) = (line.done, line.total) {
            bar.show(done, 0, total);
        }
        if let Some(failure) = line.error {
            result = Some(Err(failure.into()));
        }
        if let Some(measured) = line.answer {
            result = Some(Ok(measured));
        }
    }
    bar.remove();
    result.unwrap_or_else(|| {
        Err(Error::new(
            ErrorKind::CommandNotFound,
            format!(
                "`{}` exited unexpectedly; its output is above",
                python.display()
            ),
        )
        .hint("select a Python that has vramfit and NumPy with `--python`"))
    })
}
