//! `vramfit explain`: why did it run out of memory, and what fixes it?

mod input;
mod remedies;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use vramfit_advice::explain::{ExplainOptions, Explanation, Verdict, explain};
use vramfit_analysis::report::Report;
use vramfit_analysis::{Bytes, Error, ErrorKind, Result};
use vramfit_base::files::cannot_read_with_hint;
use vramfit_model::gpu::GpuSelection;
use vramfit_model::run_config::{FEW_CALLS, RunConfig, StepLimit};
use vramfit_model::settings::Version;
use vramfit_runner::Context;
use vramfit_runner::dryrun::{DryrunSpec, SettingsSpec};
use vramfit_runner::interruption::{self, Interruption};

use self::input::read;
use self::remedies::{Program, apply_in_replay};
use super::results::{FullArgs, JsonArgs, PageArgs, print_report, write_page};
use crate::command_line::shell_line;
use crate::output::Output;
use crate::status::Status;

/// Find out from a log why a program ran out of memory, and what fixes it
///
/// Reads what a JAX program has printed: a file, a pipe, a pasted excerpt, logs of several processes. Also the
/// trace of a dry run, the binary map of a pool (`TF_BFC_MEMORY_DUMP`), and a directory that XLA has dumped into.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit explain train.log
  python train.py 2>&1 | tee train.log | vramfit explain
  vramfit explain slurm-1234_*.out --gpu a100-80g --full
  vramfit explain train.log --gpu a100-80g -- python train.py

Exit codes:
  0  explained: memory is the cause
  1  memory is not the cause
  2  nothing in the log was recognized, or an error
")]
pub(crate) struct Args {
    /// Logs, or `-` for standard input [default: standard input]
    #[arg(value_name = "LOG")]
    logs: Vec<PathBuf>,
    /// GPU that the program ran on, where the log does not name it, and how many; see `vramfit gpus`
    #[arg(long, value_name = "NAME[xN]")]
    gpu: Option<String>,
    /// Release of JAX that the program ran with, where the log does not name it
    #[arg(long, value_name = "VERSION")]
    jax: Option<Version>,
    /// Memory that others use of the GPU, for dry runs
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory)]
    occupied: Option<Bytes>,
    /// Trace of a run, or plan, in which remedies are measured
    #[arg(long = "with", value_name = "FILE")]
    with: Option<PathBuf>,
    #[command(flatten)]
    text: FullArgs,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    #[command(flatten)]
    page: PageArgs,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
    /// The program, to apply remedies to it in dry runs
    #[arg(value_name = "COMMAND", last = true)]
    pub(crate) command: Vec<OsString>,
}

/// Runs `vramfit explain`.
pub(crate) fn run(args: &Args, context: &Context, output: &mut Output) -> Result<Status> {
    let json = args.json.target(args.force)?;
    let html = args.page.file(args.force)?;
    if let Some(path) = args.with.as_deref() {
        let hint = "name the trace of a dry run, or a plan of `vramfit plan`";
        let metadata = std::fs::metadata(path);
        if !metadata.map_err(|error| cannot_read_with_hint(path, error, hint))?.is_file() {
            return Err(Error::io(format!("`{}` is not a file", path.display())).hint(hint));
        }
    }
    let is_plan = |path: &&Path| path.extension().is_some_and(|end| end == "toml");
    let plan = args.with.as_deref().filter(is_plan);
    if plan.is_some() && args.command.is_empty() {
        return Err(Error::invalid_argument("a plan is measured on a program, and none is named")
            .hint("add it: `-- python train.py`"));
    }
    let options = ExplainOptions {
        gpus: args.gpu.as_deref().map(str::parse).transpose()?,
        jax: args.jax.map(Into::into),
        command: shell_line(args.command.iter().map(AsRef::as_ref)),
        process: None,
    };
    let input = read(&args.logs, output)?;
    let mut explanation = explain(&input.log, &options);
    let shown = match options.command.as_str() {
        "" => "python train.py",
        command => command,
    };
    let trace = args.with.as_deref().filter(|path| !is_plan(path));
    let trace = trace.or(input.trace.as_deref());
    if let Some(trace) = trace {
        apply_in_replay(&mut explanation, trace, shown)?;
    }
    if !args.command.is_empty() {
        let program =
            Program { dryrun: program_dryrun(args, select_gpu(args, &explanation)?), plan, shown };
        let _interruption = Interruption::watch()?;
        match program.apply_in_dryrun(&mut explanation, context, output) {
            // The cause is known without dry runs.
            Err(error) if error.kind() == ErrorKind::Interrupted => output.error(&error),
            applied => applied?,
        }
    }
    let report = Report::from_explanation(&explanation);
    print_report(&report, args.text.full, &json, output)?;
    write_page(&report, html.as_deref(), args.force, output)?;
    Ok(interruption::exit_code().map_or_else(|| status(&explanation), Status::Child))
}

/// Returns the dry run of the program, which remedies are tried in.
fn program_dryrun(args: &Args, gpus: GpuSelection) -> DryrunSpec {
    let run = RunConfig {
        occupied_bytes: args.occupied.unwrap_or_default().0,
        steps: Some(StepLimit::Calls(FEW_CALLS)),
        ..RunConfig::new(gpus)
    };
    let spec = DryrunSpec::new(run, args.command.clone());
    DryrunSpec { settings: SettingsSpec { repair: true, ..spec.settings }, ..spec }
}

/// Returns the GPU of the dry runs.
fn select_gpu(args: &Args, explanation: &Explanation) -> Result<GpuSelection> {
    match args.gpu.clone().or_else(|| explanation.figures.gpu_label()) {
        Some(label) => label.parse(),
        None => Err(Error::invalid_argument(
            "the log does not name the GPU that dry runs are to be made for",
        )
        .hint("add `--gpu NAME`, such as `a100-80g`; `vramfit gpus` lists them")),
    }
}

fn status(explanation: &Explanation) -> Status {
    match explanation.verdict() {
        Verdict::Memory => Status::Yes,
        Verdict::NotMemory => Status::No,
        Verdict::Unrecognized => Status::Unknown,
    }
}
