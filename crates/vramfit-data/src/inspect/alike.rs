//! Members of a group that are alike: episodes, trajectories, shards of an array.

use std::collections::HashMap;
use std::ops::Range;

use serde::Serialize;

use super::Entry;
use crate::natural_order;

/// Fewer members are listed one by one.
const MIN_MEMBERS: usize = 4;

/// Members of one group with the same contents, but for the number of rows, and with names that differ in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct AlikeMembers {
    /// Their paths, with a wildcard for what differs: `/data/demo_*`.
    pub pattern: String,
    /// The kind of each: `group` or `dataset`.
    pub kind: &'static str,
    /// How many there are.
    pub count: usize,
    /// The name of the first one, with numbers compared by value.
    pub first: String,
    /// The name of the last one.
    pub last: String,
    /// The fewest and the most rows of a dataset in one of them; none if they have no datasets.
    pub rows: Option<(u64, u64)>,
    /// The first one among the entries, with what is in it.
    #[serde(skip)]
    pub shown: Range<usize>,
    /// The others, in the order of their names.
    #[serde(skip)]
    pub hidden: Vec<Range<usize>>,
}

/// Finds members that are alike. What is in one of them is not looked at again.
pub(super) fn find_alike(entries: &[Entry]) -> Vec<AlikeMembers> {
    let mut found = Vec::new();
    let mut groups = vec![0];
    while let Some(group) = groups.pop() {
        let members = members(entries, group);
        let mut alike: HashMap<(String, Vec<String>), Vec<Range<usize>>> = HashMap::new();
        for member in members {
            let name = without_numbers(name(&entries[member.start]));
            alike.entry((name, contents(&entries[member.clone()]))).or_default().push(member);
        }
        for (_, mut members) in alike {
            let is_listed = members.len() < MIN_MEMBERS
                || !matches!(entries[members[0].start].kind, "group" | "dataset");
            if is_listed {
                groups.extend(members.iter().map(|member| member.start));
                continue;
            }
            members.sort_by(|one, other| {
                natural_order::compare(name(&entries[one.start]), name(&entries[other.start]))
            });
            found.push(describe(entries, &members));
            groups.push(members[0].start);
        }
    }
    found.sort_by_key(|alike| alike.shown.start);
    found
}

/// The path of each entry with wildcards for the names of members that are alike, and whether the entry is hidden by such.
pub(super) fn find_patterns(entries: &[Entry], alike: &[AlikeMembers]) -> Vec<(String, bool)> {
    let mut names: Vec<Vec<&str>> =
        entries.iter().map(|entry| entry.path.split('/').collect()).collect();
    let mut is_hidden = vec![false; entries.len()];
    for members in alike {
        let (parent, name) = members.pattern.rsplit_once('/').unwrap_or(("", &members.pattern));
        let place = parent.matches('/').count() + 1;
        for entry in members.shown.clone() {
            names[entry][place] = name;
        }
    }
    // Those that hide others come first.
    for members in alike {
        for hidden in &members.hidden {
            for (hidden, shown) in hidden.clone().zip(members.shown.clone()) {
                names[hidden] = names[shown].clone();
                is_hidden[hidden] = true;
            }
        }
    }
    names.iter().map(|names| names.join("/")).zip(is_hidden).collect()
}

fn describe(entries: &[Entry], members: &[Range<usize>]) -> AlikeMembers {
    let names: Vec<&str> = members.iter().map(|member| name(&entries[member.start])).collect();
    let (first, last) = (names[0], names[names.len() - 1]);
    let datasets = members.iter().flat_map(|member| &entries[member.clone()]);
    let rows = datasets.filter_map(|entry| entry.dataset.as_ref()?.shape.first().copied());
    let rows = rows.fold(None, |range: Option<(u64, u64)>, rows| match range {
        None => Some((rows, rows)),
        Some((least, most)) => Some((least.min(rows), most.max(rows))),
    });
    let entry = &entries[members[0].start];
    let parent = entry.path.rsplit_once('/').map_or("", |(parent, _)| parent);
    AlikeMembers {
        pattern: format!("{parent}/{}", wildcard(&names)),
        kind: entry.kind,
        count: members.len(),
        first: first.to_owned(),
        last: last.to_owned(),
        rows,
        shown: members[0].clone(),
        hidden: members[1..].to_vec(),
    }
}

/// Returns the entries of each member of a group: the member itself, and what is in it.
fn members(entries: &[Entry], group: usize) -> Vec<Range<usize>> {
    let prefix = format!("{}/", entries[group].path.trim_end_matches('/'));
    let mut members: Vec<Range<usize>> = Vec::new();
    for (number, entry) in entries.iter().enumerate().skip(group + 1) {
        let Some(rest) = entry.path.strip_prefix(&prefix) else {
            break;
        };
        match members.last_mut() {
            Some(member) if rest.contains('/') => member.end = number + 1,
            _ => members.push(number..number + 1),
        }
    }
    members
}

/// Returns what makes two members alike: names, types and storage of all that is in them, without numbers of rows.
fn contents(entries: &[Entry]) -> Vec<String> {
    let prefix = entries[0].path.len();
    let describe = |entry: &Entry| {
        let mut text = format!("{} {}", entry.kind, &entry.path[prefix..]);
        if let Some(info) = &entry.dataset {
            let rest = info.shape.get(1..).unwrap_or_default();
            let (rank, filters) = (info.shape.len(), info.filters.join("+"));
            text.push_str(&format!(" {} {rank} {rest:?} {} {filters}", info.dtype, info.layout));
        }
        if let Some(problem) = &entry.problem {
            text.push_str(&problem.message);
        }
        text.push_str(entry.target.as_deref().unwrap_or_default());
        text + &entry.attributes.join(",")
    };
    entries.iter().map(describe).collect()
}

fn name(entry: &Entry) -> &str {
    entry.path.rsplit('/').next().unwrap_or_default()
}

/// Returns a name with a character that is in no name in place of each number.
fn without_numbers(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        match c.is_ascii_digit() {
            true if text.ends_with('\0') => {}
            true => text.push('\0'),
            false => text.push(c),
        }
    }
    text
}

/// Returns a pattern that all names match.
fn wildcard(names: &[&str]) -> String {
    let first = names[0];
    let common = |one: &str, other: &str| {
        let pairs = one.char_indices().zip(other.chars());
        pairs.take_while(|((_, a), b)| a == b).map(|((at, a), _)| at + a.len_utf8()).last()
    };
    let start = names.iter().map(|name| common(first, name).unwrap_or(0)).min().unwrap_or(0);
    let reversed = |name: &str| name.chars().rev().collect::<String>();
    let last = reversed(first);
    let ends = names.iter().map(|name| common(&last, &reversed(name)).unwrap_or(0));
    let shortest = names.iter().map(|name| name.len()).min().unwrap_or(0);
    let end = ends.min().unwrap_or(0).min(shortest - start);
    // Digits that happen to be the same are no part of the pattern.
    let head = first[..start].trim_end_matches(|c: char| c.is_ascii_digit());
    let tail = first[first.len() - end..].trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{head}*{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_stands_for_what_differs() {
        for (names, expected) in [
            (&["demo_0", "demo_1", "demo_10"][..], "demo_*"),
            (&["ep_10_x", "ep_11_x"][..], "ep_*_x"),
            (&["1", "2"][..], "*"),
            (&["a1a", "a11a"][..], "a*a"),
            (&["é1é", "é2é"][..], "é*é"),
        ] {
            assert_eq!(wildcard(names), expected);
        }
    }
}
