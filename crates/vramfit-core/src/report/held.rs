//! Whose the bytes are, for programs: a part of what `--json` prints.

use serde::Serialize;

use crate::analysis::{Attribution, Part, ProgramSummary};

/// Most parts that are told one by one.
const MAX_PARTS: usize = 1000;
/// Kind of the part that stands for all smaller ones.
const REMAINDER: &str = "remainder";

/// The bytes of one kind of owner.
#[derive(Serialize)]
pub(super) struct OwnerSum {
    kind: &'static str,
    bytes: u64,
}

#[derive(Serialize)]
pub(super) struct Held<'a> {
    device: u32,
    refused: bool,
    program: Option<&'a str>,
    total_bytes: u64,
    parts: Vec<HeldPart<'a>>,
}

#[derive(Serialize)]
struct HeldPart<'a> {
    kind: &'static str,
    path: &'a str,
    site: &'a str,
    shape: &'a str,
    made_by: &'a str,
    stacked: bool,
    rematerialized: bool,
    count: u64,
    bytes: u64,
}

/// Returns the bytes of each kind of owner, the largest first; none where nothing is known.
pub(super) fn owners(attribution: Option<&Attribution>) -> Vec<OwnerSum> {
    let mut sums: Vec<OwnerSum> = Vec::new();
    let parts = attribution
        .iter()
        .flat_map(|attribution| &attribution.parts);
    for part in parts {
        let kind = part.kind.id();
        match sums.iter_mut().find(|sum| sum.kind == kind) {
            Some(sum) => sum.bytes = sum.bytes.saturating_add(part.bytes),
            None => sums.push(OwnerSum {
                kind,
                bytes: part.bytes,
            }),
        }
    }
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.bytes));
    sums
}

/// Returns the parts, the largest first, with one for all that are too many to be told.
pub(super) fn held<'a>(attribution: &'a Attribution, programs: &'a [ProgramSummary]) -> Held<'a> {
    let program = attribution.program.and_then(|at| programs.get(at));
    let (told, rest) = attribution
        .parts
        .split_at(attribution.parts.len().min(MAX_PARTS));
    let mut parts: Vec<_> = told.iter().map(part).collect();
    if !rest.is_empty() {
        let sum = |of: fn(&Part) -> u64| rest.iter().map(of).fold(0, u64::saturating_add);
        parts.push(HeldPart {
            kind: REMAINDER,
            path: "",
            site: "",
            shape: "",
            made_by: "",
            stacked: false,
            rematerialized: false,
            count: sum(|part| part.count),
            bytes: sum(|part| part.bytes),
        });
    }
    Held {
        device: attribution.device,
        refused: attribution.refused,
        program: program.map(|program| program.name.as_str()),
        total_bytes: attribution.total_bytes,
        parts,
    }
}

fn part(part: &Part) -> HeldPart<'_> {
    HeldPart {
        kind: part.kind.id(),
        path: &part.path,
        site: &part.site,
        shape: &part.shape,
        made_by: &part.made_by,
        stacked: part.stacked,
        rematerialized: part.rematerialized,
        count: part.count,
        bytes: part.bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::EntryKind;
    use crate::program::memory::Owner;

    fn attribution(parts: u64) -> Attribution {
        // Sizes from `parts` down to 1, of two kinds in turn.
        let part = |size: u64| Part {
            kind: match size % 2 {
                0 => EntryKind::Arrays,
                _ => EntryKind::Program(Owner::Activations),
            },
            path: format!("x[{size}]"),
            count: 2,
            bytes: size,
            ..Part::default()
        };
        Attribution {
            total_bytes: parts * (parts + 1) / 2,
            parts: (1..=parts).rev().map(part).collect(),
            ..Attribution::default()
        }
    }

    #[test]
    fn what_is_too_much_to_tell_is_one_part() {
        let attribution = attribution(1003);
        let held = held(&attribution, &[]);
        assert_eq!(held.parts.len(), MAX_PARTS + 1);
        let last = held.parts.last().expect("there are some");
        // The sizes 3, 2 and 1, two of each.
        assert_eq!((last.kind, last.bytes, last.count), (REMAINDER, 6, 6));
        let sum: u64 = held.parts.iter().map(|part| part.bytes).sum();
        assert_eq!(sum, held.total_bytes);
        let sum: u64 = owners(Some(&attribution)).iter().map(|sum| sum.bytes).sum();
        assert_eq!(sum, held.total_bytes);
    }

    #[test]
    fn what_can_be_told_is_told() {
        let attribution = attribution(3);
        let held = held(&attribution, &[]);
        let told: Vec<_> = held.parts.iter().map(|part| part.path).collect();
        assert_eq!(told, ["x[3]", "x[2]", "x[1]"]);
        let sums: Vec<_> = owners(Some(&attribution))
            .iter()
            .map(|sum| (sum.kind, sum.bytes))
            .collect();
        assert_eq!(sums, [("activations", 4), ("arrays", 2)]);
    }
}
