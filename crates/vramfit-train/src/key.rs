//! One key of the configuration: its type, its default and its description.

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use vramfit_base::Bytes;

/// A key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The table it is in, such as `data`.
    pub section: &'static str,
    /// Its name, such as `batch_size`.
    pub name: &'static str,
    /// The type of its values.
    pub value_type: ValueType,
    /// Its value where it is not set.
    pub default: DefaultValue,
    /// Its description, as one or more sentences.
    pub description: &'static str,
    /// Its names in other tools, for suggestions.
    pub aliases: &'static [&'static str],
    /// Whether the template sets it, instead of showing it in a comment.
    pub in_template: bool,
    /// Whether a run may resume from its checkpoint after it has changed.
    pub resumable: bool,
}

/// The type of the values of a key.
#[derive(Clone, Copy, Debug)]
pub enum ValueType {
    /// Any text that is not empty, with its description.
    String(&'static str),
    /// A path; in the configuration file it is relative to that file.
    Path,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One of these words, or something in Python: `file.py:name`, relative to the configuration file, or
    /// `module:name`; with an example.
    ChoiceOrPython(&'static [&'static str], &'static str),
    /// A table of values that are passed on as they are.
    Table,
    /// `true` or `false`.
    Bool,
    /// An integer of at least this value.
    Integer(u64),
    /// Positive integers, at least one of them.
    Integers,
    /// A number: the description of its range, and whether a number is in it.
    Number(&'static str, fn(f64) -> bool),
    /// A number other than 0, or a text with a fraction.
    Factor,
    /// An amount of memory: a number of bytes, or a text such as `256MiB`.
    Bytes,
}

/// The value of a key that is not set.
#[derive(Clone, Copy, Debug)]
pub enum DefaultValue {
    /// None: the key must be set. With an example in TOML.
    Required(&'static str),
    /// This value in TOML.
    Value(&'static str),
    /// None, which has this meaning; and an example in TOML.
    Unset(&'static str, &'static str),
}

impl Key {
    pub(super) const fn new(
        section: &'static str,
        name: &'static str,
        value_type: ValueType,
        default: DefaultValue,
        description: &'static str,
    ) -> Key {
        Key {
            section,
            name,
            value_type,
            default,
            description,
            aliases: &[],
            in_template: false,
            resumable: false,
        }
    }

    pub(super) const fn aliases(self, aliases: &'static [&'static str]) -> Key {
        Key { aliases, ..self }
    }

    pub(super) const fn in_template(self) -> Key {
        Key { in_template: true, ..self }
    }

    pub(super) const fn resumable(self) -> Key {
        Key { resumable: true, ..self }
    }

    /// Returns its full name, such as `data.batch_size`.
    pub fn dotted(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// Returns a line of TOML with its default, or an example.
    pub fn line(&self) -> String {
        let (DefaultValue::Required(value)
        | DefaultValue::Value(value)
        | DefaultValue::Unset(_, value)) = self.default;
        format!("{} = {value}", self.name)
    }
}

impl ValueType {
    /// Describes the values, in words that follow "must be".
    pub fn describe(self) -> String {
        match self {
            ValueType::String(what) => what.to_owned(),
            ValueType::Path => "a path".to_owned(),
            ValueType::Choice(words) => {
                let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                match quoted.split_last() {
                    Some((last, rest)) if !rest.is_empty() => {
                        format!("{} or {last}", rest.join(", "))
                    }
                    _ => quoted.join(""),
                }
            }
            ValueType::ChoiceOrPython(words, example) => {
                format!("`{}`, or your own such as `\"{example}\"`", words.join("`, `"))
            }
            ValueType::Table => "a table such as `{ width = 64 }`".to_owned(),
            ValueType::Bool => "`true` or `false`".to_owned(),
            ValueType::Integer(min) => format!("an integer of at least {min}"),
            ValueType::Integers => "a list of positive integers, such as `[128, 64]`".to_owned(),
            ValueType::Number(range, _) => format!("a number {range}"),
            ValueType::Factor => "a non-zero number, or a fraction such as `\"1/255\"`".to_owned(),
            ValueType::Bytes => "a size, such as `\"256MiB\"`".to_owned(),
        }
    }

    /// Returns whether its values are strings in TOML.
    pub(super) fn is_text(self) -> bool {
        matches!(
            self,
            ValueType::String(_)
                | ValueType::Path
                | ValueType::Choice(_)
                | ValueType::ChoiceOrPython(..)
                | ValueType::Factor
                | ValueType::Bytes
        )
    }

    /// Returns a value as JSON if it is of this type.
    pub(super) fn parse(self, value: &DeValue<'_>) -> Option<Json> {
        match self {
            ValueType::String(_) | ValueType::Path => {
                let text = value.as_str().filter(|text| !text.is_empty());
                text.map(Json::from)
            }
            ValueType::Choice(words) => {
                let text = value.as_str()?;
                words.contains(&text).then(|| text.into())
            }
            ValueType::ChoiceOrPython(words, _) => {
                let text = value.as_str()?;
                (words.contains(&text) || PythonName::parse(text).is_some()).then(|| text.into())
            }
            ValueType::Table => value.as_table().and_then(|_| any_value(value)),
            ValueType::Bool => value.as_bool().map(Json::from),
            ValueType::Integer(min) => {
                unsigned(value).filter(|count| *count >= min).map(Json::from)
            }
            ValueType::Integers => {
                let items = value.as_array()?.iter();
                let counts: Option<Vec<u64>> =
                    items.map(|item| unsigned(item.get_ref()).filter(|count| *count > 0)).collect();
                counts.filter(|counts| !counts.is_empty()).map(|counts| json!(counts))
            }
            ValueType::Number(_, holds) => {
                let number = number(value)?;
                (number.is_finite() && holds(number)).then(|| json!(number))
            }
            ValueType::Factor => {
                let factor = match value.as_str() {
                    Some(text) => fraction(text)?,
                    None => number(value)?,
                };
                (factor.is_finite() && factor != 0.0).then(|| json!(factor))
            }
            ValueType::Bytes => {
                let text = match value.as_str() {
                    Some(text) => text.to_owned(),
                    None => unsigned(value)?.to_string(),
                };
                let bytes = Bytes::parse_memory(&text).ok()?.0;
                (bytes > 0).then(|| bytes.into())
            }
        }
    }
}

/// Something in Python that a configuration names: a class or a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonName<'a> {
    /// A file that ends in `.py`, or a module.
    pub location: &'a str,
    /// The name in it.
    pub name: &'a str,
}

impl<'a> PythonName<'a> {
    /// Reads `file.py:name` or `module:name`; none for anything else.
    pub fn parse(text: &'a str) -> Option<PythonName<'a>> {
        let (location, name) = text.rsplit_once(':')?;
        let is_identifier = |word: &str| {
            word.chars().all(|letter| letter.is_alphanumeric() || letter == '_')
                && word.chars().next().is_some_and(|letter| !letter.is_numeric())
        };
        let is_file = location.len() > 3 && location.ends_with(".py");
        let is_module = location.split('.').all(is_identifier);
        ((is_file || is_module) && is_identifier(name)).then_some(PythonName { location, name })
    }

    /// Returns whether it is in a file, and not in a module that is installed.
    pub fn is_in_file(self) -> bool {
        self.location.ends_with(".py")
    }
}

/// Returns a value of any type as JSON; none for dates, and numbers that JSON has not.
fn any_value(value: &DeValue<'_>) -> Option<Json> {
    Some(match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(_) => signed(value)?.into(),
        DeValue::Float(_) => number(value).filter(|number| number.is_finite())?.into(),
        DeValue::Boolean(truth) => (*truth).into(),
        DeValue::Array(items) => items
            .iter()
            .map(|item| any_value(item.get_ref()))
            .collect::<Option<Vec<Json>>>()?
            .into(),
        DeValue::Table(entries) => {
            let entries = entries.iter().map(|(name, value)| {
                Some((name.get_ref().to_string(), any_value(value.get_ref())?))
            });
            Json::Object(entries.collect::<Option<_>>()?)
        }
        DeValue::Datetime(_) => return None,
    })
}

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
        Some((numerator, denominator)) => Some(number(numerator)? / number(denominator)?),
        None => number(text),
    }
}

fn unsigned(value: &DeValue<'_>) -> Option<u64> {
    u64::try_from(signed(value)?).ok()
}
