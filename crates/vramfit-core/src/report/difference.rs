//! From two runs side by side to a report: how much more, whose, and where.

mod record;
mod words;

use std::collections::BTreeMap;

use self::record::record;
use self::words::{answer, contrast, not_covered};
use super::dryrun::{figure, section};
use super::owners::line_of;
use super::{Body, Figure, Report, Section, Table, Value};
use crate::analysis::{EntryKind, Part};
use crate::diff::{Change, Difference, Group, Run};

/// Makes the report.
pub(super) fn report(difference: &Difference) -> Report {
    let not_covered = not_covered(difference);
    let mut sections = Vec::new();
    if !difference.owners.is_empty() {
        sections.push(section("by owner", Body::Table(owners(difference))));
    }
    if !difference.changes.is_empty() {
        let lines = Body::Table(by_line(difference));
        sections.push(section("largest changes", lines));
    }
    sections.extend(surroundings(difference));
    let points = Body::Text(not_covered.clone());
    sections.push(section("not covered by these figures", points));
    if !difference.changes.is_empty() {
        sections.push(Section {
            detail: true,
            ..section("every change", Body::Table(every_change(difference)))
        });
    }
    Report {
        title: "vramfit diff".to_owned(),
        // As in every report: whether the run fits, here the one that is compared.
        good: difference.b.fits,
        answer: answer(difference),
        sections,
        facts: [("A", &difference.a), ("B", &difference.b)]
            .map(|(name, run)| fact(name, run))
            .to_vec(),
        record: record(difference, &not_covered),
    }
}

/// What a column of changes shows; no card has so much that it would be cut.
fn signed(bytes: i128) -> Value {
    Value::Change(integer(bytes))
}

fn integer(bytes: i128) -> i64 {
    let most = i128::from(i64::MAX);
    bytes.clamp(-most, most) as i64
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn owners(difference: &Difference) -> Table {
    let row = |name: &str, a: u64, b: u64, change: i128| {
        vec![
            Value::Text(name.to_owned()),
            Value::Bytes(a),
            Value::Bytes(b),
            signed(change),
        ]
    };
    let owners = difference.owners.iter();
    let mut rows: Vec<_> = owners
        .map(|owner| {
            let name = owner.kind.label();
            row(name, owner.a_bytes, owner.b_bytes, owner.bytes())
        })
        .collect();
    let (a, b) = (difference.a.total_bytes, difference.b.total_bytes);
    rows.push(row("all", a, b, difference.gap_bytes()));
    Table {
        columns: columns(&["owner", "A", "B", "change"]),
        rows,
        note: String::new(),
    }
}

/// The changes by path or line, those of one line and one owner taken together.
fn by_line(difference: &Difference) -> Table {
    let mut lines: BTreeMap<(String, EntryKind), (Option<u64>, Option<u64>)> = BTreeMap::new();
    for change in &difference.changes {
        let Some(newer) = change.newer() else {
            continue;
        };
        let sums = lines.entry((name(newer), newer.largest.kind)).or_default();
        for (sum, group) in [(&mut sums.0, &change.a), (&mut sums.1, &change.b)] {
            if let Some(group) = group {
                *sum = Some(sum.unwrap_or(0).saturating_add(group.bytes));
            }
        }
    }
    let gap = |(a, b): (Option<u64>, Option<u64>)| {
        i128::from(b.unwrap_or(0)) - i128::from(a.unwrap_or(0))
    };
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.retain(|(_, sums)| gap(*sums) != 0);
    lines.sort_by_key(|(_, sums)| std::cmp::Reverse(gap(*sums).unsigned_abs()));
    let rows = lines.into_iter().map(|((name, kind), sums)| {
        vec![
            Value::Text(name),
            Value::Text(kind.label().to_owned()),
            bytes(sums.0),
            bytes(sums.1),
            signed(gap(sums)),
        ]
    });
    let (all, named) = difference.explained_bytes();
    // Rounded down: not quite all is never all.
    let thousandths = named * 1000 / all.max(1);
    let share = Value::Share(thousandths as f64 / 1000.0);
    Table {
        columns: columns(&["where", "owner", "A", "B", "change"]),
        rows: rows.collect(),
        note: format!(
            "all rows add up to {}; {share} of the bytes that came or went have a path or a line",
            signed(difference.gap_bytes())
        ),
    }
}

fn every_change(difference: &Difference) -> Table {
    let cell = |group: &Option<Group>, of: &dyn Fn(&Part) -> String| {
        let part = group.as_ref().map(|group| &group.largest);
        Value::Text(part.map_or_else(|| "none".to_owned(), of))
    };
    let row = |change: &Change| {
        let newer = change.newer();
        let owner = |group: &Group| group.largest.kind.label();
        let owners = match (change.a.as_ref().map(owner), change.b.as_ref().map(owner)) {
            (Some(a), Some(b)) if a != b => format!("{a} -> {b}"),
            (a, b) => b.or(a).unwrap_or_default().to_owned(),
        };
        vec![
            Value::Text(newer.map_or_else(String::new, name)),
            Value::Text(owners),
            bytes(change.a.as_ref().map(|group| group.bytes)),
            bytes(change.b.as_ref().map(|group| group.bytes)),
            signed(change.bytes()),
            cell(&change.a, &|part| part.shape.clone()),
            cell(&change.b, &|part| part.shape.clone()),
            cell(&change.a, &|part| part.site.clone()),
            cell(&change.b, &|part| part.site.clone()),
            Value::Text(newer.map_or_else(String::new, |group| group.largest.made_by.clone())),
        ]
    };
    Table {
        columns: columns(&[
            "where",
            "owner",
            "A",
            "B",
            "change",
            "shape in A",
            "shape in B",
            "line in A",
            "line in B",
            "made by",
        ]),
        rows: difference.changes.iter().map(row).collect(),
        note: "where several are one row, the largest lends its name, shape and line".to_owned(),
    }
}

fn bytes(bytes: Option<u64>) -> Value {
    bytes.map_or(Value::Missing("none"), Value::Bytes)
}

/// What a group is called in a narrow column: its path, its line, or what made it.
fn name(group: &Group) -> String {
    let part = &group.largest;
    // The function has its place in the full table.
    let known = [part.path.as_str(), line_of(&part.site), &part.made_by];
    let known = known.into_iter().find(|words| !words.is_empty());
    known.unwrap_or("no line").to_owned()
}

/// What else is different.
fn surroundings(difference: &Difference) -> Option<Section> {
    let mut points: Vec<String> = difference.contrasts.iter().map(contrast).collect();
    let only = |run: &str, programs: &[String]| {
        let shown: Vec<_> = programs
            .iter()
            .take(words::PROGRAMS_SHOWN)
            .cloned()
            .collect();
        let more = match programs.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let point = format!(
            "programs that only {run} compiled: {}{more}",
            shown.join(", ")
        );
        (!programs.is_empty()).then_some(point)
    };
    points.extend(only("A", &difference.programs_only_in_a));
    points.extend(only("B", &difference.programs_only_in_b));
    (!points.is_empty()).then(|| section("what else differs, from A to B", Body::Text(points)))
}

fn fact(name: &str, run: &Run) -> Figure {
    let header = &run.header;
    let words = format!(
        "{}, on {} x {}, jax {}",
        header.command.join(" "),
        header.devices,
        header.gpu,
        header.jax
    );
    figure(name, Value::Text(words), "")
}
