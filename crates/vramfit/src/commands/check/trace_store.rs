//! Traces of accepted runs, in the cache of the user: what a later run is compared with line by line.

use std::fs;
use std::path::{Path, PathBuf};

use vramfit_analysis::analysis::{RunSummary, load_summary, trace_files};
use vramfit_analysis::check::LockLine;
use vramfit_runner::dryrun::{cache_home, remove_oldest};

/// Above this, the traces that were written first are removed.
const MAX_BYTES: u64 = 256 << 20;

/// Where traces are kept.
pub(super) struct TraceStore {
    folder: PathBuf,
}

impl TraceStore {
    /// Returns the user's, `$XDG_CACHE_HOME/vramfit/check/traces`; `None` where it is not writable.
    pub(super) fn open() -> Option<Self> {
        let root = cache_home()?.join("check");
        let folder = root.join("traces");
        fs::create_dir_all(&folder).ok()?;
        remove_oldest(&root, MAX_BYTES);
        Some(TraceStore { folder })
    }

    /// Keeps the trace of a run that came to an accepted line. A trace that cannot be kept is missed later,
    /// and nothing else.
    pub(super) fn keep(&self, line: &LockLine, trace: &Path) {
        let target = self.path(line);
        if target.exists() {
            return;
        }
        let name = trace.as_os_str().len();
        for file in trace_files(trace) {
            let suffix = &file.to_string_lossy()[name..];
            let mut target = target.clone().into_os_string();
            target.push(suffix);
            let _ = fs::copy(&file, target);
        }
    }

    /// Returns the run that came to a line, if its trace is kept and can be read.
    pub(super) fn find(&self, line: &LockLine) -> Option<RunSummary> {
        let path = self.path(line);
        path.exists().then(|| load_summary(&path).ok()).flatten()
    }

    fn path(&self, line: &LockLine) -> PathBuf {
        let key = &line.key;
        let name = format!("{}-{}-{}.trace", key.entry, key.gpu, line.checksum());
        self.folder.join(name)
    }
}
