//! After the program ended: the answer is read from the trace and told, or why there is none.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use signal_hook::consts::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
use vramfit_core::report;
use vramfit_core::trace::{self, Answer, Reader};
use vramfit_core::{Error, ErrorKind, Result};

use super::request::is_special;
use crate::child::{Ended, signal_name};
use crate::commands::Status;
use crate::output::Output;

/// A program that ran, and where its trace should be.
pub(super) struct Run<'a> {
    pub(super) program: &'a Path,
    pub(super) ended: Ended,
    /// Whether the program's Python was asked beforehand what it has installed.
    pub(super) asked: bool,
    pub(super) trace: &'a Path,
    /// Whether the card was shared by name.
    pub(super) shared: bool,
}

/// Where the answer goes besides the terminal.
pub(super) struct Files<'a> {
    pub(super) json: Option<&'a Path>,
    /// Whether the JSON goes to standard output, and nothing else is to be said.
    pub(super) json_to_stdout: bool,
    /// The trace, when it is to be kept.
    pub(super) trace: Option<&'a Path>,
    pub(super) force: bool,
}

/// Signals by which native code ends itself.
const CRASHES: [i32; 5] = [SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV];

/// Tells the answer.
///
/// # Errors
/// `gpu-not-used` when there is none, `compiler-failed` when the program crashed before running
/// out of memory, `invalid-file` when the trace cannot be read.
pub(super) fn tell(run: &Run<'_>, files: &Files<'_>, output: &mut Output) -> Result<Status> {
    let mut answers = Vec::new();
    for path in traces(run.trace) {
        let mut answer = read(&path)?;
        answer.program_exit = Some(run.ended.as_exit());
        if !answer.fits() || answer.devices.iter().any(|device| device.peak_bytes > 0) {
            answers.push(answer);
        }
    }
    let Some(answer) = worst(&answers) else {
        return Err(never_used(run));
    };
    if files.json_to_stdout {
        output.data(&format!("{}\n", report::json(answer)))?;
    } else {
        output.say(&report::text(answer));
    }
    if let Some(path) = files.json {
        write(path, &report::json(answer), files.force)?;
        output.say(&format!("answer written to {}", path.display()));
    }
    if let Some(path) = files.trace {
        output.say(&format!("trace written to {}", path.display()));
    }
    if answers.len() > 1 {
        let alone = if run.shared {
            ""
        } else {
            ", each as if it were alone (see `--shared`)"
        };
        output.say(&format!(
            "{} processes used the GPU{alone}; the answer is about the one that decides",
            answers.len()
        ));
    }
    match run.ended {
        // A program that died of the virtual card's limit has given its answer. Python ends with
        // our own exit code then; only another one would be lost.
        ended if !answer.fits() => {
            if !matches!(ended, Ended::Code(0 | 1)) {
                output.say(&format!("the program {}", ended.words()));
            }
            Ok(Status::No)
        }
        Ended::Code(0) => Ok(Status::Yes),
        Ended::Signal(signal) if CRASHES.contains(&signal) => {
            let count = answer
                .programs
                .iter()
                .map(|program| program.compilations)
                .sum::<u64>();
            Err(crashed(signal, Some(count)))
        }
        ended => {
            output.say(&format!(
                "the program {}, not for want of GPU memory",
                ended.words()
            ));
            Ok(Status::Child(ended.shell_code()))
        }
    }
}

/// Returns the traces that a run has left: a second process of it writes beside the first, with
/// its process number behind the name.
pub(super) fn traces(path: &Path) -> Vec<PathBuf> {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let entries = path
        .parent()
        .and_then(|folder| std::fs::read_dir(folder).ok());
    let mut found: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|file| {
            let file = file.file_name().unwrap_or_default().to_string_lossy();
            file.strip_prefix(&name).is_some_and(|rest| {
                rest.is_empty()
                    || rest
                        .strip_prefix('.')
                        .is_some_and(|number| number.parse::<u32>().is_ok())
            })
        })
        .collect();
    found.sort();
    found
}

/// Returns the answer that decides: one that does not fit, else the one with the highest peak.
fn worst(answers: &[Answer]) -> Option<&Answer> {
    let peak = |answer: &Answer| answer.devices.iter().map(|device| device.peak_bytes).max();
    answers
        .iter()
        .max_by_key(|answer| (!answer.fits(), peak(answer)))
}

fn read(path: &Path) -> Result<Answer> {
    let file = File::open(path).map_err(|error| {
        Error::new(
            ErrorKind::Io,
            format!("cannot read the trace `{}`", path.display()),
        )
        .cause(error)
    })?;
    trace::summarise(Reader::new(file)?)
}

/// Writes a file that was free when the program started, and may not be free any more.
fn write(path: &Path, text: &str, force: bool) -> Result<()> {
    let mut options = File::options();
    options.write(true);
    if force || is_special(path) {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let written = options.open(path).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")
    });
    written.map_err(|error| {
        Error::new(ErrorKind::Io, format!("cannot write `{}`", path.display())).cause(error)
    })
}

/// Says why there is nothing to tell, as well as it can be known.
fn never_used(run: &Run<'_>) -> Error {
    match run.ended {
        Ended::Signal(signal) if CRASHES.contains(&signal) => crashed(signal, None),
        Ended::Code(0) => {
            let error = Error::new(ErrorKind::GpuNotUsed, "the program never used the GPU");
            if run.asked {
                error.hint(
                    "it may choose another device itself (`jax_platforms`, `jax_default_device`), \
                     or end before its first JAX operation",
                )
            } else {
                let name = run.program.file_name().unwrap_or(run.program.as_os_str());
                error.hint(format!(
                    "`{}` must pass `PYTHONPATH` and `JAX_PLATFORMS` on to the Python it starts",
                    name.to_string_lossy()
                ))
            }
        }
        ended => Error::new(
            ErrorKind::GpuNotUsed,
            format!("the program {} before it used the GPU", ended.words()),
        )
        .hint(last_words()),
    }
}

fn crashed(signal: i32, compiled: Option<u64>) -> Error {
    let name = signal_name(signal);
    let when = match compiled {
        Some(count) => format!("after compiling {count} programs"),
        None => "before it used the GPU".to_owned(),
    };
    Error::new(
        ErrorKind::CompilerFailed,
        format!("the program was killed by {name} {when}"),
    )
    .hint(last_words())
}

/// Points at what the program said, and at the commonest reason why XLA ends a process.
fn last_words() -> &'static str {
    if std::env::var_os("XLA_FLAGS").is_some_and(|flags| !flags.is_empty()) {
        "what it said last is above; XLA also ends so when it does not know a flag in `XLA_FLAGS`"
    } else {
        "what it said last is above"
    }
}
