//! The metrics log in the directory of a training run.

use std::path::{Path, PathBuf};

use vramfit_analysis::{Error, Result};
use vramfit_base::files::cannot_read_with_hint;
use vramfit_train::MetricsLog;

const FILE_NAME: &str = "metrics.jsonl";

/// Returns the metrics log at a path: the file itself, or that in a directory; none for other files.
pub(crate) fn find(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path.join(FILE_NAME));
    }
    (path.file_name()? == FILE_NAME).then(|| path.to_owned())
}

/// Reads a metrics log.
///
/// # Errors
/// `io` when it cannot be read, `invalid-file` when it has no line of a run.
pub(crate) fn read(path: &Path) -> Result<MetricsLog> {
    let shown = path.display();
    let bytes = std::fs::read(path).map_err(|error| {
        cannot_read_with_hint(path, error, "pass the directory of a run of `vramfit train`")
    })?;
    // Something else may have written to it; unknown lines are skipped.
    let log = MetricsLog::read(&String::from_utf8_lossy(&bytes));
    if log.sessions == 0 {
        return Err(Error::invalid_file(format!("`{shown}` has no training run"))
            .hint("`vramfit train` and `vramfit.train.fit` write such files"));
    }
    Ok(log)
}
