//! What a row that grew is compared with: the run that was accepted, and the program of the merge base
//! with the toolchain and the libraries of today.
//!
//! The accepted bytes are A, the merge base's program with today's versions needs C, and the program of
//! today B. Then `C - A` is what other versions take, and `B - C` what the code does. Where no version has changed,
//! all of `B - A` is the code's, whatever C is.

use std::path::Path;

use vramfit_analysis::Error;
use vramfit_analysis::check::{Entry, Growth, Lock, LockLine};

use super::config_file::ConfigFile;
use super::git::{Base, Repository, short};
use super::measure::Measuring;
use super::row::{Measured, RowMeasurement, describe_failure};
use super::trace_store::TraceStore;
use crate::output::Output;

/// Where earlier runs come from.
pub(super) struct Baseline<'a> {
    pub(super) measuring: &'a Measuring<'a>,
    pub(super) config: &'a ConfigFile,
    pub(super) repository: Option<&'a Repository>,
    pub(super) base: Option<&'a Base>,
    pub(super) store: Option<&'a TraceStore>,
}

impl Baseline<'_> {
    /// Returns the lock file of the merge base.
    pub(super) fn lock(&self, path: &Path) -> Option<Lock> {
        let text = self.repository?.show(&self.base?.commit, path)?;
        Lock::parse(&text).ok()
    }

    /// Finds what a row needs more than accepted, and why.
    pub(super) fn find_growth(
        &self,
        row: &RowMeasurement<'_>,
        accepted: &LockLine,
        output: &mut Output,
    ) -> Option<Growth> {
        let measured = row.measured()?;
        let now = &measured.run.summary;
        let total = measured.line.peak_change(accepted);
        let changed = ChangedVersions::find(accepted, &measured.line);
        let kept = self.store.and_then(|store| store.find(accepted));
        if let Some(before) = kept.as_ref().filter(|_| changed == ChangedVersions::None) {
            let growth = Growth::find(before, now, "the accepted run".to_owned());
            return Some(changed.divide(total, total, growth));
        }
        output.verbose(&format!("dry run of an earlier commit for {}", row.entry.name));
        let base = match self.measure_base(row, output) {
            Ok(base) => base,
            Err(error) => {
                let growth = Growth { unknown: changed.unknown_text(&error), ..Growth::default() };
                return Some(match changed {
                    ChangedVersions::None => changed.divide(total, total, growth),
                    _ => growth,
                });
            }
        };
        let code = measured.line.peak_change(&base.measured.line);
        let compared_with = format!("commit {}", short(&base.commit));
        let by_code = Growth::find(&base.measured.run.summary, now, compared_with);
        // Where the code needs no more, the lines are those for which the compiler does.
        let growth = match kept.filter(|_| code == 0 && by_code.lines.is_empty()) {
            Some(before) => Growth::find(&before, now, "the accepted run".to_owned()),
            None => by_code,
        };
        let growth = match changed {
            ChangedVersions::None if base.measured.line.figures != accepted.figures => Growth {
                unknown: format!(
                    "commit {} does not need the accepted bytes either: the lock file is older than it",
                    short(&base.commit)
                ),
                ..growth
            },
            _ => growth,
        };
        Some(changed.divide(total, code, growth))
    }

    /// Measures the entry of an earlier commit: of the merge base, or where that is the current commit, of
    /// the one that changed the lock file last.
    fn measure_base(
        &self,
        row: &RowMeasurement<'_>,
        output: &Output,
    ) -> vramfit_analysis::Result<BaseMeasurement> {
        let repository =
            self.repository.ok_or_else(|| Error::invalid_argument("this is no git repository"))?;
        let lock = self.config.directory.join(vramfit_analysis::check::LOCK_FILE);
        let last = || repository.last_change(&lock);
        let base = self.base.cloned().or_else(last).ok_or_else(no_commit_error)?;
        let checkout = repository.checkout(&base.commit)?;
        let located = |path: &Path| checkout.locate(path).ok_or_else(no_commit_error);
        let directory = located(&self.config.directory)?;
        let then = ConfigFile::find(Some(&located(&self.config.path)?)).ok();
        // An entry that has changed since is what has changed.
        let entries = then.iter().flat_map(|file| &file.config.entries);
        let same = entries.clone().find(|entry| entry.name == row.entry.name);
        let entry: &Entry = same.unwrap_or(row.entry);
        let trace = self.measuring.trace_path();
        let measured = self.measuring.measure(entry, row.gpus, &directory, &trace, output)?;
        Ok(BaseMeasurement { commit: base.commit, measured })
    }
}

struct BaseMeasurement {
    commit: String,
    measured: Measured,
}

fn no_commit_error() -> Error {
    Error::invalid_argument("there is no earlier commit to compare with")
}

/// Which versions the accepted figures and those of today do not have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangedVersions {
    None,
    Toolchain,
    Libraries,
    Both,
}

impl ChangedVersions {
    fn find(accepted: &LockLine, measured: &LockLine) -> ChangedVersions {
        let libraries = measured.libraries_changed(accepted);
        match (accepted.is_of_toolchain(measured), libraries.is_empty()) {
            (true, true) => ChangedVersions::None,
            (false, true) => ChangedVersions::Toolchain,
            (true, false) => ChangedVersions::Libraries,
            (false, false) => ChangedVersions::Both,
        }
    }

    /// Says of what is needed more in all, and of what the code of the merge base does not need, whose it is.
    fn divide(self, total: i128, code: i128, growth: Growth) -> Growth {
        // Where no version has changed, all of it is the code's.
        let code = if self == ChangedVersions::None { total } else { code };
        let versions = total - code;
        let (toolchain, libraries) = match self {
            ChangedVersions::None => (Some(0), Some(0)),
            ChangedVersions::Toolchain => (Some(versions), Some(0)),
            ChangedVersions::Libraries => (Some(0), Some(versions)),
            // The old libraries are not at hand to be measured with the new toolchain.
            ChangedVersions::Both => (None, None),
        };
        Growth {
            code_bytes: Some(code),
            toolchain_bytes: toolchain,
            library_bytes: libraries,
            version_bytes: Some(versions),
            ..growth
        }
    }

    fn unknown_text(self, error: &Error) -> String {
        let what = match self {
            ChangedVersions::None => "which lines need more is not known",
            ChangedVersions::Toolchain => "code and toolchain cannot be told apart",
            ChangedVersions::Libraries => "code and libraries cannot be told apart",
            ChangedVersions::Both => "code, toolchain and libraries cannot be told apart",
        };
        format!("{what}: {}", describe_failure(error))
    }
}
