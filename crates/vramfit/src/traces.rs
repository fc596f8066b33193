//! The traces that a run has left, and the answer among them that decides.

use std::cmp::Reverse;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vramfit_core::analysis::{RunSummary, summarize_events};
use vramfit_core::program::ProgramMemory;
use vramfit_core::replay::{is_met_alone, replay_at_max_total};
use vramfit_core::trace;
use vramfit_core::trace::{
    CompilerWarning, Event, EventSource, Footer, Header, NotComputed, Note, ProgramExit, Reader,
    Repetition, RunEnvironment, TextId,
};
use vramfit_core::{Error, ErrorKind, Result};

use crate::output::{Output, Progress};

/// Returns the traces that a run has left: a second process of it writes beside the first, with
/// its process number behind the name.
pub(crate) fn traces(path: &Path) -> Vec<PathBuf> {
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

/// Returns the answer of the process that decides, which knows of all others: one that does not fit, else
/// one of which that cannot be told, else the one with least to spare. Of equals it is the one with the
/// highest peak.
pub(crate) fn decide(mut answers: Vec<RunSummary>) -> Option<RunSummary> {
    // A program that was only compiled counts with what its plan needs.
    let peak = |answer: &RunSummary| {
        let peaks = answer.devices.iter().map(|device| device.peak_bytes);
        peaks
            .chain(answer.plan().map(|plan| plan.needed_bytes))
            .max()
    };
    let spare = |answer: &RunSummary| {
        let devices = answer.devices.iter();
        let spare = devices.map(|one| one.capacity_bytes.saturating_sub(one.peak_bytes));
        let plan = answer.plan();
        let plan = plan.map(|plan| plan.capacity_bytes.saturating_sub(plan.needed_bytes));
        spare.chain(plan).min().unwrap_or(u64::MAX)
    };
    let rank = |answer: &RunSummary| match answer.fits() {
        Some(false) => (2, Reverse(0), peak(answer)),
        None => (1, Reverse(0), peak(answer)),
        Some(true) => (0, Reverse(spare(answer)), peak(answer)),
    };
    let processes: Vec<_> = answers.iter().map(RunSummary::as_process).collect();
    let worst = (0..answers.len()).max_by_key(|&place| rank(&answers[place]))?;
    let mut answer = answers.swap_remove(worst);
    if processes.len() > 1 {
        answer.processes = processes;
    }
    Some(answer)
}

/// Reads the trace of a run that vramfit has just made into its answer.
///
/// # Errors
/// `io` when it cannot be read, `internal` when it is not as vramfit writes it.
pub(crate) fn read_own(path: &Path, output: &Output) -> Result<RunSummary> {
    read_until(path, u64::MAX, Some(output)).map_err(|error| match error.kind() {
        // Nobody else has written it.
        ErrorKind::InvalidFile => {
            let internal = Error::new(ErrorKind::Internal, error.message());
            internal.hint("keep the trace (`--trace`) and report this; no figure can be trusted")
        }
        _ => error,
    })
}

/// Reads a trace as if it had been cut off after an event.
fn read_until(path: &Path, last: u64, output: Option<&Output>) -> Result<RunSummary> {
    let mut answer = summarize_events(&mut *open(path, output)?, last)?;
    if answer.others_at_refusal.is_some() {
        answer.fits_alone = Some(is_met_alone(&mut *open(path, output)?)?);
    } else if answer.out_of_memory().is_some() {
        // What was refused may be met where the driver reports a higher total.
        answer.total_range = replay_at_max_total(&mut *open(path, output)?)?;
    }
    Ok(answer)
}

/// Opens a trace; reading it shows how far it is, where there is an output to show it on.
fn open<'a>(path: &Path, output: Option<&'a Output>) -> Result<Box<dyn EventSource + 'a>> {
    let file = File::open(path).map_err(|error| {
        Error::new(
            ErrorKind::Io,
            format!("cannot read the trace `{}`", path.display()),
        )
        .cause(error)
    })?;
    let reader = Box::new(Reader::new(file)?);
    Ok(match output {
        Some(output) => Box::new(Observed::new(reader, output)),
        None => reader,
    })
}

/// Reading that takes longer than this is shown.
const PROGRESS_AFTER: Duration = Duration::from_secs(2);
/// EventSource between two looks at the clock.
const EVENTS_BETWEEN_LOOKS: u64 = 1 << 16;

/// EventSource that show how many of them were read, once that takes long.
pub(crate) struct Observed<'a> {
    inner: Box<dyn EventSource + 'a>,
    output: &'a Output,
    begin: Instant,
    progress: Option<Progress>,
    events: u64,
}

impl<'a> Observed<'a> {
    pub(crate) fn new(inner: Box<dyn EventSource + 'a>, output: &'a Output) -> Self {
        Observed {
            inner,
            output,
            begin: Instant::now(),
            progress: None,
            events: 0,
        }
    }

    fn look(&mut self) {
        if self.begin.elapsed() < PROGRESS_AFTER {
            return;
        }
        let progress = self
            .progress
            .get_or_insert_with(|| self.output.count("events of the trace"));
        progress.count(self.events);
    }
}

impl Drop for Observed<'_> {
    fn drop(&mut self) {
        if let Some(progress) = &self.progress {
            progress.remove();
        }
    }
}

impl EventSource for Observed<'_> {
    fn header(&self) -> &Header {
        self.inner.header()
    }

    fn next_event(&mut self) -> Result<Option<Event>> {
        self.events += 1;
        if self.events.is_multiple_of(EVENTS_BETWEEN_LOOKS) {
            self.look();
        }
        self.inner.next_event()
    }

    fn repetition(&self) -> Option<Repetition> {
        self.inner.repetition()
    }

    fn skip_passes(&mut self, passes: u64) -> Result<()> {
        let period = self.inner.repetition().map_or(0, |ahead| ahead.period);
        self.events += passes * period;
        self.inner.skip_passes(passes)
    }

    fn text(&self, id: TextId) -> &str {
        self.inner.text(id)
    }

    fn footer(&self) -> Option<&Footer> {
        self.inner.footer()
    }

    fn program_memory(&self, program: u32) -> Option<ProgramMemory> {
        self.inner.program_memory(program)
    }

    fn compiler_warnings(&self) -> &[CompilerWarning] {
        self.inner.compiler_warnings()
    }

    fn notes(&self) -> &[Note] {
        self.inner.notes()
    }

    fn settings(&self) -> Option<&RunEnvironment> {
        self.inner.settings()
    }

    fn not_computed(&self) -> &[NotComputed] {
        self.inner.not_computed()
    }

    fn has_recorded_results(&self) -> bool {
        self.inner.has_recorded_results()
    }
}

/// Adds to a trace how the program of its run ended, so that its reports say it, too. The trace of a
/// process that may still run is left alone.
///
/// # Errors
/// `io` when it cannot be written, `invalid-file` when it is no trace.
pub(crate) fn add_exit(path: &Path, exit: ProgramExit) -> Result<()> {
    let cannot = |error: std::io::Error| {
        let message = format!("cannot add to the trace `{}`", path.display());
        Error::new(ErrorKind::Io, message).cause(error)
    };
    let open = |write: bool| File::options().read(true).write(write).open(path);
    let mut reader = Reader::new(open(false).map_err(cannot)?)?;
    while reader.next_event()?.is_some() {
        if let Some(ahead) = reader.repetition() {
            reader.skip_passes(ahead.left / ahead.period)?;
        }
    }
    if reader.footer().is_none() && exit.signal.is_none() {
        return Ok(());
    }
    let end = reader.end();
    let bytes = trace::end_with_note(end, &Note::Exit(exit), reader.footer()).map_err(cannot)?;
    let mut file = open(true).map_err(cannot)?;
    file.seek(SeekFrom::Start(end.offset)).map_err(cannot)?;
    file.write_all(&bytes).map_err(cannot)?;
    let length = end.offset + bytes.len() as u64;
    file.set_len(length).map_err(cannot)
}

/// Reads the traces that a run has left and returns the answer that decides.
///
/// # Errors
/// [`ErrorKind::Io`] when one of them cannot be read, and [`ErrorKind::InvalidFile`] when it is no trace or
/// contradicts itself.
pub fn answer_of(trace: &Path) -> Result<RunSummary> {
    answer_until(trace, u64::MAX, None)
}

/// Does the same as if each process had been cut off after its event of that index.
pub(crate) fn answer_until(trace: &Path, last: u64, output: Option<&Output>) -> Result<RunSummary> {
    let mut found = traces(&std::path::absolute(trace).unwrap_or_else(|_| trace.to_owned()));
    let is_it = |path: &PathBuf| path.file_name() == trace.file_name();
    if !found.iter().any(is_it) {
        // Named, so that what it is refused for is said of it.
        found = vec![trace.to_owned()];
    }
    let answers = found.iter().map(|path| read_until(path, last, output));
    let mut answers = answers.collect::<Result<Vec<_>>>()?;
    if answers.iter().any(RunSummary::used_gpu) {
        answers.retain(RunSummary::used_gpu);
    }
    Ok(decide(answers).expect("there is the named one at least"))
}
