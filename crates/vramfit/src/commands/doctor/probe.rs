//! Probes JAX in a child process, which may hang or crash.

use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use vramfit_advice::doctor::{JaxProbe, ProbeExit, ProbeStep};
use vramfit_runner::python_child::{ChildEvent, PythonChild};
use vramfit_runner::signals::signal_name;

use super::Args;

/// The script, see its own first lines. It is passed through standard input, so that process lists do not
/// show it, and no file is needed in a read-only container.
const SCRIPT: &str = include_str!("probe.py");
const SCRIPT_READER: &str = "import sys; exec(compile(sys.stdin.buffer.read(int(sys.argv[1])), \
                             'vramfit-doctor', 'exec'))";

const MAX_LOG_LINES: usize = 200;
const MAX_LOG_LINE_CHARS: usize = 2000;

/// Processes that the child has started may keep the pipe of the log open for ever.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// Runs the probe. `measure` is called while it keeps its memory allocated.
pub(super) fn run(python: &Path, args: &Args, measure: impl FnOnce()) -> JaxProbe {
    let mut probe = JaxProbe::default();
    let mut command = Command::new(python);
    command
        .args(["-c", SCRIPT_READER])
        .arg(SCRIPT.len().to_string())
        .args(args.train.then_some("train"))
        // After a crash in C code, the Python stack is in the log.
        .env("PYTHONFAULTHANDLER", "1")
        .stderr(Stdio::piped());
    if args.no_preallocate {
        command.env("XLA_PYTHON_CLIENT_PREALLOCATE", "false");
    }
    let mut child = match PythonChild::spawn(&mut command) {
        Ok(child) => child,
        Err(error) => {
            probe.exit = ProbeExit::Died(format!("could not be started: {error}"));
            return probe;
        }
    };
    child.send(SCRIPT);
    let mut log = VecDeque::new();
    let timeout = args.timeout;
    let is_hung = follow(&mut child, timeout, &mut probe, &mut log, measure);
    let status = if is_hung {
        child.kill();
        None
    } else {
        child.wait(timeout)
    };
    probe.exit = status.map_or(ProbeExit::Hung(timeout.as_secs()), probe_exit);
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    let mut is_closed = false;
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        match child.receive(Some(remaining)) {
            ChildEvent::Stderr(line) => push_bounded(&mut log, &line),
            ChildEvent::Stdout(_) => {}
            // The second time, standard error is closed, too.
            ChildEvent::Closed if !is_closed => is_closed = true,
            ChildEvent::Closed | ChildEvent::TimedOut => break,
        }
    }
    probe.log = log.into();
    probe
}

/// Receives messages until standard output is closed. Returns whether the child hung.
fn follow(
    child: &mut PythonChild,
    timeout: Duration,
    probe: &mut JaxProbe,
    log: &mut VecDeque<String>,
    measure: impl FnOnce(),
) -> bool {
    let mut measure = Some(measure);
    let mut deadline = Instant::now() + timeout;
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        match child.receive(Some(remaining)) {
            ChildEvent::Stdout(line) => {
                if probe.on_line(&line) == Some(ProbeStep::Hold) {
                    if let Some(measure) = measure.take() {
                        measure();
                    }
                    child.send("\n");
                    child.close_stdin();
                }
                deadline = Instant::now() + timeout;
            }
            // Log output is not progress: a process that hangs may log for ever.
            ChildEvent::Stderr(line) => push_bounded(log, &line),
            ChildEvent::Closed => return false,
            ChildEvent::TimedOut => return true,
        }
    }
}

fn push_bounded(log: &mut VecDeque<String>, line: &str) {
    if line.trim().is_empty() {
        return;
    }
    if log.len() == MAX_LOG_LINES {
        log.pop_front();
    }
    log.push_back(line.chars().take(MAX_LOG_LINE_CHARS).collect());
}

fn probe_exit(status: ExitStatus) -> ProbeExit {
    match (status.code(), status.signal()) {
        (Some(0), _) => ProbeExit::Finished,
        (Some(code), _) => ProbeExit::Died(format!("exited with code {code}")),
        (None, Some(signal)) => ProbeExit::Died(format!("was killed by {}", signal_name(signal))),
        (None, None) => ProbeExit::Died("exited for an unknown reason".to_owned()),
    }
}
