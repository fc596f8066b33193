//! From the text of the file and the options to a whole configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::config::Config;
use super::key::{Form, Key, Unless};
use super::keys::{SECTIONS, keys};
use super::place::Place;
use super::{rules, setting};
use crate::error::{Error, ErrorKind, Result};
use crate::nearest::nearest;

/// What was written for the keys that were written.
pub(super) struct Given(BTreeMap<String, (Json, Place)>);

impl Given {
    /// Returns where a key was written, if it was.
    pub(super) fn place(&self, dotted: &str) -> Option<&Place> {
        self.0.get(dotted).map(|(_, place)| place)
    }

    fn take(&mut self, key: &Key, value: &DeValue<'_>, shown: &str, place: Place) -> Result<()> {
        let Some(value) = key.form.accept(value) else {
            let words = key.form.words();
            let what = format!("`{}` is `{shown}`, and has to be {words}", key.name);
            let error = place.refuse(&what);
            return Err(match nearest_word(key.form, value) {
                Some(word) => error.hint(format!("did you mean `{word}`?")),
                None => error.hint(format!("such as `{}`", key.line())),
            });
        };
        self.0.insert(key.dotted(), (value, place));
        Ok(())
    }
}

impl Config {
    /// Reads the text of a file, then `--set` options, the last of which wins.
    ///
    /// Paths in the file are relative to the file, those in options to the current directory.
    ///
    /// # Errors
    /// `invalid-file` when it is no TOML; `invalid-argument` for a key that there is not, a value that
    /// cannot be, keys that contradict each other, or one that is missing.
    pub fn read(file: &Path, text: &str, options: &[String]) -> Result<Config> {
        let mut given = Given(BTreeMap::new());
        read_file(file, text, &mut given)?;
        for option in options {
            let (key, value) = setting::divide(option)?;
            let place = Place::Option(option.clone());
            // What is no value of TOML is a word, and refused as such.
            let parsed = DeValue::parse(&value).map(toml::Spanned::into_inner);
            let parsed = parsed.unwrap_or_else(|_| DeValue::String(value.as_str().into()));
            given.take(key, &parsed, &value, place)?;
        }
        let mut config = complete(file, &given)?;
        rules::check(&mut config, &given)?;
        Ok(config)
    }

    /// Returns what has to stay as it is for a run to go on from its checkpoint, as a flat list of keys
    /// with their values.
    pub fn fixed(&self) -> Map<String, Json> {
        let all = serde_json::to_value(self).unwrap_or_default();
        let fixed = keys().filter(|key| !key.may_change);
        fixed
            .map(|key| (key.dotted(), all[key.section][key.name].clone()))
            .collect()
    }
}

fn read_file(file: &Path, text: &str, given: &mut Given) -> Result<()> {
    let table = DeTable::parse(text).map_err(|error| {
        let place = Place::of(file, text, error.span().map_or(0, |span| span.start));
        let message = format!("{place} is no TOML");
        Error::new(ErrorKind::InvalidFile, message)
            .cause(error.message())
            .hint("`vramfit train --init` writes a file to begin with")
    })?;
    // In the order of the file, so that the first mistake is the first that is told.
    let mut tables: Vec<_> = table.get_ref().iter().collect();
    tables.sort_by_key(|(name, _)| name.span().start);
    for (name, value) in tables {
        let place = Place::of(file, text, name.span().start);
        let Some(section) = SECTIONS.iter().find(|s| s.name == name.get_ref().as_ref()) else {
            return Err(unknown_section(name.get_ref(), value.get_ref(), &place));
        };
        let Some(table) = value.get_ref().as_table() else {
            let what = format!("`{}` is no table", section.name);
            return Err(place.refuse(&what).hint(format!(
                "write `[{}]` on a line of its own, and its keys below",
                section.name
            )));
        };
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            read_key(file, text, section.name, (name, value), given)?;
        }
    }
    Ok(())
}

fn read_key(
    file: &Path,
    text: &str,
    section: &'static str,
    (name, value): (&Spanned<std::borrow::Cow<'_, str>>, &Spanned<DeValue<'_>>),
    given: &mut Given,
) -> Result<()> {
    let place = Place::of(file, text, name.span().start);
    let found = keys().find(|key| key.section == section && key.name == name.get_ref().as_ref());
    let Some(key) = found else {
        let what = format!("there is no key `{}` in `[{section}]`", name.get_ref());
        return Err(place
            .refuse(&what)
            .hint(meant(Some(section), name.get_ref())));
    };
    let shown = text.get(value.span()).unwrap_or_default();
    given.take(key, value.get_ref(), &shortened(shown), place)
}

fn unknown_section(name: &str, value: &DeValue<'_>, place: &Place) -> Error {
    if !value.is_table() {
        let what = format!("`{name}` stands in no table");
        return place.refuse(&what).hint(meant(None, name));
    }
    let what = format!("there is no table `[{name}]`");
    let names: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
    place
        .refuse(&what)
        .hint(match nearest(name, names.iter().copied()).first() {
            Some(near) => format!("did you mean `[{near}]`?"),
            None => format!("there are `[{}]`", names.join("]`, `[")),
        })
}

/// Says which key may be meant by a name that is not in a table, or stands in none.
fn meant(section: Option<&str>, name: &str) -> String {
    let here = |key: &&Key| section.is_none_or(|section| key.section == section);
    let same = |key: &&Key| key.name == name || key.also.contains(&name);
    let told = |key: &Key| match section == Some(key.section) {
        true => format!("did you mean `{}`?", key.name),
        false => format!("did you mean `{}` in `[{}]`?", key.name, key.section),
    };
    let near = |all: Vec<&'static Key>| {
        let names = all.iter().map(|key| key.name);
        let word = nearest(name, names).first().copied();
        word.and_then(|word| all.into_iter().find(|key| key.name == word))
    };
    let found = keys()
        .filter(here)
        .find(same)
        .or_else(|| near(keys().filter(here).collect()))
        .or_else(|| keys().find(same))
        .or_else(|| near(keys().collect()));
    match (found, section) {
        (Some(key), _) => told(key),
        (None, Some(section)) => {
            let names: Vec<&str> = keys()
                .filter(|key| key.section == section)
                .map(|key| key.name)
                .collect();
            format!("there are `{}`", names.join("`, `"))
        }
        (None, None) => "`vramfit train --init` lists all keys".to_owned(),
    }
}

/// Returns the word that may be meant, where one of several is asked for.
fn nearest_word(form: Form, value: &DeValue<'_>) -> Option<&'static str> {
    let Form::OneOf(words) = form else {
        return None;
    };
    let text = value.as_str()?.to_ascii_lowercase();
    nearest(&text, words.iter().copied()).first().copied()
}

/// Cuts what was written to what fits into a sentence.
fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 40;
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// Fills in what was not written.
fn complete(file: &Path, given: &Given) -> Result<Config> {
    let mut all = Map::new();
    for key in keys() {
        let value = match (given.0.get(&key.dotted()), key.unless) {
            (Some((value, place)), _) => based(file, key, value, place),
            (None, Unless::Value(text)) => {
                let value = DeValue::parse(text).ok();
                let value = value.and_then(|value| key.form.accept(value.get_ref()));
                value.expect("a test reads every value of the table")
            }
            (None, Unless::Nothing(..)) => Json::Null,
            (None, Unless::Required(_)) => {
                let shown = file.display();
                let message = format!("`{shown}` has no `{}` in `[{}]`", key.name, key.section);
                let meaning = key.meaning.trim_end_matches('.');
                return Err(Error::new(ErrorKind::InvalidArgument, message)
                    .hint(format!("add `{}`: {meaning}", key.line())));
            }
        };
        let section = all
            .entry(key.section)
            .or_insert_with(|| Json::Object(Map::new()));
        section[key.name] = value;
    }
    let mut config: Config = serde_json::from_value(Json::Object(all)).map_err(|error| {
        Error::new(
            ErrorKind::Internal,
            "the configuration has another form than its keys",
        )
        .cause(error)
    })?;
    if config.training.directory.is_none() {
        let name = file.file_stem().unwrap_or(file.as_os_str());
        config.training.directory = Some(beside(file, &PathBuf::from("runs").join(name)));
    }
    Ok(config)
}

/// Returns a value with a path in it as seen from the current directory.
fn based(file: &Path, key: &Key, value: &Json, place: &Place) -> Json {
    match (key.form, value, place) {
        (Form::Path, Json::String(path), Place::Line(..)) => {
            beside(file, Path::new(path)).to_string_lossy().into()
        }
        _ => value.clone(),
    }
}

fn beside(file: &Path, path: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
