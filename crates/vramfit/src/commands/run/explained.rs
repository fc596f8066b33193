//! `vramfit run --explain`: the program runs as a child, and what it writes to standard error is read on its way.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind as IoErrorKind, IsTerminal, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use vramfit_advice::explain::{ExplainOptions, Log, LogScanner, ProcessState, Verdict, explain};
use vramfit_analysis::report::{Extent, Report};
use vramfit_analysis::{Error, ErrorKind, Result};
use vramfit_model::gpu::GpuSelection;
use vramfit_model::settings::Version;
use vramfit_runner::child::{self, ExitReason};
use vramfit_runner::environment::variable;

use crate::command_line::shell_line;
use crate::output::{Output, write_to_stderr};
use crate::status::Status;

/// How long a process that the program has left behind may keep standard error open.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes that are passed on at once.
const CHUNK_BYTES: usize = 64 << 10;

/// What is known of the program beside what it writes.
#[derive(Debug)]
pub(super) struct ProgramFacts {
    pub(super) jax: Option<Version>,
    pub(super) gpu: Option<GpuSelection>,
    /// As the program gets it.
    pub(super) environment: BTreeMap<String, String>,
    /// Where its Python writes what it knows of itself when it ends.
    pub(super) state_file: PathBuf,
}

impl ProgramFacts {
    /// Returns the state of the program; one that does not end by itself has left nothing but its environment.
    fn process_state(&self) -> ProcessState {
        ProcessState::read(&self.state_file).unwrap_or_else(|| ProcessState {
            environment: self.environment.clone(),
            ..ProcessState::default()
        })
    }
}

/// Runs the program, and explains its failure.
///
/// # Errors
/// `command-not-found` when the system refuses to start it.
pub(super) fn run(
    program: &Path,
    arguments: &[OsString],
    adjust: impl FnOnce(&mut Command),
    facts: &ProgramFacts,
    output: &mut Output,
) -> Result<Status> {
    let (reader, writer) = channel()
        .map_err(|error| Error::new(ErrorKind::Internal, "cannot open a channel").cause(error))?;
    let (send, received) = mpsc::channel();
    std::thread::spawn(move || {
        // The thread that waits may have given up; then nobody wants it.
        let _ = send.send(pass_on(reader));
    });
    let exit = child::run(program, arguments, None, |command| {
        adjust(command);
        command.stderr(writer);
    })?;
    let failed = exit != ExitReason::Code(0);
    if let (true, Ok(log)) = (failed, received.recv_timeout(CLOSE_TIMEOUT)) {
        report(&log, program, arguments, facts, output);
    }
    Ok(Status::Child(exit.shell_code()))
}

/// Prints the explanation, where there is one.
fn report(
    log: &Log,
    program: &Path,
    arguments: &[OsString],
    facts: &ProgramFacts,
    output: &mut Output,
) {
    let words = std::iter::once(program.as_os_str()).chain(arguments.iter().map(AsRef::as_ref));
    let options = ExplainOptions {
        gpus: facts.gpu.clone(),
        jax: facts.jax.map(Into::into),
        command: shell_line(words),
        process: Some(facts.process_state()),
    };
    let explanation = explain(log, &options);
    if explanation.verdict() != Verdict::Unrecognized {
        let report = Report::from_explanation(&explanation);
        output.info("");
        output.report_info(&report, Extent::Brief { option: "vramfit explain --full LOG" });
        for others in vramfit_gpu::describe_other_use(None, variable) {
            output.info(&others);
        }
    }
}

/// Opens what the program writes into, and what it is read from: a terminal where standard error is one, so that
/// the program behaves as without vramfit; else a pipe.
fn channel() -> std::io::Result<(File, OwnedFd)> {
    let error = std::io::stderr();
    if !error.is_terminal() {
        let (reader, writer) = std::io::pipe()?;
        return Ok((File::from(OwnedFd::from(reader)), writer.into()));
    }
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name, flags, rustix::fs::Mode::empty())?;
    // The real terminal turns line feeds into new lines; twice would be once too often.
    let mut attributes = tcgetattr(&theirs)?;
    attributes.make_raw();
    tcsetattr(&theirs, OptionalActions::Now, &attributes)?;
    if let Ok(size) = tcgetwinsize(&error) {
        tcsetwinsize(&theirs, size)?;
    }
    Ok((File::from(ours), theirs))
}

/// Passes everything on to standard error, and reads it on the way, until nobody can write any more.
fn pass_on(mut reader: File) -> Log {
    let mut scanner = LogScanner::new("");
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match reader.read(&mut chunk) {
            // A terminal that nobody has open any more is an error, not an end.
            Ok(0) => return scanner.finish(),
            Err(error) if error.kind() != IoErrorKind::Interrupted => return scanner.finish(),
            Err(_) => {}
            Ok(read) => {
                write_to_stderr(&chunk[..read]);
                scanner.push(&chunk[..read]);
            }
        }
    }
}
