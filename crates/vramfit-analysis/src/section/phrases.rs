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

/// Returns an estimated time, in microseconds, with two digits: `6.6 ms`, `43 ms`, `1.2 s`.
pub fn estimated_time(us: f64) -> String {
    let (scale, unit) = time_unit(us);
    format!("{} {unit}", two_digits(us / scale))
}

/// Returns a time of which a bound that it cannot be below and an estimate are known, in microseconds: `0.8 to 6.6 ms`.
pub fn estimated_range(low_us: f64, us: f64) -> String {
    let (scale, _) = time_unit(us);
    // A bound is not rounded up.
    let low = (low_us / scale * 10.0).floor() / 10.0;
    let low = if low < 10.0 { low } else { low.floor() };
    format!("{} to {}", two_digits(low), estimated_time(us))
}

/// Returns a unit in which a time is no long number, and its microseconds.
fn time_unit(us: f64) -> (f64, &'static str) {
    match us {
        _ if us < 1e3 => (1.0, "us"),
        _ if us < 1e6 => (1e3, "ms"),
        _ => (1e6, "s"),
    }
}

fn two_digits(value: f64) -> String {
    let digits = usize::from(value < 10.0);
    format!("{value:.digits$}")
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
