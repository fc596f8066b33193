//! The names that JAX, its plugin and related programs read.
//!
//! `names/jax.tsv` is recorded from the sources of every release since 0.4.26 by
//! `scripts/record/names.py`; `names/others.txt` holds names of the same families that somebody else
//! reads. What the settings do is in [`crate::settings`].

use std::sync::LazyLock;

use crate::settings::{self, Reader, Version};

/// How the value of a name is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// In the environment, as a truth value.
    Bool,
    /// In the environment, as a whole number.
    Int,
    /// In the environment, as a number.
    Float,
    /// In the environment, as a text or in a way of its own.
    Text,
    /// Not at all: it is an option of `jax.config` only.
    Option,
}

/// A name that JAX's code contains.
#[derive(Clone, Copy, Debug)]
pub(super) struct JaxSetting {
    pub(super) name: &'static str,
    pub(super) kind: ValueKind,
    /// The first release that has it; `None`: every release recorded.
    pub(super) since: Option<Version>,
    /// The last one.
    pub(super) until: Option<Version>,
}

impl JaxSetting {
    fn is_in(&self, version: Version) -> bool {
        self.since.is_none_or(|since| since <= version)
            && self.until.is_none_or(|until| version <= until)
    }
}

static JAX: LazyLock<Vec<JaxSetting>> = LazyLock::new(|| {
    include_str!("names/jax.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| parse(line).expect("names/jax.tsv is part of the program and tested"))
        .collect()
});

fn parse(line: &'static str) -> Option<JaxSetting> {
    let mut cells = line.split('\t');
    let name = cells.next()?;
    let kind = match cells.next()? {
        "bool" => ValueKind::Bool,
        "int" => ValueKind::Int,
        "float" => ValueKind::Float,
        "text" => ValueKind::Text,
        "option" => ValueKind::Option,
        _ => return None,
    };
    let mut version = || match cells.next() {
        None | Some("") => Some(None),
        Some(text) => text.parse().ok().map(Some),
    };
    Some(JaxSetting { name, kind, since: version()?, until: version()? })
}

/// Returns names with the same prefixes that other programs read.
fn names_of_other_readers() -> impl Iterator<Item = &'static str> {
    include_str!("names/others.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Returns what is recorded of a name in that release, or else in the nearest one.
pub(super) fn find_jax_name(name: &str, version: Version) -> Option<JaxSetting> {
    let all = || JAX.iter().filter(|known| known.name == name);
    all().find(|known| known.is_in(version)).or_else(|| all().next_back()).copied()
}

/// Returns whether a release has a name in any form; true for names that are not recorded.
pub(super) fn exists_in(name: &str, version: Version) -> bool {
    let mut all = JAX.iter().filter(|known| known.name == name).peekable();
    all.peek().is_none() || all.any(|known| known.is_in(version))
}

/// Returns whether any known program reads the name.
pub(super) fn is_known(name: &str) -> bool {
    settings::find(name).is_some_and(|setting| !setting.is_flag())
        || JAX.iter().any(|known| known.name == name)
        || names_of_other_readers().any(|other| other == name)
}

/// Returns every environment variable that this JAX release or a related program reads.
pub(super) fn names_read_by_jax(version: Version) -> impl Iterator<Item = &'static str> {
    let table = settings::all()
        .iter()
        .filter(move |setting| !setting.is_flag() && setting.reader != Reader::Unread)
        .filter(move |setting| setting.reader == Reader::Tensorflow || setting.is_read_by(version))
        .map(|setting| setting.name.as_str());
    let jax = JAX
        .iter()
        .filter(move |known| known.kind != ValueKind::Option && known.is_in(version))
        .map(|known| known.name);
    table.chain(jax).chain(names_of_other_readers())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASE: Version = Version::new(0, 10, 2);

    #[test]
    fn every_line_is_read_and_every_name_is_there_once_a_kind() {
        assert!(JAX.len() > 200, "{}", JAX.len());
        let mut seen = std::collections::HashSet::new();
        for known in JAX.iter() {
            assert!(seen.insert((known.name, known.kind as u8)), "{known:?}");
        }
    }

    #[test]
    fn kinds_are_those_of_the_sources() {
        for (name, kind) in [
            ("JAX_ENABLE_X64", ValueKind::Bool),
            ("JAX_COMPILATION_CACHE_MAX_SIZE", ValueKind::Int),
            ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", ValueKind::Float),
            ("JAX_PLATFORMS", ValueKind::Text),
            ("JAX_COORDINATOR_ADDRESS", ValueKind::Text),
            ("JAX_CUDA_VISIBLE_DEVICES", ValueKind::Option),
            ("PJRT_NAMES_AND_LIBRARY_PATHS", ValueKind::Text),
        ] {
            assert_eq!(find_jax_name(name, RELEASE).map(|known| known.kind), Some(kind), "{name}");
        }
    }

    #[test]
    fn the_table_of_settings_and_the_record_agree() {
        for setting in settings::all() {
            let Some(known) = find_jax_name(&setting.name, RELEASE) else {
                continue;
            };
            assert_eq!(
                known.kind == ValueKind::Option,
                setting.reader == Reader::Unread,
                "{}",
                setting.name
            );
        }
    }
}
