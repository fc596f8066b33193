//! `vramfit run`: starts a program with memory settings that take effect, and is replaced by it.
//!
//! Nothing is watched and nothing stays behind: signals, exit code and terminal are the program's own. Only with
//! `--explain` vramfit stays, and reads what the program writes to standard error.

mod env_findings;
mod explained;
mod publish;
mod shell;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use vramfit_advice::lint::{CLOSED_GPU_RULE, Finding};
use vramfit_analysis::planning::Plan;
use vramfit_analysis::report::render_findings;
use vramfit_analysis::{Bytes, ErrorKind, Result};
use vramfit_gpu::{GpuOverrides, PROCESSES_VARIABLE};
use vramfit_model::gpu::GpuSelection;
use vramfit_model::host::{Closed, Host};
use vramfit_model::run_config::{RunConfig, StepLimit};
use vramfit_model::settings::{self, Options, ResolvedSettings, Target};
use vramfit_runner::Context;
use vramfit_runner::dryrun::{DryrunSpec, SettingsSpec};
use vramfit_runner::environment::{unicode_variables, variable};
use vramfit_runner::interruption::{self, Interruption};
use vramfit_runner::python::{self, Installed, Interpreter};
use vramfit_runner::scratch::TempDirectory;
use vramfit_runner::{child, program};

use self::publish::AppliedPlan;
use super::dryrun::{self, ResultFiles};
use super::plan::find_fitting_plan;
use super::policy::{PolicyArgs, check_occupied};
use crate::output::Output;
use crate::status::Status;

/// Start a program with memory settings that this JAX version honors
///
/// vramfit prints each setting, then replaces itself with the program, so signals, exit code and terminal
/// are those of the program. Variables that no option sets are unchanged, except for values that JAX
/// silently misreads, which are corrected.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit run --limit 8GiB -- python train.py
  vramfit run --processes 2 --require-gpu -- python worker.py
  vramfit run --preflight a100-80g --steps 3 -- python train.py --batch 64
  vramfit run --fit -- python train.py
  vramfit run --explain -- python train.py
  export $(vramfit run --print --fraction 0.9)

Exit codes:
  that of the program; or
  1    not started: it does not fit (`--preflight`, `--fit`)
  2    not started: whether it fits is unknown (`--preflight`)
  128  plus the signal number: a signal came before it was started (`--preflight`, `--fit`)
  125  vramfit itself failed
  126  the program cannot be executed
  127  the program was not found
")]
pub(crate) struct Args {
    #[command(flatten)]
    policy: PolicyArgs,
    /// Make a dry run on this GPU first, and start the program only if it fits
    #[arg(long, value_name = "NAME[xN]", conflicts_with = "print")]
    preflight: Option<String>,
    /// Stop the dry run after N executions of the training step; `steady`: after 200 in a row that executed no new program
    #[arg(long, value_name = "N|steady", requires = "preflight")]
    steps: Option<StepLimit>,
    /// Apply a plan that `vramfit plan` made
    #[arg(long, value_name = "FILE", conflicts_with = "print")]
    plan: Option<PathBuf>,
    /// Find a plan with which the program fits on the GPU, and apply it
    #[arg(long, conflicts_with_all = ["print", "plan", "preflight"])]
    fit: bool,
    /// Do not publish the pool's statistics for `vramfit top`
    #[arg(long)]
    no_publish: bool,
    /// Stay while the program runs, and explain a failure from what it has written to standard error
    #[arg(long, conflicts_with = "print")]
    explain: bool,
    /// Print the settings as `NAME=value` lines instead of starting the program
    #[arg(long)]
    print: bool,
    /// The program and its arguments; a file that ends in `.py` is run with Python
    #[arg(
        value_name = "COMMAND",
        required_unless_present = "print",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

/// Where NVIDIA's Multi-Process Service has its pipes unless told otherwise.
const DEFAULT_MPS_DIRECTORY: &str = "/tmp/nvidia-mps";

/// vramfit itself failed, as `env`, `nohup` and `timeout` have it.
pub(crate) const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Runs `vramfit run`.
pub(crate) fn run(args: &Args, context: &Context, output: &mut Output) -> Result<Status> {
    if args.print {
        return print(args, context, output);
    }
    let first = args.command.first().cloned().unwrap_or_default();
    start(args, context, output).or_else(|error| {
        // Code 2 could be the program's own, so that of a failure before it is another.
        output.error(&error);
        Ok(Status::Child(match error.kind() {
            ErrorKind::CommandNotFound if Path::new(&first).exists() => NOT_EXECUTABLE,
            ErrorKind::CommandNotFound => NOT_FOUND,
            ErrorKind::Interrupted => interruption::exit_code().unwrap_or(FAILED),
            _ => FAILED,
        }))
    })
}

fn start(args: &Args, context: &Context, output: &mut Output) -> Result<Status> {
    let options = policy_options(&args.policy)?;
    let makes_dry_runs = args.fit || args.preflight.is_some();
    let watching = makes_dry_runs.then(Interruption::watch).transpose()?;
    let plan_file = if args.fit {
        let overrides = args.policy.gpu_overrides()?;
        let gpus = overrides.gpus(variable)?;
        let budgets = overrides.budgets(variable)?;
        let occupied = budgets.iter().map(|budget| budget.occupied_bytes).max();
        let occupied = occupied.filter(|bytes| *bytes > 0).map(Bytes);
        match find_fitting_plan(gpus, occupied, options, &args.command, context, output)? {
            Some(path) => Some(path),
            None => {
                output.info("not started: no plan with which it fits was found");
                return Ok(Status::No);
            }
        }
    } else {
        args.plan.clone()
    };
    let plan = match &plan_file {
        Some(path) => read_plan(path, output)?,
        None => Plan::default(),
    };
    let policy_options = options;
    let options = plan.settings.add_to(&policy_options);
    let (program, arguments) = program::split_program(args.command.clone(), None, context)?;
    let installed = python::find_interpreter(&program, &arguments)
        .and_then(|interpreter| probe(&interpreter, output));
    let settings = resolve(&args.policy, &options, installed.as_ref(), output)?;
    report_settings(&settings, output);
    let host = args.policy.gpu_overrides()?.host(variable);
    let findings = report_findings(&settings, installed.as_ref(), &host, output);
    if are_all_closed(&host, &findings) {
        output.info("not started: no GPU can be used");
        return Ok(Status::Child(FAILED));
    }
    if let Some(gpu) = &args.preflight {
        let spec = preflight_spec(gpu, policy_options, args)?;
        let status = dryrun::execute(&spec, &ResultFiles::default(), context, output)?;
        if status != Status::Yes {
            output.info(match status {
                Status::No => "not started: it does not fit",
                _ => "not started: the dry run could not tell whether it fits",
            });
            return Ok(status);
        }
    }
    let package = context.package.as_deref();
    let package = package.or_else(|| installed.as_ref()?.package.as_deref());
    let user_variable = |name: &str| std::env::var_os(name);
    let is_planned = plan.changes_program();
    let planned = match &plan_file {
        Some(path) if is_planned => {
            publish::plan_variables(path, package, installed.as_ref(), user_variable)?
        }
        _ => Vec::new(),
    };
    let state_folder = args.explain.then(TempDirectory::create).transpose()?;
    let state_file = state_folder.as_ref().map(|folder| folder.path().join("process.json"));
    let published = if args.no_publish {
        Vec::new()
    } else {
        let policy = args.policy.pool_options_text();
        let by_itself = (!output.is_quiet()).then(|| OsString::from("1"));
        let explanation =
            state_file.as_ref().map(|file| file.clone().into_os_string()).or(by_itself);
        publish::variables(package, installed.as_ref(), &policy, explanation, user_variable)
    };
    for (name, value) in &published {
        output.verbose(&format!("for `vramfit top`: {name}={}", value.to_string_lossy()));
    }
    // Of a launcher it is not known which Python it starts.
    let applied = match &installed {
        None if is_planned => Some(AppliedPlan::watch()?),
        _ => None,
    };
    output.verbose(&format!("starting {}", program.display()));
    let adjust = |command: &mut Command| {
        for set in &settings.set {
            command.env(set.name, &set.value);
        }
        for name in &settings.removed {
            command.env_remove(name);
        }
        if let Some(processes) = policy_options.processes {
            command.env(PROCESSES_VARIABLE, processes.to_string());
        }
        command.envs(published);
        command.envs(planned);
        command.envs(applied.iter().map(AppliedPlan::variable));
    };
    // From here on signals are for the program.
    interruption::ensure_none()?;
    drop(watching);
    let status = match (&applied, state_file) {
        (_, Some(state_file)) => {
            let facts = explained::ProgramFacts {
                jax: installed.as_ref().and_then(Installed::jax_version),
                gpu: args.policy.gpu_overrides()?.gpus(variable).ok(),
                environment: settings.apply_to(unicode_variables()),
                state_file,
            };
            explained::run(&program, &arguments, adjust, &facts, output)?
        }
        (Some(_), None) => {
            let exit = child::run(&program, &arguments, None, adjust)?;
            Status::Child(exit.shell_code())
        }
        (None, None) => return Err(child::exec(&program, &arguments, adjust)),
    };
    match applied {
        Some(applied) => applied.check(&program, status),
        None => Ok(status),
    }
}

/// Returns the options about memory as they are on this machine.
fn policy_options(args: &PolicyArgs) -> Result<Options> {
    let overrides = args.gpu_overrides()?;
    let host_free_bytes = || vramfit_gpu::host_environment().available_memory_bytes();
    args.options(|| overrides.gpus(variable), host_free_bytes)
}

/// Returns `true` if the compute mode of every GPU that the program sees keeps it out: its first use of JAX would fail
/// with a CUDA error that does not mention the mode, or silently use the CPU.
fn are_all_closed(host: &Host, findings: &[Finding]) -> bool {
    // Through the Multi-Process Service a program computes as a part of the server's process.
    let has_mps =
        variable("CUDA_MPS_PIPE_DIRECTORY").is_some() || Path::new(DEFAULT_MPS_DIRECTORY).exists();
    // There is none where the program does not ask for GPUs.
    let is_found = findings.iter().any(|finding| finding.id == CLOSED_GPU_RULE);
    let list = variable("CUDA_VISIBLE_DEVICES");
    let order = variable("CUDA_DEVICE_ORDER");
    let visible = settings::visible(&host.gpus, list.as_deref(), order.as_deref());
    let all_closed = visible.iter().all(|gpu| match gpu.closed_by() {
        // A process without a name, as in a container, may be the server of that service.
        Some(Closed::HeldBy(process)) => process.command.is_some(),
        closed => closed.is_some(),
    });
    is_found && !has_mps && !visible.is_empty() && all_closed
}

/// Reads the plan, and prints what it changes.
fn read_plan(path: &Path, output: &mut Output) -> Result<Plan> {
    let (plan, _) = Plan::read(path)?;
    for change in plan.moves() {
        output.info(&format!("plan: {change}"));
    }
    if plan.is_empty() {
        output.info("note: the plan changes nothing");
    }
    Ok(plan)
}

/// Returns the dry run that precedes the program, with its settings on that GPU.
fn preflight_spec(gpu: &str, policy_options: Options, args: &Args) -> Result<DryrunSpec> {
    let gpus: GpuSelection = gpu.parse()?;
    let overrides = GpuOverrides { selection: Some(gpus.clone()), ..args.policy.gpu_overrides()? };
    check_occupied(overrides.occupied, gpus.gpu.total_memory_bytes)?;
    let (plan, options) = dryrun::read_plan(args.plan.as_deref(), policy_options)?;
    let settings = SettingsSpec {
        options,
        gpu_budgets: overrides.gpu_budgets(variable)?,
        repair: true,
        // They were reported for the program itself.
        report_findings: false,
    };
    let run = RunConfig {
        occupied_bytes: overrides.occupied.unwrap_or_default().0,
        host_memory_bytes: policy_options.spill.map(|bytes| bytes.0 * u64::from(gpus.count)),
        steps: args.steps,
        plan,
        ..RunConfig::new(gpus)
    };
    Ok(DryrunSpec { settings, ..DryrunSpec::new(run, args.command.clone()) })
}

/// Prints the settings in a form that a shell reads back.
fn print(args: &Args, context: &Context, output: &mut Output) -> Result<Status> {
    let interpreter = if args.command.is_empty() {
        context.python.clone().map(Interpreter::bare)
    } else {
        let (program, arguments) = program::split_program(args.command.clone(), None, context)?;
        python::find_interpreter(&program, &arguments)
    };
    let installed = interpreter.and_then(|interpreter| probe(&interpreter, output));
    let options = policy_options(&args.policy)?;
    let settings = resolve(&args.policy, &options, installed.as_ref(), output)?;
    report_settings(&settings, output);
    report_findings(&settings, installed.as_ref(), &Host::default(), output);
    let mut text = shell::lines(&settings);
    if let Some(processes) = options.processes {
        text += &format!("{PROCESSES_VARIABLE}={processes}\n");
    }
    output.data(&text)?;
    Ok(Status::Yes)
}

/// Decides what to set for a program in a Python that has this installed.
fn resolve(
    args: &PolicyArgs,
    options: &Options,
    installed: Option<&Installed>,
    output: &mut Output,
) -> Result<ResolvedSettings> {
    let jax = installed.and_then(Installed::jax_version);
    let overrides = args.gpu_overrides()?;
    let target = Target {
        jax,
        variable: &variable,
        gpu_budgets: &|| overrides.gpu_budgets(variable),
        detailed: true,
        repair: true,
        ..Target::default()
    };
    let settings = settings::resolve(options, &target)?;
    if options.spill.is_some() && vramfit_gpu::host_environment().wsl {
        output.info(
            "note: on Windows Subsystem for Linux, CUDA gives no more managed memory than the GPU has",
        );
    }
    if let Some(budget) = settings.budget {
        output.verbose(&format!("GPU memory: {budget}"));
    }
    if jax.is_none() && !settings.set.is_empty() {
        output.info(
            "note: the program's JAX version is unknown, so only names that every release reads are set",
        );
    }
    Ok(settings)
}

/// Asks an interpreter what it has installed.
fn probe(interpreter: &Interpreter, output: &mut Output) -> Option<Installed> {
    let shown = interpreter.program.display();
    let installed = python::query(interpreter, |_| {})?;
    match &installed.jax {
        Some(version) => output.verbose(&format!("`{shown}` has JAX {version}")),
        None => output.verbose(&format!("`{shown}` has no `jax`")),
    }
    Some(installed)
}

/// Prints what is set, one line each, and the notes about it.
fn report_settings(settings: &ResolvedSettings, output: &mut Output) {
    for set in &settings.set {
        output.info(&format!("set {}={}: {}", set.name, set.value, set.reason));
    }
    for note in &settings.notes {
        output.info(&format!("note: {note}"));
    }
    if settings.changes_nothing() {
        output.verbose("nothing to set: no option requires it, and nothing needs correction");
    }
}

/// Prints what is wrong with the program's environment and was not corrected.
fn report_findings(
    settings: &ResolvedSettings,
    installed: Option<&Installed>,
    host: &Host,
    output: &mut Output,
) -> Vec<Finding> {
    let findings = env_findings::findings(unicode_variables(), settings, installed, host.clone());
    if !findings.is_empty() {
        output.info(&render_findings(&findings));
    }
    findings
}
