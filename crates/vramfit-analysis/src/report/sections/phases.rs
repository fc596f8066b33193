//! What began after the first training steps, such as an evaluation.

use crate::analysis::{Phase, RunSummary};
use crate::bytes::Bytes;
use crate::report::Section;
use crate::report::phrases::more_in_json;

const MAX_SHOWN: usize = 5;

pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    Section::list("new after the first steps", points(summary.phases()))
}

/// Returns a clause for each phase; of many, those that raise the peak come before others.
pub(in crate::report) fn points(phases: &[Phase]) -> Vec<String> {
    let raises = |phase: &&Phase| phase.raises_peak();
    let others = phases.iter().filter(|phase| !raises(phase));
    let mut shown: Vec<&Phase> =
        phases.iter().filter(raises).chain(others).take(MAX_SHOWN).collect();
    shown.sort_by_key(|phase| phase.step_calls);
    let mut points: Vec<String> = shown.into_iter().map(point).collect();
    points.extend(more_in_json(phases.len().saturating_sub(MAX_SHOWN)));
    points
}

fn point(phase: &Phase) -> String {
    let others = match phase.other_programs {
        0 => String::new(),
        1 => " and another program".to_owned(),
        count => format!(" and {count} other programs"),
    };
    let peak = Bytes(phase.peak_bytes);
    let peak = match phase.raises_peak() {
        true => format!("the peak rises from {} to {peak}", Bytes(phase.previous_peak_bytes)),
        false => format!("the peak stays {peak}"),
    };
    let calls = phase.step_calls;
    format!("`{}`{others} after {calls} calls of the training step: {peak}", phase.program)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(step_calls: u64, previous_peak_bytes: u64, peak_bytes: u64) -> Phase {
        Phase {
            step_calls,
            program: "jit_evaluate".to_owned(),
            other_programs: step_calls as usize % 3,
            previous_peak_bytes,
            peak_bytes,
        }
    }

    #[test]
    fn phases_that_raise_the_peak_are_shown_in_order() {
        let mut phases: Vec<Phase> = (2..8).map(|calls| phase(calls, 1 << 20, 1 << 20)).collect();
        phases.push(phase(100, 1 << 20, 3 << 20));
        let points = points(&phases);
        assert_eq!(
            points,
            [
                "`jit_evaluate` and 2 other programs after 2 calls of the training step: the peak stays 1.0 MiB",
                "`jit_evaluate` after 3 calls of the training step: the peak stays 1.0 MiB",
                "`jit_evaluate` and another program after 4 calls of the training step: the peak stays 1.0 MiB",
                "`jit_evaluate` and 2 other programs after 5 calls of the training step: the peak stays 1.0 MiB",
                "`jit_evaluate` and another program after 100 calls of the training step: the peak rises from 1.0 MiB to 3.0 MiB",
                "2 more in the JSON output",
            ]
        );
    }
}
