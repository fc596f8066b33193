//! The values of a configuration as they were written, and where.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use toml::de::DeValue;
use vramfit_base::Result;
use vramfit_base::nearest::nearest;

use super::key::{Key, ValueType};
use super::location::SourceLocation;

/// The values of the keys that were set, and where.
pub(super) struct RawConfig(pub(super) BTreeMap<String, (Json, SourceLocation)>);

impl RawConfig {
    /// Returns where a key was set, if it was.
    pub(super) fn location(&self, dotted: &str) -> Option<&SourceLocation> {
        self.0.get(dotted).map(|(_, location)| location)
    }

    /// Adds the value of a key.
    ///
    /// # Errors
    /// `invalid-argument` for a value of another type.
    pub(super) fn insert(
        &mut self,
        key: &Key,
        value: &DeValue<'_>,
        shown: &str,
        location: SourceLocation,
    ) -> Result<()> {
        let Some(value) = key.value_type.parse(value) else {
            let expected = key.value_type.describe();
            let what = format!("`{}` is `{shown}`, but must be {expected}", key.name);
            let error = location.error(&what);
            return Err(match nearest_choice(key.value_type, value) {
                Some(word) => error.hint(format!("did you mean `{word}`?")),
                None => error.hint(format!("for example `{}`", key.line())),
            });
        };
        self.0.insert(key.dotted(), (value, location));
        Ok(())
    }
}

/// Returns the choice that is probably meant.
fn nearest_choice(value_type: ValueType, value: &DeValue<'_>) -> Option<&'static str> {
    let (ValueType::Choice(words) | ValueType::ChoiceOrPython(words, _)) = value_type else {
        return None;
    };
    let text = value.as_str()?.to_ascii_lowercase();
    nearest(&text, words.iter().copied()).first().copied()
}
