//! `vramfit data stats`: mean, deviation and more of every feature, for normalization.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use vramfit_analysis::{Bytes, Error, ErrorKind, Result};
use vramfit_base::JSON_SCHEMA;
use vramfit_data::inspect::{InspectOptions, inspect_file};
use vramfit_data::load::{ColumnOptions, LoaderOptions};
use vramfit_data::source::list_files;
use vramfit_data::statistics::{ColumnStatistics, DatasetStatistics, compute_statistics};

use super::numbers::{grouped, shown};
use crate::commands::results::JsonFileArgs;
use crate::files::write;
use crate::output::Output;
use crate::status::Status;

/// Features that are listed one by one.
const MAX_FEATURES: usize = 8;

/// Compute mean, standard deviation, extremes and label counts of datasets, in one pass and bounded memory
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The statistics are those of each element of the last axis of a row: features of a vector, channels
of an image. Save them with `--output` and pass the file to `vramfit.data.Loader(normalize=...)`.

Examples:
  vramfit data stats train.h5
  vramfit data stats train.h5 --dataset x --output stats.json
  vramfit data stats shards/*.h5 --dataset 'data/*/obs'
  vramfit data stats features_by_samples.mat --dataset x --axis -1
  vramfit data stats era5.nc --unpack --output stats.json
")]
pub(crate) struct Args {
    /// The files, directories or patterns
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Only this dataset; can be repeated, and have wildcards [default: all with numbers]
    #[arg(long, value_name = "PATH")]
    dataset: Vec<String>,
    /// The axis that rows are on: 0, or -1 for the last one, as in files of MATLAB
    #[arg(long, allow_hyphen_values = true, value_parser = ["0", "-1"], default_value = "0")]
    axis: String,
    /// Unpack values that are packed by the conventions of netCDF, as `Loader(unpack=True)` does
    #[arg(long)]
    unpack: bool,
    /// Memory budget
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory, default_value = "256MiB")]
    memory: Bytes,
    /// Write the statistics to this file, as JSON
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) results: JsonFileArgs,
}

/// Version of the file of `--output`, which `vramfit.data` reads.
const FILE_SCHEMA: u32 = 1;

/// The statistics of several datasets; the version of the format is `schema`.
#[derive(Serialize)]
struct StatisticsFile<'a> {
    schema: u32,
    files: Vec<String>,
    datasets: BTreeMap<&'a str, ColumnStatistics>,
    /// Datasets without statistics, and why.
    skipped: BTreeMap<&'a str, String>,
}

/// Runs `vramfit data stats`.
pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let files = list_files(&args.files)?;
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_read = |path: &&PathBuf| files.iter().any(|file| real(file) == real(path));
    if let Some(path) = args.output.as_ref().filter(is_read) {
        let text = format!("`{}` is a file that is read, not one to write to", path.display());
        return Err(Error::invalid_argument(text).hint("name another file after `--output`"));
    }
    let datasets = match &args.dataset[..] {
        [] => list_datasets(&files[0], args.memory)?,
        listed => listed.to_vec(),
    };
    let json = args.results.target()?;
    let mut found = BTreeMap::new();
    let mut skipped = BTreeMap::new();
    for dataset in &datasets {
        let is_last_axis = args.axis == "-1";
        let options = LoaderOptions {
            files: files.clone(),
            columns: vec![ColumnOptions { is_last_axis, ..dataset.as_str().into() }],
            budget: args.memory,
            unpack: args.unpack,
            ..LoaderOptions::new("", [])
        };
        match compute_statistics(options, &mut |_, _| {}) {
            Ok(statistics) => {
                for note in &statistics.unclosed_files {
                    output.info(&format!("warning: {note}"));
                }
                if let Some(note) = packing_note(dataset, &statistics, args.unpack) {
                    output.info(&note);
                }
                found.extend(statistics.columns.into_iter().map(|one| (dataset.as_str(), one)));
            }
            // Of datasets that nobody asked for, one may not be like the others that a wildcard stands for.
            Err(error) if args.dataset.is_empty() && error.kind() != ErrorKind::Io => {
                skipped.insert(dataset.as_str(), error.message().to_owned());
            }
            Err(error) => return Err(error),
        }
    }
    let names = files.iter().map(|file| file.display().to_string());
    if let Some((dataset, why)) = skipped.first_key_value().filter(|_| found.is_empty()) {
        return Err(Error::invalid_argument(format!("no dataset can be read: `{dataset}`: {why}"))
            .hint("name one: `--dataset PATH`"));
    }
    let file =
        StatisticsFile { schema: FILE_SCHEMA, files: names.collect(), datasets: found, skipped };
    if let Some(path) = &args.output {
        let text = serde_json::to_string_pretty(&file)
            .map_err(|error| Error::io("the statistics cannot be written as JSON").cause(error))?;
        write(path, &(text + "\n"), args.results.force)?;
    }
    let answer = StatisticsFile { schema: JSON_SCHEMA, ..file };
    json.write(&answer, output)?;
    if !json.is_stdout() {
        output.text(&render(&answer))?;
    }
    Ok(Status::Yes)
}

/// Returns what to say of statistics of values that are packed, and were not unpacked.
fn packing_note(dataset: &str, found: &DatasetStatistics, unpack: bool) -> Option<String> {
    let named = found.packing_attributes.iter().flatten();
    let named: Vec<String> = named.map(|name| format!("`{name}`")).collect();
    if unpack || named.is_empty() {
        return None;
    }
    let attribute = if named.len() == 1 { "attribute" } else { "attributes" };
    Some(format!(
        "note: `{dataset}` has the {attribute} {}: these are statistics of values as they are stored, packed and \
         with fill values for missing ones; for `Loader(unpack=True)`, add `--unpack`",
        named.join(", ")
    ))
}

/// Returns the datasets with numbers that the first file has, those of members that are alike with a wildcard.
fn list_datasets(file: &std::path::Path, budget: Bytes) -> Result<Vec<String>> {
    let report = inspect_file(
        file,
        &InspectOptions {
            paths: Vec::new(),
            sample: None,
            rows: None,
            seed: 0,
            budget,
            measure: false,
        },
    )?;
    let mut datasets = report.readable_patterns();
    datasets.dedup();
    match datasets.is_empty() {
        false => Ok(datasets),
        true => {
            Err(Error::invalid_argument(format!("`{}` has no datasets of numbers", file.display()))
                .hint("`vramfit data inspect` lists what is in a file"))
        }
    }
}

fn render(file: &StatisticsFile<'_>) -> String {
    let mut text = String::new();
    for (dataset, statistics) in &file.datasets {
        let features = statistics.mean.len();
        let rows = grouped(statistics.rows);
        let shape = match &statistics.shape[..] {
            [] => String::new(),
            shape => format!(", {features} features of shape {shape:?}"),
        };
        text.push_str(&format!("{}: {rows} rows of {}{shape}\n", shown(dataset), statistics.dtype));
        if let Some(labels) = statistics.labels.as_ref().filter(|labels| labels.len() <= 32) {
            let share = |rows: u64| 100.0 * rows as f64 / statistics.rows.max(1) as f64;
            let counts = labels.iter().map(|label| {
                format!("{}: {} ({:.1} %)", label.value, grouped(label.rows), share(label.rows))
            });
            text.push_str(&format!("  values: {}\n", counts.collect::<Vec<_>>().join(", ")));
        }
        for place in 0..features.min(MAX_FEATURES) {
            let bound = |bound: Option<f64>| bound.map_or("none".to_owned(), number);
            let mut line = format!(
                "  {place:>4}  mean {:>12}  std {:>12}  min {:>12}  max {:>12}",
                number(statistics.mean[place]),
                number(statistics.std[place]),
                bound(statistics.min[place]),
                bound(statistics.max[place]),
            );
            for (count, what) in
                [(statistics.nan[place], "NaN"), (statistics.infinite[place], "infinite")]
            {
                if count > 0 {
                    line.push_str(&format!("  {} {what}", grouped(count)));
                }
            }
            text.push_str(&(line + "\n"));
        }
        if features > MAX_FEATURES {
            let more = grouped((features - MAX_FEATURES) as u64);
            text.push_str(&format!("  and {more} more features; `--json` has all\n"));
        }
    }
    for (dataset, why) in &file.skipped {
        text.push_str(&format!("{}: left out: {}\n", shown(dataset), shown(why)));
    }
    text
}

/// Formats a number with as many digits as are useful.
fn number(value: f64) -> String {
    match value.abs() {
        size if value == value.trunc() && size < 1e12 => format!("{value}"),
        size if (1e-3..1e6).contains(&size) => format!("{value:.5}"),
        _ => format!("{value:.4e}"),
    }
}
