//! `vramfit run`: starts a program with settings that are true, by becoming it.
//!
//! Nothing is watched and nothing stays behind: signals, exit code and terminal are the program's own.

mod publish;
mod shell;
mod wrong;

use std::ffi::OsString;
use std::path::Path;

use vramfit_core::report::render_findings;
use vramfit_core::settings::{self, Assignments, Policy, Version};
use vramfit_core::{ErrorKind, Result};

use super::dryrun::{self, Rehearsal};
use super::policy::PolicyArgs;
use crate::cards::{self, PROCESSES_VARIABLE, Told};
use crate::context::Context;
use crate::output::Output;
use crate::python::{self, Installed, Interpreter};
use crate::status::Status;
use crate::{child, program};

/// Start a program with memory settings that JAX really reads
///
/// The settings are told, one line each, and the program takes our place: its signals, exit code and
/// terminal are what they would be without us. What no option names stays as the environment has it;
/// only what is silently wrong there is put right.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  vramfit run --limit 8GiB -- python train.py
  vramfit run --processes 2 --require-gpu -- python worker.py
  vramfit run --preflight a100-80g --steps 3 -- python train.py --batch 64
  export $(vramfit run --print --fraction 0.9)

Exit codes:
  that of the program; or
  125  vramfit itself could not do it
  126  the program cannot be executed
  127  there is no such program
")]
pub(crate) struct Args {
    #[command(flatten)]
    policy: PolicyArgs,
    /// Make a dry run on this GPU first, and start only if the program fits
    #[arg(long, value_name = "NAME[xN]", conflicts_with = "print")]
    preflight: Option<String>,
    /// Stop the dry run after N executions of the training step
    #[arg(long, value_name = "N", value_parser = dryrun::steps, requires = "preflight")]
    steps: Option<u64>,
    /// Do not publish the pool's statistics for `vramfit top`
    #[arg(long)]
    no_publish: bool,
    /// Start nothing; print the settings as `NAME=value` lines on standard output
    #[arg(long)]
    print: bool,
    /// The program and its arguments; one that ends in `.py` is run with Python
    #[arg(
        value_name = "COMMAND",
        required_unless_present = "print",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

/// vramfit itself failed, as `env`, `nohup` and `timeout` have it.
pub(crate) const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Runs `vramfit run`.
pub(crate) fn run(args: Args, context: &Context, output: &mut Output) -> Result<Status> {
    if args.print {
        return print(&args, context, output);
    }
    let first = args.command.first().cloned().unwrap_or_default();
    start(args, context, output).or_else(|error| {
        // Code 2 could be the program's own, so that of a failure before it is another.
        output.error(&error);
        Ok(Status::Child(match error.kind() {
            ErrorKind::CommandNotFound if Path::new(&first).exists() => NOT_EXECUTABLE,
            ErrorKind::CommandNotFound => NOT_FOUND,
            _ => FAILED,
        }))
    })
}

fn start(args: Args, context: &Context, output: &mut Output) -> Result<Status> {
    let (program, arguments) = program::split(args.command.clone(), context)?;
    let installed = python::interpreter(&program, &arguments)
        .and_then(|interpreter| look_into(&interpreter, output));
    let settings = decide(&args.policy, installed.as_ref(), output)?;
    tell(&settings, output);
    tell_what_is_wrong(&settings, installed.as_ref(), output);
    if let Some(gpu) = args.preflight {
        let told = Told {
            gpu: Some(&gpu),
            ..args.policy.told()
        };
        let policy = args.policy.policy(cards::rooms(&told, inherited), true)?;
        let rehearsal = Rehearsal {
            gpu: gpu.clone(),
            steps: args.steps,
            occupied: told.occupied,
            command: args.command,
            trace: None,
            log: None,
        };
        let status = dryrun::rehearse(rehearsal, &policy, context, output)?;
        if status != Status::Yes {
            output.say("not started: the dry run did not say that it fits");
            return Ok(status);
        }
    }
    let published = if args.no_publish {
        Vec::new()
    } else {
        let package = context.package.as_deref();
        let package = package.or_else(|| installed.as_ref()?.package.as_deref());
        let words = args.policy.words();
        publish::variables(package, installed.as_ref(), &words, |name| {
            std::env::var_os(name)
        })
    };
    for (name, value) in &published {
        output.detail(&format!(
            "for `vramfit top`: {name}={}",
            value.to_string_lossy()
        ));
    }
    output.detail(&format!("becomes: {}", program.display()));
    Err(child::become_program(&program, &arguments, |command| {
        for set in &settings.set {
            command.env(set.name, &set.value);
        }
        for name in &settings.remove {
            command.env_remove(name);
        }
        if let Some(processes) = args.policy.processes() {
            command.env(PROCESSES_VARIABLE, processes.to_string());
        }
        command.envs(published);
    }))
}

/// Prints what would be set, in a form that a shell takes back.
fn print(args: &Args, context: &Context, output: &mut Output) -> Result<Status> {
    let interpreter = match args.command.is_empty() {
        true => context.python.clone().map(|program| Interpreter {
            program,
            options: Vec::new(),
        }),
        false => {
            let (program, arguments) = program::split(args.command.clone(), context)?;
            python::interpreter(&program, &arguments)
        }
    };
    let installed = interpreter.and_then(|interpreter| look_into(&interpreter, output));
    let settings = decide(&args.policy, installed.as_ref(), output)?;
    tell(&settings, output);
    tell_what_is_wrong(&settings, installed.as_ref(), output);
    let mut text = shell::lines(&settings);
    if let Some(processes) = args.policy.processes() {
        text += &format!("{PROCESSES_VARIABLE}={processes}\n");
    }
    output.data(&text)?;
    Ok(Status::Yes)
}

fn inherited(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Decides what to set for a program in a Python that has this installed.
fn decide(
    args: &PolicyArgs,
    installed: Option<&Installed>,
    output: &mut Output,
) -> Result<Assignments> {
    let policy = args.resolve(true, inherited)?;
    if let Some(room) = policy.room {
        output.detail(&format!("card: {room}"));
    }
    let version = installed.and_then(jax);
    let settings = settings::variables_for(&policy, version, inherited)?;
    if version.is_none() && depends_on_version(&policy, &settings) {
        output.say(
            "note: which JAX the program uses is not known, so names are set that every release reads",
        );
    }
    Ok(settings)
}

fn jax(installed: &Installed) -> Option<Version> {
    installed.jax.as_ref()?.parse().ok()
}

/// Asks an interpreter what it has installed.
fn look_into(interpreter: &Interpreter, output: &mut Output) -> Option<Installed> {
    let shown = interpreter.program.display();
    let installed = python::ask(interpreter, |_| {})?;
    match &installed.jax {
        Some(version) => output.detail(&format!("`{shown}` has JAX {version}")),
        None => output.detail(&format!("`{shown}` has no `jax`")),
    }
    Some(installed)
}

/// Says whether another release might have got other names.
fn depends_on_version(policy: &Policy, settings: &Assignments) -> bool {
    (policy.share.is_some() || policy.remat.is_some() || policy.mend) && !settings.set.is_empty()
}

/// Tells what is set, one line each, and what there is to know about it.
fn tell(settings: &Assignments, output: &mut Output) {
    for set in &settings.set {
        output.say(&format!("set {}={}: {}", set.name, set.value, set.reason));
    }
    for note in &settings.notes {
        output.say(&format!("note: {note}"));
    }
    if settings.set.is_empty() && settings.remove.is_empty() {
        output.detail("nothing to set: no option asks for anything, and nothing is wrong");
    }
}

/// Tells what the program's environment still says that JAX will not take as it was meant.
fn tell_what_is_wrong(settings: &Assignments, installed: Option<&Installed>, output: &mut Output) {
    // Names and values that are not Unicode are no settings of JAX.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let findings = wrong::findings(environment, settings, installed.and_then(jax));
    if !findings.is_empty() {
        output.say(&render_findings(&findings));
    }
}
