//! `vramfit data repack`: a file that streams badly becomes one that streams well.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use vramfit_core::{Bytes, Error, ErrorKind, Result};
use vramfit_data::repack::{
    Chunk, Loss, OutputOptions, Phase, Plan, Request, Shuffle, Step, plan, repack,
};
use vramfit_data::write::Compression;

use super::numbers::parse_count;
use super::repack_text;
use crate::output::Output;
use crate::status::Status;

/// Rewrite an HDF5 file so that it streams well, compare the copy with it, and only then show it
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit data repack slow.h5 fast.h5 --dry-run
  vramfit data repack slow.h5 fast.h5 --compression zstd --chunk 1MiB
  vramfit data repack train.h5 --in-place --memory 1GiB
")]
pub(crate) struct Args {
    /// The file to read
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The file to write
    #[arg(value_name = "OUT", required_unless_present_any = ["in_place", "dry_run"])]
    output: Option<PathBuf>,
    /// Only these datasets or groups, with commas between them
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    datasets: Vec<String>,
    /// Rows in a chunk
    #[arg(long, value_name = "N", value_parser = parse_count, conflicts_with = "chunk")]
    chunk_rows: Option<u64>,
    /// Size of a chunk in memory; 256 to 512 KiB unless told, and no chunks where nothing is compressed
    #[arg(long, value_name = "SIZE")]
    chunk: Option<Bytes>,
    /// How to compress; `gzip` can be read everywhere, `zstd` and `lz4` need hdf5plugin
    #[arg(long, value_name = "HOW", default_value = "keep")]
    compression: CompressionName,
    /// How hard to compress: 1 to 12 for gzip (4 unless told), 1 to 22 for zstd (3 unless told)
    #[arg(long, value_name = "N")]
    level: Option<u8>,
    /// Whether to put bytes of equal weight together before; `auto` where elements have several
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    shuffle: ShuffleName,
    /// The memory that rows may take while they are copied
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    memory: Bytes,
    /// Threads that decode and compress; one for each core unless told
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Show what would be done, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Put the new file in the place of the old one
    #[arg(long, conflicts_with = "datasets")]
    in_place: bool,
    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,
    /// Print one JSON object about what was done
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CompressionName {
    /// As each dataset is; what is not written here becomes the nearest that is
    Keep,
    None,
    Gzip,
    Zstd,
    Lz4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ShuffleName {
    Auto,
    Always,
    Never,
}

#[derive(Serialize)]
struct RepackOutput<'a> {
    schema: u32,
    input: String,
    output: Option<String>,
    written: bool,
    datasets: &'a [Step],
    copied_whole: usize,
    left_out: &'a [Loss],
    old_bytes: Bytes,
    /// The size of the new file; before it is written, as far as it is known.
    new_bytes: Bytes,
    new_bytes_are_estimated: bool,
    memory_bytes: Bytes,
    threads: usize,
}

impl Args {
    pub(super) fn prints_json(&self) -> bool {
        self.json
    }

    fn request(&self) -> Result<Request> {
        let refuse = |what: &str| Error::new(ErrorKind::InvalidArgument, what);
        let compression = match (self.compression, self.level) {
            (CompressionName::Keep, None) => None,
            (CompressionName::Keep, Some(_)) => {
                return Err(refuse("`--level` says how hard to compress, and not how")
                    .hint("add `--compression gzip` or `--compression zstd`"));
            }
            (CompressionName::None | CompressionName::Lz4, Some(_)) => {
                return Err(refuse("`--level` means nothing for this `--compression`")
                    .hint("leave it out, or take `--compression gzip` or `--compression zstd`"));
            }
            (CompressionName::None, None) => Some(Compression::None),
            (CompressionName::Gzip, level) => Some(Compression::Gzip(level.unwrap_or(4))),
            (CompressionName::Zstd, level) => Some(Compression::Zstd(level.unwrap_or(3).into())),
            (CompressionName::Lz4, None) => Some(Compression::Lz4),
        };
        let chunk = match (self.chunk_rows, self.chunk) {
            (Some(0), _) => {
                return Err(refuse("`--chunk-rows 0` is not possible").hint("it can be 1 or more"));
            }
            (_, Some(Bytes(0))) => {
                return Err(refuse("`--chunk 0` is not possible").hint("write `--chunk 512KiB`"));
            }
            (Some(rows), _) => Chunk::Rows(rows),
            (None, Some(bytes)) => Chunk::Bytes(bytes),
            (None, None) => Chunk::Usual,
        };
        let threads = match self.threads {
            Some(0) => {
                return Err(refuse("`--threads 0` can do no work")
                    .hint("leave it out for one thread a core"));
            }
            Some(threads) => threads.min(1024),
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        Ok(Request {
            datasets: self.datasets.clone(),
            chunk,
            compression,
            shuffle: match self.shuffle {
                ShuffleName::Auto => Shuffle::Auto,
                ShuffleName::Always => Shuffle::Always,
                ShuffleName::Never => Shuffle::Never,
            },
            memory: self.memory,
            threads,
        })
    }

    /// Returns where the new file is to be, and refuses to write over the old one by accident.
    fn target(&self) -> Result<Option<PathBuf>> {
        let refuse = |what: String| Error::new(ErrorKind::InvalidArgument, what);
        let same = self
            .output
            .as_deref()
            .is_some_and(|output| is_same(&self.input, output));
        match (&self.output, self.in_place) {
            (Some(output), true) if !same => Err(refuse(format!(
                "`--in-place` writes to `{}`, and `{}` is another file",
                self.input.display(),
                output.display()
            ))
            .hint("leave out the one or the other")),
            (Some(_), false) if same => Err(refuse(format!(
                "`{}` would be written over while it is read",
                self.input.display()
            ))
            .hint("name another file, or add `--in-place`")),
            // What a link leads to is replaced, and not the link.
            (_, true) => match std::fs::canonicalize(&self.input) {
                Ok(target) => Ok(Some(target)),
                Err(error) => Err(cannot_read(&self.input, &error)),
            },
            (output, false) => Ok(output.clone()),
        }
    }
}

/// Whether two names are those of one file.
fn is_same(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| {
        let data = std::fs::metadata(path).ok()?;
        Some((data.dev(), data.ino()))
    };
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

fn has_other_names(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| std::os::unix::fs::MetadataExt::nlink(&data) > 1)
}

/// Runs `vramfit data repack`.
pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let request = args.request()?;
    let target = args.target()?;
    let lock = lock(&args.input)?;
    let plan = plan(&args.input, &request)?;
    if args.in_place
        && let Some(loss) = plan.losses.first()
    {
        return Err(Error::new(
            ErrorKind::UnsupportedFeature,
            format!("{} would be lost: {}", loss.what, loss.why),
        )
        .hint("write another file, which leaves this one as it is"));
    }
    for loss in &plan.losses {
        output.info(&format!("left out: {}: {}", loss.what, loss.why));
    }
    let Some(target) = target.filter(|_| !args.dry_run) else {
        return answer(args, &plan, None, output);
    };
    if args.in_place && has_other_names(&target) {
        output.info("other names of the file (hard links) keep what they have");
    }
    let bars = [
        output.progress("MiB written"),
        output.progress("MiB compared"),
    ];
    let options = OutputOptions {
        force: args.force,
        in_place: args.in_place,
    };
    let written = repack(
        &plan,
        &target,
        options,
        &mut |progress| match progress.phase {
            Phase::Write => bars[0].show(progress.done, 0, progress.total),
            Phase::Compare => {
                bars[0].remove();
                bars[1].show(progress.done, 0, progress.total);
            }
        },
    );
    bars.iter().for_each(|bar| bar.remove());
    drop(lock);
    answer(args, &plan, Some((&target, written?)), output)
}

/// Keeps programs that write HDF5 away from the file while it is read, and refuses it while one has it open.
fn lock(path: &Path) -> Result<Option<std::fs::File>> {
    let Ok(file) = std::fs::File::open(path) else {
        // Whoever reads it says why it cannot be.
        return Ok(None);
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::new(
            ErrorKind::FileNotClosed,
            format!("a program has `{}` open for writing", path.display()),
        )
        .hint("wait until it has closed the file")),
        // Not every file system has locks.
        Err(_) => Ok(None),
    }
}

fn answer(
    args: &Args,
    plan: &Plan,
    written: Option<(&Path, Bytes)>,
    output: &mut Output,
) -> Result<Status> {
    if !args.json {
        let text = match written {
            Some((_, bytes)) => {
                let shown = if args.in_place {
                    None
                } else {
                    args.output.as_deref()
                };
                repack_text::told(plan, shown.unwrap_or(&args.input), bytes)
            }
            None => repack_text::planned(plan),
        };
        match written {
            Some(_) => output.info(&text),
            None => output.text(&text)?,
        }
        return Ok(Status::Yes);
    }
    output.json(&RepackOutput {
        schema: 1,
        input: args.input.display().to_string(),
        output: written.map(|(path, _)| {
            let shown = if args.in_place {
                None
            } else {
                args.output.as_deref()
            };
            shown.unwrap_or(path).display().to_string()
        }),
        written: written.is_some(),
        datasets: &plan.steps,
        copied_whole: plan.whole,
        left_out: &plan.losses,
        old_bytes: plan.old_bytes,
        new_bytes: written.map_or(plan.new_bytes, |(_, bytes)| bytes),
        new_bytes_are_estimated: written.is_none() && plan.is_estimate,
        memory_bytes: plan.memory,
        threads: plan.threads,
    })?;
    Ok(Status::Yes)
}

fn cannot_read(path: &Path, error: &std::io::Error) -> Error {
    Error::new(
        ErrorKind::Io,
        format!("cannot read the file `{}`", path.display()),
    )
    .cause(error)
}
