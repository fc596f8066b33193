//! Which parts of two runs are the same thing.
//!
//! Rules are tried in order, from the one that asks for most to the one that asks for least. What a rule
//! takes for the same on both sides becomes one [`EntryDelta`] and is out of the game. So every part is in
//! exactly one change, whatever the rules are worth.

use std::collections::BTreeMap;

use super::lines::{Line, Lines, operation, unnumbered};
use super::{EntryDelta, EntryGroup, sum};
use crate::analysis::{AttributionEntry, EntryKind};

/// What a rule compares; parts of which it is equal are the same thing.
type Key<'a> = (Option<EntryKind>, Option<&'a str>, Option<Line>, Option<&'a str>, Option<&'a str>);

/// Returns what is compared of a part on a line; `None` when the rule says nothing about it.
type Rule = for<'a> fn(&'a AttributionEntry, Option<Line>) -> Option<KeyBuilder<'a>>;

/// The rules, the strictest first.
const RULES: [Rule; 14] = [
    // A path names an array of the user's own; the program that made it tells equal paths apart.
    |part, _| owned(part).path()?.producer(),
    |part, _| owned(part).path(),
    // Its path is new: the line that made it and its shape.
    |part, line| owned(part).with_path()?.line(line)?.shape(),
    // A buffer inside a program is told by its line and its operation. Shapes change with the batch.
    |part, line| owned(part).without_path()?.line(line)?.producer(),
    |part, line| owned(part).without_path()?.line(line)?.operation(),
    |part, line| owned(part).line(line),
    // The line is gone, or never was known.
    |part, _| owned(part).with_producer()?.producer()?.shape(),
    |part, _| owned(part).with_producer()?.producer(),
    |part, _| owned(part).with_producer()?.operation()?.shape(),
    // What has no name at all: padding, rounding, programs that could not be looked into.
    |part, _| owned(part).anonymous()?.shape(),
    |part, _| owned(part).anonymous(),
    // It has another owner now, or the other run has its peak in another program.
    |part, _| of_any_owner(part).path()?.shape(),
    |part, line| of_any_owner(part).line(line)?.operation()?.shape(),
    |part, line| of_any_owner(part).line(line)?.shape(),
];

/// Puts all parts in pairs; what has no partner stands alone.
pub(super) fn pairs(a: &[AttributionEntry], b: &[AttributionEntry]) -> Vec<EntryDelta> {
    let lines = Lines::of(a, b);
    let mut left = [a, b].map(|parts| parts.iter().collect::<Vec<_>>());
    let mut changes = Vec::new();
    for rule in RULES {
        let key = |side: usize, part| Some(rule(part, lines.line(side, part))?.key);
        let mut same: BTreeMap<Key<'_>, [Vec<&AttributionEntry>; 2]> = BTreeMap::new();
        for (side, parts) in left.iter().enumerate() {
            for part in parts {
                if let Some(key) = key(side, part) {
                    same.entry(key).or_default()[side].push(part);
                }
            }
        }
        same.retain(|_, sides| sides.iter().all(|parts| !parts.is_empty()));
        for (side, parts) in left.iter_mut().enumerate() {
            parts.retain(|part| key(side, part).is_none_or(|key| !same.contains_key(&key)));
        }
        changes.extend(same.values().flat_map(|[in_a, in_b]| matched(in_a, in_b)));
    }
    let [left_a, left_b] = &left;
    changes.extend(unmatched(left_a).map(|a| EntryDelta { a, b: None }));
    changes.extend(unmatched(left_b).map(|b| EntryDelta { a: None, b }));
    changes
}

/// Makes changes of parts that a rule takes for the same: one by one where it is plain which of them is
/// which, else one of all.
fn matched(a: &[&AttributionEntry], b: &[&AttributionEntry]) -> Vec<EntryDelta> {
    let (a, b) = (in_order(a), in_order(b));
    let mut pairs = a.iter().zip(&b);
    let plain = a.len() == b.len() && pairs.all(|(a, b)| shape_key(a) == shape_key(b));
    let change =
        |a: &[&AttributionEntry], b: &[&AttributionEntry]| EntryDelta { a: group(a), b: group(b) };
    match plain {
        true => a.iter().zip(&b).map(|(a, b)| change(&[a], &[b])).collect(),
        false => vec![change(&a, &b)],
    }
}

/// Sorts parts so that those come at one place that differ in the size of an axis only.
fn in_order<'a>(parts: &[&'a AttributionEntry]) -> Vec<&'a AttributionEntry> {
    let mut parts = parts.to_vec();
    parts.sort_by_key(|part| (shape_key(part), part.bytes, &part.path, &part.site, &part.shape));
    parts
}

/// What no other batch size changes of a part: its type, its number of axes, its path.
fn shape_key(part: &AttributionEntry) -> (&str, usize, &str, u64) {
    let of_type = part.shape.split('[').next().unwrap_or_default();
    let axes = part.shape.matches(',').count();
    (of_type, axes, &part.path, part.count)
}

/// Gathers what stands alone by path, or by line and operation.
fn unmatched<'a>(
    left: &[&'a AttributionEntry],
) -> impl Iterator<Item = Option<EntryGroup>> + use<'a> {
    let mut alike: BTreeMap<_, Vec<&'a AttributionEntry>> = BTreeMap::new();
    for part in left {
        let key = (part.kind, &part.path, &part.site, &part.made_by);
        alike.entry(key).or_default().push(part);
    }
    alike.into_values().map(|parts| group(&parts))
}

/// Makes one of several; `None` when there are none.
fn group(parts: &[&AttributionEntry]) -> Option<EntryGroup> {
    // The first of equals, which both runs list in the same order.
    let largest = parts.iter().rev().max_by_key(|part| part.bytes)?;
    Some(EntryGroup {
        largest: (**largest).clone(),
        parts: parts.len() as u64,
        count: sum(parts.iter().map(|part| part.count)),
        bytes: sum(parts.iter().map(|part| part.bytes)),
    })
}

/// A key while it grows.
struct KeyBuilder<'a> {
    part: &'a AttributionEntry,
    key: Key<'a>,
}

/// Begins a key: its owner is compared.
fn owned(part: &AttributionEntry) -> KeyBuilder<'_> {
    KeyBuilder { part, key: (Some(part.kind), None, None, None, None) }
}

/// Begins a key that does not compare the owner.
fn of_any_owner(part: &AttributionEntry) -> KeyBuilder<'_> {
    KeyBuilder { part, key: Key::default() }
}

impl<'a> KeyBuilder<'a> {
    fn path(mut self) -> Option<Self> {
        self.key.1 = Some(non_empty(&self.part.path)?);
        Some(self)
    }

    fn with_path(self) -> Option<Self> {
        non_empty(&self.part.path)?;
        Some(self)
    }

    fn without_path(self) -> Option<Self> {
        self.part.path.is_empty().then_some(self)
    }

    fn line(mut self, line: Option<Line>) -> Option<Self> {
        self.key.2 = Some(line?);
        Some(self)
    }

    fn with_producer(self) -> Option<Self> {
        non_empty(&self.part.made_by)?;
        Some(self)
    }

    fn producer(mut self) -> Option<Self> {
        self.key.3 = Some(unnumbered(&self.part.made_by));
        Some(self)
    }

    /// Compares the innermost operation only.
    fn operation(mut self) -> Option<Self> {
        self.key.3 = Some(operation(self.part));
        Some(self)
    }

    fn shape(mut self) -> Option<Self> {
        self.key.4 = Some(&self.part.shape);
        Some(self)
    }

    fn anonymous(self) -> Option<Self> {
        let part = self.part;
        let nothing = [&part.path, &part.site, &part.made_by];
        nothing.iter().all(|name| name.is_empty()).then_some(self)
    }
}

fn non_empty(name: &str) -> Option<&str> {
    Some(name).filter(|name| !name.is_empty())
}
