//! `vramfit plan`: what to change so that a program fits, without editing it.
//!
//! Every row of the answer is a dry run of the program with the plan applied; nothing is estimated about
//! its memory. `vramfit-runner` finds the rows, and the largest value of a number in the command.

mod fit;
mod largest;
mod results;
mod text;
mod vary;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::Value;
use vramfit_analysis::planning::{Moves, When};
use vramfit_analysis::{Bytes, Error, Result};
use vramfit_base::duration::parse_duration;
use vramfit_model::gpu::{Calibration, Gpu, GpuSelection};
use vramfit_model::run_config::{RunConfig, StepLimit};
use vramfit_model::settings::{Options, Version};
use vramfit_runner::Context;
use vramfit_runner::dryrun::{DryrunSpec, SettingsSpec, open_compilation_cache};
use vramfit_runner::interruption::Interruption;
use vramfit_runner::plan::{
    DEFAULT_JOBS, DEFAULT_MAX_TRIALS, LargestSpec, SearchSpec, all_moves, find_plans,
};
use vramfit_runner::scratch::TempDirectory;

pub(crate) use self::fit::find_fitting_plan;
use self::results::PlanResults;
use self::vary::Variation;
use super::dryrun::HostArgs;
use super::policy::{PoolArgs, check_occupied};
use super::results::{FullArgs, JsonArgs, JsonTarget, PageArgs, write_page};
use crate::files::{writable, write};
use crate::output::Output;
use crate::status::Status;

/// Find what to change so that a JAX program fits on a GPU, without editing it
///
/// Runs the program many times on a virtual GPU, each time with another plan applied, and lists the plans
/// that are worth choosing. The program is not edited: `vramfit run --plan FILE` applies a plan on the GPU.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit plan --gpu t4 --out plan.toml -- python train.py
  vramfit plan --gpu rtx-4090,l4 --budget 20GiB -- python train.py --batch 32
  vramfit plan --gpu l4 --vary batch=1..512 -- python train.py --batch {batch}
  vramfit plan --gpu l4 --fastest --vary batch=8..512:x2 -- python train.py --batch {batch}

Exit codes:
  0  a plan meets the budget, or the program fits as it is
  1  no plan does; the one with the lowest peak is named
  2  error, or the answer is unknown
")]
pub(crate) struct Args {
    /// GPU model, or several separated by commas; the search is for the first
    #[arg(long, value_name = "NAME[xN],...", value_delimiter = ',', required = true)]
    gpu: Vec<String>,
    /// Bytes that the peak may have, instead of what the GPU can hold
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory)]
    budget: Option<Bytes>,
    /// Pinned host memory that offloaded values may take; no limit by default
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory)]
    host_budget: Option<Bytes>,
    /// Memory already used on each GPU
    #[arg(long, value_name = "BYTES", value_parser = Bytes::parse_memory)]
    occupied: Option<Bytes>,
    /// Values for a `{NAME}` in the command: a range `1..512`, `8..4096:8` or `8..4096:x2`, whose largest that fits is
    /// searched, or a list
    #[arg(long, value_name = "NAME=VALUES")]
    vary: Vec<Variation>,
    /// Recommend the fastest plan that fits, also if the program fits as it is; a range of `--vary` is then a list
    #[arg(long)]
    fastest: bool,
    /// Stop each dry run after N executions of the training step. By default those of the program as it is and of the
    /// recommended plan stop after 200 in a row that executed no new program, and others when every program of the first
    /// has been executed
    #[arg(long, value_name = "N|steady", default_value_t = StepLimit::Steady, hide_default_value = true)]
    steps: StepLimit,
    /// Name of the function that is the training step
    #[arg(long, value_name = "NAME")]
    step: Option<String>,
    /// Dry runs at most
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_TRIALS as u32)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1000))]
    max_trials: u32,
    /// Dry runs at the same time
    #[arg(long, value_name = "N", default_value_t = DEFAULT_JOBS as u32)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    jobs: u32,
    /// What may be changed, separated by commas; everything by default
    #[arg(long = "try", value_name = "MOVES", value_delimiter = ',', value_enum)]
    moves: Vec<Move>,
    /// Time after which a dry run is ended and its plan left out
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "15m")]
    trial_timeout: Duration,
    /// Rates measured on a GPU of the first model, for estimates of time
    #[arg(long, value_name = "FILE")]
    calibration: Option<PathBuf>,
    /// Compile everything anew, and keep nothing of it
    #[arg(long)]
    no_cache: bool,
    #[command(flatten)]
    hosts: HostArgs,
    #[command(flatten)]
    pool: PoolArgs,
    /// Write the recommended plan to a file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    text: FullArgs,
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

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Move {
    /// What is recomputed in the backward pass
    Remat,
    /// What is kept in host memory; by default only where nothing fits without
    Offload,
    /// How much of what `jax.vmap` maps is computed at a time
    Chunk,
    /// Loops of at most 16 iterations, compiled without a loop; by default only where nothing fits
    /// without
    Unroll,
    /// XLA's own rematerialization pass and its scheduler
    Compiler,
    /// A larger fraction of GPU memory for JAX's pool, and what cures fragmentation
    Pool,
}

impl Args {
    /// Returns what the search may change.
    fn moves(&self, gpu: &Gpu) -> Moves {
        let all = all_moves(gpu, &Options::from(&self.pool));
        let tries = |one: Move| self.moves.is_empty() || self.moves.contains(&one);
        // What is tried by default only where nothing fits is tried in any case where it is named.
        let when = |one: Move, default: When| match default {
            When::NothingFits if self.moves.contains(&one) => When::Always,
            default if tries(one) => default,
            _ => When::Never,
        };
        let is_open = self.budget.is_none() && tries(Move::Pool);
        Moves {
            remat: tries(Move::Remat),
            chunk: tries(Move::Chunk),
            compiler: tries(Move::Compiler),
            scheduler: tries(Move::Compiler) && all.scheduler,
            offload: when(Move::Offload, all.offload),
            unroll: when(Move::Unroll, all.unroll),
            preallocation: all.preallocation && is_open,
            allocator: all.allocator && is_open,
            larger_pool_bytes: all.larger_pool_bytes.filter(|_| is_open),
        }
    }
}

/// Runs `vramfit plan`.
pub(crate) fn run(args: &Args, context: &Context, output: &mut Output) -> Result<Status> {
    let check = |path: &PathBuf| writable(path, args.force);
    let out = args.out.as_ref().map(check).transpose()?;
    let json = args.json.target(args.force)?;
    let html = args.page.file(args.force)?;
    let gpus = parse_gpus(&args.gpu)?;
    let variations = match args.fastest {
        true => vary::list_all(&args.vary)?,
        false => args.vary.clone(),
    };
    let (range, lists) = vary::split(&variations, &args.command)?;
    if range.is_some() && (html.is_some() || args.out.is_some()) {
        let message = "a range in `--vary` has no plan and no page";
        return Err(Error::invalid_argument(message)
            .hint("omit `--out` and `--html`, or search a list of values"));
    }
    if range.is_some() && (!lists.is_empty() || gpus.len() > 1) {
        return Err(Error::invalid_argument(
            "a range in `--vary` goes with one GPU and no other `--vary`",
        )
        .hint("search the largest value for one GPU at a time"));
    }
    let first = gpus[0].clone();
    for gpus in &gpus {
        check_occupied(args.occupied, gpus.gpu.total_memory_bytes)?;
    }
    let calibration = args.calibration.as_deref();
    let calibration = calibration.map(|path| Calibration::read(path, &first.gpu)).transpose()?;
    let settings = SettingsSpec::new(Options::from(&args.pool), &first.gpu);
    settings.resolve(Version::MAX)?;
    let scratch = TempDirectory::create()?;
    let _interruption = Interruption::watch()?;
    let trial_run = RunConfig {
        occupied_bytes: args.occupied.unwrap_or_default().0,
        steps: Some(args.steps),
        step: args.step.clone(),
        calibration,
        compilation_cache: Some(open_compilation_cache(!args.no_cache, &scratch)),
        ..RunConfig::new(first)
    };
    let trial = DryrunSpec {
        time_limit: Some(args.trial_timeout),
        hosts: args.hosts.to_spec()?,
        settings,
        ..DryrunSpec::new(trial_run, args.command.clone())
    };
    if let Some(number) = range {
        let spec = LargestSpec { number, trial, budget: args.budget, max_trials: args.max_trials };
        let (answer, text, json_value) = largest::run(&spec, context, output)?;
        print_results(answer, &text, &json_value, &json, output)?;
        return Ok(Status::from_answer(answer));
    }
    let spec = SearchSpec {
        moves: args.moves(&trial.run.gpus.gpu),
        trial,
        others: gpus[1..].to_vec(),
        commands: vary::commands(&lists, &args.command),
        budget: args.budget,
        host_budget: args.host_budget,
        wants_fastest: args.fastest,
        max_trials: args.max_trials as usize,
        jobs: args.jobs as usize,
    };
    let found = find_plans(&spec, context, output)?;
    let results = PlanResults { found: &found, spec: &spec };
    if found.is_interrupted {
        output.info("interrupted; what was found so far:");
    }
    let answer = found.answer(&spec);
    let text = results.to_text(args.text.extent());
    print_results(answer, &text, &results.to_json(), &json, output)?;
    if html.is_some() {
        write_page(&results.to_report(), html.as_deref(), args.force, output)?;
    }
    if let Some(path) = &out {
        write(path, &results.plan_file()?, args.force)?;
        output.info(&format!("plan written to {}", path.display()));
    }
    Ok(Status::from_answer(answer))
}

/// Prints the results, and writes them as JSON.
fn print_results(
    answer: Option<bool>,
    text: &str,
    value: &Value,
    json: &JsonTarget,
    output: &mut Output,
) -> Result<()> {
    if !json.is_stdout() {
        output.answer(answer, text)?;
    }
    json.write(value, output)
}

fn parse_gpus(names: &[String]) -> Result<Vec<GpuSelection>> {
    let mut gpus = Vec::new();
    for name in names {
        let gpu: GpuSelection = name.trim().parse()?;
        if !gpus.iter().any(|other: &GpuSelection| other.gpu.name == gpu.gpu.name) {
            gpus.push(gpu);
        }
    }
    Ok(gpus)
}
