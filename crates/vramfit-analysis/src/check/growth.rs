//! Where more memory is needed, and whether the program, a library or the toolchain needs it.

use serde::Serialize;

use crate::analysis::RunSummary;
use crate::diff::{EntryDelta, RunDiff, diff_runs};

/// What makes an entry need more than was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Growth {
    /// What the program needs more at its peak because of changes of the program; `None` where that is not
    /// known.
    pub code_bytes: Option<i128>,
    /// What it needs more at its peak because JAX or its compiler changed.
    pub toolchain_bytes: Option<i128>,
    /// What it needs more at its peak because libraries changed through which it uses JAX.
    pub library_bytes: Option<i128>,
    /// Toolchain and libraries together.
    pub version_bytes: Option<i128>,
    /// What is not known of this, and why; empty where all is.
    pub unknown: String,
    /// What the lines are compared with, such as `commit 1a2b3c4`.
    pub compared_with: String,
    /// The program with the peak; empty where the peak is between programs.
    pub program: String,
    /// Lines that need more or less, the largest change first.
    pub lines: Vec<ChangedLine>,
}

/// A line of the program that needs more or less than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedLine {
    /// Whose the bytes are.
    pub owner: &'static str,
    /// The line, as `file:line (function)`; empty if not known.
    pub site: String,
    /// Pytree path of an argument or a result; empty for what has none.
    pub path: String,
    /// Shape of the largest of its values.
    pub shape: String,
    /// How many bytes more.
    pub bytes: i128,
}

impl ChangedLine {
    /// Returns file and line, if they are known.
    pub fn location(&self) -> Option<(&str, u32)> {
        let place = self.site.split_once(" (").map_or(&*self.site, |(place, _)| place);
        let (file, line) = place.rsplit_once(':')?;
        Some((file, line.parse().ok()?))
    }

    /// Returns what names it best, without the folders of its file.
    pub fn name(&self) -> String {
        let line = self.location().map(|(file, line)| {
            let file = file.rsplit('/').next().unwrap_or(file);
            let function =
                self.site.split_once(" (").map_or("", |(_, rest)| rest.trim_end_matches(')'));
            match function {
                "" | "<module>" => format!("{file}:{line}"),
                function => format!("{file}:{line} ({function})"),
            }
        });
        match (line, &*self.path) {
            (Some(line), "") => line,
            (Some(line), path) => format!("{path}, {line}"),
            (None, "") => self.owner.to_owned(),
            (None, path) => path.to_owned(),
        }
    }
}

impl Growth {
    /// Finds the lines that need more in run `after` than in run `before`.
    pub fn find(before: &RunSummary, after: &RunSummary, compared_with: String) -> Self {
        let difference = diff_runs(before, after);
        let mut lines = at_peak(&difference);
        if lines.iter().all(|line| line.bytes <= 0) {
            lines = between_steps(before, after);
        }
        lines.sort_by_key(|line| std::cmp::Reverse((line.bytes > 0, line.bytes.unsigned_abs())));
        Growth { compared_with, program: difference.b.program, lines, ..Growth::default() }
    }
}

/// Returns what changed of the memory at the peak; changes of one line and one owner are one.
fn at_peak(difference: &RunDiff) -> Vec<ChangedLine> {
    let mut lines: Vec<ChangedLine> = Vec::new();
    for change in &difference.changes {
        let Some(line) = changed_line(change) else {
            continue;
        };
        let is_same = |other: &&mut ChangedLine| {
            (other.owner, &other.site, &other.path) == (line.owner, &line.site, &line.path)
        };
        match lines.iter_mut().find(is_same) {
            Some(known) => known.bytes += line.bytes,
            None => lines.push(line),
        }
    }
    merge_moved(&mut lines);
    lines.retain(|line| line.bytes != 0);
    lines
}

/// Bytes of one line that have another owner or path than before are no change: entries of a line that grow and shrink
/// are one.
fn merge_moved(lines: &mut Vec<ChangedLine>) {
    let mut merged: Vec<ChangedLine> = Vec::new();
    for line in lines.drain(..) {
        let is_moved = |other: &&mut ChangedLine| {
            !line.site.is_empty()
                && other.site == line.site
                && other.bytes.signum() == -line.bytes.signum()
        };
        match merged.iter_mut().find(is_moved) {
            Some(other) if other.bytes.abs() < line.bytes.abs() => {
                *other = ChangedLine { bytes: line.bytes + other.bytes, ..line };
            }
            Some(other) => other.bytes += line.bytes,
            None => merged.push(line),
        }
    }
    *lines = merged;
}

fn changed_line(change: &EntryDelta) -> Option<ChangedLine> {
    let largest = &change.newer()?.largest;
    Some(ChangedLine {
        owner: largest.kind.label(),
        site: largest.site.clone(),
        path: largest.path.clone(),
        shape: largest.shape.clone(),
        bytes: change.bytes(),
    })
}

/// Returns the lines whose arrays take more between two steps.
fn between_steps(before: &RunSummary, after: &RunSummary) -> Vec<ChangedLine> {
    let mut lines: Vec<ChangedLine> = Vec::new();
    for (run, sign) in [(before, -1), (after, 1)] {
        let fullest = run.devices.iter().max_by_key(|device| device.steady_state_bytes);
        for array in fullest.iter().flat_map(|device| &device.arrays_between_steps) {
            let bytes = sign * i128::from(array.allocated_bytes);
            match lines.iter_mut().find(|line| line.site == array.site) {
                Some(line) => line.bytes += bytes,
                None => lines.push(ChangedLine {
                    owner: array.purpose.label(),
                    site: array.site.clone(),
                    path: String::new(),
                    shape: String::new(),
                    bytes,
                }),
            }
        }
    }
    lines.retain(|line| line.bytes != 0);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(site: &str, path: &str) -> ChangedLine {
        ChangedLine {
            owner: "activations",
            site: site.to_owned(),
            path: path.to_owned(),
            shape: String::new(),
            bytes: 1,
        }
    }

    #[test]
    fn a_line_is_named_by_path_and_place() {
        let known = line("/home/me/train.py:21 (loss)", "");
        assert_eq!(known.location(), Some(("/home/me/train.py", 21)));
        assert_eq!(known.name(), "train.py:21 (loss)");
        let state = line("/home/me/train.py:7 (<module>)", "state.params['w']");
        assert_eq!(state.name(), "state.params['w'], train.py:7");
        assert_eq!(line("", "state").name(), "state");
        assert_eq!(line("", "").location(), None);
        assert_eq!(line("", "").name(), "activations");
    }
}
