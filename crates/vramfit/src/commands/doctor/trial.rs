//! Tries JAX in a process of its own, which may hang or crash without taking us along.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use vramfit_core::doctor::{Ended, Step, Trial};

use super::gather::Wish;
use crate::child::signal_name;

/// The script that is run; see its own first lines. It goes through standard input, so that lists of
/// processes do not show all of it, and no file is needed in a container that can write none.
const SCRIPT: &str = include_str!("trial.py");
const READER: &str = "import sys; exec(compile(sys.stdin.buffer.read(int(sys.argv[1])), \
                      'vramfit-doctor', 'exec'))";

/// So many lines of the log are kept, the last ones, and so much of each.
const LOG_LINES: usize = 200;
const LOG_LINE_CHARACTERS: usize = 2000;

/// How long the rest of the log is waited for once the process has ended. Processes that it has started
/// may hold the pipe open for ever.
const REST: Duration = Duration::from_millis(200);

/// What comes out of the process.
enum Heard {
    Told(String),
    Logged(String),
    EndOfTold,
}

/// Runs the trial. `look` is called while it holds its memory.
pub(super) fn run(python: &Path, wish: &Wish, look: impl FnOnce()) -> Trial {
    let mut trial = Trial::default();
    let mut command = Command::new(python);
    command
        .args(["-c", READER])
        .arg(SCRIPT.len().to_string())
        .args(wish.training.then_some("train"))
        // Faults of C leave their Python stack in the log.
        .env("PYTHONFAULTHANDLER", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if !wish.preallocate {
        command.env("XLA_PYTHON_CLIENT_PREALLOCATE", "false");
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            trial.ended = Ended::Died(format!("could not be started: {error}"));
            return trial;
        }
    };
    if let Some(input) = &mut child.stdin {
        // A child that is gone is noticed when it says nothing.
        let _ = input.write_all(SCRIPT.as_bytes());
    }
    let (sender, receiver) = mpsc::channel();
    listen(child.stdout.take(), sender.clone(), Heard::Told, true);
    listen(child.stderr.take(), sender, Heard::Logged, false);
    let mut log = VecDeque::new();
    let hung = follow(
        &mut child, &receiver, wish.limit, &mut trial, &mut log, look,
    );
    let status = if hung {
        None
    } else {
        wait(&mut child, wish.limit)
    };
    if status.is_none() {
        // It may have ended this moment; either way it is reaped in the next line.
        let _ = child.kill();
        let _ = child.wait();
    }
    trial.ended = match status {
        Some(status) => ended(status),
        None => Ended::Hung(wish.limit.as_secs()),
    };
    let until = Instant::now() + REST;
    while let Ok(heard) = receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
        if let Heard::Logged(line) = heard {
            keep(&mut log, &line);
        }
    }
    trial.log = log.into();
    trial
}

/// Takes in what the process tells until it says no more. Returns whether it hung.
fn follow(
    child: &mut Child,
    receiver: &Receiver<Heard>,
    limit: Duration,
    trial: &mut Trial,
    log: &mut VecDeque<String>,
    look: impl FnOnce(),
) -> bool {
    let mut look = Some(look);
    let mut deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left) {
            Ok(Heard::Told(line)) => {
                let begun = trial.hear(&line);
                if begun == Some(Step::Hold) {
                    if let Some(look) = look.take() {
                        look();
                    }
                    if let Some(mut input) = child.stdin.take() {
                        // A child that is gone needs no answer.
                        let _ = input.write_all(b"\n");
                    }
                }
                deadline = Instant::now() + limit;
            }
            // A log is no progress: a process that waits for ever may well complain for ever.
            Ok(Heard::Logged(line)) => keep(log, &line),
            Ok(Heard::EndOfTold) | Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => return true,
        }
    }
}

/// Sends every line of a pipe; of what is told, also that it has ended.
fn listen<R: Read + Send + 'static>(
    pipe: Option<R>,
    sender: Sender<Heard>,
    wrap: fn(String) -> Heard,
    says_its_end: bool,
) {
    let Some(pipe) = pipe else { return };
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n') {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line).into_owned();
            if sender.send(wrap(line)).is_err() {
                return;
            }
        }
        if says_its_end {
            // Nobody listens any more when the trial was given up.
            let _ = sender.send(Heard::EndOfTold);
        }
    });
}

fn keep(log: &mut VecDeque<String>, line: &str) {
    if line.trim().is_empty() {
        return;
    }
    if log.len() == LOG_LINES {
        log.pop_front();
    }
    log.push_back(line.chars().take(LOG_LINE_CHARACTERS).collect());
}

/// Waits for the process, which has said all that it had to say, to end; `None` when it does not.
fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    const PAUSE: Duration = Duration::from_millis(10);
    let until = Instant::now() + limit;
    while Instant::now() < until {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(PAUSE),
            Ok(Some(status)) => return Some(status),
            Err(_) => return None,
        }
    }
    None
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ended::Finished,
        (Some(code), _) => Ended::Died(format!("ended with exit code {code}")),
        (None, Some(signal)) => Ended::Died(format!("was killed by {}", signal_name(signal))),
        (None, None) => Ended::Died("ended in an unknown way".to_owned()),
    }
}
