//! What a check found, and the sentences that every output format uses.

use serde::Serialize;

use super::growth::Growth;
use super::lock::{LOCK_FILE, LockLine};
use super::outcome::{Limits, Outcome, combine_answers};
use crate::analysis::{Bearing, Condition};
use crate::bytes::Bytes;
use crate::report::qualify_headline;

/// Lines of the program that are named of what has grown, where not all are.
const MAX_LINES: usize = 5;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckReport {
    /// One entry for each entry and GPU, in the order of the configuration.
    pub rows: Vec<Row>,
    /// What the branch is compared with beside the lock file, such as `origin/main`; empty without.
    pub base: String,
    /// The folder that files are named relative to, with a slash at its end; empty if not known.
    pub root: String,
    /// The file with the entries, relative to that folder.
    pub config_file: String,
    /// What else is to be known.
    pub notes: Vec<String>,
}

/// An entry on a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Name of the entry.
    pub entry: String,
    /// The GPUs, as `NAME` or `NAMExN`.
    pub gpu: String,
    /// What is to be said of it.
    pub outcome: Outcome,
    /// What was measured; its figures are meaningless where that failed.
    pub measured: Option<LockLine>,
    /// What the pool can have.
    pub limit_bytes: u64,
    /// What it may need.
    pub limits: Limits,
    /// The line of the lock file that it is compared with.
    pub accepted: Option<LockLine>,
    /// That line in the lock file of the merge base.
    pub base: Option<LockLine>,
    /// Where it needs more.
    pub growth: Option<Growth>,
    /// Peaks that were accepted before, the oldest first, up to the current one.
    pub history: Vec<u64>,
    /// What the measured figures depend on.
    pub conditions: Vec<Condition>,
}

/// Something that a person should look at.
pub(super) struct Problem<'a> {
    pub(super) row: &'a Row,
    pub(super) level: Level,
    /// One sentence without its full stop.
    pub(super) summary: String,
    /// Lines below it.
    pub(super) details: Vec<String>,
    /// File and line.
    pub(super) location: (String, u32),
}

/// How serious a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// The check fails.
    Error,
    /// The answer is not known.
    Warning,
    /// The check passes.
    Note,
}

impl CheckReport {
    /// Returns whether the check passes; `None` where nothing fails and something is not known.
    pub fn passes(&self) -> Option<bool> {
        combine_answers(self.rows.iter().map(|row| row.outcome.passes()))
    }

    /// Returns the result in a clause, with the first entry that it is about.
    pub(super) fn headline(&self) -> String {
        let answer = self.passes();
        let result = match answer {
            Some(true) => return "no growth beyond what was accepted".to_owned(),
            Some(false) => "the check fails",
            None => "the answer is not known",
        };
        let mut rows = self.rows.iter().filter(|row| row.outcome.passes() == answer);
        let first = rows.next().map_or_else(String::new, |row| format!(": {}", row.name()));
        match rows.count() {
            0 => format!("{result}{first}"),
            more => format!("{result}{first} and {more} more"),
        }
    }

    /// Returns what a person should look at: what fails, what is not known, and growth that the branch
    /// has accepted.
    pub(super) fn problems(&self) -> Vec<Problem<'_>> {
        let rows = self.rows.iter().filter_map(|row| {
            let level = match row.outcome.passes() {
                Some(false) => Level::Error,
                None => Level::Warning,
                Some(true) if row.accepted_change().is_some_and(|change| change > 0) => Level::Note,
                Some(true) => return None,
            };
            Some(Problem {
                row,
                level,
                summary: row.summary(),
                details: row.details(&self.base, MAX_LINES),
                location: self.location(row),
            })
        });
        rows.collect()
    }

    /// Returns what checks that pass depend on, of those that are no problem.
    pub(super) fn qualified_summaries(&self) -> Vec<String> {
        let problems = self.problems();
        let is_problem = |row: &Row| problems.iter().any(|problem| std::ptr::eq(problem.row, row));
        let others = self.rows.iter().filter(|row| !is_problem(row));
        others.filter_map(Row::qualified_summary).collect()
    }

    /// Returns the line that needs more, relative to the root; else the first of the configuration.
    fn location(&self, row: &Row) -> (String, u32) {
        let lines = row.growth.iter().flat_map(|growth| &growth.lines);
        let places = lines.filter(|line| line.bytes > 0).filter_map(|line| line.location());
        let mut inside =
            places.filter_map(|(file, line)| Some((self.relative_to_root(file)?, line)));
        inside.next().unwrap_or_else(|| (self.config_file.clone(), 1))
    }

    /// Returns the path of a file of the program, which runs in the folder of the configuration; `None` for
    /// one outside of the root.
    fn relative_to_root(&self, file: &str) -> Option<String> {
        if file.starts_with('/') {
            let inside = file.strip_prefix(&*self.root)?;
            return (!self.root.is_empty()).then(|| inside.to_owned());
        }
        let folder = self.config_file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let file = file.strip_prefix("./").unwrap_or(file);
        Some(match folder {
            "" => file.to_owned(),
            folder => format!("{folder}/{file}"),
        })
    }

    /// Returns the command that accepts what was found, if there is something to accept.
    pub(super) fn update_command(&self) -> Option<String> {
        let mut entries: Vec<&str> = Vec::new();
        for row in &self.rows {
            let is_open = matches!(row.outcome, Outcome::Larger | Outcome::NotAccepted);
            if is_open && !entries.contains(&&*row.entry) {
                entries.push(&row.entry);
            }
        }
        (!entries.is_empty()).then(|| format!("vramfit check --update {}", entries.join(" ")))
    }
}

impl Row {
    /// Returns its name.
    pub fn name(&self) -> String {
        format!("{} on {}", self.entry, self.gpu)
    }

    /// Returns the result in a word.
    pub(super) fn result(&self) -> &'static str {
        match self.outcome.passes() {
            Some(true) => "ok",
            Some(false) => "fails",
            None => "unknown",
        }
    }

    /// Returns the measured peak; `None` where the run failed.
    pub(super) fn peak_bytes(&self) -> Option<u64> {
        let has_failed = matches!(self.outcome, Outcome::Failed { .. });
        self.measured.as_ref().filter(|_| !has_failed).map(|line| line.figures.peak_bytes)
    }

    /// Returns by how many bytes the accepted peak differs from that of the merge base; `None` where it
    /// does not.
    pub fn accepted_change(&self) -> Option<i128> {
        let (accepted, base) = (self.accepted.as_ref()?, self.base.as_ref()?);
        let change = accepted.peak_change(base);
        (change != 0).then_some(change)
    }

    /// Says what was found, in a sentence without its full stop.
    pub(super) fn summary(&self) -> String {
        let name = self.name();
        let peak = self.measured.as_ref().map_or(0, |line| line.figures.peak_bytes);
        let shown = Bytes(peak);
        let rest = match &self.outcome {
            Outcome::Unchanged => match self.accepted_change() {
                Some(change) => {
                    format!("peak {shown}, {} in this branch, accepted", signed(change))
                }
                None => format!("peak {shown}, unchanged{}", self.versions()),
            },
            Outcome::WithinLimits => format!("peak {shown}, within its limits"),
            Outcome::Smaller => {
                format!("peak {shown}, smaller than accepted{}", self.versions())
            }
            Outcome::WithinTolerance => format!(
                "peak {shown}, larger than accepted by no more than the tolerance of {}",
                self.limits.tolerance
            ),
            Outcome::NotAccepted => format!(
                "peak {shown}; `{LOCK_FILE}` has no line for it, so there is nothing to compare with"
            ),
            Outcome::Larger => match &self.larger_figures()[..] {
                // The toolchain needs less, which hides what the code needs more.
                [] => format!("peak {shown}, but the code needs more than accepted"),
                figures => figures.join("; "),
            },
            Outcome::OverLimit { reason } => reason.clone(),
            Outcome::DoesNotFit => format!(
                "does not fit: its peak is {shown}, the pool has {}",
                Bytes(self.limit_bytes)
            ),
            Outcome::NotReproducible { reason } => format!("not reproducible: {reason}"),
            Outcome::Failed { reason } => format!("could not be measured: {reason}"),
        };
        qualify_headline(&name, &rest, self.conditions(), "each dry run")
    }

    /// Returns the conditions of a check that does not fail: that one fails is true whatever else there is.
    pub(super) fn conditions(&self) -> &[Condition] {
        match self.outcome.passes() {
            Some(false) => &[],
            _ => &self.conditions,
        }
    }

    /// Returns the summary of a check that passes, where that depends on something.
    pub(super) fn qualified_summary(&self) -> Option<String> {
        let is_told = |condition: &Condition| condition.bearing() < Bearing::Explained;
        let is_qualified = self.conditions.iter().any(is_told);
        (self.outcome.passes() == Some(true) && is_qualified).then(|| self.summary())
    }

    /// Returns `true` if the accepted figures are of other versions of JAX, its compiler or a library.
    pub fn is_of_other_versions(&self) -> bool {
        let lines = self.accepted.as_ref().zip(self.measured.as_ref());
        lines.is_some_and(|(accepted, measured)| versions_changed(accepted, measured).is_some())
    }

    /// Names the versions that differ from those of the accepted figures, to be appended; empty where none
    /// do.
    fn versions(&self) -> String {
        let lines = self.accepted.as_ref().zip(self.measured.as_ref());
        let changed = lines.and_then(|(accepted, measured)| versions_changed(accepted, measured));
        changed.map_or_else(String::new, |changed| format!(" ({changed})"))
    }

    /// Fails the row where its program needs more than before, and only the toolchain or a library hides that.
    pub fn fail_for_code(&mut self) {
        let code = self.growth.as_ref().and_then(|growth| growth.code_bytes);
        let (Some(code), Some(accepted)) = (code, &self.accepted) else {
            return;
        };
        let allowed = self.limits.tolerance.of(accepted.figures.peak_bytes);
        if self.outcome.passes() == Some(true) && code > i128::from(allowed) {
            self.outcome = Outcome::Larger;
        }
    }

    /// Describes each figure that is larger than accepted.
    fn larger_figures(&self) -> Vec<String> {
        let (Some(measured), Some(accepted)) = (&self.measured, &self.accepted) else {
            return Vec::new();
        };
        let pairs = measured.figures.named().into_iter().zip(accepted.figures.named());
        pairs
            .filter(|((_, now), (_, before))| now > before)
            .map(|((name, now), (_, before))| {
                format!(
                    "{name} {}, {} more than accepted ({})",
                    Bytes(now),
                    Bytes(now - before),
                    Bytes(before)
                )
            })
            .collect()
    }

    /// Returns the lines below the summary: what needs more, in at most `most_lines` of the program, why, and how it
    /// came to be.
    pub(super) fn details(&self, base: &str, most_lines: usize) -> Vec<String> {
        let mut details = Vec::new();
        if let Some(growth) = &self.growth {
            details.extend(growth_lines(growth, most_lines));
        }
        if let Some(line) = self.cause_line() {
            details.push(line);
        }
        if let Some(change) = self.accepted_change() {
            let before = self.base.as_ref().map_or(0, |line| line.figures.peak_bytes);
            details.push(format!(
                "accepted in this branch: {}; {base} needs {}",
                signed(change),
                Bytes(before)
            ));
        }
        if self.history.len() > 1 {
            let peaks: Vec<String> =
                self.history.iter().map(|peak| Bytes(*peak).to_string()).collect();
            let (first, last) = (self.history[0], self.history[self.history.len() - 1]);
            let percent = (last as f64 / first.max(1) as f64 - 1.0) * 100.0;
            details.push(format!(
                "peaks accepted so far: {} ({percent:+.1} % total)",
                peaks.join(", ")
            ));
        }
        details
    }

    /// Returns `true` if the program, the toolchain or a library changed.
    fn cause_line(&self) -> Option<String> {
        let (measured, accepted) = (self.measured.as_ref()?, self.accepted.as_ref()?);
        let versions = versions_changed(accepted, measured);
        let growth = self.growth.as_ref();
        let shares = growth.and_then(|growth| {
            let code = signed(growth.code_bytes?);
            let others = match (growth.toolchain_bytes, growth.library_bytes) {
                (Some(toolchain), None | Some(0)) => format!("toolchain {}", signed(toolchain)),
                (Some(0), Some(libraries)) => format!("libraries {}", signed(libraries)),
                (Some(toolchain), Some(libraries)) => {
                    format!("toolchain {}, libraries {}", signed(toolchain), signed(libraries))
                }
                (None, _) => {
                    format!("toolchain and libraries together {}", signed(growth.version_bytes?))
                }
            };
            Some(format!("code {code}, {others}"))
        });
        let unknown = growth.map_or("", |growth| &growth.unknown);
        match (shares, versions) {
            (Some(shares), Some(versions)) => Some(format!("{shares} ({versions})")),
            (Some(shares), None) if unknown.is_empty() => Some(shares),
            (Some(shares), None) => Some(format!("{shares}; {unknown}")),
            (None, Some(versions)) if unknown.is_empty() => Some(versions),
            (None, Some(versions)) => Some(format!("{versions}; {unknown}")),
            (None, None) => (!unknown.is_empty()).then(|| unknown.to_owned()),
        }
    }
}

fn growth_lines(growth: &Growth, most: usize) -> Vec<String> {
    let named = &growth.lines[..growth.lines.len().min(most)];
    let changes: Vec<String> = named.iter().map(|line| signed(line.bytes)).collect();
    let width = changes.iter().map(String::len).max().unwrap_or(0);
    let lines = named.iter().zip(&changes);
    let mut lines: Vec<String> = lines
        .map(|(line, change)| {
            let shape = match &*line.shape {
                "" => String::new(),
                shape => format!(", {shape}"),
            };
            format!("{change:>width$}  {}: {}{shape}", line.owner, line.name())
        })
        .collect();
    let more = growth.lines.len() - named.len();
    if more > 0 {
        lines.push(format!("{more} more with `vramfit check --full`"));
    }
    if !growth.compared_with.is_empty() && !named.is_empty() {
        let program = match &*growth.program {
            "" => String::new(),
            program => format!("peak in `{program}`, "),
        };
        lines.push(format!("{program}compared with {}", growth.compared_with));
    }
    lines
}

/// Names the versions that differ; `None` where they are the same.
fn versions_changed(accepted: &LockLine, measured: &LockLine) -> Option<String> {
    let pairs = [
        ("JAX", &accepted.key.jax, &measured.key.jax),
        ("compiler", &accepted.plugin, &measured.plugin),
    ];
    let changed = pairs.iter().filter(|(_, before, now)| before != now);
    let mut texts: Vec<String> =
        changed.map(|(name, before, now)| format!("{name} {before} -> {now}")).collect();
    texts.extend(measured.libraries_changed(accepted));
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Shows a change with its sign.
pub(super) fn signed(bytes: i128) -> String {
    let size = Bytes(u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX));
    match bytes {
        0 => "0 B".to_owned(),
        1.. => format!("+{size}"),
        _ => format!("-{size}"),
    }
}

/// Rows of every kind, for the tests of the formats.
#[cfg(test)]
#[path = "report_samples.rs"]
pub(super) mod samples;
