//! Phrases about lines of programs and amounts.

use crate::bytes::Bytes;

/// Returns a line of the program, or that it is unknown.
pub(crate) fn line_or_unknown(site: &str) -> &str {
    if site.is_empty() { "unknown line" } else { site }
}

/// Returns `, at LINE` without directories, or nothing where the line is unknown.
pub(crate) fn at_line(site: &str) -> String {
    if site.is_empty() { String::new() } else { format!(", at {}", file_name(site)) }
}

/// Returns a line of the program without its directories.
pub(crate) fn file_name(site: &str) -> &str {
    site.rsplit('/').next().unwrap_or(site)
}

/// Returns file and line only: `/home/me/train.py:12 (main)` is `train.py:12`.
pub(crate) fn short_line(site: &str) -> &str {
    let site = file_name(site);
    site.split_once(" (").map_or(site, |(line, _)| line)
}

/// Returns the range of an amount whose exact value is unknown.
pub(crate) fn range(low_bytes: u64, high_bytes: u64) -> String {
    let high = Bytes(high_bytes);
    match low_bytes {
        low if low == high_bytes => high.to_string(),
        0 => format!("up to {high}"),
        low => format!("{} to {high}", Bytes(low)),
    }
}

/// Returns a part of a whole, with one unit where both have the same: `17.4 of 17.6 GiB`.
pub(crate) fn part_of(part_bytes: u64, whole_bytes: u64) -> String {
    let (part, whole) = (Bytes(part_bytes).to_string(), Bytes(whole_bytes).to_string());
    let units = [&part, &whole].map(|amount| amount.split_once(' ').unwrap_or((amount, "")));
    match units {
        [(number, unit), (_, same)] if unit == same => format!("{number} of {whole}"),
        _ => format!("{part} of {whole}"),
    }
}

/// Says how many entries are left out, where any are.
pub(crate) fn more_in_json(hidden: usize) -> Option<String> {
    (hidden > 0).then(|| format!("{hidden} more in the JSON output"))
}

/// Writes a total in whole MiB: totals of one GPU model differ by a few of them.
pub(crate) fn mebibytes(bytes: u64) -> String {
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
