//! The traces that a run has left, and the answer among them that decides.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use vramfit_core::trace::{self, Answer, Note, ProgramExit, Reader};
use vramfit_core::{Error, ErrorKind, Result};

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

/// Returns the answer that decides: one that does not fit, else one of which that cannot be told,
/// else the one with the highest peak.
pub(crate) fn worst(answers: &[Answer]) -> Option<&Answer> {
    // A program that was only compiled counts with what its plan needs.
    let peak = |answer: &Answer| {
        let peaks = answer.devices.iter().map(|device| device.peak_bytes);
        peaks
            .chain(answer.plan().map(|plan| plan.needed_bytes))
            .max()
    };
    answers.iter().max_by_key(|answer| {
        let undecided = match answer.fits() {
            Some(false) => 2,
            None => 1,
            Some(true) => 0,
        };
        (undecided, peak(answer))
    })
}

/// Reads a trace into its answer.
///
/// # Errors
/// `io` when it cannot be read, `invalid-file` when it is no trace.
pub(crate) fn read(path: &Path) -> Result<Answer> {
    read_until(path, u64::MAX)
}

/// Reads a trace as if it had been cut off after an event.
fn read_until(path: &Path, last: u64) -> Result<Answer> {
    let mut answer = trace::summarise_until(open(path)?, last)?;
    if answer.out_of_memory().is_some() {
        // What was refused may be met where the driver reports a higher total.
        answer.total_range = trace::replay_at_max_total(&mut open(path)?)?;
    }
    Ok(answer)
}

fn open(path: &Path) -> Result<Reader<File>> {
    let file = File::open(path).map_err(|error| {
        Error::new(
            ErrorKind::Io,
            format!("cannot read the trace `{}`", path.display()),
        )
        .cause(error)
    })?;
    Reader::new(file)
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
    while reader.next_event()?.is_some() {}
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
/// [`ErrorKind::Io`] and [`ErrorKind::InvalidFile`] when one of them cannot be read, and
/// [`ErrorKind::Internal`] when replay and run disagree.
pub fn answer_of(trace: &Path) -> Result<Answer> {
    answer_until(trace, u64::MAX)
}

/// Does the same as if each process had been cut off after its event of that index.
pub(crate) fn answer_until(trace: &Path, last: u64) -> Result<Answer> {
    let mut found = traces(&std::path::absolute(trace).unwrap_or_else(|_| trace.to_owned()));
    let is_it = |path: &PathBuf| path.file_name() == trace.file_name();
    if !found.iter().any(is_it) {
        // Named, so that what it is refused for is said of it.
        found = vec![trace.to_owned()];
    }
    let answers = found.iter().map(|path| read_until(path, last));
    let answers = answers.collect::<Result<Vec<_>>>()?;
    Ok(worst(&answers)
        .expect("there is the named one at least")
        .clone())
}
