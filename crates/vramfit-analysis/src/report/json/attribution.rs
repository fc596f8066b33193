//! Memory by owner, as a part of what `vramfit dryrun --json` prints.

use std::cmp::Reverse;

use serde_json::{Value, json};

use crate::analysis::{Attribution, AttributionEntry, Cause, CauseGroup, ProgramSummary};

/// Entries that are listed one by one.
const MAX_ENTRIES: usize = 1000;
/// Groups that are listed of what takes the memory.
const MAX_GROUPS: usize = 10;
/// Kind of the entry that stands for all smaller ones.
const REMAINDER: &str = "remainder";

/// Returns the bytes of each kind of owner, the largest first.
pub(super) fn owners(attribution: Option<&Attribution>) -> Vec<Value> {
    let mut kinds: Vec<(&str, u64)> = Vec::new();
    for entry in attribution.iter().flat_map(|it| &it.parts) {
        let kind = entry.kind.id();
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, bytes)) => *bytes = bytes.saturating_add(entry.bytes),
            None => kinds.push((kind, entry.bytes)),
        }
    }
    kinds.sort_by_key(|(_, bytes)| Reverse(*bytes));
    let kinds = kinds.into_iter();
    kinds.map(|(kind, bytes)| json!({"kind": kind, "bytes": bytes})).collect()
}

/// Returns the entries, the largest first, with one for all that are not listed.
pub(super) fn attribution(attribution: &Attribution, programs: &[ProgramSummary]) -> Value {
    let program = attribution.program.and_then(|at| programs.get(at));
    let (listed, rest) = attribution.parts.split_at(attribution.parts.len().min(MAX_ENTRIES));
    let mut entries: Vec<_> = listed.iter().map(|it| entry(it.kind.id(), it)).collect();
    if !rest.is_empty() {
        let sum =
            |of: fn(&AttributionEntry) -> u64| rest.iter().map(of).fold(0, u64::saturating_add);
        let remainder = AttributionEntry {
            count: sum(|entry| entry.count),
            bytes: sum(|entry| entry.bytes),
            ..AttributionEntry::default()
        };
        entries.push(entry(REMAINDER, &remainder));
    }
    json!({
        "device": attribution.device,
        "at_failure": attribution.refused,
        "program": program.map(|program| &program.name),
        "total_bytes": attribution.total_bytes,
        "entries": entries,
    })
}

/// Returns the largest groups, and what would remain without the first.
pub(super) fn cause(cause: &Cause) -> Value {
    let groups = cause.groups.iter().take(MAX_GROUPS).map(group);
    json!({
        "groups": groups.collect::<Vec<_>>(),
        "next_peak": cause.next_peak.as_ref().map(|next| json!({
            "total_bytes": next.total_bytes,
            "group": group(&next.group),
        })),
    })
}

fn group(group: &CauseGroup) -> Value {
    let lines = group.lines.iter();
    let lines = lines.map(|(site, bytes)| json!({"site": site, "bytes": bytes}));
    json!({
        "kind": group.largest.kind.id(),
        "across_owners": group.is_values(),
        "bytes": group.bytes,
        "count": group.count,
        "path": group.largest.path,
        "shape": group.largest.shape,
        "lines": lines.collect::<Vec<_>>(),
    })
}

fn entry(kind: &str, entry: &AttributionEntry) -> Value {
    json!({
        "kind": kind,
        "path": entry.path,
        "site": entry.site,
        "shape": entry.shape,
        "producer": entry.made_by,
        "stacked": entry.stacked,
        "rematerialized": entry.rematerialized,
        "read_later": entry.read_later,
        "count": entry.count,
        "bytes": entry.bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::EntryKind;
    use crate::program::memory::Owner;

    fn sample(entries: u64) -> Attribution {
        // Sizes from `entries` down to 1, of two kinds in turn.
        let entry = |size: u64| AttributionEntry {
            kind: match size % 2 {
                0 => EntryKind::Arrays,
                _ => EntryKind::Program(Owner::Activations),
            },
            path: format!("x[{size}]"),
            count: 2,
            bytes: size,
            ..AttributionEntry::default()
        };
        Attribution {
            total_bytes: entries * (entries + 1) / 2,
            parts: (1..=entries).rev().map(entry).collect(),
            ..Attribution::default()
        }
    }

    fn bytes(entries: &[Value]) -> u64 {
        entries.iter().filter_map(|it| it["bytes"].as_u64()).sum()
    }

    #[test]
    fn entries_beyond_the_limit_are_one() {
        let sample = sample(1003);
        let object = attribution(&sample, &[]);
        let entries = object["entries"].as_array().expect("a list");
        assert_eq!(entries.len(), MAX_ENTRIES + 1);
        // The sizes 3, 2 and 1, two of each.
        let last = entries.last().expect("there are some");
        assert_eq!((&last["kind"], &last["bytes"]), (&json!(REMAINDER), &json!(6)));
        assert_eq!(last["count"], 6);
        assert_eq!(bytes(entries), sample.total_bytes);
        assert_eq!(bytes(&owners(Some(&sample))), sample.total_bytes);
    }

    #[test]
    fn few_entries_are_all_listed() {
        let sample = sample(3);
        let object = attribution(&sample, &[]);
        let entries = object["entries"].as_array().expect("a list").iter();
        let paths: Vec<_> = entries.map(|entry| &entry["path"]).collect();
        assert_eq!(paths, ["x[3]", "x[2]", "x[1]"]);
        assert_eq!(
            owners(Some(&sample)),
            [json!({"kind": "activations", "bytes": 4}), json!({"kind": "arrays", "bytes": 2})]
        );
    }
}
