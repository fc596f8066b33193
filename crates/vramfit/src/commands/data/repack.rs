//! `vramfit data repack`: rewrites a file so that it streams well.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use rustix::fs::{FlockOperation, flock};
use serde_json::json;
use vramfit_core::{Bytes, Error, ErrorKind, Result};
use vramfit_data::repack::{
    Chunk, OutputOptions, Phase, RepackOptions, RepackPlan, Shuffle, plan, repack,
};
use vramfit_data::write::Compression;

use super::numbers::{parse_count, thread_count};
use super::repack_text;
use crate::output::Output;
use crate::status::Status;

/// Rewrite an HDF5 file for fast streaming, and verify the copy before publishing it
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
    /// Copy only these datasets or groups (comma-separated)
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    datasets: Vec<String>,
    /// Rows per chunk
    #[arg(long, value_name = "N", value_parser = parse_count, conflicts_with = "chunk")]
    chunk_rows: Option<u64>,
    /// Uncompressed chunk size [default: 256 to 512 KiB; no chunks without compression]
    #[arg(long, value_name = "SIZE")]
    chunk: Option<Bytes>,
    /// Compression; `gzip` can be read everywhere, `zstd` and `lz4` need hdf5plugin
    #[arg(long, value_name = "METHOD", default_value = "keep")]
    compression: CompressionName,
    /// Compression level: 1 to 12 for gzip [default: 4], 1 to 22 for zstd [default: 3]
    #[arg(long, value_name = "N")]
    level: Option<u8>,
    /// Apply the byte-shuffle filter before compression; `auto` for elements of more than one byte
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    shuffle: ShuffleName,
    /// Memory budget for copying rows
    #[arg(long, value_name = "SIZE", value_parser = Bytes::parse_memory, default_value = "256MiB")]
    memory: Bytes,
    /// Threads that decode and compress [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Show what would be done without writing anything
    #[arg(long)]
    dry_run: bool,
    /// Replace the input file in place
    #[arg(long, conflicts_with = "datasets")]
    in_place: bool,
    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,
    /// Print one JSON object about the result
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CompressionName {
    /// Keep that of each dataset, or the closest one that can be written
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

impl Args {
    fn options(&self) -> Result<RepackOptions> {
        let refuse = |what: &str| Error::invalid_argument(what);
        let compression = match (self.compression, self.level) {
            (CompressionName::Keep, None) => None,
            (CompressionName::Keep, Some(_)) => {
                return Err(refuse("`--level` needs a compression method")
                    .hint("add `--compression gzip` or `--compression zstd`"));
            }
            (CompressionName::None | CompressionName::Lz4, Some(_)) => {
                return Err(refuse("`--level` does not apply to this `--compression`")
                    .hint("omit it, or use `--compression gzip` or `--compression zstd`"));
            }
            (CompressionName::None, None) => Some(Compression::None),
            (CompressionName::Gzip, level) => Some(Compression::Gzip(level.unwrap_or(4))),
            (CompressionName::Zstd, level) => Some(Compression::Zstd(level.unwrap_or(3).into())),
            (CompressionName::Lz4, None) => Some(Compression::Lz4),
        };
        let chunk = match (self.chunk_rows, self.chunk) {
            (Some(0), _) => {
                return Err(refuse("`--chunk-rows` must be at least 1"));
            }
            (_, Some(Bytes(0))) => {
                return Err(
                    refuse("`--chunk` must not be 0").hint("use a size such as `--chunk 512KiB`")
                );
            }
            (Some(rows), _) => Chunk::Rows(rows),
            (None, Some(bytes)) => Chunk::Bytes(bytes),
            (None, None) => Chunk::Default,
        };
        Ok(RepackOptions {
            datasets: self.datasets.clone(),
            chunk,
            compression,
            shuffle: match self.shuffle {
                ShuffleName::Auto => Shuffle::Auto,
                ShuffleName::Always => Shuffle::Always,
                ShuffleName::Never => Shuffle::Never,
            },
            memory: self.memory,
            threads: thread_count(self.threads)?,
        })
    }

    /// Returns the path of the new file, which is that of the input only with `--in-place`.
    fn target(&self) -> Result<Option<PathBuf>> {
        let refuse = |what: String| Error::invalid_argument(what);
        let same = self.output.as_deref().is_some_and(|output| is_same(&self.input, output));
        match (&self.output, self.in_place) {
            (Some(output), true) if !same => Err(refuse(format!(
                "`--in-place` replaces `{}`, but the output file is `{}`",
                self.input.display(),
                output.display()
            ))
            .hint("omit one of them")),
            (Some(_), false) if same => Err(refuse(format!(
                "input and output are the same file, `{}`",
                self.input.display()
            ))
            .hint("choose another output file, or add `--in-place`")),
            // The target of a symbolic link is replaced, not the link.
            (_, true) => match std::fs::canonicalize(&self.input) {
                Ok(target) => Ok(Some(target)),
                Err(error) => Err(cannot_read(&self.input, &error)),
            },
            (output, false) => Ok(output.clone()),
        }
    }
}

/// Whether two paths refer to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| {
        let data = std::fs::metadata(path).ok()?;
        Some((data.dev(), data.ino()))
    };
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

fn has_hard_links(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| std::os::unix::fs::MetadataExt::nlink(&data) > 1)
}

/// Runs `vramfit data repack`.
pub(super) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let options = args.options()?;
    let target = args.target()?;
    let lock = lock(&args.input)?;
    let plan = plan(&args.input, &options)?;
    if args.in_place
        && let Some(omission) = plan.omissions.first()
    {
        return Err(Error::unsupported_feature(format!(
            "{} would be lost: {}",
            omission.what, omission.reason
        ))
        .hint("write to another file, which keeps the original"));
    }
    for omission in &plan.omissions {
        output.info(&format!("omitted: {}: {}", omission.what, omission.reason));
    }
    let Some(target) = target.filter(|_| !args.dry_run) else {
        return print_output(args, &plan, None, output);
    };
    if args.in_place && has_hard_links(&target) {
        output.info("hard links to the file keep the old contents");
    }
    let bars = [output.progress_bar("MiB written"), output.progress_bar("MiB verified")];
    let output_options = OutputOptions { force: args.force, in_place: args.in_place };
    let written = repack(&plan, &target, output_options, &mut |progress| match progress.phase {
        Phase::Write => bars[0].show(progress.done, 0, progress.total),
        Phase::Compare => {
            bars[0].remove();
            bars[1].show(progress.done, 0, progress.total);
        }
    });
    bars.iter().for_each(|bar| bar.remove());
    drop(lock);
    print_output(args, &plan, Some((&target, written?)), output)
}

/// Takes the shared lock that programs that write HDF5 respect, or fails if one has the file open.
fn lock(path: &Path) -> Result<Option<std::fs::File>> {
    let Ok(file) = std::fs::File::open(path) else {
        // Reading it reports the error.
        return Ok(None);
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::new(
            ErrorKind::FileNotClosed,
            format!("`{}` is open for writing in another program", path.display()),
        )
        .hint("wait until that program has closed it")),
        // Not every file system supports locks.
        Err(_) => Ok(None),
    }
}

fn print_output(
    args: &Args,
    plan: &RepackPlan,
    written: Option<(&Path, Bytes)>,
    output: &mut Output,
) -> Result<Status> {
    // The file is named as the user did.
    let named = args.output.as_deref().filter(|_| !args.in_place);
    if !args.json {
        match written {
            Some((_, bytes)) => {
                let file = named.unwrap_or(&args.input);
                output.info(&repack_text::render_result(plan, file, bytes));
            }
            None => output.text(&repack_text::render_plan(plan))?,
        }
        return Ok(Status::Yes);
    }
    output.json(&json!({
        "schema": 1,
        "input": args.input.display().to_string(),
        "output": written.map(|(path, _)| named.unwrap_or(path).display().to_string()),
        "written": written.is_some(),
        "datasets": plan.steps,
        "small_objects": plan.small_objects,
        "omitted": plan.omissions,
        "old_bytes": plan.old_bytes,
        // Estimated before the file is written.
        "new_bytes": written.map_or(plan.new_bytes, |(_, bytes)| bytes),
        "new_bytes_are_estimated": written.is_none() && plan.is_estimate,
        "memory_bytes": plan.memory,
        "threads": plan.threads,
    }))?;
    Ok(Status::Yes)
}

fn cannot_read(path: &Path, error: &std::io::Error) -> Error {
    Error::io(format!("cannot read the file `{}`", path.display())).cause(error)
}
