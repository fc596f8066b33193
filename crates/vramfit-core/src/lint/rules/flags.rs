//! The flags inside `XLA_FLAGS`. XLA ends the process at most mistakes, and is silent about the rest.

use super::super::finding::{Change, Found};
use super::super::scene::{Scene, XLA_FLAGS};
use super::super::{Rule, Severity};
use crate::nearest;
use crate::settings::{self, Reader, Setting, Version, split_flags};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "flag-without-dashes",
        severity: Severity::Error,
        meaning: "Every flag begins with two dashes. A first word without them is taken as the name \
                  of a file; a later one ends the reading, and the flags behind it are ignored \
                  without a word.",
        cure: "Write two dashes before every flag, and remove what is no flag of XLA.",
        check: without_dashes,
    },
    Rule {
        id: "flag-of-another-program",
        severity: Severity::Error,
        meaning: "XLA's flags begin with `--xla_`; those for TPUs belong to another variable. At a flag \
                  that it does not know, XLA aborts the process.",
        cure: "Remove the flag. Flags for TPUs go into `LIBTPU_INIT_ARGS`, those of TensorFlow into \
               `TF_XLA_FLAGS`.",
        check: foreign,
    },
    Rule {
        id: "flag-misspelt",
        severity: Severity::Error,
        meaning: "The flag is none of XLA's, and differs by little from one that is. XLA aborts the \
                  process.",
        cure: "Write the flag that is meant.",
        check: misspelt,
    },
    Rule {
        id: "flag-not-in-this-release",
        severity: Severity::Error,
        meaning: "The flag belongs to other releases. XLA aborts the process at a flag that it does \
                  not know.",
        cure: "Remove the flag, or use a release that has it.",
        check: other_release,
    },
    Rule {
        id: "flag-value",
        severity: Severity::Error,
        meaning: "The flag wants `true` or `false`, or a whole number. XLA aborts the process at \
                  anything else.",
        cure: "Write such a value.",
        check: value,
    },
    Rule {
        id: "flag-about-cpu-only",
        severity: Severity::Note,
        meaning: "`--xla_force_host_platform_device_count=1` is often given as advice on GPU memory. It \
                  says how many CPU devices there are, and 1 is what there is anyway.",
        cure: "Remove it.",
        check: cpu_only,
    },
];

/// Splits the text of `XLA_FLAGS` as XLA does.
pub(super) fn words(text: &str) -> Vec<String> {
    split_flags(text)
}

/// Joins words so that XLA splits them again where they are split now.
pub(super) fn join(words: impl IntoIterator<Item = String>) -> String {
    let quoted = words.into_iter().map(|word| {
        let plain = |c: char| !c.is_whitespace() && c != '"' && c != '\'';
        if word.chars().all(plain) {
            return word;
        }
        // Each kind of quote keeps the other one.
        let mut text = String::new();
        for piece in word.split_inclusive('\'') {
            let bare = piece.strip_suffix('\'').unwrap_or(piece);
            if !bare.is_empty() {
                text.push_str(&format!("'{bare}'"));
            }
            if bare.len() < piece.len() {
                text.push_str("\"'\"");
            }
        }
        text
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Returns the change that leaves these words of the flags.
fn leave(words: impl IntoIterator<Item = String>) -> Change {
    let text = join(words);
    if text.is_empty() {
        Change::unset(XLA_FLAGS)
    } else {
        Change::set(XLA_FLAGS, text)
    }
}

fn without_dashes(scene: &Scene<'_>) -> Vec<Found> {
    let words = words(scene.held(XLA_FLAGS).unwrap_or_default());
    let Some(at) = words.iter().position(|word| !word.starts_with("--")) else {
        return Vec::new();
    };
    let wrong = words[at].clone();
    let bare = wrong.trim_start_matches(['-', '\u{2013}', '\u{2014}']);
    let is_flag = bare.starts_with("xla_");
    if at == 0 && !is_flag && !wrong.contains('=') && !wrong.starts_with('-') {
        // The name of a file, as far as anyone can see who does not look.
        return Vec::new();
    }
    let behind = words.len() - at - 1;
    let message = match (at, behind) {
        (0, _) => {
            format!("XLA takes `{wrong}` for the name of a file, and aborts when there is none")
        }
        (_, 0) => format!("`{wrong}` has no two dashes, and is ignored"),
        (_, 1) => format!("`{wrong}` has no two dashes: it and the flag behind it are ignored"),
        _ => {
            format!("`{wrong}` has no two dashes: it and the {behind} flags behind it are ignored")
        }
    };
    let mut mended = words;
    let fix = if is_flag {
        mended[at] = format!("--{bare}");
        format!("write `--{bare}`")
    } else {
        mended.remove(at);
        format!("remove `{wrong}`, which is no flag of XLA")
    };
    vec![Found::new(XLA_FLAGS, message, fix).change(leave(mended))]
}

/// The flags that XLA reads, without dashes, each with its value.
fn read(scene: &Scene<'_>) -> Vec<(String, Option<String>)> {
    words(scene.held(XLA_FLAGS).unwrap_or_default())
        .into_iter()
        .map_while(|word| {
            let flag = word.strip_prefix("--")?;
            Some(match flag.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (flag.to_owned(), None),
            })
        })
        .collect()
}

/// Returns the change that removes a flag, or gives it another name.
fn replace(scene: &Scene<'_>, name: &str, other: Option<&str>) -> Change {
    let words = words(scene.held(XLA_FLAGS).unwrap_or_default());
    leave(words.into_iter().filter_map(|word| {
        let flag = word.strip_prefix("--").unwrap_or(&word);
        let (found, rest) = match flag.split_once('=') {
            Some((found, value)) => (found, format!("={value}")),
            None => (flag, String::new()),
        };
        if found != name || !word.starts_with("--") {
            return Some(word);
        }
        other.map(|other| format!("--{other}{rest}"))
    }))
}

fn foreign(scene: &Scene<'_>) -> Vec<Found> {
    read(scene)
        .into_iter()
        .filter(|(name, _)| !is_ours(name))
        .map(|(name, _)| {
            let place = if name.starts_with("xla_tpu_") {
                ": flags for TPUs go into `LIBTPU_INIT_ARGS`"
            } else if name.starts_with("tf_xla_") {
                ": it goes into `TF_XLA_FLAGS`"
            } else {
                ""
            };
            Found::new(
                XLA_FLAGS,
                format!("`--{name}` is no flag of XLA for a GPU: the process is aborted"),
                format!("remove it{place}"),
            )
            .change(replace(scene, &name, None))
        })
        .collect()
}

/// The release whose flags are recorded, every one of them.
const RECORDED: Version = Version::new(0, 10, 2);

/// Every flag that XLA knows in that release.
fn recorded() -> impl Iterator<Item = &'static str> {
    include_str!("../names/flags.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
}

fn table_flag(name: &str) -> Option<&'static Setting> {
    settings::find(name).filter(|setting| setting.is_flag() && setting.name == name)
}

/// Says whether a flag is one of XLA's by its name.
fn is_ours(name: &str) -> bool {
    name.starts_with("xla_") && !name.starts_with("xla_tpu_")
}

/// Says whether a flag is in no record, and no other is near it.
fn is_stranger(name: &str) -> bool {
    is_ours(name)
        && recorded().all(|flag| flag != name)
        && nearest::slip_of(name, recorded()).is_none()
}

fn misspelt(scene: &Scene<'_>) -> Vec<Found> {
    let mut all = Vec::new();
    for (name, _) in read(scene) {
        if !is_ours(&name) || recorded().any(|flag| flag == name) || table_flag(&name).is_some() {
            continue;
        }
        if let Some(right) = nearest::slip_of(&name, recorded()) {
            all.push(
                Found::new(
                    XLA_FLAGS,
                    format!("XLA has no flag `--{name}`: the process is aborted"),
                    format!("write `--{right}`, if that is meant"),
                )
                .change(replace(scene, &name, Some(right))),
            );
        }
    }
    all
}

fn other_release(scene: &Scene<'_>) -> Vec<Found> {
    let Some(version) = scene.surroundings.jax else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for (name, _) in read(scene) {
        let range = match table_flag(&name) {
            Some(setting) if setting.is_read_by(version) => continue,
            Some(setting) => match (setting.since, setting.until) {
                (Some(since), _) if version < since => format!("it came with {since}"),
                (_, Some(until)) => format!("the last release that did is {until}"),
                _ => "other releases do".to_owned(),
            },
            None if version == RECORDED && is_stranger(&name) => "other releases may".to_owned(),
            None => continue,
        };
        all.push(
            Found::new(
                XLA_FLAGS,
                format!("JAX {version} does not know `--{name}` ({range}): the process is aborted"),
                format!("remove `--{name}`"),
            )
            .change(replace(scene, &name, None)),
        );
    }
    all
}

fn value(scene: &Scene<'_>) -> Vec<Found> {
    let mut all = Vec::new();
    for (name, value) in read(scene) {
        let Some(setting) = table_flag(&name).filter(|setting| setting.reader == Reader::Xla)
        else {
            continue;
        };
        let accepts = setting.accepts.as_deref().unwrap_or_default();
        let text = value.as_deref();
        let wanted = if accepts == "true or false" {
            let good = text.is_none_or(|text| {
                matches!(
                    text.to_ascii_lowercase().as_str(),
                    "true" | "false" | "1" | "0"
                )
            });
            (!good).then_some("`true` or `false`")
        } else if accepts.starts_with("a whole number") || accepts.starts_with("0 to ") {
            let good = text.is_some_and(|text| text.parse::<i64>().is_ok());
            (!good).then_some("a whole number")
        } else {
            None
        };
        if let Some(wanted) = wanted {
            let shown = text.map_or("nothing".to_owned(), |text| format!("`{text}`"));
            all.push(
                Found::new(
                    XLA_FLAGS,
                    format!("`--{name}` wants {wanted} and gets {shown}: the process is aborted"),
                    format!("write {wanted} behind `--{name}=`, or remove it"),
                )
                .change(replace(scene, &name, None)),
            );
        }
    }
    all
}

fn cpu_only(scene: &Scene<'_>) -> Vec<Found> {
    let name = "xla_force_host_platform_device_count";
    let one = read(scene)
        .into_iter()
        .any(|(flag, value)| flag == name && value.as_deref() == Some("1"));
    if !one {
        return Vec::new();
    }
    vec![
        Found::new(
            XLA_FLAGS,
            format!(
                "`--{name}=1` is about CPU devices, and what holds anyway; no GPU is concerned"
            ),
            "remove it",
        )
        .change(replace(scene, name, None)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_words_are_split_where_they_were() {
        for text in [
            "--a=1 --b=2",
            "--a='/tmp/a b' --c",
            r#"--a="it's" --b='say "x"'"#,
            r#"--a="'"'"' --b"#,
        ] {
            let once = words(text);
            assert_eq!(words(&join(once.clone())), once, "{text}");
        }
    }

    #[test]
    fn the_flags_of_the_table_are_recorded() {
        for setting in settings::all().iter().filter(|setting| setting.is_flag()) {
            let newer = setting.since.is_some();
            assert!(
                newer || recorded().any(|flag| flag == setting.name),
                "{}",
                setting.name
            );
        }
    }
}
