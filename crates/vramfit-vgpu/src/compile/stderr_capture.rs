//! What XLA's compiler says on standard error, read while it passes.
//!
//! The compiler's log cannot be asked for; it only goes to file descriptor 2. While a program is
//! compiled that descriptor is a file of ours, and a thread passes on what comes into it. A file and not a
//! pipe: when XLA aborts the process, its last words are still there, and whoever started the dry run
//! prints what was not passed on (`vramfit dryrun` names the folder in `VRAMFIT_COMPILER_LOG`; without
//! it nothing here happens).

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a line may take to appear on the terminal.
const DELAY: Duration = Duration::from_millis(20);
/// Lines kept of one program.
const MOST_LINES: usize = 64;
/// The files of XLA whose warnings are about memory.
const SOURCES: &[&str] = &[
    "hlo_rematerialization.cc",
    "hlo_memory_scheduler.cc",
    "gpu_hlo_schedule.cc",
    "latency_hiding_scheduler.cc",
    "gpu_latency_hiding_scheduler.cc",
];

/// A warning: the source file of XLA that speaks, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    pub(crate) source: String,
    pub(crate) text: String,
}

/// The descriptor that is in place of standard error, and where it leads.
struct Ear {
    /// What is written to it: descriptor 2 is a copy of this one.
    log: File,
    /// The same file, read behind the writers.
    behind: File,
    /// How much was passed on, in the first eight bytes of a file, for whoever outlives us.
    passed_on: File,
    passed: u64,
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    /// The real standard error while ours is in its place.
    stderr: Option<File>,
    /// What those hear who compile now; the last begun last.
    listeners: Vec<(u64, Vec<Warning>)>,
    next: u64,
    ticker: Option<Sender<()>>,
}

static EAR: Mutex<Option<Ear>> = Mutex::new(None);

fn ear() -> MutexGuard<'static, Option<Ear>> {
    // What a panic interrupted is at worst a line less.
    EAR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does something, and returns what the compiler warned of meanwhile.
pub(crate) fn during<T>(folder: Option<&Path>, work: impl FnOnce() -> T) -> (T, Vec<Warning>) {
    let Some(listener) = folder.and_then(Listener::begin) else {
        return (work(), Vec::new());
    };
    let result = work();
    (result, listener.end())
}

/// One that listens; dropped, it stops.
struct Listener(u64);

impl Listener {
    fn begin(folder: &Path) -> Option<Self> {
        let mut ear = ear();
        if ear.is_none() {
            *ear = Some(Ear::new(folder)?);
        }
        let ear = ear.as_mut()?;
        if ear.listeners.is_empty() {
            ear.put_in_place()?;
        }
        let number = ear.next;
        ear.next += 1;
        ear.listeners.push((number, Vec::new()));
        Some(Listener(number))
    }

    fn end(self) -> Vec<Warning> {
        let warnings = self.stop();
        std::mem::forget(self);
        warnings
    }

    fn stop(&self) -> Vec<Warning> {
        let mut ear = ear();
        let Some(ear) = ear.as_mut() else {
            return Vec::new();
        };
        if ear.listeners.len() == 1 {
            ear.take_away();
        }
        ear.pass_on();
        let place = ear
            .listeners
            .iter()
            .position(|(number, _)| *number == self.0);
        place.map_or_else(Vec::new, |place| ear.listeners.remove(place).1)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Ear {
    fn new(folder: &Path) -> Option<Self> {
        let process = std::process::id();
        let open = |ending: &str| {
            let path = folder.join(format!("compiler-{process}.{ending}"));
            let mut options = OpenOptions::new();
            options
                .read(true)
                .append(ending == "log")
                .write(true)
                .create(true)
                .truncate(false);
            options.open(path).ok()
        };
        let log = open("log")?;
        Some(Ear {
            behind: open("log")?,
            passed_on: open("passed")?,
            passed: log.metadata().ok()?.len(),
            log,
            line: Vec::new(),
            stderr: None,
            listeners: Vec::new(),
            next: 0,
            ticker: None,
        })
    }

    /// Makes descriptor 2 lead into the file.
    fn put_in_place(&mut self) -> Option<()> {
        // SAFETY: duplicates a descriptor that may be closed; the result is checked, and ours.
        let stderr = unsafe {
            let copy = libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, 3);
            (copy >= 0).then(|| File::from(OwnedFd::from_raw_fd(copy)))?
        };
        let (tick, ticks) = channel();
        let started = thread::Builder::new()
            .name("vramfit-compiler-log".to_owned())
            .spawn(move || {
                while ticks.recv_timeout(DELAY) == Err(RecvTimeoutError::Timeout) {
                    if let Some(ear) = ear().as_mut() {
                        ear.pass_on();
                    }
                }
            });
        started.ok()?;
        // SAFETY: both descriptors are open.
        if unsafe { libc::dup2(self.log.as_raw_fd(), libc::STDERR_FILENO) } < 0 {
            return None;
        }
        self.stderr = Some(stderr);
        self.ticker = Some(tick);
        Some(())
    }

    /// Puts standard error back, unless the program has put something else there meanwhile.
    fn take_away(&mut self) {
        self.ticker = None;
        let Some(stderr) = &self.stderr else { return };
        if identity(libc::STDERR_FILENO) == identity(self.log.as_raw_fd()) {
            // SAFETY: both descriptors are open.
            unsafe { libc::dup2(stderr.as_raw_fd(), libc::STDERR_FILENO) };
        }
    }

    /// Passes on what has come, and keeps the warnings in it.
    fn pass_on(&mut self) {
        let mut new = vec![0; 64 << 10];
        while let Ok(count @ 1..) = self.behind.read_at(&mut new, self.passed) {
            if let Some(stderr) = &mut self.stderr {
                // A closed standard error is nobody's business here.
                let _ = stderr.write_all(&new[..count]);
            }
            self.passed += count as u64;
            let _ = self.passed_on.write_all_at(&self.passed.to_le_bytes(), 0);
            self.hear(&new[..count]);
        }
        if self.ticker.is_none() {
            self.stderr = None;
        }
    }

    fn hear(&mut self, text: &[u8]) {
        for part in text.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.last() == Some(&b'\n') {
                let line = std::mem::take(&mut self.line);
                let warning = warning(&String::from_utf8_lossy(&line));
                if let Some((warning, (_, heard))) = warning.zip(self.listeners.last_mut())
                    && heard.len() < MOST_LINES
                {
                    heard.push(warning);
                }
            }
        }
        // No line of a log is longer; a program that writes no line ends is not listened to.
        self.line.truncate(16 << 10);
    }
}

/// Returns what makes the file behind a descriptor the same; `None` if it is closed.
fn identity(descriptor: i32) -> Option<(u64, u64)> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the pointer is valid; a closed descriptor makes it an error.
    let done = unsafe { libc::fstat(descriptor, stat.as_mut_ptr()) };
    // SAFETY: zeros are a valid value, and the call filled it.
    let stat = unsafe { stat.assume_init() };
    (done == 0).then_some((stat.st_dev, stat.st_ino))
}

/// Reads a line of the log. Errors count as well: the scheduler tells one that is none.
///
/// Releases differ: `W1122 02:57:59.144376 8310 hlo_rematerialization.cc:3231] text` in JAX 0.8.1 and
/// later, `2026-11-22 17:41:40.333903: W external/xla/xla/DIRECTORIES/hlo_rematerialization.cc:3023]
/// text` in 0.6.2.
fn warning(line: &str) -> Option<Warning> {
    let (head, text) = line.trim_end().split_once("] ")?;
    let (before, place) = head.rsplit_once(' ')?;
    let file = place.split(':').next()?;
    let source = file.rsplit('/').next()?;
    let is_severe = |word: &str| word == "W" || word == "E";
    let is_one = match before.rsplit_once(' ') {
        Some((_, severity)) if is_severe(severity) => {
            head.starts_with(|c: char| c.is_ascii_digit())
        }
        _ => head.starts_with(['W', 'E']),
    };
    let is_one = is_one && SOURCES.contains(&source);
    is_one.then(|| Warning {
        source: source.to_owned(),
        text: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes to file descriptor 2 as XLA does, past what the test harness captures.
    fn say(text: &str) {
        // SAFETY: the text lives as long as the call.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }

    #[test]
    fn what_is_said_meanwhile_is_heard_and_standard_error_comes_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let before = identity(libc::STDERR_FILENO);
        let line = |number: u32| format!("W1 0 1 gpu_hlo_schedule.cc:{number}] text {number}\n");
        let texts = |warnings: Vec<Warning>| -> Vec<String> {
            warnings.into_iter().map(|warning| warning.text).collect()
        };
        let (inner, outer) = during(Some(folder.path()), || {
            assert_ne!(identity(libc::STDERR_FILENO), before);
            say(&line(1));
            let inner = during(Some(folder.path()), || say(&line(2))).1;
            // A line may come in pieces.
            say(&line(3)[..9]);
            thread::sleep(DELAY * 2);
            say(&line(3)[9..]);
            inner
        });
        assert_eq!(identity(libc::STDERR_FILENO), before);
        // Those who compile at the same time are not told apart for certain: the last begun hears.
        let (inner, outer) = (texts(inner), texts(outer));
        assert!(inner.contains(&"text 2".to_owned()), "{inner:?}");
        assert!(outer.contains(&"text 3".to_owned()), "{outer:?}");
        let (said, none) = during(Some(folder.path()), || 7);
        assert_eq!((said, none), (7, Vec::new()));

        let logs = std::fs::read_dir(folder.path()).expect("is there");
        let mut paths: Vec<_> = logs.map(|file| file.expect("an entry").path()).collect();
        paths.sort();
        let [written, passed] = [0, 1].map(|at| std::fs::read(&paths[at]).expect("can be read"));
        assert_eq!(passed, (written.len() as u64).to_le_bytes());
    }

    #[test]
    fn warnings_about_memory_are_told_from_other_lines() {
        let line =
            "W1122 02:57:59.144376    8310 hlo_rematerialization.cc:3231] Can't reduce [1] so\n";
        let found = warning(line).expect("is one");
        assert_eq!(found.source, "hlo_rematerialization.cc");
        assert_eq!(found.text, "Can't reduce [1] so");
        // As JAX 0.6.2 writes it.
        let older = "2026-11-22 17:41:40.333903: W external/xla/xla/hlo/transforms/simplifiers/\
                     hlo_rematerialization.cc:3023] Can't reduce [1] so\n";
        assert_eq!(warning(older), warning(line));
        for other in [
            "I1122 02:57:59.144376    8310 hlo_rematerialization.cc:3231] text",
            "W1122 02:57:59.144376    8310 other.cc:1] text",
            "2026-11-22 17:41:40.333903: I external/xla/xla/hlo_rematerialization.cc:1] text",
            "2026-11-22 17:41:40.333903: W external/xla/xla/other.cc:1] text",
            "I wrote W hlo_rematerialization.cc:1] text",
            "hlo_rematerialization.cc:3231] text",
            "Warning: text",
            "",
        ] {
            assert_eq!(warning(other), None, "{other}");
        }
    }
}
