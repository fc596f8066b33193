//! What takes most of the memory at the moment that decides, and what would remain without it.
//!
//! A value and its gradient, or a value and its copy, are one thing: buffers that a program computes are
//! grouped by their number of elements, whoever owns them and whatever line makes them. Everything else is
//! grouped by its owner, and arrays that no running program knows of by the line that made them.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::attribution::Attribution;
use super::attribution_entry::{AttributionEntry, EntryKind};
use super::summary::RunSummary;
use crate::program::memory::{Buffer, Owner};
use crate::program::{ElementType, ProgramMemory, parse_dimensions, workspace};

/// What memory is used for at the moment that decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// What all groups add up to: the bytes in use, and the request where one failed.
    pub total_bytes: u64,
    /// The groups, the largest first; never empty.
    pub groups: Vec<CauseGroup>,
    /// The peak without the first group; `None` where that is not temporaries of a program.
    pub next_peak: Option<NextPeak>,
}

/// Bytes that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct CauseGroup {
    key: GroupKey,
    /// How many bytes.
    pub bytes: u64,
    /// How many buffers or arrays.
    pub count: u64,
    /// The largest of them.
    pub largest: AttributionEntry,
    /// Of values that a program computes, how many there are of each size, the largest first.
    pub sizes: Vec<ValueSize>,
    /// The lines that make them, with the bytes of each, the largest first.
    pub lines: Vec<(String, u64)>,
}

/// Values with as many elements, of types that take as many bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSize {
    bits: u32,
    /// The shape of one of them: that with the most dimensions says most.
    pub shape: String,
    /// How many they are.
    pub count: u64,
}

/// The highest use of memory when a group is gone, as the compiled program is: without it, XLA would
/// schedule anew.
#[derive(Clone, Debug, PartialEq)]
pub struct NextPeak {
    /// The bytes in use then, padding left out.
    pub total_bytes: u64,
    /// What most of them belong to.
    pub group: CauseGroup,
    /// The time of the program at which that is.
    pub at: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum GroupKey {
    /// What a program computes, by its number of elements.
    Elements(u64),
    /// Arrays, by the line that made them.
    Line(EntryKind, String),
    /// Workspaces of a library's routines, which have a size but no values.
    Workspace(String),
    /// Everything of an owner.
    Owner(EntryKind),
}

impl GroupKey {
    fn of(entry: &AttributionEntry) -> Self {
        match entry.kind {
            EntryKind::Program(_) if workspace::is_name(&entry.made_by) => {
                GroupKey::Workspace(entry.made_by.clone())
            }
            EntryKind::Program(Owner::Activations | Owner::Temporaries) => {
                match element_count(&entry.shape) {
                    Some(count) => GroupKey::Elements(count),
                    None => GroupKey::Owner(entry.kind),
                }
            }
            EntryKind::Arrays | EntryKind::OtherArrays => {
                GroupKey::Line(entry.kind, entry.site.clone())
            }
            kind => GroupKey::Owner(kind),
        }
    }
}

impl CauseGroup {
    /// Returns `true` if it is values that a program computes, of one size.
    pub fn is_values(&self) -> bool {
        matches!(self.key, GroupKey::Elements(_))
    }

    /// Returns what a library's workspaces are called, if it is those.
    pub fn workspace(&self) -> Option<&str> {
        match &self.key {
            GroupKey::Workspace(name) => Some(name),
            _ => None,
        }
    }

    fn add_size(&mut self, entry: &AttributionEntry) {
        if !self.is_values() {
            return;
        }
        let bits = element_bits(&entry.shape);
        match self.sizes.iter_mut().find(|size| size.bits == bits) {
            Some(size) => {
                size.count += entry.count;
                if dimensions(&entry.shape) > dimensions(&size.shape) {
                    size.shape.clone_from(&entry.shape);
                }
            }
            None => {
                self.sizes.push(ValueSize { bits, shape: entry.shape.clone(), count: entry.count });
            }
        }
    }
}

impl Cause {
    /// Returns what memory is used for; `None` where nothing was allocated.
    pub fn of(summary: &RunSummary) -> Option<Cause> {
        let attribution = summary.attribution.as_ref()?;
        let groups = group(attribution.parts.iter().cloned());
        let memory = summary.program_memory.as_ref();
        let memory = memory.filter(|memory| Some(memory.program) == attribution.program);
        let first = groups.first()?;
        let next_peak = memory
            .filter(|_| first.is_values())
            .and_then(|memory| NextPeak::without(&first.key, attribution, &memory.memory));
        Some(Cause { total_bytes: attribution.total_bytes, groups, next_peak })
    }
}

impl NextPeak {
    fn without(
        key: &GroupKey,
        attribution: &Attribution,
        memory: &ProgramMemory,
    ) -> Option<NextPeak> {
        let last = memory.instructions.len().checked_sub(1)? as u32;
        // What is not in the temporary block lives from beginning to end.
        let is_temporary = |buffer: &&Buffer| buffer.end <= last && buffer.start <= buffer.end;
        let temporaries = memory.buffers.iter().filter(is_temporary);
        let (gone, kept): (Vec<_>, Vec<_>) = temporaries
            .map(|buffer| (buffer, AttributionEntry::of_buffer(memory, buffer)))
            .partition(|(_, entry)| GroupKey::of(entry) == *key);
        // What the forward pass of another program saves lies in arrays of its own.
        let in_block: u64 = gone.iter().map(|(buffer, _)| buffer.peak_bytes).sum();
        let of_key = attribution.parts.iter().filter(|part| GroupKey::of(part) == *key);
        let beside_block = of_key.map(|part| part.bytes).sum::<u64>().saturating_sub(in_block);
        let mut change = vec![0_i128; memory.instructions.len() + 1];
        for (buffer, _) in &kept {
            change[buffer.start as usize] += i128::from(buffer.bytes);
            change[buffer.end as usize + 1] -= i128::from(buffer.bytes);
        }
        let mut live = 0;
        let levels = change.iter().map(|change| {
            live += change;
            live
        });
        let levels = levels.enumerate();
        let (time, live) = levels.max_by_key(|(time, live)| (*live, Reverse(*time)))?;
        let time = time as u32;
        let beside = attribution.total_bytes.checked_sub(memory.temp_bytes)?;
        let beside = beside.saturating_sub(beside_block);
        let at_time = kept
            .into_iter()
            .filter(|(buffer, _)| (buffer.start..=buffer.end).contains(&time))
            .map(|(buffer, entry)| AttributionEntry { bytes: buffer.bytes, count: 1, ..entry });
        let is_temporary = |kind| {
            use Owner::{Activations, Gradients, Padding, Temporaries};
            matches!(kind, EntryKind::Program(Activations | Gradients | Padding | Temporaries))
        };
        let parts = attribution.parts.iter();
        let others = parts.filter(|part| !is_temporary(part.kind)).cloned();
        let group = group(others.chain(at_time)).into_iter().next()?;
        Some(NextPeak {
            total_bytes: beside.saturating_add(u64::try_from(live).unwrap_or(0)),
            group,
            at: time,
        })
    }
}

/// Groups entries, and sorts the groups by bytes.
fn group(entries: impl Iterator<Item = AttributionEntry>) -> Vec<CauseGroup> {
    let mut groups: FxHashMap<GroupKey, CauseGroup> = FxHashMap::default();
    for entry in entries {
        let key = GroupKey::of(&entry);
        let group = groups.entry(key.clone()).or_insert_with(|| CauseGroup {
            key,
            bytes: 0,
            count: 0,
            largest: AttributionEntry::default(),
            sizes: Vec::new(),
            lines: Vec::new(),
        });
        group.bytes = group.bytes.saturating_add(entry.bytes);
        group.count += entry.count;
        group.add_size(&entry);
        let mut lines = group.lines.iter_mut();
        match lines.find(|(line, _)| *line == entry.site) {
            Some((_, bytes)) => *bytes = bytes.saturating_add(entry.bytes),
            None if entry.site.is_empty() => {}
            None => group.lines.push((entry.site.clone(), entry.bytes)),
        }
        // Of shapes of one size the one with more dimensions says more.
        let rank = |entry: &AttributionEntry| (entry.bytes, dimensions(&entry.shape));
        if rank(&entry) > rank(&group.largest) {
            group.largest = entry;
        }
    }
    let mut groups: Vec<CauseGroup> = groups.into_values().collect();
    for group in &mut groups {
        group.lines.sort_by_key(|(_, bytes)| Reverse(*bytes));
        group.sizes.sort_by_key(|size| Reverse(size.bits));
    }
    groups.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.key.cmp(&b.key)));
    groups
}

fn dimensions(shape: &str) -> usize {
    shape.matches(',').count()
}

/// Returns how many bits an element of a shape such as `f32[16,1024]` takes; 0 if the type is not known.
fn element_bits(shape: &str) -> u32 {
    let (name, _) = shape.split_once('[').unwrap_or_default();
    ElementType::from_name(name).map_or(0, ElementType::bits)
}

/// Returns how many elements a shape such as `f32[16,1024]` has; `None` for a tuple, or what is none.
fn element_count(shape: &str) -> Option<u64> {
    let mut dimensions = parse_dimensions(shape)?.into_iter();
    dimensions.try_fold(1_u64, u64::checked_mul)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(owner: Owner, shape: &str, site: &str, bytes: u64) -> AttributionEntry {
        AttributionEntry {
            kind: EntryKind::Program(owner),
            shape: shape.to_owned(),
            site: site.to_owned(),
            count: 1,
            bytes,
            ..AttributionEntry::default()
        }
    }

    #[test]
    fn shapes_have_elements_and_tuples_have_none() {
        assert_eq!(element_count("f32[16,1024]"), Some(16_384));
        assert_eq!(element_count("bf16[]"), Some(1));
        assert_eq!(element_count("(f32[4], s32[])"), None);
        assert_eq!(element_count(""), None);
    }

    #[test]
    fn a_value_and_its_gradient_are_one_thing() {
        let groups = group(
            [
                entry(Owner::Activations, "f32[32,50]", "a.py:1 (f)", 6400),
                entry(Owner::Temporaries, "bf16[4,8,50]", "a.py:2 (f)", 3200),
                entry(Owner::Temporaries, "f32[7]", "a.py:3 (f)", 28),
                entry(Owner::OptimizerState, "f32[32,50]", "", 6400),
                entry(Owner::OptimizerState, "f32[9]", "", 36),
            ]
            .into_iter(),
        );
        let sizes: Vec<_> = groups.iter().map(|it| (it.bytes, it.count)).collect();
        assert_eq!(sizes, [(9600, 2), (6436, 2), (28, 1)]);
        let lines = [("a.py:1 (f)".to_owned(), 6400), ("a.py:2 (f)".to_owned(), 3200)];
        assert_eq!(groups[0].lines, lines);
        assert!(groups[0].is_values() && !groups[1].is_values());
        let sizes = groups[0].sizes.iter();
        let sizes: Vec<_> = sizes.map(|it| (it.shape.as_str(), it.count)).collect();
        assert_eq!(sizes, [("f32[32,50]", 1), ("bf16[4,8,50]", 1)]);
    }

    #[test]
    fn without_the_largest_group_another_moment_is_the_peak() {
        let buffer = |shape: &str, bytes, start, end| Buffer {
            owner: Owner::Temporaries,
            shape: shape.to_owned(),
            bytes,
            start,
            end,
            ..Buffer::default()
        };
        let memory = ProgramMemory {
            buffers: vec![
                buffer("f32[100]", 400, 0, 1),
                buffer("f32[50]", 200, 1, 1),
                buffer("f32[75]", 300, 3, 3),
                // The same size at another time goes, too.
                buffer("f32[10,10]", 400, 3, 3),
            ],
            instructions: vec![String::new(); 4],
            temp_bytes: 700,
            ..ProgramMemory::default()
        };
        let attribution = Attribution {
            total_bytes: 1000,
            parts: vec![entry(Owner::Parameters, "f32[75]", "", 300)],
            ..Attribution::default()
        };
        let next = NextPeak::without(&GroupKey::Elements(100), &attribution, &memory);
        let next = next.expect("something is left");
        assert_eq!(next.total_bytes, 600);
        assert_eq!((next.group.bytes, next.group.largest.shape.as_str()), (300, "f32[75]"));
        let all = NextPeak::without(&GroupKey::Elements(1), &attribution, &memory);
        assert_eq!(all.expect("all of it").total_bytes, 1000);
    }
}
