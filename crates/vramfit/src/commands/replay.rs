//! `vramfit replay`: a recorded run with another allocator, pool size or GPU.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use vramfit_analysis::analysis;
use vramfit_analysis::analysis::ReplayOverrides;
use vramfit_analysis::report::{Extent, Report};
use vramfit_analysis::{Bytes, Error, Result};
use vramfit_base::files::cannot_read;
use vramfit_model::gpu;
use vramfit_model::settings::{self, FractionPolicy};
use vramfit_model::trace::{EventSource, Reader, RequestList};

use super::policy::{PoolArgs, check_occupied};
use super::results::{FullArgs, JsonArgs, PageArgs, write_page};
use crate::output::Output;
use crate::status::Status;
use crate::trace_progress::ReadProgress;

/// Replay a recorded run with other settings
///
/// Every allocation and free of the trace is repeated in the allocator and on the GPU that the options
/// select; everything else stays as in the run. Nothing is compiled or executed.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit dryrun --gpu h100-80g --trace run.trace -- python train.py
  vramfit replay run.trace --fraction 0.9
  vramfit replay run.trace --gpu rtx-4090 --allocator cuda_async
  vramfit replay run.trace --no-preallocate --occupied 20GiB --json -
  vramfit replay run.trace --policy 0.75+ --html replay.html

Exit codes:
  0  it fits
  1  it does not fit
  2  unknown
")]
pub(crate) struct Args {
    /// Trace of a run, or a list of requests: lines `A ID BYTES` and `F ID`
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Another GPU model, as many as the run had; see `vramfit gpus`
    #[arg(long, value_name = "NAME")]
    gpu: Option<String>,
    /// Memory already used on each GPU
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory)]
    occupied: Option<Bytes>,
    #[command(flatten)]
    pool: PoolArgs,
    /// Preallocate the whole pool at startup
    #[arg(long, conflicts_with = "no_preallocate")]
    preallocate: bool,
    /// Pool of a later release of JAX, which may grow: START, START+ (to all memory) or START-CAP, such as `0.75+`
    #[arg(long, value_name = "POLICY", value_parser = FractionPolicy::parse)]
    #[arg(conflicts_with_all = ["fraction", "limit", "allocator", "preallocate", "no_preallocate"])]
    policy: Option<FractionPolicy>,
    #[command(flatten)]
    text: FullArgs,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    #[command(flatten)]
    page: PageArgs,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
}

/// Runs `vramfit replay`.
pub(crate) fn run(args: &Args, output: &mut Output) -> Result<Status> {
    let gpu = args.gpu.as_deref().map(gpu::find).transpose()?;
    let json = args.json.target(args.force)?;
    let html = args.page.file(args.force)?;
    let source = open(&args.trace)?;
    let recorded = source.header().gpu().total_memory_bytes;
    let total_bytes = gpu.as_ref().map_or(recorded, |gpu| gpu.total_memory_bytes);
    if gpu.is_none() && recorded == 0 {
        let message = "a list of requests does not name the GPU";
        return Err(Error::invalid_argument(message).hint("add `--gpu NAME`, such as `h100-80g`"));
    }
    check_occupied(args.occupied, total_bytes)?;
    let mut options = settings::Options::from(&args.pool);
    if args.preallocate {
        options.preallocate = Some(true);
    }
    let settings = ReplayOverrides {
        gpu,
        options,
        occupied_bytes: args.occupied.map(|occupied| occupied.0),
        policy: args.policy,
    };
    let comparison = analysis::compare(&mut ReadProgress::new(source, output), &settings)
        .map_err(|error| error.in_file(&args.trace))?;
    let report = Report::from_replay(&comparison);
    if !json.is_stdout() {
        output.report_info(&report, if args.text.full { Extent::Full } else { Extent::Plain });
    }
    json.write(&report.json, output)?;
    write_page(&report, html.as_deref(), args.force, output)?;
    Ok(Status::from_answer(comparison.fits()))
}

/// The magic number of files compressed with `zstd`.
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Opens a trace or a list of requests, whichever it is.
fn open(path: &Path) -> Result<Box<dyn EventSource>> {
    let cannot = |error| cannot_read(path, error);
    let mut file = BufReader::new(File::open(path).map_err(cannot)?);
    let beginning = file.fill_buf().map_err(cannot)?;
    if beginning.starts_with(ZSTD_MAGIC) {
        let shown = path.display();
        let message = format!("`{shown}` is compressed");
        return Err(
            Error::invalid_file(message).hint(format!("decompress it first: `zstd -d {shown}`"))
        );
    }
    if RequestList::<File>::looks_like(beginning) {
        return Ok(Box::new(RequestList::new(file)));
    }
    let reader = Reader::new(file).map_err(|error| error.in_file(path))?;
    Ok(Box::new(reader))
}
