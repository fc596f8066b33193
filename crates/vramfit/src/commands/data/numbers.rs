//! Parsing and formatting of counts, and escaping of names that come from a file.

use vramfit_analysis::Error;

/// Parses `100000`, `100_000`, `100k`, `1.5M` or `2G`.
///
/// # Errors
/// `invalid-argument` when it is no whole number.
pub(super) fn parse_count(text: &str) -> Result<u64, Error> {
    let refuse = || {
        Error::invalid_argument(format!("`{text}` is not a whole number"))
            .hint("use a number such as `5000`, `100k` or `1.5M`")
    };
    let plain = text.replace('_', "");
    let (number, zeros) = match plain.as_bytes().last() {
        Some(b'k' | b'K') => (&plain[..plain.len() - 1], 3),
        Some(b'm' | b'M') => (&plain[..plain.len() - 1], 6),
        Some(b'g' | b'G') => (&plain[..plain.len() - 1], 9),
        _ => (plain.as_str(), 0),
    };
    // By its digits and not as a fraction: 1.1M is 1 100 000 to the last one.
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{part:0<zeros$}");
    let readable =
        !whole.is_empty() && part.len() <= zeros && !(number.contains('.') && part.is_empty());
    match digits.parse() {
        Ok(count) if readable && digits.bytes().all(|byte| byte.is_ascii_digit()) => Ok(count),
        _ => Err(refuse()),
    }
}

/// Formats a number with its digits in groups: `1 000 000`.
pub(in crate::commands) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Formats the lengths of dimensions: `1 000, 64`.
pub(in crate::commands) fn grouped_list(numbers: &[u64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(|&number| grouped(number)).collect();
    numbers.join(", ")
}

/// Describes the chunks of a dataset. Whole rows are the usual case; others are shown in full.
pub(super) fn describe_chunks(chunk: &[u64], shape: &[u64]) -> String {
    let is_whole = (chunk.iter().zip(shape).skip(1)).all(|(chunk, length)| chunk >= length);
    match chunk.first() {
        Some(rows) if is_whole => format!("chunks of {} rows", grouped(*rows)),
        _ => format!("chunks of [{}]", grouped_list(chunk)),
    }
}

/// Checks `--threads`; by default there is one for each core.
///
/// # Errors
/// `invalid-argument` for 0.
pub(super) fn thread_count(threads: Option<usize>) -> Result<usize, Error> {
    match threads {
        Some(0) => Err(Error::invalid_argument("`--threads` must be at least 1")
            .hint("omit it for one thread per core")),
        Some(threads) => Ok(threads.min(1024)),
        None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
    }
}

/// Escapes control characters in a name from a file.
pub(super) fn shown(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_control() {
            text.extend(letter.escape_default());
        } else {
            text.push(letter);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_to_the_last_digit() {
        for (text, count) in [
            ("0", 0),
            ("5000", 5000),
            ("100_000", 100_000),
            ("100k", 100_000),
            ("1.1M", 1_100_000),
            ("2G", 2_000_000_000),
            ("0.5k", 500),
        ] {
            assert_eq!(parse_count(text).unwrap(), count, "{text}");
        }
        for text in
            ["", "k", "1.", "1.5", "-1", "+1", "1e6", "1.2345k", ".5k", "99999999999G", "10 k"]
        {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn digits_come_in_groups_of_three() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1 000");
        assert_eq!(grouped(1_234_567), "1 234 567");
    }
}
