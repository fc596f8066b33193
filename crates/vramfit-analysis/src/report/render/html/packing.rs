//! Many numbers and many texts in little space, for the data block of the HTML report.
//!
//! A text is stored once, in a table, and referred to by its index; the table stores it as words, since
//! the names and lines of a program consist of few. A column of integers is one string: each number
//! divided by what all have in common, the difference from the one before where that is shorter, zigzag,
//! five bits a digit, the sixth says that more follow. Source maps pack their numbers this way.
//! `assets/data.js` reads both.

use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use vramfit_base::text::plain;

/// Digits of packed columns: those of base64.
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A table of texts, each once.
#[derive(Default)]
pub(super) struct StringPool {
    indices: FxHashMap<String, usize>,
    texts: Vec<String>,
}

impl StringPool {
    /// Returns the index of a text, which is stored without control characters.
    pub(super) fn intern(&mut self, text: &str) -> usize {
        if let Some(index) = self.indices.get(text) {
            return *index;
        }
        let index = self.texts.len();
        self.texts.push(plain(text));
        self.indices.insert(text.to_owned(), index);
        index
    }

    /// Returns the table: the words, the most frequent first, and of which words texts consist.
    pub(super) fn into_json(self) -> Value {
        let mut uses: FxHashMap<&str, usize> = FxHashMap::default();
        for word in self.texts.iter().flat_map(|text| words(text)) {
            *uses.entry(word).or_default() += 1;
        }
        let mut by_uses: Vec<(&str, usize)> = uses.into_iter().collect();
        by_uses.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let words_by_uses = by_uses.iter().map(|(word, _)| *word);
        let indices: FxHashMap<&str, u64> = words_by_uses.clone().zip(0..).collect();
        let texts = self.texts.iter();
        json!({
            "lengths": pack(texts.clone().map(|text| words(text).count() as u64)),
            "indices": pack(texts.flat_map(|text| words(text)).map(|word| indices[word])),
            "words": words_by_uses.collect::<Vec<_>>(),
        })
    }
}

/// Splits a text into words, each with the punctuation and spaces after it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.find(|c| !in_word(c)).unwrap_or(rest.len());
        let punctuation = rest[end..].find(in_word).unwrap_or(rest.len() - end);
        let (word, others) = rest.split_at(end + punctuation);
        rest = others;
        (!word.is_empty()).then_some(word)
    })
}

/// Packs a column of numbers.
pub(super) fn pack(values: impl IntoIterator<Item = impl Into<i128>>) -> Value {
    let values: Vec<i128> = values.into_iter().map(Into::into).collect();
    let scale = values.iter().fold(0, |scale, value| gcd(scale, *value));
    let scale = scale.max(1);
    let scaled: Vec<i128> = values.iter().map(|value| value / scale).collect();
    let before = std::iter::once(0).chain(scaled.iter().copied());
    let pairs = scaled.iter().zip(before);
    let deltas: Vec<i128> = pairs.map(|(to, from)| to - from).collect();
    let (plain, deltas) = (digits(&scaled), digits(&deltas));
    let is_delta = deltas.len() < plain.len();
    json!({
        "count": values.len(),
        "scale": scale as u64,
        "is_delta": is_delta,
        "digits": if is_delta { deltas } else { plain },
    })
}

fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn digits(values: &[i128]) -> String {
    let mut text = String::with_capacity(values.len() * 3);
    for value in values {
        let mut rest = value.unsigned_abs() << 1 | u128::from(*value < 0);
        loop {
            let more = if rest > 31 { 32 } else { 0 };
            text.push(BASE64[(rest & 31) as usize | more].into());
            rest >>= 5;
            if rest == 0 {
                break;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a column as `assets/data.js` does.
    fn unpack(column: &Value) -> Vec<i128> {
        let scale: i128 = column["scale"].as_u64().expect("a number").into();
        let (mut values, mut value, mut shift, mut last) = (Vec::new(), 0, 0, 0);
        for digit in column["digits"].as_str().expect("a text").bytes() {
            let digit = BASE64.iter().position(|known| *known == digit);
            let digit = digit.expect("a digit") as i128;
            value |= (digit & 31) << shift;
            shift += 5;
            if digit < 32 {
                let signed = if value & 1 == 1 { -(value >> 1) } else { value >> 1 };
                last = signed + if column["is_delta"] == true { last } else { 0 };
                values.push(last * scale);
                (value, shift) = (0, 0);
            }
        }
        values
    }

    #[test]
    fn columns_keep_every_bit() {
        for values in [
            vec![],
            vec![0, 0, 0],
            vec![u64::MAX, 0, u64::MAX, 1],
            vec![1 << 40, (1 << 40) + 256, (1 << 40) + 512],
            (0..1000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect(),
        ] {
            let back = unpack(&pack(values.iter().copied()));
            assert_eq!(back, values.iter().map(|v| (*v).into()).collect::<Vec<i128>>());
        }
        assert_eq!(unpack(&pack([-1_i64, 7, -300])), [-1, 7, -300]);
    }

    #[test]
    fn rising_numbers_take_one_digit_each() {
        let column = pack((0..100_u64).map(|n| (1 << 40) + n * 4096));
        assert_eq!(column["is_delta"], true);
        assert_eq!(column["scale"], 4096);
        assert!(column["digits"].as_str().expect("a text").len() < 110);
    }

    #[test]
    fn a_text_is_stored_once_without_control_characters() {
        let mut strings = StringPool::default();
        assert_eq!(strings.intern("loop_fusion.1"), 0);
        assert_eq!(strings.intern("loop_fusion.2 b\u{202e}"), 1);
        assert_eq!(strings.intern(""), 2);
        assert_eq!(strings.intern("loop_fusion.1"), 0);
        let table = strings.into_json();
        assert_eq!(table["words"][0], "loop_fusion.");
        let indices = unpack(&table["indices"]);
        let mut words =
            indices.iter().map(|word| table["words"][*word as usize].as_str().expect("a word"));
        let lengths = unpack(&table["lengths"]);
        let texts: Vec<String> =
            lengths.iter().map(|length| words.by_ref().take(*length as usize).collect()).collect();
        assert_eq!(texts, ["loop_fusion.1", "loop_fusion.2 b\u{fffd}", ""]);
    }

    #[test]
    fn words_put_together_are_the_text() {
        for text in ["", " ", "a", "[f32]", "jit(step)/jvp/äöü_1 + 2 …", "..", "a.b"] {
            assert_eq!(words(text).collect::<String>(), text);
        }
    }
}
