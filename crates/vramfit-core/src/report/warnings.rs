//! What XLA's compiler warned of, and what that means.

use super::{Body, Section, dryrun};
use crate::analysis::RunSummary;
use crate::bytes::Bytes;
use crate::trace::CompilerWarning;

/// More than these would hide the rest of the report; JSON has them all.
const MAX_SHOWN: usize = 5;

/// Explains the compiler's warnings; `None` without any.
pub(super) fn section(answer: &RunSummary) -> Option<Section> {
    let warnings = &answer.compiler_warnings;
    let mut lines: Vec<String> = warnings.iter().take(MAX_SHOWN).map(explained).collect();
    match warnings.len().saturating_sub(MAX_SHOWN) {
        0 => {}
        more => lines.push(format!("{more} more; `--json` has them all")),
    }
    (!lines.is_empty()).then(|| dryrun::section("what the compiler warned of", Body::Text(lines)))
}

fn explained(warning: &CompilerWarning) -> String {
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
/// from C (c bytes) originally`. It aims at 95 % of what the pool has beside arguments and results, and
/// the results (`gpu_hlo_schedule.cc`, `hlo_rematerialization.cc`).
fn rematerialization(text: &str) -> Option<String> {
    if !text.contains("by rematerialization") {
        return None;
    }
    let mut amounts = text.split('(').skip(1).filter_map(|rest| {
        let (number, _) = rest.split_once(" bytes)")?;
        number.parse().ok().map(Bytes)
    });
    let (aim, reached, before) = (amounts.next()?, amounts.next()?, amounts.next()?);
    let how = match reached.0 < before.0 {
        true => format!("brought it from {before} to {reached} by computing values a second time"),
        false => format!("found nothing worth computing a second time, so it stays at {reached}"),
    };
    Some(format!(
        "XLA aimed at {aim} for it, about what the pool has beside its arguments, and {how}; it compiles \
         all the same, and fails when it is run if the pool has no room then"
    ))
}

/// `The byte size of input/output arguments (a) exceeds the base limit (b). This indicates an error in
/// the calculation!`
fn arguments(text: &str) -> Option<String> {
    let rest = text.split_once("input/output arguments (")?.1;
    let (taken, rest) = rest.split_once(')')?;
    let limit = rest.split_once("base limit (")?.1.split_once(')')?.0;
    let (taken, limit) = (Bytes(taken.parse().ok()?), Bytes(limit.parse().ok()?));
    Some(format!(
        "its arguments and results alone, {taken}, are more than the {limit} of the pool: whatever the \
         compiler does, it does not fit (XLA calls this an error in the calculation; it is none)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str, count: u64) -> String {
        explained(&CompilerWarning {
            program: "jit_step".to_owned(),
            source: "some.cc".to_owned(),
            text: text.to_owned(),
            count,
        })
    }

    #[test]
    fn what_rematerialisation_reached_is_told_in_bytes() {
        let text = "Can't reduce memory use below 5.43GiB (5830019491 bytes) by rematerialization; only \
                    reduced to 6.95GiB (7461666284 bytes), down from 30.18GiB (32409419996 bytes) originally";
        let told = told(text, 2);
        assert!(
            told.starts_with("`jit_step`: XLA aimed at 5.4 GiB for it"),
            "{told}"
        );
        assert!(told.contains("from 30.2 GiB to 6.9 GiB by"), "{told}");
        assert!(told.ends_with(" (2 times)"), "{told}");
    }

    #[test]
    fn arguments_that_are_too_large_need_no_compiler() {
        let text = "The byte size of input/output arguments (2147483648) exceeds the base limit \
                    (1073741824). This indicates an error in the calculation!";
        let told = told(text, 1);
        assert!(
            told.contains("alone, 2.0 GiB, are more than the 1.0 GiB of"),
            "{told}"
        );
    }

    #[test]
    fn what_is_not_understood_is_told_as_it_is() {
        assert_eq!(
            told("by rematerialization (x bytes)", 1),
            "`jit_step`: by rematerialization (x bytes) (`some.cc`)"
        );
        assert_eq!(told("hm", 1), "`jit_step`: hm (`some.cc`)");
    }
}
