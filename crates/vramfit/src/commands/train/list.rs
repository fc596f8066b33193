//! `vramfit train --list DIR`: the runs below a directory, side by side.

use std::path::{Path, PathBuf};

use vramfit_analysis::report::{Extent, Report};
use vramfit_analysis::{Error, Result};
use vramfit_base::files::{cannot_read, missing_directory};

use crate::commands::results::{JsonTarget, write_page};
use crate::files::writable;
use crate::metrics_logs;
use crate::output::Output;
use crate::status::Status;

/// Levels of directories that are searched.
const MAX_DEPTH: usize = 4;

/// Lists the runs.
///
/// # Errors
/// `invalid-argument` when there are none; `io` when the directory does not exist or cannot be read, or the page not be written.
pub(super) fn run(
    directory: &Path,
    html: Option<&Path>,
    force: bool,
    json: &JsonTarget,
    output: &mut Output,
) -> Result<Status> {
    let html = html.map(|path| writable(path, force)).transpose()?;
    let hint = "name a directory that has those of `vramfit train` or `fit`, such as `runs`";
    if !directory.exists() {
        return Err(missing_directory(directory, hint));
    }
    let mut found = Vec::new();
    find_runs(directory, MAX_DEPTH, &mut found).map_err(|error| cannot_read(directory, error))?;
    found.sort();
    let (mut runs, mut unreadable) = (Vec::new(), Vec::new());
    for path in &found {
        let name = path.strip_prefix(directory).unwrap_or(path);
        let name = if name.as_os_str().is_empty() { path } else { name };
        match metrics_logs::find(path).map(|log| metrics_logs::read(&log)) {
            Some(Ok(log)) => runs.push((name.display().to_string(), log)),
            _ => unreadable.push(format!("`{}`", name.display())),
        }
    }
    if !unreadable.is_empty() {
        output.info(&format!("warning: no run can be read in {}", unreadable.join(", ")));
    }
    if runs.is_empty() {
        let message = format!("there are no training runs in `{}`", directory.display());
        return Err(Error::invalid_argument(message).hint(hint));
    }
    let report = Report::from_training_runs(&runs);
    json.write(&report.json, output)?;
    if !json.is_stdout() {
        output.report(&report, Extent::Full)?;
    }
    write_page(&report, html.as_deref(), force, output)?;
    Ok(Status::Yes)
}

/// Adds the directories below one that have the log of a run, and itself.
fn find_runs(
    directory: &Path,
    depth: usize,
    found: &mut Vec<PathBuf>,
) -> std::result::Result<(), std::io::Error> {
    if metrics_logs::find(directory).is_some_and(|log| log.is_file()) {
        found.push(directory.to_owned());
    }
    if depth == 0 {
        return Ok(());
    }
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        // No links, which may lead in a circle.
        if entry.file_type()?.is_dir() {
            // One that cannot be read is skipped, unless it is what the user has named.
            let _ = find_runs(&entry.path(), depth - 1, found);
        }
    }
    Ok(())
}
