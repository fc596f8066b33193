//! Starts the user's command and waits for it, or replaces this process by it.
//!
//! While we wait, terminal and signals belong to the child. It stays in our process group, so Ctrl-C
//! reaches it anyway; we only must not end by it, because there is a report to print. A SIGTERM or SIGHUP
//! sent to us alone is forwarded. Where the child is a dry run that nobody sees, see [`crate::interruption`].

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use vramfit_base::files::missing_file;
use vramfit_base::{Error, ErrorKind, Result};
use vramfit_model::trace::ProcessExit;

use crate::signals::{is_ignored, signal_name};
use crate::{interruption, process_tree};

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// It exited by itself with this code.
    Code(u8),
    /// A signal killed it.
    Signal(i32),
}

impl ExitReason {
    /// Returns the exit code that a shell would report.
    pub fn shell_code(self) -> u8 {
        match self {
            ExitReason::Code(code) => code,
            ExitReason::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }

    /// Returns it as a trace records it.
    pub fn process_exit(self) -> ProcessExit {
        let (code, signal) = match self {
            ExitReason::Code(code) => (Some(code), None),
            ExitReason::Signal(signal) => (None, Some(signal)),
        };
        ProcessExit { code, signal }
    }

    /// Returns a text that fits after "the program".
    pub fn describe(self) -> String {
        match self {
            ExitReason::Code(code) => format!("ended with exit code {code}"),
            ExitReason::Signal(signal) => format!("was killed by {}", signal_name(signal)),
        }
    }
}

/// Finds the file that a command name stands for, as the shell and `execvp` would.
///
/// # Errors
/// `command-not-found` when there is none, or when it may not be executed.
pub fn resolve_command(program: &OsStr) -> Result<PathBuf> {
    let shown = program.to_string_lossy();
    let not_found = |message: String| Error::new(ErrorKind::CommandNotFound, message);
    if program.as_encoded_bytes().contains(&b'/') {
        let path = Path::new(program);
        if is_executable(path) {
            return Ok(path.to_owned());
        }
        return Err(if path.is_dir() {
            not_found(format!("`{shown}` is a directory"))
                .hint("name the program to run, such as `python train.py`")
        } else if path.exists() {
            not_found(format!("`{shown}` is not executable"))
                .hint(format!("start it with its interpreter, or run `chmod +x {shown}`"))
        } else {
            does_not_exist(path)
        });
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| is_executable(file))
        .ok_or_else(|| {
            let error =
                not_found(format!("command `{shown}` is in none of the directories of `PATH`"));
            error.hint(match Path::new(program).exists() {
                true => format!("to run the file of that name here, write `./{shown}`"),
                false => "write the command as without vramfit, such as `python train.py`".into(),
            })
        })
}

/// The error for a program that is named by a path where there is none, with the file there whose name is nearest.
pub fn does_not_exist(path: &Path) -> Error {
    missing_file(path).with_kind(ErrorKind::CommandNotFound)
}

/// Starts the command with our own standard streams and waits until it ended, or kills it when its time is up.
///
/// # Errors
/// `command-not-found` when the system refuses to start it, `time-limit` when it was killed, `interrupted`
/// when it was ended because this command is.
pub fn run(
    program: &Path,
    arguments: &[OsString],
    time_limit: Option<Duration>,
    adjust: impl FnOnce(&mut Command),
) -> Result<ExitReason> {
    run_with_signals(program, arguments, time_limit, adjust, pass_on)
}

/// Passes a signal on that only we have got. Those of the terminal, Ctrl-C and Ctrl-\, it sends to the child, too.
fn pass_on(child: Pid, signal: i32) {
    let signal = match signal {
        SIGTERM => Signal::TERM,
        SIGHUP => Signal::HUP,
        _ => return,
    };
    // It may have ended this moment; its number stays reserved until we have waited for it.
    let _ = kill_process(child, signal);
}

/// As [`run`]; `on_signal` is called with the child for each signal that we get, and dropped when it has ended.
///
/// # Errors
/// Those of [`run`].
pub fn run_with_signals(
    program: &Path,
    arguments: &[OsString],
    time_limit: Option<Duration>,
    adjust: impl FnOnce(&mut Command),
    mut on_signal: impl FnMut(Pid, i32) + Send + 'static,
) -> Result<ExitReason> {
    interruption::ensure_none()?;
    // A handler, not "ignore": what is ignored stays ignored after exec, and Python would then
    // start without KeyboardInterrupt. What our own caller ignores must stay ignored (nohup).
    let caught: Vec<i32> = [SIGINT, SIGQUIT, SIGTERM, SIGHUP]
        .into_iter()
        .filter(|signal| !is_ignored(*signal))
        .collect();
    let mut signals = Signals::new(&caught).map_err(|error| {
        Error::new(ErrorKind::Internal, "cannot install signal handlers").cause(error)
    })?;

    let mut command = Command::new(program);
    command.args(arguments);
    adjust(&mut command);
    let mut child = command.spawn().map_err(|error| cannot_start(program, &error))?;

    let pid = Pid::from_child(&child);
    let handle = signals.handle();
    let forwarder = std::thread::spawn(move || {
        for signal in &mut signals {
            on_signal(pid, signal);
        }
    });
    let (ended, waiting) = mpsc::channel::<()>();
    let watchdog = time_limit.map(|limit| {
        std::thread::spawn(move || {
            let is_late = waiting.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if is_late {
                process_tree::kill(pid);
            }
            is_late
        })
    });
    // Wait without reaping, so that no signal can reach another process with the same number.
    let until_ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while waitid(WaitId::Pid(pid), until_ended).is_err_and(|error| error == Errno::INTR) {}
    drop(ended);
    let is_late = watchdog.is_some_and(|watchdog| watchdog.join().unwrap_or(false));
    handle.close();
    // The thread only loops over signals; if it panicked there is nothing of it to keep.
    let _ = forwarder.join();
    let status = child.wait().map_err(|error| {
        Error::new(ErrorKind::Internal, "cannot wait for the program").cause(error)
    })?;
    interruption::ensure_none()?;
    if is_late {
        let limit = time_limit.unwrap_or_default().as_secs_f64();
        return Err(Error::new(
            ErrorKind::TimeLimit,
            format!("the program did not end within {limit} s"),
        )
        .hint("allow more with `--trial-timeout`, or stop after fewer steps with `--steps`"));
    }
    Ok(exit_reason(status))
}

/// Replaces this process by the command, which keeps its process number, its terminal and its place in
/// the shell's list of jobs. Returns only when the system refuses.
pub fn exec(program: &Path, arguments: &[OsString], adjust: impl FnOnce(&mut Command)) -> Error {
    let mut command = Command::new(program);
    command.args(arguments);
    adjust(&mut command);
    cannot_start(program, &command.exec())
}

fn cannot_start(program: &Path, error: &std::io::Error) -> Error {
    let shown = program.display();
    Error::new(ErrorKind::CommandNotFound, format!("cannot start `{shown}`"))
        .cause(error)
        .hint("a script needs a first line such as `#!/usr/bin/env python3`")
}

fn exit_reason(status: ExitStatus) -> ExitReason {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitReason::Code(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, Some(signal)) => ExitReason::Signal(signal),
        // Neither exited nor killed cannot come back from `wait`; the largest code says "failed".
        (None, None) => ExitReason::Code(u8::MAX),
    }
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path)
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> ExitReason {
        let arguments = ["-c".into(), script.into()];
        run(Path::new("/bin/sh"), &arguments, None, |_| {}).expect("sh starts")
    }

    #[test]
    fn a_program_that_takes_too_long_is_killed() {
        let limit = Some(Duration::from_millis(50));
        let error = run(Path::new("/bin/sleep"), &["60".into()], limit, |_| {});
        assert_eq!(error.expect_err("killed").kind(), ErrorKind::TimeLimit);
        let limit = Some(Duration::from_secs(60));
        let exit = run(Path::new("/bin/true"), &[], limit, |_| {}).expect("ends in time");
        assert_eq!(exit, ExitReason::Code(0));
    }

    #[test]
    fn what_a_late_program_has_started_is_killed_too() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let file = folder.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let arguments = ["-c".into(), script.into()];
        let limit = Some(Duration::from_millis(500));
        let error = run(Path::new("/bin/sh"), &arguments, limit, |_| {});
        assert_eq!(error.expect_err("killed").kind(), ErrorKind::TimeLimit);
        let pid = std::fs::read_to_string(&file).expect("it had half a second");
        let state = format!("/proc/{}/stat", pid.trim());
        let is_running =
            || std::fs::read_to_string(&state).is_ok_and(|stat| !stat.contains(") Z "));
        for _ in 0..500 {
            if !is_running() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{state} is still there");
    }

    #[test]
    fn exit_codes_come_back() {
        assert_eq!(shell("exit 0"), ExitReason::Code(0));
        assert_eq!(shell("exit 7"), ExitReason::Code(7));
    }

    #[test]
    fn a_killing_signal_is_named() {
        let exit = shell("kill -SEGV $$");
        assert_eq!(exit.shell_code(), 139);
        assert_eq!(exit.describe(), "was killed by SIGSEGV");
    }

    #[test]
    fn the_environment_can_be_adjusted() {
        let exit = run(
            Path::new("/bin/sh"),
            &["-c".into(), "exit \"$VRAMFIT_TEST_CODE\"".into()],
            None,
            |command| {
                command.env("VRAMFIT_TEST_CODE", "5");
            },
        );
        assert_eq!(exit.expect("sh starts"), ExitReason::Code(5));
    }

    #[test]
    fn missing_and_forbidden_commands_have_different_errors() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let file = folder.path().join("data");
        std::fs::write(&file, "no program").expect("written");
        for (program, expected) in [
            ("no-such-command-vramfit".as_ref(), "directories of `PATH`"),
            ("./no-such-file-vramfit".as_ref(), "there is no file"),
            (file.as_os_str(), "not executable"),
            (folder.path().as_os_str(), "is a directory"),
        ] {
            let error = resolve_command(program).unwrap_err();
            assert!(error.message().contains(expected), "{error}");
        }
    }

    #[test]
    fn a_command_on_the_path_is_found() {
        assert!(resolve_command(OsStr::new("sh")).expect("every system has sh").is_absolute());
    }
}
