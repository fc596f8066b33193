//! One `--set KEY=VALUE` of the command line.

use crate::error::{Error, ErrorKind, Result};

use super::key::Key;
use super::keys::keys;
use super::place::Place;
use crate::nearest::nearest;

/// Divides `data.batch_size=64` into its key, and the value as the file would have it.
///
/// # Errors
/// `invalid-argument` when there is no such key, or no `=`.
pub(super) fn divide(text: &str) -> Result<(&'static Key, String)> {
    let place = Place::Option(text.to_owned());
    let Some((name, value)) = text.split_once('=') else {
        return Err(
            Error::new(ErrorKind::InvalidArgument, format!("{place} has no `=`"))
                .hint("write a key and its value: `--set data.batch_size=64`"),
        );
    };
    let (name, value) = (name.trim(), value.trim());
    let Some(key) = keys().find(|key| key.dotted() == name) else {
        return Err(place
            .refuse(&format!("there is no key `{name}`"))
            .hint(meant(name)));
    };
    // A shell takes quotation marks away, so a text may come without.
    let is_quoted = value.starts_with(['"', '\'']);
    let value = match key.form.is_text() && !is_quoted && value.parse::<i64>().is_err() {
        true => toml::Value::from(value).to_string(),
        false => value.to_owned(),
    };
    Ok((key, value))
}

/// Says which key may be meant by a name that there is not.
fn meant(name: &str) -> String {
    let bare = name.rsplit('.').next().unwrap_or(name);
    let other = keys().filter(|key| key.name == bare || key.also.contains(&bare));
    let mut found: Vec<String> = other.map(Key::dotted).collect();
    if found.is_empty() {
        let all: Vec<String> = keys().map(Key::dotted).collect();
        let near = nearest(name, all.iter().map(String::as_str)).into_iter();
        found = near.map(str::to_owned).collect();
    }
    match found.is_empty() {
        true => "`vramfit train --init` lists all keys; a table and a key are written with a dot between"
            .to_owned(),
        false => format!("did you mean `{}`?", found.join("` or `")),
    }
}
