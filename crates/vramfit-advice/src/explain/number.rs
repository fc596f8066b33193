//! Numbers and sizes in normalized text, in all the forms that XLA, CUDA and the tools around them print.

/// An amount of memory as a log shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Size {
    /// The bytes; of a rounded figure such as `1.97GiB` the nearest whole number.
    pub(super) bytes: u64,
    /// How far the true amount may be from that; 0 where the log shows every byte.
    pub(super) tolerance: u64,
}

impl Size {
    /// Returns a size that is known to the byte.
    pub(super) fn exact(bytes: u64) -> Self {
        Size { bytes, tolerance: 0 }
    }

    pub(super) fn is_exact(self) -> bool {
        self.tolerance == 0
    }

    /// Returns the largest amount that it may stand for.
    pub(super) fn max(self) -> u64 {
        self.bytes.saturating_add(self.tolerance)
    }

    /// Returns the smallest amount that it may stand for.
    pub(super) fn min(self) -> u64 {
        self.bytes.saturating_sub(self.tolerance)
    }

    /// Returns `true` if both may be the same amount, apart from rounding up to a unit of the allocator.
    pub(super) fn agrees_with(self, other: Size) -> bool {
        const ALLOCATOR_UNIT: u64 = 256;
        self.bytes.abs_diff(other.bytes)
            <= add_sizes([self.tolerance, other.tolerance, ALLOCATOR_UNIT])
    }

    /// Returns the one that is known better.
    pub(super) fn or_more_exact(self, other: Size) -> Size {
        if other.tolerance < self.tolerance { other } else { self }
    }
}

/// Adds what a log tells, which may be damaged: a sum that is too large is the largest number.
pub(super) fn add_sizes(sizes: impl IntoIterator<Item = u64>) -> u64 {
    sizes.into_iter().fold(0, u64::saturating_add)
}

/// Suffixes, longest first where one begins another.
const UNITS: [(&[u8], u64); 16] = [
    (b"bytes", 1),
    (b"kib", 1 << 10),
    (b"mib", 1 << 20),
    (b"gib", 1 << 30),
    (b"tib", 1 << 40),
    (b"pib", 1 << 50),
    (b"kb", 1 << 10),
    (b"mb", 1 << 20),
    (b"gb", 1 << 30),
    (b"tb", 1 << 40),
    (b"b", 1),
    (b"k", 1 << 10),
    (b"m", 1 << 20),
    (b"g", 1 << 30),
    (b"t", 1 << 40),
    (b"p", 1 << 50),
];

/// Reads a whole number at the beginning, also `25,600,000`; returns it with what follows.
pub(super) fn integer(text: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = text.split_at(grouped_length(text));
    let digits = number.iter().filter(|byte| byte.is_ascii_digit());
    let value = digits.clone().try_fold(0_u64, |value, digit| {
        value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    });
    value.filter(|_| digits.count() > 0).map(|value| (value, rest))
}

/// Reads a whole number without separators: where a comma begins the next figure, as in `step 10, 250 samples`.
pub(super) fn plain_integer(text: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = text.split_at(digits(text));
    integer(number).map(|(value, _)| (value, rest))
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Returns the length of a number whose digits may be separated in groups of three.
fn grouped_length(text: &[u8]) -> usize {
    const GROUP_DIGITS: usize = 3;
    let mut length = digits(text);
    if !(1..=GROUP_DIGITS).contains(&length) {
        return length;
    }
    let Some(separator @ (b',' | b'_' | b'\'')) = text.get(length) else {
        return length;
    };
    while text.get(length) == Some(separator) && digits(&text[length + 1..]) == GROUP_DIGITS {
        length += 1 + GROUP_DIGITS;
    }
    length
}

/// Reads a whole number that may be negative.
pub(super) fn signed(text: &[u8]) -> Option<(i64, &[u8])> {
    let (sign, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (value, rest) = integer(digits)?;
    Some((sign * i64::try_from(value).ok()?, rest))
}

/// Reads a size at the beginning; returns it with what follows. A number without a unit is bytes.
///
/// `1.97GiB`, `528.00M`, `112B`, `2110783616 bytes`, and `154.06GiB (165425291480 bytes)`, whose second
/// figure is the exact one.
pub(super) fn size(text: &[u8]) -> Option<(Size, &[u8])> {
    let (shown, rest) = shown_size(text)?;
    let Some(inside) = rest.strip_prefix(b"(") else {
        return Some((shown, rest));
    };
    let exact = integer(inside).and_then(|(bytes, after)| {
        let after = after.strip_prefix(b"bytes").or(after.strip_prefix(b"b"))?;
        let exact = Size::exact(bytes);
        exact.agrees_with(shown).then_some((exact, after.strip_prefix(b")")?))
    });
    Some(exact.unwrap_or((shown, rest)))
}

fn shown_size(text: &[u8]) -> Option<(Size, &[u8])> {
    let (whole, rest) = integer(text)?;
    let (fraction, rest) = match rest.strip_prefix(b".") {
        Some(after) => {
            let digits = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
            after.split_at(digits)
        }
        None => (&rest[..0], rest),
    };
    // A number with a fraction has a unit, whatever word follows it: `29.49G at the bottom`.
    let has_fraction = !fraction.is_empty();
    let unit = UNITS
        .iter()
        .find(|(name, _)| is_unit(name, rest) || (has_fraction && rest.starts_with(name)));
    let (factor, rest) = unit.map_or((1, rest), |(name, factor)| (*factor, &rest[name.len()..]));
    if factor == 1 {
        return fraction.is_empty().then_some((Size::exact(whole), rest));
    }
    // Sizes have at most a few decimals; more would only repeat what a 64-bit float cannot hold.
    const MAX_DECIMALS: usize = 9;
    let decimals = &fraction[..fraction.len().min(MAX_DECIMALS)];
    let scale = 10_u64.pow(decimals.len() as u32);
    let numerator = integer(decimals).map_or(0, |(value, _)| value);
    let part = u128::from(numerator) * u128::from(factor) / u128::from(scale);
    let bytes = whole.checked_mul(factor)?.checked_add(part as u64)?;
    // XLA divides by whole 1024s before it rounds, so the last digit may be one too low.
    let tolerance = (factor / scale).max(1);
    Some((Size { bytes, tolerance }, rest))
}

/// Returns `true` if the text begins with a unit. A single letter may also begin the next word, as in
/// `0 memory_limit_`; only `B` is written with a word right behind it.
fn is_unit(name: &[u8], text: &[u8]) -> bool {
    let next = text.get(name.len());
    let begins_word = next.is_some_and(u8::is_ascii_alphabetic);
    text.starts_with(name) && (name.len() > 1 || name == b"b" || !begins_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn sizes_are_read_in_every_form() {
        let read = |text: &str| {
            let (size, rest) = size(text.as_bytes()).expect("a size");
            (size.bytes, size.is_exact(), String::from_utf8_lossy(rest).into_owned())
        };
        let rest = |text: &str| text.to_owned();
        assert_eq!(read("112b(0.00%)"), (112, true, rest("(0.00%)")));
        assert_eq!(read("2110783616bytes."), (2_110_783_616, true, rest(".")));
        assert_eq!(read("2.50gib."), (5 * GIB / 2, false, rest(".")));
        assert_eq!(read("528.00m(553648128bytes)from"), (553_648_128, true, rest("from")));
        assert_eq!(read("6.27gib(6727663616b)on"), (6_727_663_616, true, rest("on")));
        assert_eq!(read("16boperator:"), (16, true, rest("operator:")));
        assert_eq!(read("24.5kibmaybe"), (25_088, false, rest("maybe")));
        assert_eq!(read("4096next"), (4096, true, rest("next")));
        assert_eq!(read("0memory_limit_:"), (0, true, rest("memory_limit_:")));
        assert_eq!(read("2.50gatthe"), (5 * GIB / 2, false, rest("atthe")));
        assert_eq!(read("25,600,000bytes(allocated"), (25_600_000, true, rest("(allocated")));
        assert_eq!(read("3'635'267'072b."), (3_635_267_072, true, rest(".")));
        assert_eq!(read("1,024.50mib").0, 1024 * 1024 * 1024 + 512 * 1024);
        assert_eq!(read("12,34bytes"), (12, true, rest(",34bytes")));
        assert_eq!(read("4096,128bytes"), (4096, true, rest(",128bytes")));
        assert_eq!(plain_integer(b"10,250samples"), Some((10, &b",250samples"[..])));
        // What is in brackets is another figure here.
        assert_eq!(read("2.00gib(100bytes)").0, 2 * GIB);
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "gib", ".5gib", "99999999999999999999999", "18000000000.0tib", "1.5"] {
            assert_eq!(size(text.as_bytes()), None, "{text}");
        }
        assert_eq!(signed(b"-42)"), Some((-42, &b")"[..])));
    }

    #[test]
    fn rounded_sizes_agree_within_their_last_digit() {
        let (shown, _) = size(b"1.97gib").expect("a size");
        assert!(shown.agrees_with(Size::exact(2_110_783_616)));
        assert!(!shown.agrees_with(Size::exact(2_200_000_000)));
        assert_eq!(shown.or_more_exact(Size::exact(5)), Size::exact(5));
    }
}
