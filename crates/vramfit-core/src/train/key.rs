//! One key of the file: what may be written there, what holds unless it is, and what it means.

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use crate::bytes::Bytes;

/// A key of the file.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The table it is in, such as `data`.
    pub section: &'static str,
    /// Its name, such as `batch_size`.
    pub name: &'static str,
    /// What may be written.
    pub form: Form,
    /// What holds where it is not there.
    pub unless: Unless,
    /// What it does.
    pub meaning: &'static str,
    /// Other words for it, for those who know another tool.
    pub also: &'static [&'static str],
    /// Whether a new file has it as a line of its own, and not as a comment.
    pub starts: bool,
    /// Whether a run may go on from its checkpoint after a change of it: the state stays what it was.
    pub may_change: bool,
}

/// What may be written for a key.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// Any text, named by what it is.
    Text(&'static str),
    /// A path; in the file it is relative to the file.
    Path,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number, and the least one.
    Count(u64),
    /// Whole numbers from 1, at least one of them.
    Counts,
    /// A number: the range in words, and whether one is in it.
    Number(&'static str, fn(f64) -> bool),
    /// A number other than 0, or a text with a fraction.
    Factor,
    /// An amount of memory: a number of bytes, or a text such as `256MiB`.
    Bytes,
}

/// What holds where a key is not there.
#[derive(Clone, Copy, Debug)]
pub enum Unless {
    /// It has to be there; this is an example, as the file has it.
    Required(&'static str),
    /// A value, as the file has it.
    Value(&'static str),
    /// No value, which means this; and an example of one.
    Nothing(&'static str, &'static str),
}

impl Key {
    pub(super) const fn new(
        section: &'static str,
        name: &'static str,
        form: Form,
        unless: Unless,
        meaning: &'static str,
    ) -> Key {
        Key {
            section,
            name,
            form,
            unless,
            meaning,
            also: &[],
            starts: false,
            may_change: false,
        }
    }

    pub(super) const fn also(self, also: &'static [&'static str]) -> Key {
        Key { also, ..self }
    }

    pub(super) const fn starts(self) -> Key {
        Key {
            starts: true,
            ..self
        }
    }

    pub(super) const fn may_change(self) -> Key {
        Key {
            may_change: true,
            ..self
        }
    }

    /// Returns it as `--set` has it, such as `data.batch_size`.
    pub fn dotted(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// Returns a line of the file: what holds unless it is there, or an example.
    pub fn line(&self) -> String {
        let (Unless::Required(value) | Unless::Value(value) | Unless::Nothing(_, value)) =
            self.unless;
        format!("{} = {value}", self.name)
    }
}

impl Form {
    /// Says what has to be written, in words that follow "has to be".
    pub fn words(self) -> String {
        match self {
            Form::Text(what) => format!("a text: {what}"),
            Form::Path => "a text: a path".to_owned(),
            Form::OneOf(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                match quoted.split_last() {
                    Some((last, rest)) if !rest.is_empty() => {
                        format!("{} or {last}", rest.join(", "))
                    }
                    _ => quoted.join(""),
                }
            }
            Form::Flag => "`true` or `false`".to_owned(),
            Form::Count(least) => format!("a whole number from {least}"),
            Form::Counts => "whole numbers from 1 in brackets, such as `[128, 64]`".to_owned(),
            Form::Number(range, _) => format!("a number {range}"),
            Form::Factor => "a number other than 0, or a fraction such as `\"1/255\"`".to_owned(),
            Form::Bytes => "an amount of memory, such as `\"256MiB\"`".to_owned(),
        }
    }

    /// Says whether what it holds is written in quotation marks.
    pub(super) fn is_text(self) -> bool {
        matches!(
            self,
            Form::Text(_) | Form::Path | Form::OneOf(_) | Form::Factor | Form::Bytes
        )
    }

    /// Returns the value if it may be written here.
    pub(super) fn accept(self, value: &DeValue<'_>) -> Option<Json> {
        match self {
            Form::Text(_) | Form::Path => {
                let text = value.as_str().filter(|text| !text.is_empty());
                text.map(Json::from)
            }
            Form::OneOf(words) => {
                let text = value.as_str()?;
                words.contains(&text).then(|| text.into())
            }
            Form::Flag => value.as_bool().map(Json::from),
            Form::Count(least) => whole(value).filter(|count| *count >= least).map(Json::from),
            Form::Counts => {
                let items = value.as_array()?.iter();
                let counts: Option<Vec<u64>> = items
                    .map(|item| whole(item.get_ref()).filter(|count| *count > 0))
                    .collect();
                counts
                    .filter(|counts| !counts.is_empty())
                    .map(|counts| json!(counts))
            }
            Form::Number(_, holds) => {
                let number = number(value)?;
                (number.is_finite() && holds(number)).then(|| json!(number))
            }
            Form::Factor => {
                let factor = match value.as_str() {
                    Some(text) => fraction(text)?,
                    None => number(value)?,
                };
                (factor.is_finite() && factor != 0.0).then(|| json!(factor))
            }
            Form::Bytes => {
                let bytes = match value.as_str() {
                    Some(text) => text.parse::<Bytes>().ok()?.0,
                    None => whole(value)?,
                };
                (bytes > 0).then(|| bytes.into())
            }
        }
    }
}

/// The largest whole number that Python, JSON and TOML all have.
const MAX_INTEGER: i64 = i64::MAX;

fn signed(value: &DeValue<'_>) -> Option<i64> {
    let integer = value.as_integer()?;
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn number(value: &DeValue<'_>) -> Option<f64> {
    match value.as_float() {
        Some(float) => float.as_str().parse().ok(),
        None => signed(value).map(|number| number as f64),
    }
}

/// Reads `1/255`, or a number.
fn fraction(text: &str) -> Option<f64> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    match text.split_once('/') {
        Some((above, below)) => Some(number(above)? / number(below)?),
        None => number(text),
    }
}

fn whole(value: &DeValue<'_>) -> Option<u64> {
    signed(value)
        .filter(|number| (0..=MAX_INTEGER).contains(number))
        .map(i64::unsigned_abs)
}
