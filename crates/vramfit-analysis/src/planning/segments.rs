//! Where to divide a function: what is alive between two segments is kept for the backward pass, and what
//! one segment makes exists again while its part of the backward pass runs.
//!
//! For each bound on the bytes that a segment makes, the cuts with the fewest bytes across them are found
//! by dynamic programming. Between the layers of a network few bytes are alive, so that is where cuts fall. Of
//! cuts with as many bytes those behind large products are better: what a segment ends with is not needed to
//! differentiate it, and not computed again.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::site::Site;

/// A way to divide a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Division {
    /// Ranges of equations, in order; what is in none is kept as the program has it.
    pub(super) segments: Vec<(usize, usize)>,
    /// Estimate of the bytes that are kept, and exist again at one time.
    pub(super) estimated_bytes: u64,
}

/// Bounds that are tried: fractions of all bytes that the function makes.
const MAX_PARTS: u32 = 96;
/// Below this many bytes, relative to all, a segment is not worth a boundary.
const MIN_SEGMENT_SHARE: u64 = 256;

/// How far behind a cut the operations lie that it spares.
const MAX_TAIL: usize = 64;
/// Primitives that are differentiated without their operands.
const LINEAR: &[&str] = &[
    "add",
    "add_any",
    "broadcast_in_dim",
    "concatenate",
    "convert_element_type",
    "copy",
    "neg",
    "reduce_sum",
    "reshape",
    "slice",
    "squeeze",
    "sub",
    "transpose",
];

/// Returns ways to divide a function, the most promising first and at most `count`.
pub(super) fn divide(site: &Site, count: usize) -> Vec<Division> {
    let width = alive_bytes(site);
    let spared = spared_flops(site);
    let runs = runs_between_barriers(site);
    let total = site.made_bytes();
    let mut found: Vec<Division> = Vec::new();
    let mut parts = 2;
    while parts <= MAX_PARTS {
        let bound = total / u64::from(parts);
        let segments: Vec<(usize, usize)> =
            runs.iter().flat_map(|run| divide_run(site, &width, &spared, *run, bound)).collect();
        if let Some(division) = without_last(site, &width, segments)
            && !found.iter().any(|other| other.segments == division.segments)
        {
            found.push(division);
        }
        parts = (parts * 5 / 4).max(parts + 1);
    }
    found.sort_by_key(|division| (division.estimated_bytes, division.segments.len()));
    found.truncate(count);
    found
}

/// Leaves out the last segment: its part of the backward pass comes first, when all of it is still there.
/// More of the last ones are left out as long as together they make no more than the largest of the others,
/// and so are segments that make next to nothing.
fn without_last(site: &Site, width: &[u64], mut segments: Vec<(usize, usize)>) -> Option<Division> {
    let total = site.made_bytes();
    let made = |segment: &(usize, usize)| site.segment_bytes(segment);
    let mut left_out = made(&segments.pop()?);
    segments.retain(|segment| made(segment) > total / MIN_SEGMENT_SHARE);
    while let Some((last, others)) = segments.split_last()
        && let Some(largest) = others.iter().map(made).max()
        && left_out + made(last) <= largest
    {
        left_out += made(last);
        segments.pop();
    }
    let largest = segments.iter().map(made).max()?;
    let kept: u64 = segments.iter().map(|(_, stop)| width[*stop]).sum();
    Some(Division { estimated_bytes: kept + largest.max(left_out), segments })
}

/// Returns for each position the bytes made before it that are used at or after it.
fn alive_bytes(site: &Site) -> Vec<u64> {
    let count = site.equations.len();
    let values = site.input_bytes.len()
        + site.equations.iter().map(|equation| equation.outputs.len()).sum::<usize>();
    let mut last_use = vec![0; values.max(1)];
    for (index, equation) in site.equations.iter().enumerate() {
        for &input in &equation.inputs {
            if let Some(last) = last_use.get_mut(input) {
                *last = index;
            }
        }
    }
    for &output in &site.outputs {
        if let Some(last) = usize::try_from(output).ok().and_then(|output| last_use.get_mut(output))
        {
            *last = count;
        }
    }
    // Differences first: a value is alive from behind its equation to its last use.
    let mut change = vec![0_i128; count + 2];
    for (index, equation) in site.equations.iter().enumerate() {
        for (output, bytes) in equation.outputs.iter().zip(&equation.bytes) {
            let last = last_use.get(*output).copied().unwrap_or(0);
            if last > index {
                change[index + 1] += i128::from(*bytes);
                change[last + 1] -= i128::from(*bytes);
            }
        }
    }
    let mut alive = 0;
    change[..=count]
        .iter()
        .map(|difference| {
            alive += difference;
            u64::try_from(alive).unwrap_or(0)
        })
        .collect()
}

/// Returns for each position the operations that a segment which ends there does not compute again: of
/// values that nothing in the segment needs for its derivative.
fn spared_flops(site: &Site) -> Vec<u64> {
    let mut users: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
    for (index, equation) in site.equations.iter().enumerate() {
        for &input in &equation.inputs {
            users.entry(input).or_default().push(index);
        }
    }
    let is_linear = |index: usize| LINEAR.contains(&site.equations[index].name.as_str());
    let spared = |stop: usize| {
        let mut tail: Vec<usize> = Vec::new();
        for index in (stop.saturating_sub(MAX_TAIL)..stop).rev() {
            let outputs = site.equations[index].outputs.iter();
            let mut users = outputs.filter_map(|output| users.get(output)).flatten();
            if users.all(|&user| user >= stop || (is_linear(user) && tail.contains(&user))) {
                tail.push(index);
            }
        }
        tail.iter().map(|&index| site.equations[index].flops).sum()
    };
    (0..=site.equations.len()).map(spared).collect()
}

/// Returns the ranges of equations that have no barrier among them.
fn runs_between_barriers(site: &Site) -> Vec<(usize, usize)> {
    let mut runs = Vec::new();
    let mut start = 0;
    for (index, equation) in site.equations.iter().enumerate() {
        if equation.barrier {
            runs.push((start, index));
            start = index + 1;
        }
    }
    runs.push((start, site.equations.len()));
    runs.retain(|(start, stop)| start < stop);
    runs
}

/// Divides one run into segments that make at most `bound` bytes each, with the fewest bytes across the
/// cuts; of equal ways that with the fewest segments, and then that which spares the most operations. An
/// equation that alone makes more is a segment.
fn divide_run(
    site: &Site,
    width: &[u64],
    spared: &[u64],
    (start, stop): (usize, usize),
    bound: u64,
) -> Vec<(usize, usize)> {
    let mut made = vec![0_u64; stop - start + 1];
    for (index, equation) in site.equations[start..stop].iter().enumerate() {
        made[index + 1] = made[index] + equation.total_bytes();
    }
    // For each position: the bytes across all cuts up to it, their number, the operations they spare, and where
    // the last segment begins.
    let unreached = (u64::MAX, 0, Reverse(0), 0);
    let mut best: Vec<(u64, usize, Reverse<u64>, usize)> = vec![unreached; stop - start + 1];
    best[0] = (0, 0, Reverse(0), 0);
    for end in 1..best.len() {
        let across = if end + start == stop { 0 } else { width[end + start] };
        for begin in (0..end).rev() {
            let bytes = made[end] - made[begin];
            if bytes > bound && begin + 1 < end {
                break;
            }
            let (cost, cuts, Reverse(flops), _) = best[begin];
            let flops = Reverse(flops.saturating_add(spared[end + start]));
            let candidate = (cost.saturating_add(across), cuts + 1, flops, begin);
            if candidate < best[end] {
                best[end] = candidate;
            }
        }
    }
    let mut segments = Vec::new();
    let mut end = stop - start;
    while end > 0 {
        let begin = best[end].3;
        segments.push((begin + start, end + start));
        end = begin;
    }
    segments.reverse();
    segments
}
