//! Phrases that several sections use.

use crate::analysis::{RequestContext, RunSummary};
use crate::bytes::Bytes;
use crate::program::memory::Undonated;

/// Returns a line of the program, or that it is unknown.
pub(super) fn line_or_unknown(site: &str) -> &str {
    if site.is_empty() { "unknown line" } else { site }
}

/// Returns `, at LINE` without directories, or nothing where the line is unknown.
pub(super) fn at_line(site: &str) -> String {
    if site.is_empty() { String::new() } else { format!(", at {}", file_name(site)) }
}

/// Returns a line of the program without its directories.
pub(super) fn file_name(site: &str) -> &str {
    site.rsplit('/').next().unwrap_or(site)
}

/// Returns file and line only: `/home/me/train.py:12 (main)` is `train.py:12`.
pub(super) fn short_line(site: &str) -> &str {
    let site = file_name(site);
    site.split_once(" (").map_or(site, |(line, _)| line)
}

/// Returns the bytes of some arguments, and names the largest, as the subject of a sentence: "`x` is", "`x` and 3 more
/// arguments are".
pub(super) fn largest_argument<'a>(
    arguments: impl Iterator<Item = &'a Undonated> + Clone,
) -> Option<(u64, String)> {
    let bytes = arguments.clone().map(|one| one.bytes).sum();
    let largest = arguments.clone().max_by_key(|one| one.bytes)?;
    let which = match arguments.count() - 1 {
        0 => format!("`{}` is", largest.argument),
        1 => format!("`{}` and 1 more argument are", largest.argument),
        more => format!("`{}` and {more} more arguments are", largest.argument),
    };
    Some((bytes, which))
}

/// Returns `true` if a run fits.
pub(super) fn fits_phrase(fits: Option<bool>) -> &'static str {
    match fits {
        Some(true) => "fits",
        Some(false) => "does not fit",
        None => "unknown",
    }
}

/// Says in which program, or between which.
pub(super) fn time_phrase(context: &RequestContext) -> String {
    match &context.program {
        Some(program) => format!("in `{program}`"),
        None if context.site.is_empty() => "between programs".to_owned(),
        None => format!("at {}", context.site),
    }
}

/// Says what was allocated, by which call of which program, and at which line.
pub(super) fn allocation_phrase(context: &RequestContext) -> String {
    let what = context.purpose.label();
    let site = at_line(&context.site);
    match &context.program {
        Some(program) => format!("{what} of `{program}`, call {}{site}", context.call),
        None if context.call == 0 => format!("{what}, before the first execution{site}"),
        None => format!("{what}, after {}{site}", executions(context.call)),
    }
}

/// Returns the range of an amount whose exact value is unknown.
pub(super) fn range(low_bytes: u64, high_bytes: u64) -> String {
    let high = Bytes(high_bytes);
    match low_bytes {
        low if low == high_bytes => high.to_string(),
        0 => format!("up to {high}"),
        low => format!("{} to {high}", Bytes(low)),
    }
}

pub(super) fn executions(count: u64) -> String {
    match count {
        1 => "1 execution".to_owned(),
        count => format!("{count} executions"),
    }
}

/// Returns `, GPU N` where the process sees several.
pub(super) fn gpu_suffix(summary: &RunSummary, device: u32) -> String {
    match summary.devices.len() {
        0 | 1 => String::new(),
        _ => format!(", GPU {}", summary.header.gpu_of(device)),
    }
}

/// Says how many entries are left out, where any are.
pub(super) fn more_in_json(hidden: usize) -> Option<String> {
    (hidden > 0).then(|| format!("{hidden} more in the JSON output"))
}

/// Writes a total in whole MiB: totals of one GPU model differ by a few of them.
pub(super) fn mebibytes(bytes: u64) -> String {
    let digits = (bytes >> 20).to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + " MiB"
}
