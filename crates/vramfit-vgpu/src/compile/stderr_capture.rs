//! Captures what XLA's compiler writes to standard error while a program is compiled.
//!
//! XLA has no interface for the compiler's log; it only goes to file descriptor 2. While a program is
//! compiled, that descriptor leads to a log file, and a thread forwards its content to the real standard
//! error. It is a file and not a pipe, so that the log survives when XLA aborts the process: `vramfit dryrun`,
//! to whose folder it belongs, prints what was not forwarded. Without a folder nothing is captured.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use prost::Message;

use crate::lock;

/// How often the log is forwarded, and so how late a line may appear on the terminal.
const FORWARD_INTERVAL: Duration = Duration::from_millis(20);
/// Warnings kept of one program.
const MAX_WARNINGS: usize = 64;
/// Bytes kept of the log of one program; what is longer is not kept at all.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// Longer than any line of the log.
const MAX_LINE_BYTES: usize = 16 << 10;
/// Parts of lines that XLA writes because no GPU is there when it compiles, which is so in every dry run. What they
/// say of a program is in the report: the scratch memory of CUB's sort.
const LINES_OF_A_DRY_RUN: &[&str] =
    &["Missing deviceless CUB scratch size data", "compile with a GPU present"];
/// The files of XLA whose warnings are about memory.
const MEMORY_SOURCES: &[&str] = &[
    "hlo_rematerialization.cc",
    "hlo_memory_scheduler.cc",
    "gpu_hlo_schedule.cc",
    "latency_hiding_scheduler.cc",
    "gpu_latency_hiding_scheduler.cc",
];

/// A warning: the source file of XLA that logged it, and its text.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Warning {
    #[prost(string, tag = "1")]
    pub(crate) source: String,
    #[prost(string, tag = "2")]
    pub(crate) text: String,
}

/// What the compiler logged while something was compiled.
#[derive(Debug, PartialEq)]
pub(crate) struct CompilerLog {
    /// Its warnings about memory.
    pub(crate) warnings: Vec<Warning>,
    /// All of it; `None` if it is too long.
    pub(crate) text: Option<Vec<u8>>,
}

/// The log file that standard error is redirected to.
struct StderrCapture {
    /// The log file; descriptor 2 is a copy of this descriptor.
    log: File,
    /// The same file, for reading what was written.
    reader: File,
    /// Its first eight bytes say how much was forwarded, for the dry run that reads it after a crash.
    forwarded_file: File,
    forwarded: u64,
    /// The beginning of a line whose end was not written yet, if it may be one of the log.
    partial_line: Vec<u8>,
    /// Whether the beginning of a line was forwarded whose end was not written yet.
    is_inside_line: bool,
    /// The real standard error while it is redirected.
    stderr: Option<File>,
    /// The compilations that are running, the latest last, each with its number.
    scopes: Vec<Scope>,
    next_scope: u64,
    ticker: Option<Sender<()>>,
}

/// One compilation that is running.
struct Scope {
    number: u64,
    log: CompilerLog,
    hidden: Hidden,
}

/// Which lines of a compile are not shown.
enum Hidden {
    None,
    /// These, which an earlier compile of the same program has written.
    Repeated(HashSet<String>),
    /// All of the log but what ends the process.
    Log,
}

impl Hidden {
    fn contains(&self, line: &str) -> bool {
        match self {
            Hidden::None => false,
            Hidden::Repeated(lines) => lines.contains(message_of(line)),
            Hidden::Log => may_be_log(line.as_bytes()) && !line.starts_with('F'),
        }
    }
}

static CAPTURE: Mutex<Option<StderrCapture>> = Mutex::new(None);

/// Runs `work`, and returns its result with what the compiler logs meanwhile. Without a folder nothing is
/// captured.
pub(crate) fn capture_log<T>(folder: Option<&Path>, work: impl FnOnce() -> T) -> (T, CompilerLog) {
    capture(folder, Hidden::None, work)
}

/// Captures like [`capture_log`], and shows nothing of the log: of a compile that the program has not asked for.
pub(crate) fn hide_log<T>(folder: Option<&Path>, work: impl FnOnce() -> T) -> T {
    capture(folder, Hidden::Log, work).0
}

/// Captures like [`capture_log`], and shows no line again that is in `earlier`.
pub(crate) fn capture_repeated_log<T>(
    folder: Option<&Path>,
    earlier: &CompilerLog,
    work: impl FnOnce() -> T,
) -> T {
    let text = String::from_utf8_lossy(earlier.text.as_deref().unwrap_or_default());
    let repeated = text.lines().map(|line| message_of(line).to_owned());
    capture(folder, Hidden::Repeated(repeated.collect()), work).0
}

fn capture<T>(folder: Option<&Path>, hidden: Hidden, work: impl FnOnce() -> T) -> (T, CompilerLog) {
    let Some(scope) = folder.and_then(|folder| CaptureScope::start(folder, hidden)) else {
        return (work(), CompilerLog::empty());
    };
    let result = work();
    (result, scope.finish())
}

/// Writes to standard error as the compiler does.
pub(crate) fn write_log(text: &[u8]) {
    // SAFETY: the bytes live as long as the call. What cannot be written is lost, as the compiler's is.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

impl CompilerLog {
    fn empty() -> Self {
        CompilerLog { warnings: Vec::new(), text: Some(Vec::new()) }
    }

    fn add_text(&mut self, text: &[u8]) {
        self.text = self.text.take().and_then(|mut kept| {
            kept.extend_from_slice(text);
            (kept.len() <= MAX_TEXT_BYTES).then_some(kept)
        });
    }
}

/// Captures until it is dropped.
struct CaptureScope(u64);

impl CaptureScope {
    fn start(folder: &Path, hidden: Hidden) -> Option<Self> {
        let mut capture = lock(&CAPTURE);
        if capture.is_none() {
            *capture = Some(StderrCapture::new(folder)?);
        }
        let capture = capture.as_mut()?;
        if capture.scopes.is_empty() {
            capture.redirect()?;
        }
        let number = capture.next_scope;
        capture.next_scope += 1;
        capture.scopes.push(Scope { number, log: CompilerLog::empty(), hidden });
        Some(CaptureScope(number))
    }

    fn finish(self) -> CompilerLog {
        let log = self.stop();
        std::mem::forget(self);
        log
    }

    fn stop(&self) -> CompilerLog {
        let mut capture = lock(&CAPTURE);
        let Some(capture) = capture.as_mut() else {
            return CompilerLog::empty();
        };
        let is_last = capture.scopes.len() == 1;
        if is_last {
            capture.restore();
        }
        capture.forward();
        if is_last {
            capture.close();
        }
        let mut scopes = capture.scopes.iter();
        let index = scopes.position(|scope| scope.number == self.0);
        index.map_or_else(CompilerLog::empty, |index| capture.scopes.remove(index).log)
    }
}

impl Drop for CaptureScope {
    fn drop(&mut self) {
        self.stop();
    }
}

impl StderrCapture {
    fn new(folder: &Path) -> Option<Self> {
        let process = std::process::id();
        let open = |ending: &str| {
            let path = folder.join(format!("compiler-{process}.{ending}"));
            let mut options = OpenOptions::new();
            options.read(true).append(ending == "log").write(true).create(true).truncate(false);
            options.open(path).ok()
        };
        let log = open("log")?;
        Some(StderrCapture {
            reader: open("log")?,
            forwarded_file: open("passed")?,
            forwarded: log.metadata().ok()?.len(),
            log,
            partial_line: Vec::new(),
            is_inside_line: false,
            stderr: None,
            scopes: Vec::new(),
            next_scope: 0,
            ticker: None,
        })
    }

    /// Redirects standard error to the file.
    fn redirect(&mut self) -> Option<()> {
        // SAFETY: duplicates a descriptor that may be closed; the result is checked, and owned here.
        let stderr = unsafe {
            let copy = libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, 3);
            (copy >= 0).then(|| File::from(OwnedFd::from_raw_fd(copy)))?
        };
        let (tick, ticks) = channel();
        let started =
            thread::Builder::new().name("vramfit-compiler-log".to_owned()).spawn(move || {
                while ticks.recv_timeout(FORWARD_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    if let Some(capture) = lock(&CAPTURE).as_mut() {
                        capture.forward();
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

    /// Restores standard error, unless the program has redirected it elsewhere meanwhile.
    fn restore(&mut self) {
        self.ticker = None;
        let Some(stderr) = &self.stderr else { return };
        if file_id(libc::STDERR_FILENO) == file_id(self.log.as_raw_fd()) {
            // SAFETY: both descriptors are open.
            unsafe { libc::dup2(stderr.as_raw_fd(), libc::STDERR_FILENO) };
        }
    }

    /// Forwards what was written, and keeps the warnings in it.
    fn forward(&mut self) {
        let mut new = vec![0; 64 << 10];
        let mut read = self.forwarded + self.partial_line.len() as u64;
        while let Ok(count @ 1..) = self.reader.read_at(&mut new, read) {
            read += count as u64;
            let new = &new[..count];
            if let Some(scope) = self.scopes.last_mut() {
                scope.log.add_text(new);
            }
            for part in new.split_inclusive(|byte| *byte == b'\n') {
                self.partial_line.extend_from_slice(part);
                let is_whole = part.last() == Some(&b'\n');
                // Anything but a line of the log is shown at once, such as a bar that shows progress.
                if is_whole || self.is_inside_line || !may_be_log(&self.partial_line) {
                    self.end_part(is_whole);
                }
            }
        }
    }

    /// Forwards a line, or a part of one, unless it is a line that is not shown.
    fn end_part(&mut self, is_whole: bool) {
        let line = std::mem::take(&mut self.partial_line);
        let is_shown = self.is_inside_line || !is_whole || self.collect(&line);
        if let Some(stderr) = self.stderr.as_mut().filter(|_| is_shown) {
            // Standard error may be closed, which is the program's choice.
            let _ = stderr.write_all(&line);
        }
        self.is_inside_line = !is_whole;
        self.forwarded += line.len() as u64;
        let bytes = self.forwarded.to_le_bytes();
        let _ = self.forwarded_file.write_all_at(&bytes, 0);
    }

    /// Forwards the rest, and releases the real standard error.
    fn close(&mut self) {
        if !self.partial_line.is_empty() {
            self.end_part(false);
        }
        self.is_inside_line = false;
        self.stderr = None;
    }

    /// Keeps a line of the log if it is a warning about memory. Returns `true` if the line is to be shown.
    fn collect(&mut self, line: &[u8]) -> bool {
        let line = String::from_utf8_lossy(line);
        let Some(Scope { log, hidden, .. }) = self.scopes.last_mut() else {
            return true;
        };
        if let Some(warning) = parse_warning(&line)
            && log.warnings.len() < MAX_WARNINGS
        {
            log.warnings.push(warning);
        }
        let mut own = LINES_OF_A_DRY_RUN.iter();
        !own.any(|part| line.contains(part)) && !hidden.contains(line.trim_end())
    }
}

/// Returns `true` if this may be the beginning of a line that XLA logs: of its prefix (see [`parse_warning`]), or of
/// another line of the same message.
fn may_be_log(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take(4).all(u8::is_ascii_digit);
    let is_prefix = match text {
        [b'I' | b'W' | b'E' | b'F', rest @ ..] => digits(rest),
        text => digits(text),
    };
    (is_prefix || text.starts_with(b"To avoid this")) && text.len() < MAX_LINE_BYTES
}

/// Returns a line of the log without the time and the thread.
fn message_of(line: &str) -> &str {
    line.split_once("] ").map_or(line, |(_, message)| message)
}

/// Returns device and inode of the file that a descriptor leads to; `None` if it is closed.
fn file_id(descriptor: i32) -> Option<(u64, u64)> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the pointer is valid; a closed descriptor makes it an error.
    let done = unsafe { libc::fstat(descriptor, stat.as_mut_ptr()) };
    // SAFETY: zeros are a valid value, and the call filled it.
    let stat = unsafe { stat.assume_init() };
    (done == 0).then_some((stat.st_dev, stat.st_ino))
}

/// Parses a line of the log. Errors count as well: the scheduler logs a warning as one.
///
/// Releases differ: `W1122 02:57:59.144376 8310 hlo_rematerialization.cc:3231] text` in JAX 0.8.1 and
/// later, `2026-11-22 17:41:40.333903: W external/xla/xla/DIRECTORIES/hlo_rematerialization.cc:3023]
/// text` in 0.6.2.
fn parse_warning(line: &str) -> Option<Warning> {
    let (head, text) = line.trim_end().split_once("] ")?;
    let (before, location) = head.rsplit_once(' ')?;
    let file = location.split(':').next()?;
    let source = file.rsplit('/').next()?;
    let is_severity = |word: &str| word == "W" || word == "E";
    let is_warning = match before.rsplit_once(' ') {
        Some((_, severity)) if is_severity(severity) => {
            head.starts_with(|c: char| c.is_ascii_digit())
        }
        _ => head.starts_with(['W', 'E']),
    };
    let is_warning = is_warning && MEMORY_SOURCES.contains(&source);
    is_warning.then(|| Warning { source: source.to_owned(), text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_stderr(text: &str) {
        write_log(text.as_bytes());
    }

    #[test]
    fn warnings_of_the_work_are_captured_and_standard_error_is_restored() {
        let folder = tempfile::tempdir().expect("a folder");
        let before = file_id(libc::STDERR_FILENO);
        let line = |number: u32| {
            format!("W1122 02:57:59.144376 8310 gpu_hlo_schedule.cc:{number}] text {number}\n")
        };
        let texts = |log: CompilerLog| -> Vec<String> {
            let warnings = log.warnings.into_iter();
            warnings.map(|warning| warning.text).collect()
        };
        let (inner, outer) = capture_log(Some(folder.path()), || {
            assert_ne!(file_id(libc::STDERR_FILENO), before);
            write_stderr(&line(1));
            let inner = capture_log(Some(folder.path()), || write_stderr(&line(2))).1;
            // A line may be written in pieces.
            write_stderr(&line(3)[..9]);
            thread::sleep(FORWARD_INTERVAL * 2);
            write_stderr(&line(3)[9..]);
            inner
        });
        assert_eq!(file_id(libc::STDERR_FILENO), before);
        // Warnings of simultaneous compilations cannot be told apart for certain: the latest gets them.
        let (inner, outer) = (texts(inner), texts(outer));
        assert!(inner.contains(&"text 2".to_owned()), "{inner:?}");
        assert!(outer.contains(&"text 3".to_owned()), "{outer:?}");
        let (result, none) = capture_log(Some(folder.path()), || 7);
        assert_eq!((result, none), (7, CompilerLog::empty()));

        let logs = std::fs::read_dir(folder.path()).expect("is there");
        let mut paths: Vec<_> = logs.map(|file| file.expect("an entry").path()).collect();
        paths.sort();
        let [written, passed] = [0, 1].map(|at| std::fs::read(&paths[at]).expect("can be read"));
        assert_eq!(passed, (written.len() as u64).to_le_bytes());
    }

    #[test]
    fn only_warnings_about_memory_are_parsed() {
        let line =
            "W1122 02:57:59.144376    8310 hlo_rematerialization.cc:3231] Can't reduce [1] so\n";
        let found = parse_warning(line).expect("is one");
        assert_eq!(found.source, "hlo_rematerialization.cc");
        assert_eq!(found.text, "Can't reduce [1] so");
        // As JAX 0.6.2 writes it.
        let older = "2026-11-22 17:41:40.333903: W external/xla/xla/hlo/transforms/simplifiers/\
                     hlo_rematerialization.cc:3023] Can't reduce [1] so\n";
        assert_eq!(parse_warning(older), parse_warning(line));
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
            assert_eq!(parse_warning(other), None, "{other}");
        }
    }
}
