//! The trace files of a run, and the summary of the process that decides whether it fits.

use std::cmp::Reverse;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::{AllocationFailure, RunSummary, summarize_events};
use crate::error::{Error, Result};
use crate::replay::{is_met_alone, replay_at_max_total};
use crate::trace::{EventSource, Note, ProcessExit, Reader, end_with_note};

/// Wraps the events of a trace while it is read, for example to show the progress.
pub type WrapEvents<'a> = &'a dyn Fn(Box<dyn EventSource + 'a>) -> Box<dyn EventSource + 'a>;

/// Returns the trace files of a run: a second process writes next to the first, with its process number
/// appended to the name.
pub fn trace_files(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // The parent of a bare name is the empty path, which cannot be opened.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new(".")));
    let is_trace = |file: &PathBuf| {
        let file = file.file_name().unwrap_or_default().to_string_lossy();
        let is_number = |suffix: &str| suffix.parse::<u32>().is_ok();
        file.strip_prefix(&name)
            .is_some_and(|rest| rest.is_empty() || rest.strip_prefix('.').is_some_and(is_number))
    };
    let mut found: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| path.with_file_name(entry.file_name()))
        .filter(is_trace)
        .collect();
    found.sort();
    found
}

/// Returns the summary of the process that decides, with all others in it: one that does not fit, else
/// one of which that is unknown, else the one with the least memory to spare; the highest peak breaks ties.
pub fn most_critical(mut summaries: Vec<RunSummary>) -> Option<RunSummary> {
    let processes: Vec<_> = summaries.iter().map(RunSummary::as_process).collect();
    let index = find_most_critical(&summaries)?;
    let mut summary = summaries.swap_remove(index);
    if processes.len() > 1 {
        summary.processes = processes;
    }
    Some(summary)
}

/// Returns the index of the summary that decides, by the rule of [`most_critical`]; of equals the first.
pub(super) fn find_most_critical<'s>(
    summaries: impl IntoIterator<Item = &'s RunSummary>,
) -> Option<usize> {
    // A program that was only compiled counts with what its plan needs.
    let peak = |summary: &RunSummary| {
        let peaks = summary.devices.iter().map(|device| device.peak_bytes);
        peaks.chain(summary.plan().map(|plan| plan.needed_bytes)).max()
    };
    let spare = |summary: &RunSummary| {
        let devices = summary.devices.iter();
        let spare = devices.map(|one| one.capacity_bytes.saturating_sub(one.peak_bytes));
        let plan = summary.plan();
        let plan = plan.map(|plan| plan.capacity_bytes.saturating_sub(plan.needed_bytes));
        spare.chain(plan).min().unwrap_or(u64::MAX)
    };
    let rank = |summary: &RunSummary| match summary.fits() {
        Some(false) => (2, Reverse(0), peak(summary)),
        None => (1, Reverse(0), peak(summary)),
        Some(true) => (0, Reverse(spare(summary)), peak(summary)),
    };
    let summaries = summaries.into_iter().enumerate();
    summaries.min_by_key(|(_, summary)| Reverse(rank(summary))).map(|(index, _)| index)
}

/// Reads the traces of a run and returns the summary of the process that decides.
///
/// # Errors
/// [`crate::ErrorKind::Io`] when one of them cannot be read, and [`crate::ErrorKind::InvalidFile`] when it is not a trace or
/// contradicts itself.
pub fn load_summary(trace: &Path) -> Result<RunSummary> {
    load_summary_until(trace, u64::MAX, &|events| events)
}

/// Does the same as if each process had ended after its event of that index.
///
/// # Errors
/// Those of [`load_summary`].
pub fn load_summary_until(trace: &Path, last: u64, wrap: WrapEvents<'_>) -> Result<RunSummary> {
    let mut files = trace_files(trace);
    let is_it = |path: &PathBuf| path.file_name() == trace.file_name();
    if !files.iter().any(is_it) {
        // So that the error names it.
        files = vec![trace.to_owned()];
    }
    let summaries = files.iter().map(|path| load_process(path, last, wrap));
    let mut summaries = summaries.collect::<Result<Vec<_>>>()?;
    if summaries.iter().any(RunSummary::used_gpu) {
        summaries.retain(RunSummary::used_gpu);
    }
    Ok(most_critical(summaries).expect("there is at least the named one"))
}

/// Reads the trace of one process as if it had ended after an event.
///
/// # Errors
/// Those of [`load_summary`].
pub fn load_process(path: &Path, last: u64, wrap: WrapEvents<'_>) -> Result<RunSummary> {
    summarize_process(path, last, wrap).map_err(|error| error.in_file(path))
}

fn summarize_process(path: &Path, last: u64, wrap: WrapEvents<'_>) -> Result<RunSummary> {
    let mut summary = summarize_events(&mut *open_trace(path, wrap)?, last)?;
    // Not only the request that failed has to succeed elsewhere, but all of its execution.
    let needed_bytes = summary.out_of_memory().map(AllocationFailure::needed_bytes);
    if summary.others_at_failure.is_some() {
        let needed_bytes = needed_bytes.unwrap_or(0);
        summary.fits_alone = Some(is_met_alone(&mut *open_trace(path, wrap)?, needed_bytes)?);
    } else if let Some(needed_bytes) = needed_bytes {
        summary.total_range = replay_at_max_total(&mut *open_trace(path, wrap)?, needed_bytes)?;
    }
    Ok(summary)
}

fn open_trace<'a>(path: &Path, wrap: WrapEvents<'a>) -> Result<Box<dyn EventSource + 'a>> {
    Ok(wrap(Box::new(Reader::open(path)?)))
}

/// Adds to a trace how the program ended, so that its reports say so too. The trace of a process that may
/// still run is left alone.
///
/// # Errors
/// [`crate::ErrorKind::Io`] when it cannot be written, [`crate::ErrorKind::InvalidFile`] when it is not a trace.
pub fn add_process_exit(path: &Path, exit: ProcessExit) -> Result<()> {
    let cannot_write = |error: std::io::Error| {
        let message = format!("cannot add to the trace `{}`", path.display());
        Error::io(message).cause(error)
    };
    let open = |write: bool| File::options().read(true).write(write).open(path);
    let mut reader = Reader::new(open(false).map_err(cannot_write)?)?;
    while reader.next_event()?.is_some() {}
    if reader.footer().is_none() && exit.signal.is_none() {
        return Ok(());
    }
    let end = reader.end();
    let bytes = end_with_note(end, &Note::Exit(exit), reader.footer()).map_err(cannot_write)?;
    let mut file = open(true).map_err(cannot_write)?;
    file.seek(SeekFrom::Start(end.offset)).map_err(cannot_write)?;
    file.write_all(&bytes).map_err(cannot_write)?;
    file.set_len(end.offset + bytes.len() as u64).map_err(cannot_write)
}
