//! What XLA's compiler warned of, explained.

use crate::analysis::RunSummary;
use crate::bytes::Bytes;
use crate::report::Section;
use crate::report::phrases::more_in_json;
use crate::trace::CompilerWarning;

/// More than these would hide the rest of the report; the JSON has all.
const MAX_SHOWN: usize = 5;

pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let warnings = &summary.compiler_warnings;
    let mut points: Vec<_> = warnings.iter().take(MAX_SHOWN).map(explanation).collect();
    points.extend(more_in_json(warnings.len().saturating_sub(MAX_SHOWN)));
    Section::list("compiler warnings", points)
}

fn explanation(warning: &CompilerWarning) -> String {
    let CompilerWarning {
        program,
        source,
        text,
        count,
    } = warning;
    let what = rematerialization(text)
        .or_else(|| arguments(text))
        .unwrap_or_else(|| format!("{text} (`{source}`)"));
    let times = match count {
        1 => String::new(),
        count => format!(" ({count} times)"),
    };
    format!("`{program}`: {what}{times}")
}

/// `Can't reduce memory use below A (a bytes) by rematerialization; only reduced to B (b bytes), down
/// from C (c bytes) originally`. The target A is 95 % of what the arguments and results leave of the
/// pool, plus the results (`gpu_hlo_schedule.cc`, `hlo_rematerialization.cc`).
fn rematerialization(text: &str) -> Option<String> {
    if !text.contains("by rematerialization") {
        return None;
    }
    let mut amounts = text.split('(').skip(1).filter_map(|rest| {
        let (number, _) = rest.split_once(" bytes)")?;
        number.parse().ok().map(Bytes)
    });
    let (target, reached, before) = (amounts.next()?, amounts.next()?, amounts.next()?);
    let result = if reached.0 < before.0 {
        format!("rematerialization only reduced it from {before} to {reached}")
    } else {
        format!("rematerialization did not help, so it stays at {reached}")
    };
    Some(format!(
        "XLA's target for its memory was {target}, about what its arguments leave of the pool; {result}. \
         It still compiles, and fails at run time if the pool has too little free memory then"
    ))
}

/// `The byte size of input/output arguments (a) exceeds the base limit (b). This indicates an error in
/// the calculation!`
fn arguments(text: &str) -> Option<String> {
    let rest = text.split_once("input/output arguments (")?.1;
    let (needed, rest) = rest.split_once(')')?;
    let limit = rest.split_once("base limit (")?.1.split_once(')')?.0;
    let (needed, limit) = (Bytes(needed.parse().ok()?), Bytes(limit.parse().ok()?));
    Some(format!(
        "its arguments and outputs alone ({needed}) exceed the pool ({limit}), so it cannot fit however it \
         is compiled. (XLA reports this as an error in its calculation, which it is not.)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explain(text: &str, count: u64) -> String {
        explanation(&CompilerWarning {
            program: "jit_step".to_owned(),
            source: "some.cc".to_owned(),
            text: text.to_owned(),
            count,
        })
    }

    #[test]
    fn what_rematerialization_reached_is_explained_in_bytes() {
        let text = "Can't reduce memory use below 5.43GiB (5830019491 bytes) by rematerialization; only \
                    reduced to 6.95GiB (7461666284 bytes), down from 30.18GiB (32409419996 bytes) originally";
        let text = explain(text, 2);
        assert!(text.contains("was 5.4 GiB, about"), "{text}");
        assert!(
            text.contains("only reduced it from 30.2 GiB to 6.9 GiB"),
            "{text}"
        );
        assert!(text.ends_with(" (2 times)"), "{text}");
    }

    #[test]
    fn arguments_that_are_too_large_cannot_fit() {
        let text = "The byte size of input/output arguments (2147483648) exceeds the base limit \
                    (1073741824). This indicates an error in the calculation!";
        let text = explain(text, 1);
        assert!(
            text.contains("alone (2.0 GiB) exceed the pool (1.0 GiB)"),
            "{text}"
        );
    }

    #[test]
    fn other_warnings_are_shown_as_they_are() {
        assert_eq!(
            explain("by rematerialization (x bytes)", 1),
            "`jit_step`: by rematerialization (x bytes) (`some.cc`)"
        );
        assert_eq!(explain("hm", 1), "`jit_step`: hm (`some.cc`)");
    }
}
