//! Sentences about two runs.

use crate::analysis::EntryKind;
use crate::bytes::Bytes;
use crate::diff::{EntryDelta, RunDiff, RunInfo, SettingDiff, TotalKind};
use crate::report::phrases::file_name;

pub(super) const MAX_PROGRAMS_NAMED: usize = 8;

pub(super) fn headline(difference: &RunDiff) -> String {
    let (a, b) = (&difference.a, &difference.b);
    let change = difference.gap_bytes();
    let amount = amount(change);
    let on = |run: &RunInfo| format!(" on {}", run.header.gpu().name);
    let are_peaks = a.total_kind == TotalKind::Peak && b.total_kind == TotalKind::Peak;
    let totals = match (are_peaks, a.header.gpu().name == b.header.gpu().name) {
        (true, true) => format!("{} instead of {}{}", total(b), total(a), on(b)),
        (true, false) => format!("{}{} instead of {}{}", total(b), on(b), total(a), on(a)),
        (false, _) => format!(
            "{}{}{} instead of {}{}{}",
            total(b),
            on(b),
            kind_of_total(b.total_kind),
            total(a),
            on(a),
            kind_of_total(a.total_kind)
        ),
    };
    let (verb, at) = if are_peaks { ("needs", " at the peak") } else { ("requests", "") };
    match change {
        0 if difference.changes.is_empty() && are_peaks => {
            format!("B needs as much as A at the peak: {}{}", total(b), on(b))
        }
        0 => format!("B {verb} as much as A{at}: {totals}{}", although_changed(difference)),
        1.. => format!("B {verb} {amount} more{at}: {totals}{}", main_cause(difference)),
        _ => format!("B {verb} {amount} less{at}: {totals}{}", main_cause(difference)),
    }
}

fn amount(bytes: i128) -> Bytes {
    Bytes(u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX))
}

fn total(run: &RunInfo) -> Bytes {
    Bytes(run.total_bytes)
}

fn kind_of_total(need: TotalKind) -> &'static str {
    match need {
        TotalKind::Peak => " (peak)",
        TotalKind::SoFar => " (so far)",
        TotalKind::Refused => " (including the failed request)",
    }
}

fn although_changed(difference: &RunDiff) -> String {
    match difference.explained_bytes().0 {
        0 => String::new(),
        changed => format!(
            ", although {} were added or removed",
            Bytes(u64::try_from(changed).unwrap_or(u64::MAX))
        ),
    }
}

/// Names the owner and the location of most of the difference.
fn main_cause(difference: &RunDiff) -> String {
    let change = difference.gap_bytes();
    let has_same_sign = |bytes: i128| bytes.signum() == change.signum();
    let mut owners = difference.owners.iter();
    let Some(owner) = owners.find(|owner| has_same_sign(owner.bytes())) else {
        return String::new();
    };
    let part = if owner.bytes().unsigned_abs() * 2 > change.unsigned_abs() {
        "most of it"
    } else {
        "the largest part"
    };
    let kind_of = |change: &EntryDelta| -> Option<EntryKind> {
        change.newer().map(|group| group.largest.kind)
    };
    let mut changes = difference.changes.iter();
    let largest = changes.find(|it| has_same_sign(it.bytes()) && kind_of(it) == Some(owner.kind));
    let largest = largest.and_then(EntryDelta::newer).map(|group| &group.largest);
    let location = match largest {
        None => "",
        Some(entry) if entry.path.is_empty() => file_name(&entry.site),
        Some(entry) => &entry.path,
    };
    let comma = if location.is_empty() { "" } else { ", " };
    format!("; {part} {}{comma}{location}", owner.kind.label())
}

/// Describes a difference in one line; of a command only what differs.
pub(super) fn setting(contrast: &SettingDiff) -> String {
    let (a, b) = match contrast.what {
        "command" => differing_words(&contrast.a, &contrast.b),
        _ => (contrast.a.clone(), contrast.b.clone()),
    };
    format!("{}: {a} -> {b}", contrast.what)
}

/// Leaves out the words that two texts begin and end with, but for one before what differs.
fn differing_words(a: &str, b: &str) -> (String, String) {
    let (a, b): (Vec<&str>, Vec<&str>) = (a.split(' ').collect(), b.split(' ').collect());
    let is_same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let before = a.iter().zip(&b).take_while(is_same).count();
    let (rest_a, rest_b) = (&a[before..], &b[before..]);
    let after = rest_a.iter().rev().zip(rest_b.iter().rev());
    let after = after.take_while(is_same).count();
    let shorten = |words: &[&str]| {
        let first = before.saturating_sub(1);
        let end = words.len() - after;
        let mut text = words[first..end].join(" ");
        if first > 0 {
            text.insert_str(0, "... ");
        }
        if after > 0 {
            text.push_str(" ...");
        }
        text
    };
    (shorten(&a), shorten(&b))
}

/// Returns what is not compared, and what is unknown of a run.
pub(super) fn caveats(difference: &RunDiff) -> Vec<String> {
    let mut points = Vec::new();
    for (name, run) in [("A", &difference.a), ("B", &difference.b)] {
        let effect = match name {
            "A" => "B may need less in comparison",
            _ => "B may need more",
        };
        match run.total_kind {
            TotalKind::Peak => {}
            TotalKind::SoFar => points.push(format!(
                "what {name} would have needed later: its run was cut short, so {effect}"
            )),
            TotalKind::Refused => points
                .push(format!("what {name} would have needed after the failed request: {effect}")),
        }
    }
    if difference.a.header.devices > 1 || difference.b.header.devices > 1 {
        points.push("other GPUs: only the critical GPU of each run is compared".to_owned());
    }
    points.push(
        "memory outside the pool: the CUDA context, machine code, cuBLAS, cuDNN, NCCL".to_owned(),
    );
    points.push(
        "autotuning: on a GPU it chooses other kernels, for A and B independently".to_owned(),
    );
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_commands_only_the_difference_is_shown() {
        assert_eq!(
            differing_words("python t.py --batch 8 --bf16", "python t.py --batch 16 --bf16"),
            ("... --batch 8 ...".to_owned(), "... --batch 16 ...".to_owned())
        );
        assert_eq!(
            differing_words("python t.py", "python t.py --remat"),
            ("... t.py".to_owned(), "... t.py --remat".to_owned())
        );
        assert_eq!(differing_words("a", "b"), ("a".to_owned(), "b".to_owned()));
        // What both begin with may be all of one of them.
        assert_eq!(differing_words("p x x", "p x"), ("... x x".to_owned(), "... x".to_owned()));
    }
}
