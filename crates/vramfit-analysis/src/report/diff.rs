//! The report of two runs: how much more one needs, by owner and line.

mod phrases;

use std::collections::BTreeMap;

use self::phrases::{MAX_PROGRAMS_NAMED, caveats, headline, setting};
use super::phrases::short_line;
use super::{Content, Metric, Outcome, Report, Section, Stack, Table, Value, json};
use crate::analysis::{AttributionEntry, EntryKind};
use crate::diff::{EntryDelta, EntryGroup, OwnerDelta, RunDiff, RunInfo};

pub(super) fn report(difference: &RunDiff) -> Report {
    let caveats = caveats(difference);
    let mut sections = Vec::new();
    if !difference.owners.is_empty() {
        let stacks = vec![
            stack("A", difference, |owner| owner.a_bytes),
            stack("B", difference, |owner| owner.b_bytes),
        ];
        sections.push(Section::with_text(
            "memory by owner",
            Content::Stacks(stacks),
            Content::Table(by_owner(difference)),
        ));
    }
    if !difference.changes.is_empty() {
        // A terminal has no room for shapes and both lines.
        sections.push(Section::with_text(
            "changes",
            Content::Table(all_changes(difference)),
            Content::Table(by_line(difference)),
        ));
    }
    sections.extend(other_differences(difference));
    sections.extend(Section::list("not included", caveats.clone()));
    Report {
        title: "vramfit diff".to_owned(),
        // More memory is no success, and less of it is not always one.
        outcome: match difference.b.fits {
            Some(false) => Outcome::Failure,
            _ => Outcome::Neutral,
        },
        headline: headline(difference),
        cause: Vec::new(),
        sections,
        metadata: vec![metadata("A", &difference.a), metadata("B", &difference.b)],
        json: json::diff(difference, &caveats),
        ..Report::default()
    }
}

fn change_value(bytes: i128) -> Value {
    Value::Change(to_i64(bytes))
}

/// No GPU has so much memory that this would saturate.
pub(super) fn to_i64(bytes: i128) -> i64 {
    let max = i128::from(i64::MAX);
    bytes.clamp(-max, max) as i64
}

fn stack(label: &str, difference: &RunDiff, bytes: impl Fn(&OwnerDelta) -> u64) -> Stack {
    let parts = difference.owners.iter();
    let parts = parts.map(|owner| (owner.kind.id(), owner.kind.label(), bytes(owner)));
    let mut parts: Vec<_> = parts.filter(|(_, _, bytes)| *bytes > 0).collect();
    // The same order in both.
    parts.sort_by_key(|(kind, _, _)| *kind);
    Stack { label: label.to_owned(), parts }
}

fn by_owner(difference: &RunDiff) -> Table {
    let row = |name: &str, a: u64, b: u64, change: i128| {
        vec![Value::Text(name.to_owned()), Value::Bytes(a), Value::Bytes(b), change_value(change)]
    };
    let owners = difference.owners.iter();
    let mut rows: Vec<_> = owners
        .map(|owner| {
            let name = owner.kind.label();
            row(name, owner.a_bytes, owner.b_bytes, owner.bytes())
        })
        .collect();
    let (a, b) = (difference.a.total_bytes, difference.b.total_bytes);
    rows.push(row("total", a, b, difference.gap_bytes()));
    Table::new(&["owner", "A", "B", "change"], rows, "")
}

/// The changes by path or line, those of one line and one owner summed up.
fn by_line(difference: &RunDiff) -> Table {
    let mut lines: BTreeMap<(String, EntryKind), (Option<u64>, Option<u64>)> = BTreeMap::new();
    for change in &difference.changes {
        let Some(newer) = change.newer() else {
            continue;
        };
        let key = (location(newer), newer.largest.kind);
        let sums = lines.entry(key).or_default();
        for (sum, group) in [(&mut sums.0, &change.a), (&mut sums.1, &change.b)] {
            if let Some(group) = group {
                *sum = Some(sum.unwrap_or(0).saturating_add(group.bytes));
            }
        }
    }
    let change_of = |(a, b): (Option<u64>, Option<u64>)| {
        i128::from(b.unwrap_or(0)) - i128::from(a.unwrap_or(0))
    };
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.retain(|(_, sums)| change_of(*sums) != 0);
    lines.sort_by_key(|(_, sums)| std::cmp::Reverse(change_of(*sums).unsigned_abs()));
    let rows = lines.into_iter().map(|((name, kind), sums)| {
        vec![
            Value::Text(name),
            Value::Text(kind.label().to_owned()),
            Value::bytes_or_none(sums.0),
            Value::bytes_or_none(sums.1),
            change_value(change_of(sums)),
        ]
    });
    let (all, located) = difference.explained_bytes();
    // Rounded down: not quite all is never all.
    let thousandths = located * 1000 / all.max(1);
    let share = Value::Fraction(thousandths as f64 / 1000.0);
    let note = format!(
        "total {}; {share} of what was added or removed has a path or a line",
        change_value(difference.gap_bytes())
    );
    let columns = ["location", "owner", "A", "B", "change"];
    Table::new(&columns, rows.collect(), note)
}

fn all_changes(difference: &RunDiff) -> Table {
    let cell = |group: &Option<EntryGroup>, of: &dyn Fn(&AttributionEntry) -> String| {
        let entry = group.as_ref().map(|group| &group.largest);
        Value::Text(entry.map_or_else(|| "none".to_owned(), of))
    };
    let row = |change: &EntryDelta| {
        let newer = change.newer();
        let owner = |group: &EntryGroup| group.largest.kind.label();
        let owners = match (change.a.as_ref().map(owner), change.b.as_ref().map(owner)) {
            (Some(a), Some(b)) if a != b => format!("{a} -> {b}"),
            (a, b) => b.or(a).unwrap_or_default().to_owned(),
        };
        let producer = newer.map_or_else(String::new, |group| group.largest.made_by.clone());
        vec![
            Value::Text(newer.map_or_else(String::new, location)),
            Value::Text(owners),
            Value::bytes_or_none(change.a.as_ref().map(|group| group.bytes)),
            Value::bytes_or_none(change.b.as_ref().map(|group| group.bytes)),
            change_value(change.bytes()),
            cell(&change.a, &|entry| entry.shape.clone()),
            cell(&change.b, &|entry| entry.shape.clone()),
            cell(&change.a, &|entry| entry.site.clone()),
            cell(&change.b, &|entry| entry.site.clone()),
            Value::Text(producer),
        ]
    };
    let columns = [
        "location",
        "owner",
        "A",
        "B",
        "change",
        "shape in A",
        "shape in B",
        "line in A",
        "line in B",
        "producer",
    ];
    let rows = difference.changes.iter().map(row).collect();
    let note = "a row for several buffers shows location, shape and line of the largest";
    Table::new(&columns, rows, note)
}

/// Names a group in a narrow column: by its path, its line, or what produced it.
fn location(group: &EntryGroup) -> String {
    let entry = &group.largest;
    let names = [entry.path.as_str(), short_line(&entry.site), &entry.made_by];
    let name = names.into_iter().find(|name| !name.is_empty());
    name.unwrap_or("unknown").to_owned()
}

fn other_differences(difference: &RunDiff) -> Option<Section> {
    let mut points: Vec<String> = difference.other_differences.iter().map(setting).collect();
    let only = |run: &str, programs: &[String]| {
        let shown = &programs[..programs.len().min(MAX_PROGRAMS_NAMED)];
        let more = match programs.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let point = format!("programs only in {run}: {}{more}", shown.join(", "));
        (!programs.is_empty()).then_some(point)
    };
    points.extend(only("A", &difference.programs_only_in_a));
    points.extend(only("B", &difference.programs_only_in_b));
    Section::list("other differences, from A to B", points)
}

fn metadata(name: &str, run: &RunInfo) -> Metric {
    let header = &run.header;
    let text = format!(
        "{}, on {} x {}, jax {}",
        header.command.join(" "),
        header.devices,
        header.gpu().name,
        header.jax
    );
    Metric::text(name, text)
}
