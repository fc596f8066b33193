//! `vramfit data generate`: synthetic HDF5 files.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};
use vramfit_analysis::{Bytes, Error, Result};
use vramfit_base::JSON_SCHEMA;
use vramfit_data::generate::{GenerateOptions, GeneratedData, Kind, generate};
use vramfit_data::write::{Compression, Number, WriteOptions};

use super::numbers::{grouped, grouped_list, parse_count, thread_count};
use crate::commands::results::JsonArgs;
use crate::output::Output;
use crate::status::Status;

/// Generate an HDF5 file of synthetic data, identical on every machine
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit data generate train.h5 --kind sequences --samples 100k --length 64 --features 8
  vramfit data generate sorted.h5 --kind tabular --samples 1M --sort-by-label --compression gzip
  vramfit data generate words.h5 --kind tokens --samples 10M --vocabulary 50k --dtype uint16 --resume
")]
pub(crate) struct Args {
    /// The file to write
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Kind of data
    #[arg(long)]
    kind: KindName,
    /// Number of samples, such as `5000`, `100k` or `1.5M`
    #[arg(long, value_name = "N", value_parser = parse_count)]
    samples: u64,
    /// Steps per sequence [default: 64], or tokens per text [default: 128]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    length: Option<u64>,
    /// Features per step [default: 8], or per row of a table [default: 16]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    features: Option<u64>,
    /// Targets per sequence [default: 1]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    targets: Option<u64>,
    /// Width and height of an image in pixels [default: 32]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    image_size: Option<u64>,
    /// Vocabulary size [default: 1000]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    vocabulary: Option<u64>,
    /// Random seed; the same seed gives the same file
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Data type [default: depends on the kind]
    #[arg(long, value_name = "TYPE", value_parser = parse_number)]
    dtype: Option<Number>,
    /// Compression; `gzip` can be read everywhere, `zstd` needs hdf5plugin
    #[arg(long, value_name = "METHOD", default_value = "none")]
    compression: CompressionName,
    /// Compression level: 1 to 12 for gzip [default: 2], 1 to 22 for zstd [default: 1]
    #[arg(long, value_name = "N")]
    level: Option<u8>,
    /// Rows per chunk [default: as many as fit into 256 KiB; no chunks without compression]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    chunk_rows: Option<u64>,
    /// Sort samples by label, the hardest case for a shuffle
    #[arg(long)]
    sort_by_label: bool,
    /// Threads that generate and compress [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Sync to disk (fsync) after this many bytes
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory, default_value = "64MiB")]
    sync_every: Bytes,
    /// Resume an interrupted run
    #[arg(long)]
    resume: bool,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pub(super) json: JsonArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KindName {
    /// Sequences of vectors, and targets: `input_sequences` and `targets`
    Sequences,
    /// Vectors and labels: `features` and `labels`
    Tabular,
    /// Square images and labels: `images` and `labels`
    Images,
    /// Sequences of synthetic tokens: `tokens`
    Tokens,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum CompressionName {
    None,
    Gzip,
    Zstd,
}

impl Args {
    fn options(&self) -> Result<GenerateOptions> {
        let mut sizes = SizeArgs::new(self);
        let kind = match self.kind {
            KindName::Sequences => Kind::Sequences {
                length: sizes.take_or("length", 64),
                features: sizes.take_or("features", 8),
                targets: sizes.take_or("targets", 1),
            },
            KindName::Tabular => Kind::Tabular { features: sizes.take_or("features", 16) },
            KindName::Images => Kind::Images { size: sizes.take_or("image-size", 32) },
            KindName::Tokens => Kind::Tokens {
                length: sizes.take_or("length", 128),
                vocabulary: sizes.take_or("vocabulary", 1000),
            },
        };
        sizes.ensure_all_used(kind)?;
        let compression = match self.compression {
            CompressionName::None if self.level.is_some() => {
                return Err(Error::invalid_argument("`--level` needs a compression method")
                    .hint("add `--compression gzip` or `--compression zstd`"));
            }
            CompressionName::None => Compression::None,
            CompressionName::Gzip => Compression::Gzip(self.level.unwrap_or(2)),
            CompressionName::Zstd => Compression::Zstd(self.level.unwrap_or(1).into()),
        };
        let request = GenerateOptions {
            kind,
            samples: self.samples,
            seed: self.seed,
            number: self.dtype,
            compression,
            chunk_rows: self.chunk_rows,
            sort_by_label: self.sort_by_label,
        };
        request.check()?;
        Ok(request)
    }
}

/// The sizes given on the command line, each of which applies to some kinds only.
struct SizeArgs(Vec<(&'static str, u64)>);

impl SizeArgs {
    fn new(args: &Args) -> Self {
        let sizes = [
            ("length", args.length),
            ("features", args.features),
            ("targets", args.targets),
            ("image-size", args.image_size),
            ("vocabulary", args.vocabulary),
        ];
        let given = sizes.into_iter().filter_map(|(name, size)| Some((name, size?)));
        SizeArgs(given.collect())
    }

    fn take_or(&mut self, name: &str, default: u64) -> u64 {
        match self.0.iter().position(|(given, _)| *given == name) {
            Some(at) => self.0.remove(at).1,
            None => default,
        }
    }

    fn ensure_all_used(&self, kind: Kind) -> Result<()> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(Error::invalid_argument(format!(
                "`--{name}` does not apply to `--kind {}`",
                kind.name()
            ))
            .hint("omit it, or choose another `--kind`")),
        }
    }
}

/// Parses the name of a data type that some kind supports.
fn parse_number(text: &str) -> Result<Number> {
    const KNOWN: [Number; 7] =
        [Number::F32, Number::F16, Number::F64, Number::U8, Number::I32, Number::U16, Number::I64];
    KNOWN.into_iter().find(|number| number.name() == text).ok_or_else(|| {
        let names = KNOWN.map(|number| format!("`{}`", number.name()));
        Error::invalid_argument(format!("`{text}` is not a supported data type"))
            .hint(format!("use one of {}", names.join(", ")))
    })
}

/// Runs `vramfit data generate`.
pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let request = args.options()?;
    let json = args.json.target(args.force)?;
    let threads = thread_count(args.threads)?;
    let options =
        WriteOptions { force: args.force, resume: args.resume, sync_every: args.sync_every };
    let bar = output.progress_bar("rows");
    let mut resumed = 0;
    let made = generate(&args.file, &request, options, threads, &mut |progress| {
        resumed = progress.resumed_rows;
        bar.show(progress.rows, resumed, progress.total);
    });
    drop(bar);
    let summary = made?;
    if resumed > 0 {
        output.info(&format!(
            "resumed: {} of {} rows were already written",
            grouped(resumed),
            grouped(request.samples)
        ));
    }
    json.write(&output_of(args, &request, &summary, resumed), output)?;
    if !json.is_stdout() {
        output.info(&render_summary(args, &summary));
    }
    Ok(Status::Yes)
}

/// Renders what was written, the file last.
fn render_summary(args: &Args, summary: &GeneratedData) -> String {
    let datasets = &summary.content.datasets;
    let width = datasets.iter().map(|d| d.path.len()).max().unwrap_or(0);
    let mut text = String::new();
    for dataset in datasets {
        text.push_str(&format!(
            "{:width$}  {} [{}]\n",
            dataset.path,
            dataset.number.name(),
            grouped_list(&dataset.shape)
        ));
    }
    let stored = match summary.chunk_rows() {
        Some(rows) => format!("in chunks of {} rows", grouped(rows)),
        None => "without chunks".into(),
    };
    text.push_str(&format!(
        "best possible loss on new samples: {} ({})\n",
        summary.best_loss, summary.loss
    ));
    text.push_str(&format!(
        "wrote `{}`: {} on disk, {stored}; {} in memory",
        args.file.display(),
        summary.bytes,
        summary.raw_bytes()
    ));
    text
}

fn output_of(
    args: &Args,
    request: &GenerateOptions,
    summary: &GeneratedData,
    resumed_samples: u64,
) -> Value {
    let datasets = summary.content.datasets.iter().map(|dataset| {
        json!({
            "name": dataset.path,
            "dtype": dataset.number.name(),
            "shape": dataset.shape,
        })
    });
    json!({
        "schema": JSON_SCHEMA,
        "file": args.file.display().to_string(),
        "kind": request.kind.name(),
        "samples": request.samples,
        "resumed_samples": resumed_samples,
        "seed": request.seed,
        "datasets": datasets.collect::<Vec<_>>(),
        "compression": args.compression,
        "chunk_rows": summary.chunk_rows(),
        "memory_bytes": summary.raw_bytes(),
        "file_bytes": summary.bytes,
        "loss": summary.loss,
        "best_loss": summary.best_loss,
    })
}
