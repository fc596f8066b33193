//! Which values inside of segments are worth keeping: those that take the longest to compute again for
//! their bytes. Equal layers are alike, so equal equations are kept together or not at all.

use std::collections::BTreeMap;

use super::site::Site;

/// Equations that are kept or computed again together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    /// Their indices.
    pub(super) equations: Vec<usize>,
    /// What they make, in bytes.
    pub(super) bytes: u64,
    /// What computing them again takes.
    pub(super) flops: u64,
}

/// Operations that one byte is worth at least: below, reading the value takes as long as computing it.
const MIN_FLOPS_PER_BYTE: u64 = 8;

/// Returns the groups of expensive equations in the segments, by operations per byte in descending order.
pub(super) fn expensive_groups(site: &Site, segments: &[(usize, usize)]) -> Vec<Group> {
    let mut groups: BTreeMap<(&str, &[String], &str), Group> = BTreeMap::new();
    for &(start, stop) in segments {
        for index in start..stop {
            let equation = &site.equations[index];
            let bytes = equation.total_bytes();
            if bytes == 0 || equation.flops / bytes < MIN_FLOPS_PER_BYTE {
                continue;
            }
            let key = (&*equation.name, &*equation.shape, &*equation.line);
            let group = groups.entry(key).or_insert_with(|| Group {
                equations: Vec::new(),
                bytes: 0,
                flops: 0,
            });
            group.equations.push(index);
            group.bytes += bytes;
            group.flops += equation.flops;
        }
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by(|a, b| {
        let density = |group: &Group| group.flops as f64 / group.bytes as f64;
        density(b).total_cmp(&density(a)).then(a.equations.cmp(&b.equations))
    });
    groups
}
