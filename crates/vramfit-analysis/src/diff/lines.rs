//! Which lines of two versions of a program are the same line.
//!
//! The sources are not at hand, and need not be: the lines of a function that are named in both runs are
//! put side by side in their order, as a diff of texts does it, so that those come together of which
//! most operations agree. An edit above a line moves its number and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use crate::analysis::AttributionEntry;

/// A line, the same number in both runs where it is the same line.
pub(super) type Line = u32;

/// Pairs of lines of one function that are weighed at most; above that equal numbers are the same line.
const MAX_ALIGNMENT_CELLS: usize = 1 << 22;

/// The lines that the parts of two runs name.
#[derive(Default)]
pub(super) struct Lines<'a>([FxHashMap<&'a str, Line>; 2]);

/// Lines of one function by number: the site as it is written, and what is made there.
type FunctionLines<'a> = BTreeMap<u64, (&'a str, BTreeSet<&'a str>)>;

impl<'a> Lines<'a> {
    /// Finds out which lines are the same.
    pub(super) fn of(a: &'a [AttributionEntry], b: &'a [AttributionEntry]) -> Self {
        let files = |parts: &'a [AttributionEntry]| -> BTreeSet<&'a str> {
            parts.iter().map(|part| Site::read(&part.site).file).collect()
        };
        let (files_a, files_b) = (files(a), files(b));
        let mut functions: BTreeMap<(&str, &str), [FunctionLines<'a>; 2]> = BTreeMap::new();
        for (side, parts) in [a, b].into_iter().enumerate() {
            for part in parts.iter().filter(|part| !part.site.is_empty()) {
                let site = Site::read(&part.site);
                // A checkout in another folder is the same program.
                let in_both = files_a.contains(site.file) && files_b.contains(site.file);
                let file = match in_both {
                    true => site.file,
                    false => site.file.rsplit('/').next().unwrap_or(site.file),
                };
                let function = functions.entry((file, site.function)).or_default();
                let line = &mut function[side];
                let line = line.entry(site.line).or_insert((&part.site, BTreeSet::new()));
                line.1.insert(match part.path.is_empty() {
                    true => operation(part),
                    false => &part.path,
                });
            }
        }
        let mut lines = Lines::default();
        let mut next: Line = 0;
        for [in_a, in_b] in functions.values() {
            for (of_a, of_b) in aligned(in_a, in_b) {
                lines.0[0].extend(of_a.map(|site| (site, next)));
                lines.0[1].extend(of_b.map(|site| (site, next)));
                next += 1;
            }
        }
        lines
    }

    /// Returns the line of a part of A (side 0) or B (side 1), if it has one.
    pub(super) fn line(&self, side: usize, part: &AttributionEntry) -> Option<Line> {
        self.0[side].get(part.site.as_str()).copied()
    }
}

/// A site in its parts.
struct Site<'a> {
    file: &'a str,
    line: u64,
    function: &'a str,
}

impl<'a> Site<'a> {
    /// Reads `file:line (function)`; a text of another form is a file.
    fn read(text: &'a str) -> Self {
        let (place, function) = match text.strip_suffix(')').and_then(|text| text.rsplit_once(" ("))
        {
            Some((place, function)) => (place, function),
            None => (text, ""),
        };
        let numbered = place.rsplit_once(':');
        match numbered.and_then(|(file, line)| Some((file, line.parse().ok()?))) {
            Some((file, line)) => Site { file, line, function },
            None => Site { file: text, line: 0, function: "" },
        }
    }
}

/// Lines that are the same, or one that only one run has.
type LinePair<'a> = (Option<&'a str>, Option<&'a str>);

/// Puts the lines of a function side by side; each is there once.
fn aligned<'a>(a: &FunctionLines<'a>, b: &FunctionLines<'a>) -> Vec<LinePair<'a>> {
    if a.len().saturating_mul(b.len()) > MAX_ALIGNMENT_CELLS {
        return by_number(a, b);
    }
    // Of two ways that are as good the first is taken, so the order of the runs must not decide.
    let content = |function: &FunctionLines<'a>| -> Vec<_> {
        let lines = function.iter();
        lines.map(|(line, (_, made))| (*line, made.clone())).collect()
    };
    if content(a) > content(b) {
        let swapped = by_content(b, a).into_iter();
        return swapped.map(|(of_b, of_a)| (of_a, of_b)).collect();
    }
    by_content(a, b)
}

fn by_number<'a>(a: &FunctionLines<'a>, b: &FunctionLines<'a>) -> Vec<LinePair<'a>> {
    let site = |function: &FunctionLines<'a>, line| function.get(line).map(|(site, _)| *site);
    let lines: BTreeSet<&u64> = a.keys().chain(b.keys()).collect();
    let pairs = lines.into_iter();
    pairs.map(|line| (site(a, line), site(b, line))).collect()
}

/// Finds the way to put lines side by side, in their order, in which most operations agree.
fn by_content<'a>(a: &FunctionLines<'a>, b: &FunctionLines<'a>) -> Vec<LinePair<'a>> {
    let a: Vec<_> = a.iter().collect();
    let b: Vec<_> = b.iter().collect();
    let weight = |at: usize, other: usize| {
        let ((line_a, (_, made_a)), (line_b, (_, made_b))) = (a[at], b[other]);
        let shared = made_a.intersection(made_b).count() as u64;
        2 * shared + u64::from(line_a == line_b)
    };
    // The best that can be had of the lines from here on.
    let width = b.len() + 1;
    let mut best = vec![0u64; (a.len() + 1) * width];
    for at in (0..a.len()).rev() {
        for other in (0..b.len()).rev() {
            let together = match weight(at, other) {
                0 => 0,
                weight => weight + best[(at + 1) * width + other + 1],
            };
            let apart = best[(at + 1) * width + other].max(best[at * width + other + 1]);
            best[at * width + other] = together.max(apart);
        }
    }
    let of_a = |at: usize| Some(a[at].1.0);
    let of_b = |other: usize| Some(b[other].1.0);
    let mut pairs = Vec::new();
    let (mut at, mut other) = (0, 0);
    while at < a.len() && other < b.len() {
        let here = best[at * width + other];
        let weight = weight(at, other);
        if weight > 0 && here == weight + best[(at + 1) * width + other + 1] {
            pairs.push((of_a(at), of_b(other)));
            (at, other) = (at + 1, other + 1);
        } else if here == best[(at + 1) * width + other] {
            pairs.push((of_a(at), None));
            at += 1;
        } else {
            pairs.push((None, of_b(other)));
            other += 1;
        }
    }
    pairs.extend((at..a.len()).map(|at| (of_a(at), None)));
    pairs.extend((other..b.len()).map(|other| (None, of_b(other))));
    pairs
}

/// Returns the innermost operation that makes a part.
pub(super) fn operation(part: &AttributionEntry) -> &str {
    let last = part.made_by.rsplit('/').next().unwrap_or_default();
    unnumbered(last)
}

/// Leaves away the number that XLA puts behind the name of an instruction.
pub(super) fn unnumbered(name: &str) -> &str {
    let end = name.trim_end_matches(|c: char| c.is_ascii_digit());
    match end.strip_suffix('.') {
        Some(bare) if end.len() < name.len() && !bare.is_empty() => bare,
        _ => name,
    }
}
