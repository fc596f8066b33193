//! The sentences about two runs.

use crate::analysis::EntryKind;
use crate::bytes::Bytes;
use crate::diff::{Change, Contrast, Difference, Need, Run};
use crate::report::owners::file_name;

/// Programs that are named.
pub(super) const PROGRAMS_SHOWN: usize = 8;

/// The answer in one sentence.
pub(super) fn answer(difference: &Difference) -> String {
    let (a, b) = (&difference.a, &difference.b);
    let gap = difference.gap_bytes();
    let amount = shown(gap);
    let one_card = a.header.gpu == b.header.gpu;
    let on = |run: &Run| format!(" on {}", run.header.gpu);
    let whole = a.need == Need::Peak && b.need == Need::Peak;
    let figures = match (whole, one_card) {
        (true, true) => format!("{} instead of {}{}", total(b), total(a), on(b)),
        (true, false) => format!("{}{} instead of {}{}", total(b), on(b), total(a), on(a)),
        (false, _) => format!(
            "{}{}{} instead of {}{}{}",
            total(b),
            on(b),
            moment(b.need),
            total(a),
            on(a),
            moment(a.need)
        ),
    };
    let verb = if whole { "needs" } else { "asks for" };
    let at = if whole { " at the peak" } else { "" };
    match gap {
        0 if difference.changes.is_empty() && whole => {
            format!("B {verb} what A {verb}{at}: {}{}", total(b), on(b))
        }
        0 => format!(
            "B {verb} as much as A{at}: {figures}{}",
            but_changed(difference)
        ),
        1.. => format!("B {verb} {amount} more{at}: {figures}{}", whose(difference)),
        _ => format!("B {verb} {amount} less{at}: {figures}{}", whose(difference)),
    }
}

fn shown(bytes: i128) -> Bytes {
    Bytes(u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX))
}

fn total(run: &Run) -> Bytes {
    Bytes(run.total_bytes)
}

/// What the bytes of a run are, where they are not its peak.
fn moment(need: Need) -> &'static str {
    match need {
        Need::Peak => " (peak)",
        Need::SoFar => " (so far)",
        Need::Refused => " (with the request that was refused)",
    }
}

fn but_changed(difference: &Difference) -> String {
    match difference.explained_bytes().0 {
        0 => String::new(),
        moved => format!(
            ", though {} came or went",
            Bytes(u64::try_from(moved).unwrap_or(u64::MAX))
        ),
    }
}

/// Whose the gap is, most of all.
fn whose(difference: &Difference) -> String {
    let gap = difference.gap_bytes();
    let along = |bytes: i128| bytes.signum() == gap.signum();
    let Some(owner) = difference.owners.iter().find(|owner| along(owner.bytes())) else {
        return String::new();
    };
    let part = match owner.bytes().unsigned_abs() * 2 > gap.unsigned_abs() {
        true => "most of it",
        false => "the largest part",
    };
    let kind_of =
        |change: &Change| -> Option<EntryKind> { change.newer().map(|group| group.largest.kind) };
    let mut changes = difference.changes.iter();
    let largest =
        changes.find(|change| along(change.bytes()) && kind_of(change) == Some(owner.kind));
    let place = largest.and_then(Change::newer).map(|group| &group.largest);
    let place = place.map(|part| match part.path.is_empty() {
        true => file_name(&part.site),
        false => part.path.as_str(),
    });
    let place = place.filter(|place| !place.is_empty());
    let place = place.map_or_else(String::new, |place| format!(", {place}"));
    format!("; {part} {}{place}", owner.kind.label())
}

/// Tells a contrast in one line, of a command only what is not the same.
pub(super) fn contrast(contrast: &Contrast) -> String {
    let (a, b) = match contrast.what {
        "command" => unlike(&contrast.a, &contrast.b),
        _ => (contrast.a.clone(), contrast.b.clone()),
    };
    format!("{}: {a} -> {b}", contrast.what)
}

/// Leaves away the words that two texts begin and end with, but for one before what differs.
fn unlike(a: &str, b: &str) -> (String, String) {
    let (a, b): (Vec<&str>, Vec<&str>) = (a.split(' ').collect(), b.split(' ').collect());
    let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let before = a.iter().zip(&b).take_while(same).count();
    let (rest_a, rest_b) = (&a[before..], &b[before..]);
    let after = rest_a.iter().rev().zip(rest_b.iter().rev());
    let after = after.take_while(same).count();
    let told = |words: &[&str]| {
        let first = before.saturating_sub(1);
        let end = words.len() - after;
        let mut told = words[first..end].join(" ");
        if first > 0 {
            told.insert_str(0, "... ");
        }
        if after > 0 {
            told.push_str(" ...");
        }
        told
    };
    (told(&a), told(&b))
}

/// What is not compared, and what is not known of a run.
pub(super) fn not_covered(difference: &Difference) -> Vec<String> {
    let mut points = Vec::new();
    for (name, run) in [("A", &difference.a), ("B", &difference.b)] {
        let side = match name {
            "A" => "the gap may be smaller",
            _ => "the gap may be larger",
        };
        match run.need {
            Need::Peak => {}
            Need::SoFar => points.push(format!(
                "what {name} would have needed later: its run was cut short, so {side}"
            )),
            Need::Refused => points.push(format!(
                "what {name} would have needed after the request that was refused: {side}"
            )),
        }
    }
    if difference.a.header.devices > 1 || difference.b.header.devices > 1 {
        points.push("other GPUs: of each run only the one that decides is compared".to_owned());
    }
    points.push(
        "memory outside the pool: the CUDA context, machine code, cuBLAS, cuDNN, NCCL".to_owned(),
    );
    points.push(
        "autotuning: on a card it chooses other kernels, for A and B each in its own way"
            .to_owned(),
    );
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_commands_the_difference_is_told() {
        let told = |a, b| unlike(a, b);
        assert_eq!(
            told(
                "python t.py --batch 8 --bf16",
                "python t.py --batch 16 --bf16"
            ),
            (
                "... --batch 8 ...".to_owned(),
                "... --batch 16 ...".to_owned()
            )
        );
        assert_eq!(
            told("python t.py", "python t.py --remat"),
            ("... t.py".to_owned(), "... t.py --remat".to_owned())
        );
        assert_eq!(told("a", "b"), ("a".to_owned(), "b".to_owned()));
        // What both begin with may be all of one of them.
        assert_eq!(
            told("p x x", "p x"),
            ("... x x".to_owned(), "... x".to_owned())
        );
    }
}
