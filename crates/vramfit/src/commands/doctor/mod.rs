//! `vramfit doctor`: check driver, environment and JAX installation.
//!
//! Gathers system information, probes JAX in a child process, and prints the results of the checks in
//! `vramfit_advice::doctor`.

mod driver;
mod gather;
mod probe;
mod query_python;

use std::time::Duration;

use clap::ValueEnum;
use vramfit_advice::doctor::{self, DoctorOutput, DoctorReport};
use vramfit_analysis::{Error, Result};
use vramfit_base::duration::parse_duration;
use vramfit_runner::Context;

use crate::commands::results::{FullArgs, JsonFileArgs};
use crate::output::{Output, terminal_columns};
use crate::status::Status;

/// Check driver, environment and JAX installation
///
/// Checks driver, GPUs, container, Python packages and settings; then probes JAX in a child process: which
/// devices it has, whether its pool has the requested size, whether the GPU computes. Every problem comes
/// with a fix.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit doctor
  vramfit doctor --quiet --require gpu
  vramfit doctor --train
  vramfit dryrun --gpu t4 -- vramfit doctor

Exit codes:
  0  no check failed; there may be warnings
  1  a check failed, or the required GPU does not compute
  2  the checks could not be run
")]
pub(crate) struct Args {
    /// Run only the five training checks
    #[arg(long)]
    train: bool,
    /// Fail unless this backend works
    #[arg(long, value_name = "BACKEND")]
    require: Option<Required>,
    /// Limit the probe's memory so that it can run next to other programs
    #[arg(long)]
    no_preallocate: bool,
    /// Do not start JAX, and skip what needs it; `--require gpu` then asks only the driver
    #[arg(long, conflicts_with_all = ["train", "no_preallocate"])]
    no_jax: bool,
    /// Timeout for the driver and for each step of the probe
    #[arg(long, value_name = "TIME", value_parser = parse_timeout, default_value = "60s")]
    timeout: Duration,
    #[command(flatten)]
    text: FullArgs,
    #[command(flatten)]
    pub(crate) results: JsonFileArgs,
}

/// A backend that must work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Required {
    /// A real GPU, not a virtual one
    Gpu,
}

/// Parses the timeout.
///
/// # Errors
/// `invalid-argument` for what is not a duration, or out of range.
fn parse_timeout(text: &str) -> Result<Duration> {
    let timeout = parse_duration(text)?;
    if (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&timeout) {
        return Ok(timeout);
    }
    Err(Error::invalid_argument(format!("timeout `{text}` is out of range")).hint("use 1s to 1h"))
}

/// Runs `vramfit doctor`.
pub(crate) fn run(
    args: &Args,
    python_is_named: bool,
    context: &Context,
    output: &mut Output,
) -> Result<Status> {
    let json = args.results.target()?;
    let info = gather::gather(args, python_is_named, context)?;
    for line in &info.probe.log {
        output.verbose(&format!("log: {line}"));
    }
    let report =
        if args.train { DoctorReport::for_training(&info) } else { DoctorReport::new(&info) };
    json.write(&DoctorOutput::new(&report, &info), output)?;
    if !json.is_stdout() {
        let columns = terminal_columns(std::io::stdout()).unwrap_or(doctor::COLUMNS).clamp(40, 120);
        let detail = args.text.full || output.is_verbose();
        let lines = doctor::lines(&report, output.is_quiet(), detail, columns);
        output.doctor_report(&lines)?;
        output.text(&format!("{}\n", doctor::summary(&report)))?;
    }
    Ok(Status::from_answer(Some(report.passed())))
}
