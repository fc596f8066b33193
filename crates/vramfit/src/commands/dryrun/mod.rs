//! `vramfit dryrun`: what would my program do on that GPU?
//!
//! The arguments become a [`DryrunSpec`], which `vramfit-runner` runs; [`report`] prints what it came to.

mod hosts;
mod report;
mod result_files;
mod values;

pub(crate) use hosts::{HostArgs, host_count_parser};
pub(crate) use result_files::ResultFiles;
pub(crate) use values::read_plan;

use std::ffi::OsString;
use std::path::PathBuf;

use vramfit_analysis::{Bytes, Result};
use vramfit_model::gpu::{Calibration, GpuSelection};
use vramfit_model::run_config::{RunConfig, Sharing, StepLimit};
use vramfit_model::settings::{Options, Version};
use vramfit_runner::Context;
use vramfit_runner::dryrun::{self, DryrunSpec, RemedyLevel, SettingsSpec, read_autotune_results};
use vramfit_runner::interruption::Interruption;

use self::result_files::writable_trace;
use self::values::Total;
use super::policy::{PoolArgs, check_occupied, spill_of_each};
use super::results::{FullArgs, JsonArgs, PageArgs};
use crate::output::Output;
use crate::status::Status;

/// Run a JAX program on a virtual GPU, and report whether it fits
///
/// The program runs unmodified, with its own arguments and output; only its environment is changed.
/// The report follows on standard error.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit dryrun --gpu h100-80g -- python train.py --batch 32
  vramfit dryrun --gpu rtx-4090 --steps 3 train.py
  vramfit dryrun --gpu a100-80gx8 --fraction 0.9 --json answer.json -- python train.py
  vramfit dryrun --gpu h100-80gx8 --hosts 32 --steps 3 -- python train.py

Exit codes:
  0  it fits
  1  it does not fit
  2  unknown: the program failed, or never used the GPU
")]
pub(crate) struct Args {
    /// GPU model, or several GPUs: `h100-80g`, `h100-80gx8`; see `vramfit gpus`
    #[arg(long, value_name = "NAME[xN]")]
    gpu: String,
    /// Stop after N executions of the training step that was detected, or named by --step; `steady`: after 200 in a row
    /// that executed no new program
    #[arg(long, value_name = "N|steady")]
    steps: Option<StepLimit>,
    /// Name of the function that is the training step
    #[arg(long, value_name = "NAME")]
    step: Option<String>,
    /// Memory already used on each GPU
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory)]
    occupied: Option<Bytes>,
    /// Host memory that is free for the program; unified memory takes what the GPUs have no room for from it
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory)]
    host_memory: Option<Bytes>,
    /// Let the pools use this much host memory besides the GPUs': unified memory, slow
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory)]
    #[arg(conflicts_with_all = ["fraction", "limit", "host_memory"])]
    spill: Option<Bytes>,
    /// Total memory that the driver reports: a size, `lowest` [default] or `highest`
    #[arg(long, value_name = "BYTES", value_parser = values::parse_total)]
    total: Option<Total>,
    /// Share the virtual GPUs with all other dry runs of this name
    #[arg(long, value_name = "NAME", value_parser = values::parse_share_name)]
    share_as: Option<String>,
    #[command(flatten)]
    hosts: HostArgs,
    #[command(flatten)]
    pool: PoolArgs,
    /// Also compile large programs without Triton GEMM, and report the range of the peak
    #[arg(long, conflicts_with = "share_as")]
    autotune_range: bool,
    /// Skip memory attribution inside programs (slightly faster compilation)
    #[arg(long)]
    no_attribution: bool,
    /// Apply a plan that `vramfit plan` made
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Autotuning results recorded on a GPU of the same model
    #[arg(long, value_name = "FILE")]
    autotune_results: Option<PathBuf>,
    /// Rates measured on a GPU of the same model, for estimates of time
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Do not compute any values, not even small ones
    #[arg(long)]
    no_values: bool,
    /// What to do with host callbacks whose arguments were not computed
    #[arg(long, value_name = "ACTION")]
    callbacks: Option<Callbacks>,
    /// Give the pool more memory than the GPU has, while programs are compiled for the GPU: for `vramfit.estimate`
    #[arg(long, hide = true)]
    unlimited: bool,
    /// Which changes of the program are measured, each by one more dry run: `quick` the two that are about most memory
    /// where it does not fit, `full` all of them
    #[arg(long, value_name = "LEVEL", default_value = "quick", value_parser = values::remedies_parser())]
    remedies: RemedyLevel,
    #[command(flatten)]
    text: FullArgs,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    #[command(flatten)]
    page: PageArgs,
    /// Keep the trace of the run in a file
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
    /// The program and its arguments; a file that ends in `.py` is run with Python
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) command: Vec<OsString>,
}

/// What to do with host callbacks whose arguments were not computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Callbacks {
    /// Call them with placeholder values
    Call,
    /// Do not call them
    Skip,
}

/// Runs `vramfit dryrun`.
pub(crate) fn run(args: Args, context: &Context, output: &mut Output) -> Result<Status> {
    let (spec, files) = args.into_spec()?;
    // A signal ends one program in front of the user as it would without us. Several, or one of which nobody
    // sees anything, end with us.
    let _interruption = (!spec.is_alone(context)).then(Interruption::watch).transpose()?;
    execute(&spec, &files, context, output)
}

/// Makes a dry run, prints the results, and writes them to files.
///
/// # Errors
/// Whatever prevents the run, or a result.
pub(crate) fn execute(
    spec: &DryrunSpec,
    files: &ResultFiles,
    context: &Context,
    output: &mut Output,
) -> Result<Status> {
    let run = dryrun::run(spec, context, output)?;
    report::report(&run, files, output)
}

impl Args {
    /// Checks whatever can be known to be wrong before the program runs: that may take an hour.
    fn into_spec(self) -> Result<(DryrunSpec, ResultFiles)> {
        let mut gpus: GpuSelection = self.gpu.parse()?;
        if let Some(total) = self.total {
            gpus.gpu = total.apply(&gpus.gpu)?;
        }
        let options = Options {
            spill: self.spill.map(|bytes| spill_of_each(bytes, &gpus)).transpose()?,
            ..Options::from(&self.pool)
        };
        let (plan, options) = read_plan(self.plan.as_deref(), options)?;
        let settings = SettingsSpec {
            report_findings: !self.json.is_stdout(),
            ..SettingsSpec::new(options, &gpus.gpu)
        };
        // Which names the program's JAX reads is found out later; whether the pool fits is known now.
        settings.resolve(Version::MAX)?;
        check_occupied(self.occupied, gpus.gpu.total_memory_bytes)?;
        let autotune_results = self.autotune_results.as_deref();
        autotune_results.map(|path| read_autotune_results(path, &gpus.gpu)).transpose()?;
        let calibration = self.calibration.as_deref();
        let calibration = calibration.map(|path| Calibration::read(path, &gpus.gpu)).transpose()?;
        let files = self.result_files()?;
        let trace = |path: &PathBuf| writable_trace(path, self.force);
        let trace = self.trace.as_ref().map(trace).transpose()?;
        let hosts = self.hosts.to_spec()?;
        let run = RunConfig {
            occupied_bytes: self.occupied.unwrap_or_default().0,
            host_memory_bytes: self.host_memory.or(self.spill).map(|bytes| bytes.0),
            sharing: match self.share_as {
                Some(name) => Sharing::Named(name),
                // What other processes would do with other kernels is unknown, so each is measured alone.
                None if self.autotune_range => Sharing::Private,
                None => Sharing::Run,
            },
            unlimited: self.unlimited,
            steps: self.steps,
            step: self.step,
            plan,
            attribution: !self.no_attribution,
            autotune_range: self.autotune_range,
            autotune_results: self.autotune_results,
            calibration,
            values: !self.no_values,
            callbacks: self.callbacks != Some(Callbacks::Skip),
            ..RunConfig::new(gpus)
        };
        let spec = DryrunSpec {
            hosts,
            settings,
            trace,
            remedies: self.remedies,
            ..DryrunSpec::new(run, self.command)
        };
        Ok((spec, files))
    }

    fn result_files(&self) -> Result<ResultFiles> {
        Ok(ResultFiles {
            json: self.json.file(self.force)?,
            json_to_stdout: self.json.is_stdout(),
            full_text: self.text.full,
            html: self.page.file(self.force)?,
            force: self.force,
        })
    }
}
