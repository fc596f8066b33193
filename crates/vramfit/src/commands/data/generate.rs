//! `vramfit data generate`: synthetic HDF5 files, for trying out what reads them.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::Serialize;
use vramfit_core::{Bytes, Error, ErrorKind, Result};
use vramfit_data::generate::{Kind, Request, Summary, generate};
use vramfit_data::write::{Compression, Number, WriteOptions};

use super::numbers::{grouped, parse_count};
use crate::output::Output;
use crate::status::Status;

/// Generate an HDF5 file of synthetic data, the same on every machine
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
    /// What each sample is
    #[arg(long)]
    kind: KindName,
    /// How many samples, such as `5000`, `100k` or `1.5M`
    #[arg(long, value_name = "N", value_parser = parse_count)]
    samples: u64,
    /// Steps of a sequence, 64 unless told; words of a text, 128 unless told
    #[arg(long, value_name = "N", value_parser = parse_count)]
    length: Option<u64>,
    /// Numbers of a step, 8 unless told; of a row of a table, 16 unless told
    #[arg(long, value_name = "N", value_parser = parse_count)]
    features: Option<u64>,
    /// Numbers to predict from a sequence, 1 unless told
    #[arg(long, value_name = "N", value_parser = parse_count)]
    targets: Option<u64>,
    /// Pixels of a side of an image, 32 unless told
    #[arg(long, value_name = "N", value_parser = parse_count)]
    image_size: Option<u64>,
    /// Different words, 1000 unless told
    #[arg(long, value_name = "N", value_parser = parse_count)]
    vocabulary: Option<u64>,
    /// Decides every number; the same seed gives the same file
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The type of the numbers; the usual one of the kind unless told
    #[arg(long, value_name = "TYPE", value_parser = parse_number)]
    dtype: Option<Number>,
    /// How to compress; `gzip` can be read everywhere, `zstd` needs hdf5plugin
    #[arg(long, value_name = "HOW", default_value = "none")]
    compression: CompressionName,
    /// How hard to compress: 1 to 12 for gzip (2 unless told), 1 to 22 for zstd (1 unless told)
    #[arg(long, value_name = "N")]
    level: Option<u8>,
    /// Rows in a chunk; 256 KiB unless told, and no chunks where nothing is compressed
    #[arg(long, value_name = "N", value_parser = parse_count)]
    chunk_rows: Option<u64>,
    /// Write samples in the order of their labels, the hardest case for a shuffle
    #[arg(long)]
    sort_by_label: bool,
    /// Threads that generate and compress; one for each core unless told
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Make what was written safe against a power cut after so many bytes
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    sync_every: Bytes,
    /// Go on with what an earlier attempt left
    #[arg(long)]
    resume: bool,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Print one JSON object about the file
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum KindName {
    /// Series of vectors and numbers to predict: `input_sequences` and `targets`
    Sequences,
    /// Vectors and their label: `features` and `labels`
    Tabular,
    /// Square pictures and their label: `images` and `labels`
    Images,
    /// Texts of made-up words: `tokens`
    Tokens,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum CompressionName {
    None,
    Gzip,
    Zstd,
}

#[derive(Serialize)]
struct GenerateOutput<'a> {
    schema: u32,
    file: String,
    kind: &'static str,
    samples: u64,
    resumed_samples: u64,
    seed: u64,
    datasets: Vec<DatasetOutput<'a>>,
    compression: CompressionName,
    chunk_rows: Option<u64>,
    memory_bytes: Bytes,
    file_bytes: Bytes,
    loss: &'static str,
    best_loss: f64,
}

#[derive(Serialize)]
struct DatasetOutput<'a> {
    name: &'a str,
    dtype: &'a str,
    shape: &'a [u64],
}

impl Args {
    pub(super) fn prints_json(&self) -> bool {
        self.json
    }

    fn request(&self) -> Result<Request> {
        let mut sizes = Sizes::new(self);
        let kind = match self.kind {
            KindName::Sequences => Kind::Sequences {
                length: sizes.take("length", 64),
                features: sizes.take("features", 8),
                targets: sizes.take("targets", 1),
            },
            KindName::Tabular => Kind::Tabular {
                features: sizes.take("features", 16),
            },
            KindName::Images => Kind::Images {
                size: sizes.take("image-size", 32),
            },
            KindName::Tokens => Kind::Tokens {
                length: sizes.take("length", 128),
                vocabulary: sizes.take("vocabulary", 1000),
            },
        };
        sizes.must_be_used(kind)?;
        let compression = match self.compression {
            CompressionName::None if self.level.is_some() => {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "`--level` says how hard to compress, and nothing is compressed",
                )
                .hint("add `--compression gzip` or `--compression zstd`"));
            }
            CompressionName::None => Compression::None,
            CompressionName::Gzip => Compression::Gzip(self.level.unwrap_or(2)),
            CompressionName::Zstd => Compression::Zstd(self.level.unwrap_or(1).into()),
        };
        let request = Request {
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

    fn threads(&self) -> Result<usize> {
        match self.threads {
            Some(0) => Err(
                Error::new(ErrorKind::InvalidArgument, "`--threads 0` can do no work")
                    .hint("leave it out for one thread a core"),
            ),
            Some(threads) => Ok(threads.min(1024)),
            None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
        }
    }
}

/// The sizes that were given, each of which belongs to some kinds only.
struct Sizes(Vec<(&'static str, u64)>);

impl Sizes {
    fn new(args: &Args) -> Self {
        let given = [
            ("length", args.length),
            ("features", args.features),
            ("targets", args.targets),
            ("image-size", args.image_size),
            ("vocabulary", args.vocabulary),
        ];
        let given = given.into_iter();
        Sizes(
            given
                .filter_map(|(name, size)| Some((name, size?)))
                .collect(),
        )
    }

    fn take(&mut self, name: &str, usual: u64) -> u64 {
        match self.0.iter().position(|(given, _)| *given == name) {
            Some(at) => self.0.remove(at).1,
            None => usual,
        }
    }

    fn must_be_used(&self, kind: Kind) -> Result<()> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("`--{name}` means nothing for {}", kind.name()),
            )
            .hint("leave it out, or take another `--kind`")),
        }
    }
}

/// Parses the name of a type of number that some kind comes in.
fn parse_number(text: &str) -> Result<Number> {
    const KNOWN: [Number; 7] = [
        Number::F32,
        Number::F16,
        Number::F64,
        Number::U8,
        Number::I32,
        Number::U16,
        Number::I64,
    ];
    KNOWN
        .into_iter()
        .find(|number| number.name() == text)
        .ok_or_else(|| {
            let names = KNOWN.map(|number| format!("`{}`", number.name()));
            Error::new(
                ErrorKind::InvalidArgument,
                format!("`{text}` is not a type of number that is generated"),
            )
            .hint(format!("write one of {}", names.join(", ")))
        })
}

/// Runs `vramfit data generate`.
pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let request = args.request()?;
    let threads = args.threads()?;
    let options = WriteOptions {
        force: args.force,
        resume: args.resume,
        sync_every: args.sync_every,
        once: false,
    };
    let bar = output.progress("rows");
    let mut resumed = 0;
    let made = generate(&args.file, &request, options, threads, &mut |progress| {
        resumed = progress.resumed_rows;
        bar.show(progress.rows, resumed, progress.total);
    });
    bar.remove();
    let summary = made?;
    if resumed > 0 {
        output.info(&format!(
            "{} of {} rows were there from an earlier attempt",
            grouped(resumed),
            grouped(request.samples)
        ));
    }
    if args.json {
        output.json(&answer(args, &request, &summary, resumed))?;
    } else {
        output.info(&told(args, &summary));
    }
    Ok(Status::Yes)
}

/// Tells what was made, the file last.
fn told(args: &Args, summary: &Summary) -> String {
    let datasets = &summary.content.datasets;
    let width = datasets.iter().map(|d| d.path.len()).max().unwrap_or(0);
    let mut text = String::new();
    for dataset in datasets {
        let shape: Vec<String> = dataset.shape.iter().map(|&n| grouped(n)).collect();
        text.push_str(&format!(
            "{:width$}  {} [{}]\n",
            dataset.path,
            dataset.datatype.name(),
            shape.join(", ")
        ));
    }
    let stored = match summary.chunk_rows() {
        Some(rows) => format!("in chunks of {} rows", grouped(rows)),
        None => "without chunks".into(),
    };
    text.push_str(&format!(
        "on new samples a perfect model reaches {} ({})\n",
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

fn answer<'a>(
    args: &Args,
    request: &Request,
    summary: &'a Summary,
    resumed_samples: u64,
) -> GenerateOutput<'a> {
    let datasets = summary.content.datasets.iter();
    GenerateOutput {
        schema: 1,
        file: args.file.display().to_string(),
        kind: request.kind.name(),
        samples: request.samples,
        resumed_samples,
        seed: request.seed,
        datasets: datasets
            .map(|dataset| DatasetOutput {
                name: &dataset.path,
                dtype: dataset.datatype.name(),
                shape: &dataset.shape,
            })
            .collect(),
        compression: args.compression,
        chunk_rows: summary.chunk_rows(),
        memory_bytes: summary.raw_bytes(),
        file_bytes: summary.bytes,
        loss: summary.loss,
        best_loss: summary.best_loss,
    }
}
