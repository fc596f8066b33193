//! What XLA's compiler warned of, explained.

use crate::analysis::{ProgramSummary, RunSummary};
use crate::bytes::Bytes;
use crate::report::Section;
use crate::report::phrases::more_in_json;
use crate::trace::CompilerWarning;

/// More than these would hide the rest of the report; the JSON has all.
const MAX_SHOWN: usize = 5;

pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let warnings = &summary.compiler_warnings;
    let shown = warnings.iter().take(MAX_SHOWN);
    let mut points: Vec<_> = shown.map(|warning| explanation(warning, &summary.programs)).collect();
    points.extend(more_in_json(warnings.len().saturating_sub(MAX_SHOWN)));
    Section::list("compiler warnings", points)
}

fn explanation(warning: &CompilerWarning, programs: &[ProgramSummary]) -> String {
    let CompilerWarning { program, source, text, count } = warning;
    let what = rematerialization(text, output_bytes(program, programs))
        .or_else(|| arguments(text))
        .or_else(|| not_attributed(source, text))
        .unwrap_or_else(|| format!("{text} (`{source}`)"));
    let times = match count {
        1 => String::new(),
        count => format!(" ({count} times)"),
    };
    format!("`{program}`: {what}{times}")
}

/// Returns the bytes of the outputs of a program; `None` if there are several of this name that differ.
fn output_bytes(name: &str, programs: &[ProgramSummary]) -> Option<u64> {
    let mut named = programs.iter().filter(|program| program.name == name);
    let bytes = named.next()?.sizes.output_bytes;
    named.all(|program| program.sizes.output_bytes == bytes).then_some(bytes)
}

/// `Can't reduce memory use below A (a bytes) by rematerialization; only reduced to B (b bytes), down
/// from C (c bytes) originally`. A is 95 % of what arguments, and outputs that are not donated arguments, leave of
/// the pool, plus all outputs: so the outputs are to be subtracted to get the target of the temporaries
/// (`gpu_hlo_schedule.cc`, `hlo_rematerialization.cc`).
fn rematerialization(text: &str, output_bytes: Option<u64>) -> Option<String> {
    if !text.contains("by rematerialization") {
        return None;
    }
    let mut amounts = text.split('(').skip(1).filter_map(|rest| {
        let (number, _) = rest.split_once(" bytes)")?;
        number.parse::<i64>().ok()
    });
    let (target, reached, before) = (amounts.next()?, amounts.next()?, amounts.next()?);
    let bytes = |amount: i64| Bytes(u64::try_from(amount).unwrap_or(0));
    let outputs = output_bytes.and_then(|bytes| i64::try_from(bytes).ok());
    let target = match outputs {
        Some(outputs) if target <= outputs => {
            "its arguments and outputs leave XLA nothing of the pool for its temporaries".to_owned()
        }
        Some(outputs) => format!(
            "XLA's target for its temporaries was {}, 95 % of what its arguments and outputs leave of the pool",
            bytes(target - outputs)
        ),
        None => {
            format!("XLA's target for its temporaries and outputs together was {}", bytes(target))
        }
    };
    let result = if reached < before {
        format!("rematerialization only reduced them from {} to {}", bytes(before), bytes(reached))
    } else {
        format!("rematerialization did not help, so they stay at {}", bytes(reached))
    };
    let included = match outputs {
        Some(outputs @ 1..) => format!(", outputs ({}) included", bytes(outputs)),
        _ => String::new(),
    };
    Some(format!(
        "{target}; {result}{included}. It still compiles, and fails at run time if the pool has too little \
         free memory then"
    ))
}

fn not_attributed(source: &str, text: &str) -> Option<String> {
    (source == CompilerWarning::NOT_ATTRIBUTED)
        .then(|| format!("what its memory belongs to is not known, and how long it takes: {text}"))
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
    use crate::program::ProgramSizes;

    fn explain_of(text: &str, count: u64, programs: &[ProgramSummary]) -> String {
        let warning = CompilerWarning {
            program: "jit_step".to_owned(),
            source: "some.cc".to_owned(),
            text: text.to_owned(),
            count,
        };
        explanation(&warning, programs)
    }

    fn explain(text: &str, count: u64) -> String {
        explain_of(text, count, &[])
    }

    fn program(name: &str, output_bytes: u64) -> ProgramSummary {
        ProgramSummary {
            name: name.to_owned(),
            sizes: ProgramSizes { output_bytes, ..ProgramSizes::default() },
            calls: 1,
            call_events: Vec::new(),
            compilations: 1,
            loaded: 0,
            devices: 1,
            compile_attempt: String::new(),
            site: String::new(),
            variant_temp_bytes: None,
            scratch_bytes: 0,
            time: None,
        }
    }

    const REMATERIALIZED: &str = "Can't reduce memory use below 5.43GiB (5830019491 bytes) by rematerialization; \
                                  only reduced to 6.95GiB (7461666284 bytes), down from 30.18GiB (32409419996 \
                                  bytes) originally";

    #[test]
    fn the_target_of_rematerialization_is_that_of_the_temporaries() {
        // Recorded with 80 % of 8,000,000,000 bytes; 369,098,956 bytes are arguments and outputs.
        let outputs = 100_663_500_u64;
        assert_eq!(5_830_019_491 - outputs, (6_400_000_000_u64 - 369_098_956) * 95 / 100);
        let text = explain_of(REMATERIALIZED, 2, &[program("jit_step", outputs)]);
        assert!(text.contains("target for its temporaries was 5.3 GiB, 95 %"), "{text}");
        let reached = "only reduced them from 30.2 GiB to 6.9 GiB, outputs (96.0 MiB) included";
        assert!(text.contains(reached), "{text}");
        assert!(text.ends_with(" (2 times)"), "{text}");
    }

    #[test]
    fn without_the_outputs_the_target_is_that_of_both() {
        let differ = [program("jit_step", 1), program("jit_step", 2)];
        for programs in [&[][..], &differ, &[program("jit_other", 1)]] {
            let text = explain_of(REMATERIALIZED, 1, programs);
            assert!(text.contains("temporaries and outputs together was 5.4 GiB;"), "{text}");
            assert!(text.contains("reduced them from 30.2 GiB to 6.9 GiB. It"), "{text}");
        }
    }

    #[test]
    fn a_target_below_zero_leaves_nothing() {
        let text = "Can't reduce memory use below -1.00GiB (-1073741824 bytes) by rematerialization; only reduced \
                    to 2.00GiB (2147483648 bytes), down from 2.00GiB (2147483648 bytes) originally";
        let text = explain_of(text, 1, &[program("jit_step", 1 << 30)]);
        assert!(text.contains("arguments and outputs leave XLA nothing of the pool"), "{text}");
        assert!(text.contains("did not help, so they stay at 2.0 GiB"), "{text}");
    }

    #[test]
    fn arguments_that_are_too_large_cannot_fit() {
        let text = "The byte size of input/output arguments (2147483648) exceeds the base limit \
                    (1073741824). This indicates an error in the calculation!";
        let text = explain(text, 1);
        assert!(text.contains("alone (2.0 GiB) exceed the pool (1.0 GiB)"), "{text}");
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
