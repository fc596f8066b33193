//! Where to divide a function: what is alive between two segments is kept for the backward pass, and what
//! one segment makes exists again while its part of the backward pass runs.
//!
//! For each bound on the bytes that a segment makes, the cuts with the fewest bytes across them are found
//! by dynamic programming. Between the layers of a network few bytes are alive, so that is where cuts fall.

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

/// Returns ways to divide a function, the most promising first and at most `count`.
pub(super) fn divide(site: &Site, count: usize) -> Vec<Division> {
    let width = alive_bytes(site);
    let runs = runs_between_barriers(site);
    let total = site.made_bytes();
    let mut found: Vec<Division> = Vec::new();
    let mut parts = 2;
    while parts <= MAX_PARTS {
        let bound = total / u64::from(parts);
        let segments: Vec<(usize, usize)> = runs
            .iter()
            .flat_map(|run| divide_run(site, &width, *run, bound))
            .collect();
        if let Some(division) = without_last(site, &width, segments)
            && !found
                .iter()
                .any(|other| other.segments == division.segments)
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
/// Segments that make next to nothing are left out, too.
fn without_last(site: &Site, width: &[u64], mut segments: Vec<(usize, usize)>) -> Option<Division> {
    let total = site.made_bytes();
    let made = |&(start, stop): &(usize, usize)| -> u64 {
        let equations = &site.equations[start..stop];
        equations
            .iter()
            .map(|equation| equation.total_bytes())
            .sum()
    };
    let last = segments.pop()?;
    segments.retain(|segment| made(segment) > total / MIN_SEGMENT_SHARE);
    let largest = segments.iter().map(made).max()?;
    let kept: u64 = segments.iter().map(|(_, stop)| width[*stop]).sum();
    Some(Division {
        estimated_bytes: kept + largest.max(made(&last)),
        segments,
    })
}

/// Returns for each position the bytes made before it that are used at or after it.
fn alive_bytes(site: &Site) -> Vec<u64> {
    let count = site.equations.len();
    let values = site.input_bytes.len()
        + site
            .equations
            .iter()
            .map(|equation| equation.outputs.len())
            .sum::<usize>();
    let mut last_use = vec![0; values.max(1)];
    for (index, equation) in site.equations.iter().enumerate() {
        for &input in &equation.inputs {
            if let Some(last) = last_use.get_mut(input) {
                *last = index;
            }
        }
    }
    for &output in &site.outputs {
        if let Some(last) = usize::try_from(output)
            .ok()
            .and_then(|output| last_use.get_mut(output))
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
/// cuts; of equal ways that with the fewest segments. An equation that alone makes more is a segment.
fn divide_run(
    site: &Site,
    width: &[u64],
    (start, stop): (usize, usize),
    bound: u64,
) -> Vec<(usize, usize)> {
    let mut made = vec![0_u64; stop - start + 1];
    for (index, equation) in site.equations[start..stop].iter().enumerate() {
        made[index + 1] = made[index] + equation.total_bytes();
    }
    // For each position: the bytes across all cuts up to it, their number, and where the last segment begins.
    let mut best: Vec<(u64, usize, usize)> = vec![(u64::MAX, 0, 0); stop - start + 1];
    best[0] = (0, 0, 0);
    for end in 1..best.len() {
        let across = if end + start == stop {
            0
        } else {
            width[end + start]
        };
        for begin in (0..end).rev() {
            let bytes = made[end] - made[begin];
            if bytes > bound && begin + 1 < end {
                break;
            }
            let (cost, cuts, _) = best[begin];
            let candidate = (cost.saturating_add(across), cuts + 1, begin);
            if candidate < best[end] {
                best[end] = candidate;
            }
        }
    }
    let mut segments = Vec::new();
    let mut end = stop - start;
    while end > 0 {
        let begin = best[end].2;
        segments.push((begin + start, end + start));
        end = begin;
    }
    segments.reverse();
    segments
}
