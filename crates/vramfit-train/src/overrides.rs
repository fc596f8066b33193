//! Overrides of keys: `--set KEY=VALUE` of the command line.

use vramfit_base::nearest::nearest;
use vramfit_base::{Error, Result};

use super::key::Key;
use super::keys::keys;
use super::location::SourceLocation;

/// Splits `data.batch_size=64` into its key, and its value in TOML.
///
/// # Errors
/// `invalid-argument` for an unknown key, or without `=`.
pub(super) fn parse_override(text: &str) -> Result<(&'static Key, String)> {
    let location = SourceLocation::Option(text.to_owned());
    let Some((name, value)) = text.split_once('=') else {
        return Err(Error::invalid_argument(format!("{location} has no `=`"))
            .hint("write a key and its value: `--set data.batch_size=64`"));
    };
    let (name, value) = (name.trim(), value.trim());
    let Some(key) = keys().find(|key| key.dotted() == name) else {
        return Err(location.error(&format!("unknown key `{name}`")).hint(suggest_key(name)));
    };
    // A shell removes quotation marks, so a string may have none.
    let is_quoted = value.starts_with(['"', '\'']);
    let value = match key.value_type.is_text() && !is_quoted && value.parse::<i64>().is_err() {
        true => toml::Value::from(value).to_string(),
        false => value.to_owned(),
    };
    Ok((key, value))
}

/// Returns a hint for an unknown key.
fn suggest_key(name: &str) -> String {
    let bare = name.rsplit('.').next().unwrap_or(name);
    let same = keys().filter(|key| key.name == bare || key.aliases.contains(&bare));
    let mut found: Vec<String> = same.map(Key::dotted).collect();
    if found.is_empty() {
        let all: Vec<String> = keys().map(Key::dotted).collect();
        let near = nearest(name, all.iter().map(String::as_str)).into_iter();
        found = near.map(str::to_owned).collect();
    }
    match found.is_empty() {
        true => "`vramfit train --init` lists all keys; write a key as `table.key`".to_owned(),
        false => format!("did you mean `{}`?", found.join("` or `")),
    }
}
