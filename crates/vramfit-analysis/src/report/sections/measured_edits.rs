//! Edits of the program, each with what a dry run with it came to.

use crate::analysis::{MeasuredEdit, RunSummary};
use crate::bytes::Bytes;
use crate::report::Section;

pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let needed_bytes = summary.needed_bytes();
    let points = summary.measured_edits.iter();
    let points = points.map(|edit| describe(edit, needed_bytes)).collect();
    Section::list("changes of the program, each measured by a dry run", points)
}

/// Describes what an edit came to, whatever that is: the user was told that it would be measured.
fn describe(edit: &MeasuredEdit, needed_bytes: u64) -> String {
    let what = &edit.change;
    let Some(peak_bytes) = edit.peak_bytes else {
        return format!("{what}: {}", edit.failure);
    };
    let (peak, needed) = (Bytes(peak_bytes), Bytes(needed_bytes));
    if !edit.helps(needed_bytes) {
        return format!("{what}: brings nothing, {peak} instead of {needed}");
    }
    let fits = match (edit.fits, edit.steps) {
        (Some(true), Some(steps)) => format!("fits in its first {steps} steps"),
        (Some(true), None) => "fits".to_owned(),
        (None, _) => "may fit, with little scratch memory of libraries".to_owned(),
        _ => "does not fit".to_owned(),
    };
    let condition = match &*edit.condition {
        "" => String::new(),
        condition => format!(" ({condition})"),
    };
    format!("{what}: {peak} instead of {needed}, {fits}{condition}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_says_what_it_comes_to_or_why_that_is_unknown() {
        let edit = MeasuredEdit {
            kinds: vec!["donate"],
            change: "donate x to `f`".to_owned(),
            condition: "x is not used again".to_owned(),
            peak_bytes: Some(1 << 30),
            fits: Some(true),
            steps: None,
            failure: String::new(),
        };
        let stopped = MeasuredEdit { steps: Some(201), ..edit.clone() };
        let text = describe(&stopped, 2 << 30);
        assert!(text.contains("2.0 GiB, fits in its first 201 steps"), "{text}");
        assert_eq!(
            describe(&edit, 2 << 30),
            "donate x to `f`: 1.0 GiB instead of 2.0 GiB, fits (x is not used again)"
        );
        assert_eq!(
            describe(&edit, 1 << 30),
            "donate x to `f`: brings nothing, 1.0 GiB instead of 1.0 GiB"
        );
        let failed = MeasuredEdit {
            peak_bytes: None,
            fits: None,
            failure: "not measured: no cuDNN".to_owned(),
            ..edit
        };
        let text = describe(&failed, 2 << 30);
        assert!(text.ends_with("not measured: no cuDNN"), "{text}");
    }
}
