//! Python child processes: requests go in, lines of JSON come out.
//!
//! A child writes one JSON object per line to standard output. Other lines are skipped, since start-up
//! files of a site may print, too. `python/vramfit/_functions/_child.py` is the other end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use vramfit_base::{Error, ErrorKind, Result};

use crate::parallel::receive_within;

/// An error that a child reports, with the fields of an [`Error`].
#[derive(Debug, Deserialize)]
pub struct PythonFailure {
    id: String,
    message: String,
    cause: Option<String>,
    hint: Option<String>,
}

impl From<PythonFailure> for Error {
    fn from(failure: PythonFailure) -> Self {
        let known = ErrorKind::ALL.iter().find(|kind| kind.id() == failure.id);
        let mut error = Error::new(*known.unwrap_or(&ErrorKind::Internal), failure.message);
        if let Some(cause) = failure.cause {
            error = error.cause(cause);
        }
        match failure.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
    }
}

/// What a child did.
#[derive(Debug)]
pub enum ChildEvent {
    /// It wrote a line to standard output.
    Stdout(String),
    /// It wrote a line to standard error, if that is captured.
    Stderr(String),
    /// It closed standard output.
    Closed,
    /// Nothing, until the timeout.
    TimedOut,
}

/// A running child.
#[derive(Debug)]
pub struct PythonChild {
    child: Child,
    stdin: Option<ChildStdin>,
    events: Receiver<ChildEvent>,
}

impl PythonChild {
    /// Starts a module of the Python package, which shares standard error with this process.
    ///
    /// # Errors
    /// `command-not-found` if `python` cannot be started.
    pub fn spawn_module(python: &Path, module: &str, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(python);
        command.args(["-m", module]).args(arguments);
        PythonChild::spawn(&mut command).map_err(|error| {
            Error::new(
                ErrorKind::CommandNotFound,
                format!("`{}` cannot be started", python.display()),
            )
            .cause(error)
            .hint("select a Python that has vramfit with `--python`")
        })
    }

    /// Starts a command. Its standard error is captured if the command says [`Stdio::piped`].
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (sender, events) = mpsc::channel();
        forward_lines(child.stderr.take(), sender.clone(), ChildEvent::Stderr, false);
        forward_lines(child.stdout.take(), sender, ChildEvent::Stdout, true);
        let stdin = child.stdin.take();
        Ok(PythonChild { child, stdin, events })
    }

    /// Writes to standard input. A child that has exited is noticed when it does not answer.
    pub fn send(&mut self, text: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(text.as_bytes());
        }
    }

    /// Closes standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for the next event; without a timeout until there is one.
    pub fn receive(&mut self, timeout: Option<Duration>) -> ChildEvent {
        let received = receive_within(&self.events, timeout);
        received.unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => ChildEvent::TimedOut,
            RecvTimeoutError::Disconnected => ChildEvent::Closed,
        })
    }

    /// Waits for the next line that is a message; `None` if standard output is closed or `timeout` is over.
    pub fn receive_message<T: DeserializeOwned>(&mut self, timeout: Option<Duration>) -> Option<T> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let remaining =
                deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            match self.receive(remaining) {
                ChildEvent::Stdout(line) => {
                    if let Ok(message) = serde_json::from_str(&line) {
                        return Some(message);
                    }
                }
                ChildEvent::Stderr(_) => {}
                ChildEvent::Closed | ChildEvent::TimedOut => return None,
            }
        }
    }

    /// Waits for the child to exit; kills it after `timeout` and returns `None`.
    pub fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        const POLL_INTERVAL: Duration = Duration::from_millis(10);
        let deadline = Instant::now() + timeout;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(POLL_INTERVAL),
                _ => {
                    self.kill();
                    return None;
                }
            }
        }
    }

    /// Kills the child.
    pub fn kill(&mut self) {
        // It may have exited already; either way it is reaped here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for PythonChild {
    fn drop(&mut self) {
        // The end of its input is the end of its work.
        self.close_stdin();
        let _ = self.child.wait();
    }
}

/// Sends every line of a pipe; with `is_stdout` also its end.
fn forward_lines<R: Read + Send + 'static>(
    pipe: Option<R>,
    sender: Sender<ChildEvent>,
    event: fn(String) -> ChildEvent,
    is_stdout: bool,
) {
    let Some(pipe) = pipe else { return };
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n') {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line).into_owned();
            // The receiver is gone if the child was given up.
            if sender.send(event(line)).is_err() {
                return;
            }
        }
        if is_stdout {
            let _ = sender.send(ChildEvent::Closed);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> PythonChild {
        PythonChild::spawn(Command::new("/bin/sh").args(["-c", script])).expect("there is a shell")
    }

    #[test]
    fn messages_are_found_among_other_lines() {
        let mut child = shell("echo hello; echo 17; cat");
        child.send("[1, 2]\n");
        assert_eq!(child.receive_message::<u32>(None), Some(17));
        assert_eq!(child.receive_message::<Vec<u32>>(None), Some(vec![1, 2]));
        child.close_stdin();
        assert_eq!(child.receive_message::<u32>(None), None);
    }

    #[test]
    fn a_silent_child_times_out() {
        let mut child = shell("sleep 60");
        let short = Some(Duration::from_millis(20));
        assert_eq!(child.receive_message::<u32>(short), None);
        assert_eq!(child.wait(Duration::ZERO), None);
    }
}
