//! `vramfit dryrun`: what would my program do on that GPU?
//!
//! Checks what was asked for, prepares the environment, runs the user's own command in it, and
//! tells the answer. The virtual GPU itself lives in the child, inside JAX.

mod compiler;
mod environment;
mod last_words;
mod request;
mod settings;
mod trace_notice;
mod verdict;

pub(crate) use compiler::check as check_compiler;
pub(crate) use request::steps;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::ValueEnum;
use vramfit_core::settings::{Policy, Share, Version, variables_for};
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use self::environment::{Changes, Sharing, Wish};
use super::policy::{PoolArgs, check_occupied};
use crate::cards::{self, Cards};
use crate::child;
use crate::context::Context;
use crate::files::{check_room, is_standard_output, writable};
use crate::output::Output;
use crate::program;
use crate::python::{self, Installed, Interpreter};
use crate::scratch::ScratchFolder;
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

Exit codes:
  0  it fits
  1  it does not fit
  2  unknown: the program failed, or never used the GPU
")]
pub(crate) struct Args {
    /// The GPU, or several: `h100-80g`, `h100-80gx8`; `vramfit gpus` lists them
    #[arg(long, value_name = "NAME[xN]")]
    gpu: String,
    /// Stop after N executions of the training step that was detected, or named by --step
    #[arg(long, value_name = "N", value_parser = request::steps)]
    steps: Option<u64>,
    /// Name of the function that is the training step
    #[arg(long, value_name = "NAME")]
    step: Option<String>,
    /// Memory already used on each GPU
    #[arg(long, value_name = "BYTES")]
    occupied: Option<Bytes>,
    /// Total memory that the driver reports: bytes as yours does, `lowest` (the default) or `highest`
    #[arg(long, value_name = "BYTES", value_parser = request::total)]
    total: Option<request::Total>,
    /// Share the virtual GPUs with all other dry runs of this name
    #[arg(long, value_name = "NAME", value_parser = request::shared)]
    shared: Option<String>,
    /// Give each process of the program its own copy of the GPUs
    #[arg(long, conflicts_with = "shared")]
    private: bool,
    #[command(flatten)]
    pool: PoolArgs,
    /// Also compile large programs without Triton GEMM, and report the range of the peak
    #[arg(long, conflicts_with = "shared")]
    autotune_range: bool,
    /// Skip memory attribution inside programs (slightly faster compilation)
    #[arg(long)]
    no_attribution: bool,
    /// Autotuning results recorded on a GPU of the same model
    #[arg(long, value_name = "FILE")]
    autotune_results: Option<PathBuf>,
    /// Contents of values that were not computed
    #[arg(long, value_name = "KIND")]
    fill: Option<Fill>,
    /// Compute no values, not even small ones
    #[arg(long)]
    no_values: bool,
    /// What to do with host callbacks whose arguments were not computed
    #[arg(long, value_name = "WHAT")]
    callbacks: Option<Callbacks>,
    /// Write the answer as JSON to a file, or with `-` as the last line of standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as an HTML file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Keep the trace of the run in a file
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Overwrite files that exist
    #[arg(long)]
    force: bool,
    /// The program and its arguments; one that ends in `.py` is run with Python
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

/// What unknown values read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Fill {
    /// 0
    Zeros,
    /// 1
    Ones,
    /// NaN, where the type has it
    Nan,
    /// Pseudorandom numbers, the same in every run
    Random,
}

/// What becomes of host callbacks whose arguments a dry run cannot know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Callbacks {
    /// Call them with placeholder values
    Call,
    /// Do not call them
    Skip,
}

impl Fill {
    /// Returns the name as the plugin reads it.
    fn as_str(self) -> &'static str {
        match self {
            Fill::Zeros => "zeros",
            Fill::Ones => "ones",
            Fill::Nan => "nan",
            Fill::Random => "random",
        }
    }
}

impl Args {
    pub(crate) fn prints_json(&self) -> bool {
        is_standard_output(self.json.as_deref())
    }
}

/// Runs `vramfit dryrun`.
pub(crate) fn run(args: Args, context: &Context, output: &mut Output) -> Result<Status> {
    let total_bytes = chosen(&args)?.gpu.total_memory_bytes;
    let policy = args.pool.policy(total_bytes, inherited)?;
    run_with(args, &policy, None, true, context, output)
}

/// Makes a dry run of a command that is to be started with that policy afterwards.
pub(crate) fn rehearse(
    rehearsal: Rehearsal,
    policy: &Policy,
    context: &Context,
    output: &mut Output,
) -> Result<Status> {
    let args = Args {
        gpu: rehearsal.gpu,
        steps: rehearsal.steps,
        step: None,
        occupied: rehearsal.occupied,
        total: None,
        shared: None,
        private: false,
        pool: PoolArgs::default(),
        autotune_range: false,
        no_attribution: false,
        autotune_results: None,
        fill: None,
        no_values: false,
        callbacks: None,
        json: None,
        report: None,
        trace: rehearsal.trace,
        force: false,
        command: rehearsal.command,
    };
    // What is wrong with the settings was told by whoever rehearses.
    run_with(
        args,
        policy,
        rehearsal.log.as_deref(),
        false,
        context,
        output,
    )
}

/// What [`rehearse`] is to try.
pub(crate) struct Rehearsal {
    /// The card, and how many of it.
    pub(crate) gpu: String,
    /// After how many training steps to end.
    pub(crate) steps: Option<u64>,
    /// What others hold on each card.
    pub(crate) occupied: Option<Bytes>,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// Where the trace is kept, if it is.
    pub(crate) trace: Option<PathBuf>,
    /// Where what the program says goes, instead of to the terminal.
    pub(crate) log: Option<PathBuf>,
}

/// Returns the GPUs that were asked for, with the total that was.
fn chosen(args: &Args) -> Result<Cards> {
    let mut cards = cards::cards(&args.gpu)?;
    if let Some(total) = args.total {
        cards.gpu = total.of(&cards.gpu)?;
    }
    Ok(cards)
}

fn inherited(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Runs the program on a virtual card; with a `log`, what it says goes there. What is wrong with the
/// settings is told if `tells_settings`; what leaves no GPU is refused in any case.
fn run_with(
    args: Args,
    policy: &Policy,
    log: Option<&Path>,
    tells_settings: bool,
    context: &Context,
    output: &mut Output,
) -> Result<Status> {
    // Everything that can be refused is refused before the program runs: it may run for an hour.
    let cards = chosen(&args)?;
    let total_bytes = cards.gpu.total_memory_bytes;
    check_occupied(args.occupied, total_bytes)?;
    let results = args.autotune_results.as_deref();
    let results = results
        .map(|path| request::autotune_results(path, &cards.gpu))
        .transpose()?;
    let json_to_stdout = args.prints_json();
    let json = match args.json.as_deref() {
        Some(path) if !json_to_stdout => Some(writable(path, args.force)?),
        _ => None,
    };
    let report = args
        .report
        .as_deref()
        .map(|path| writable(path, args.force))
        .transpose()?;
    let kept = args
        .trace
        .as_deref()
        .map(|path| request::writable_trace(path, args.force))
        .transpose()?;
    environment::check_platforms(|name| std::env::var_os(name))?;
    let (program, arguments) = program::split(args.command, context)?;
    let home = Home::find(context)?;
    let scratch = scratch()?;
    trace_notice::prepare(scratch.path())?;
    let trace = kept
        .clone()
        .unwrap_or_else(|| scratch.path().join("run.trace"));
    check_room(&trace, ROOM_FOR_A_TRACE)?;
    let results = results
        .map(|text| keep_results(scratch.path(), &text))
        .transpose()?;
    // What others would do with another amount is not known, so a measurement is one of a process alone.
    let is_private = args.private || args.autotune_range;
    let shared_file = scratch.path().join(SHARED_FILE);
    let mut changes = environment::changes(
        &Wish {
            cards: &cards,
            steps: args.steps,
            step: args.step.as_deref(),
            occupied: args.occupied,
            total: args.total.map(|_| Bytes(total_bytes)),
            limit: policy.share.and_then(Share::limit_bytes).map(Bytes),
            sharing: match &args.shared {
                Some(name) => Sharing::Named(name),
                None if is_private => Sharing::Private,
                None => Sharing::Run(&shared_file),
            },
            fill: args.fill,
            no_values: args.no_values,
            callbacks: args.callbacks,
            autotune_range: args.autotune_range,
            no_attribution: args.no_attribution,
            autotune_results: results.as_deref(),
            trace: &trace,
            compiler_log: scratch.path(),
            plugin: &home.plugin,
            standin: &home.standin,
        },
        |name| std::env::var_os(name),
    );
    let installed = look_into(&program, &arguments, &changes, &cards)?;
    let version = installed
        .as_ref()
        .and_then(|installed| installed.jax.as_ref()?.parse().ok());
    if *policy != Policy::default() {
        let version = version.unwrap_or(LATEST_TESTED);
        let assignments = variables_for(policy, version, inherited)?;
        for note in &assignments.notes {
            output.say(&format!("note: {note}"));
        }
        changes.add(&assignments);
    }
    for line in changes.lines() {
        output.detail(&format!("environment: {line}"));
    }
    settings::check(
        &changes,
        &cards,
        version,
        settings::is_vramfit(&program, &arguments),
        tells_settings && !json_to_stdout,
        output,
    )?;
    if installed.is_none() {
        output.detail(&format!(
            "cannot look into `{}` before it runs",
            program.display()
        ));
    }

    if let Some(trace) = &kept {
        request::remove_traces(trace)?;
    }
    let streams = log.map(kept_apart).transpose()?;
    let ended = child::run(&program, &arguments, |command| {
        changes.apply(command);
        if let Some((out, err)) = streams {
            command.stdin(Stdio::null()).stdout(out).stderr(err);
        }
    })?;
    last_words::pass_on(scratch.path(), log, output);
    let trace_failure = trace_notice::read(scratch.path());
    let run = verdict::Run {
        ended,
        refused: settings::refused(scratch.path(), &cards, version),
        asked: installed.is_some(),
        program: &program,
        trace: &trace,
        trace_failure: trace_failure.as_deref(),
    };
    let files = verdict::Files {
        json: json.as_deref(),
        json_to_stdout,
        report: report.as_deref(),
        trace: kept.as_deref(),
        force: args.force,
    };
    verdict::tell(&run, &files, output)
}

/// Opens the file that both streams of a program go to.
fn kept_apart(path: &Path) -> Result<(File, File)> {
    let both = File::create(path).and_then(|file| Ok((file.try_clone()?, file)));
    both.map_err(|error| {
        let shown = path.display();
        Error::new(ErrorKind::Io, format!("cannot write `{shown}`")).cause(error)
    })
}

/// Makes the directory of a trace that is not kept; it is removed when dropped.
fn scratch() -> Result<ScratchFolder> {
    ScratchFolder::create().map_err(|error| {
        Error::new(ErrorKind::Io, "cannot make a temporary directory")
            .cause(error)
            .hint("name one that can be written with `TMPDIR=…`")
    })
}

/// Writes autotuning results where the compiler finds them. It takes them for text by their name.
fn keep_results(folder: &Path, text: &str) -> Result<PathBuf> {
    let path = folder.join("autotune-results.txt");
    std::fs::write(&path, text).map_err(|error| {
        let shown = path.display();
        Error::new(ErrorKind::Io, format!("cannot write `{shown}`")).cause(error)
    })?;
    Ok(path)
}

/// A trace is rarely larger; where not even that can be written, the run need not be begun.
const ROOM_FOR_A_TRACE: usize = 256 << 10;

/// The file in which the processes of a run write what they hold of its GPUs, in the folder of the run.
const SHARED_FILE: &str = "gpu-memory";

/// What to take for the version of JAX in a program that cannot be looked into.
const LATEST_TESTED: Version = Version::new(0, 10, 2);

/// Asks the Python that will run the program what it has installed, and refuses what cannot work.
///
/// Returns `None` when it is not known which Python that is, or when it does not answer.
fn look_into(
    program: &Path,
    arguments: &[OsString],
    changes: &Changes,
    cards: &Cards,
) -> Result<Option<Installed>> {
    let Some(interpreter) = python::interpreter(program, arguments) else {
        return Ok(None);
    };
    let installed = python::ask(&interpreter, |command| changes.apply(command));
    if let Some(installed) = &installed {
        compiler::check(&interpreter, installed, &cards.gpu)?;
    }
    Ok(installed)
}

/// Where the parts of the virtual GPU lie.
struct Home {
    plugin: PathBuf,
    standin: PathBuf,
}

impl Home {
    /// Takes what the caller knows, else asks the Python at hand.
    fn find(context: &Context) -> Result<Home> {
        let python = context.python.clone().unwrap_or_default();
        let package = context.package.clone().or_else(|| {
            let interpreter = Interpreter {
                program: python.clone(),
                options: Vec::new(),
            };
            python::ask(&interpreter, |_| {})?.package
        });
        let Some(package) = package else {
            return Err(Error::new(
                ErrorKind::CompilerMissing,
                format!(
                    "`{}` has no package `vramfit`, which holds the virtual GPU",
                    python.display()
                ),
            )
            .hint("install it there, or name the Python that has it with `--python`"));
        };
        let plugin = context
            .plugin
            .clone()
            .or_else(|| extension_module(&package));
        let Some(plugin) = plugin else {
            return Err(Error::new(
                ErrorKind::CompilerMissing,
                format!("there is no extension module in `{}`", package.display()),
            )
            .hint("build it with `make build`, or install a wheel"));
        };
        Ok(Home {
            plugin,
            standin: package.join("_standin"),
        })
    }
}

fn extension_module(package: &Path) -> Option<PathBuf> {
    let files = std::fs::read_dir(package)
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    files.into_iter().find(|file| {
        let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("_native.") && name.ends_with(".so")
    })
}
