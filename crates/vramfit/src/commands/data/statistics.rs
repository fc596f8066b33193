//! `vramfit data stats`: mean, deviation and more of every feature, for normalization.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Serialize;
use vramfit_analysis::{Bytes, Error, ErrorKind, Result};
use vramfit_base::JSON_SCHEMA;
use vramfit_data::inspect::{InspectOptions, inspect_file, name_attributes};
use vramfit_data::load::{ColumnOptions, LoaderOptions, SampleSelection, SplitOptions, SplitSet};
use vramfit_data::order::SplitMode;
use vramfit_data::sample::RowRanges;
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
  vramfit data stats shards/*.h5 --dataset 'data/*/obs' --split train:0.1 --split-by group
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
    /// Only the rows from START to before END; can be repeated
    #[arg(long, value_name = "START:END", value_parser = parse_rows, conflicts_with = "group")]
    rows: Vec<Range<u64>>,
    /// Only the group that the last wildcard stands for by this name; can be repeated
    #[arg(long, value_name = "NAME")]
    group: Vec<String>,
    /// Only a set of a split, as `Loader(split=...)` makes it: `train:0.1` where a tenth is for validation, or
    /// `train:0.8:0.1:0.1`; with `:tail`, the others are the end of the file
    #[arg(long, value_name = "SET:FRACTIONS", value_parser = parse_split)]
    split: Option<SplitOptions>,
    /// Whether the split keeps groups whole, as that of windows does
    #[arg(long, value_name = "WHAT", value_parser = ["sample", "group"], requires = "split")]
    split_by: Option<String>,
    /// Seed of the split
    #[arg(long, value_name = "N", requires = "split", default_value_t = 0)]
    split_seed: u64,
    /// Read files whose writer did not close them: what it did not flush reads as zeros
    #[arg(long)]
    allow_unclosed: bool,
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

impl Args {
    /// Returns which rows are read, if not all.
    fn selection(&self) -> Option<SampleSelection> {
        if !self.group.is_empty() {
            return Some(SampleSelection::Groups(self.group.clone()));
        }
        if self.rows.is_empty() {
            return None;
        }
        let mut sorted = self.rows.clone();
        sorted.sort_by_key(|rows| rows.start);
        let ranges: RowRanges = sorted.into_iter().collect();
        Some(SampleSelection::Samples { ranges, mask_length: None })
    }

    /// Returns which set of a split is read, if not all.
    fn split(&self) -> Option<SplitOptions> {
        let by_group = self.split_by.as_deref().map(|by| by == "group");
        self.split.map(|split| SplitOptions { by_group, seed: self.split_seed, ..split })
    }
}

/// Reads rows such as `0:1000`.
fn parse_rows(text: &str) -> std::result::Result<Range<u64>, String> {
    let ends = text.split_once(':').and_then(|(start, end)| {
        Some(start.trim().parse::<u64>().ok()?..end.trim().parse::<u64>().ok()?)
    });
    ends.filter(|rows| !rows.is_empty()).ok_or_else(|| "use a range such as `0:1000`".to_owned())
}

/// Reads a set of a split such as `train:0.1`.
fn parse_split(text: &str) -> std::result::Result<SplitOptions, String> {
    let mut parts: Vec<&str> = text.split(':').collect();
    let mode = match parts.last() {
        Some(&"tail") => Some(SplitMode::Tail),
        Some(&"spread") => Some(SplitMode::Spread),
        _ => None,
    };
    if mode.is_some() {
        parts.pop();
    }
    let mode = mode.unwrap_or(SplitMode::Spread);
    let invalid = || {
        "use `train:0.1`, `validation:0.1` or `train:0.8:0.1:0.1`, with fractions that sum to 1"
            .to_owned()
    };
    let set = match parts[..] {
        ["train", ..] => SplitSet::Train,
        ["validation", ..] => SplitSet::Validation,
        ["test", ..] => SplitSet::Test,
        _ => return Err(invalid()),
    };
    let fractions: Vec<f64> = (parts[1..].iter())
        .map(|part| part.parse().map_err(|_| invalid()))
        .collect::<std::result::Result<_, String>>()?;
    match fractions[..] {
        [fraction] => Ok(SplitOptions::of_two(set, fraction, mode, 0)),
        [train, validation, test] if (train + validation + test - 1.0).abs() < 1e-6 => {
            let two = SplitOptions::of_two(set, validation, mode, 0);
            Ok(SplitOptions { test_fraction: test, ..two })
        }
        _ => Err(invalid()),
    }
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
        [] => list_datasets(&files[0], args)?,
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
            selection: args.selection(),
            split: args.split(),
            unpack: args.unpack,
            allow_unclosed: args.allow_unclosed,
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
    let named = name_attributes(&found.packing_attributes.concat()).filter(|_| !unpack)?;
    Some(format!(
        "note: `{dataset}` has the {named}: these are statistics of values as they are stored, packed and \
         with fill values for missing ones; for `Loader(unpack=True)`, add `--unpack`"
    ))
}

/// Returns the datasets with numbers that the first file has, those of members that are alike with a wildcard.
fn list_datasets(file: &Path, args: &Args) -> Result<Vec<String>> {
    let options =
        InspectOptions { allow_unclosed: args.allow_unclosed, ..InspectOptions::new(args.memory) };
    let report = inspect_file(file, &options)?;
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
