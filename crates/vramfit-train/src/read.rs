//! Reading a configuration: from the text of the file and overrides to a value for every key.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use vramfit_base::nearest::nearest;
use vramfit_base::{Error, ErrorKind, Result};

use super::config::Config;
use super::key::{DefaultValue, Key, PythonName, ValueType};
use super::keys::{SECTIONS, keys};
use super::location::SourceLocation;
use super::raw_config::RawConfig;
use super::{overrides, rules};

impl Config {
    /// Reads the text of a file, then overrides (`--set`), the last of which wins.
    ///
    /// Paths in the file are relative to the file, those in overrides to the current directory.
    ///
    /// # Errors
    /// `invalid-file` when it is not TOML; `invalid-argument` for an unknown key, an invalid value, keys that
    /// contradict each other, or a missing one.
    pub fn read(file: &Path, text: &str, overrides: &[String]) -> Result<Config> {
        let mut raw = RawConfig(BTreeMap::new());
        read_file(file, text, &mut raw)?;
        for text in overrides {
            let (key, value) = overrides::parse_override(text)?;
            let location = SourceLocation::Option(text.clone());
            // What is not a TOML value is taken as a string.
            let parsed = DeValue::parse(&value).map(toml::Spanned::into_inner);
            let parsed = parsed.unwrap_or_else(|_| DeValue::String(value.as_str().into()));
            raw.insert(key, &parsed, &value, location)?;
        }
        let mut config = with_defaults(file, &raw)?;
        rules::validate(&mut config, &raw)?;
        Ok(config)
    }

    /// Returns the values that are saved with each checkpoint and must be the same to resume, by full name.
    pub fn checkpoint_config(&self) -> Map<String, Json> {
        let all = serde_json::to_value(self).unwrap_or_default();
        let fixed = keys().filter(|key| !key.resumable);
        let value = |key: &Key| match (key.value_type, &all[key.section][key.name]) {
            // Where a file is does not matter, and depends on the current directory.
            (ValueType::ChoiceOrPython(..), Json::String(text)) => {
                text.rsplit('/').next().unwrap_or(text).into()
            }
            (_, value) => value.clone(),
        };
        fixed.map(|key| (key.dotted(), value(key))).collect()
    }
}

fn read_file(file: &Path, text: &str, raw: &mut RawConfig) -> Result<()> {
    let table = DeTable::parse(text).map_err(|error| {
        let location =
            SourceLocation::in_file(file, text, error.span().map_or(0, |span| span.start));
        let message = format!("{location} is not valid TOML");
        Error::invalid_file(message)
            .cause(error.message())
            .hint("`vramfit train --init` writes a template")
    })?;
    // In the order of the file, so that the first mistake is reported first.
    let mut tables: Vec<_> = table.get_ref().iter().collect();
    tables.sort_by_key(|(name, _)| name.span().start);
    for (name, value) in tables {
        let location = SourceLocation::in_file(file, text, name.span().start);
        let Some(section) = SECTIONS.iter().find(|s| s.name == name.get_ref().as_ref()) else {
            return Err(unknown_section(name.get_ref(), value.get_ref(), &location));
        };
        let Some(table) = value.get_ref().as_table() else {
            let what = format!("`{}` is not a table", section.name);
            return Err(location.error(&what).hint(format!(
                "write `[{}]` on a line of its own, and its keys below",
                section.name
            )));
        };
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            read_key(file, text, section.name, (name, value), raw)?;
        }
    }
    Ok(())
}

fn read_key(
    file: &Path,
    text: &str,
    section: &'static str,
    (name, value): (&Spanned<std::borrow::Cow<'_, str>>, &Spanned<DeValue<'_>>),
    raw: &mut RawConfig,
) -> Result<()> {
    let location = SourceLocation::in_file(file, text, name.span().start);
    let found = keys().find(|key| key.section == section && key.name == name.get_ref().as_ref());
    let Some(key) = found else {
        let what = format!("unknown key `{}` in `[{section}]`", name.get_ref());
        return Err(location.error(&what).hint(suggest_key(Some(section), name.get_ref())));
    };
    let shown = text.get(value.span()).unwrap_or_default();
    raw.insert(key, value.get_ref(), &truncated(shown), location)
}

fn unknown_section(name: &str, value: &DeValue<'_>, location: &SourceLocation) -> Error {
    if !value.is_table() {
        let what = format!("`{name}` is outside of any table");
        return location.error(&what).hint(suggest_key(None, name));
    }
    let what = format!("unknown table `[{name}]`");
    let names: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
    location.error(&what).hint(match nearest(name, names.iter().copied()).first() {
        Some(near) => format!("did you mean `[{near}]`?"),
        None => format!("the tables are `[{}]`", names.join("]`, `[")),
    })
}

/// Returns a hint for a name that is not a key of a table, or is outside of any.
fn suggest_key(section: Option<&str>, name: &str) -> String {
    let here = |key: &&Key| section.is_none_or(|section| key.section == section);
    let same = |key: &&Key| key.name == name || key.aliases.contains(&name);
    let hint = |key: &Key| match section == Some(key.section) {
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
        (Some(key), _) => hint(key),
        (None, Some(section)) => {
            let names: Vec<&str> =
                keys().filter(|key| key.section == section).map(|key| key.name).collect();
            format!("the keys are `{}`", names.join("`, `"))
        }
        (None, None) => "`vramfit train --init` lists all keys".to_owned(),
    }
}

/// Truncates a value to what fits into a sentence.
fn truncated(text: &str) -> String {
    const MAX_CHARS: usize = 40;
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// Returns a value for every key.
fn with_defaults(file: &Path, raw: &RawConfig) -> Result<Config> {
    let mut all = Map::new();
    for key in keys() {
        let value = match (raw.0.get(&key.dotted()), key.default) {
            (Some((value, location)), _) => resolve_path(file, key, value, location),
            (None, DefaultValue::Value(text)) => {
                let value = DeValue::parse(text).ok();
                let value = value.and_then(|value| key.value_type.parse(value.get_ref()));
                value.expect("a test reads every value of the table")
            }
            (None, DefaultValue::Unset(..)) => Json::Null,
            (None, DefaultValue::Required(_)) => {
                let shown = file.display();
                let message = format!("`{shown}` has no `{}` in `[{}]`", key.name, key.section);
                let description = key.description.trim_end_matches('.');
                return Err(Error::invalid_argument(message)
                    .hint(format!("add `{}`: {description}", key.line())));
            }
        };
        let section = all.entry(key.section).or_insert_with(|| Json::Object(Map::new()));
        section[key.name] = value;
    }
    let mut config: Config = serde_json::from_value(Json::Object(all)).map_err(|error| {
        Error::new(ErrorKind::Internal, "the configuration does not match its keys").cause(error)
    })?;
    if config.training.directory.is_none() {
        let name = file.file_stem().unwrap_or(file.as_os_str());
        config.training.directory = Some(sibling_path(file, &PathBuf::from("runs").join(name)));
    }
    Ok(config)
}

/// Returns a value; a path relative to the current directory.
fn resolve_path(file: &Path, key: &Key, value: &Json, location: &SourceLocation) -> Json {
    match (key.value_type, value, location) {
        (ValueType::Path, Json::String(path), SourceLocation::Line(..)) => {
            sibling_path(file, Path::new(path)).to_string_lossy().into()
        }
        (ValueType::ChoiceOrPython(..), Json::String(text), SourceLocation::Line(..))
            if PythonName::parse(text).is_some_and(PythonName::is_in_file) =>
        {
            sibling_path(file, Path::new(text)).to_string_lossy().into()
        }
        _ => value.clone(),
    }
}

fn sibling_path(file: &Path, path: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}
