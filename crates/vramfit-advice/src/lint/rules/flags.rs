//! The flags in `XLA_FLAGS`. XLA aborts the process on most mistakes, and silently ignores the rest.

use super::super::context::{LintContext, XLA_FLAGS};
use super::super::finding::{Change, RawFinding};
use super::super::{Rule, Severity};
use crate::nearest;
use crate::settings::{self, Reader, Setting, Version, split_flags};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "flag-without-dashes",
        severity: Severity::Error,
        meaning: "Every flag starts with two dashes. If the first word does not, it is taken as \
                  a file name; any later one ends parsing, and all flags after it are silently \
                  ignored.",
        fix: "Start every flag with two dashes, and remove what is not an XLA flag.",
        check: |context| Vec::from_iter(without_dashes(context)),
    },
    Rule {
        id: "flag-of-another-program",
        severity: Severity::Error,
        meaning: "XLA's flags start with `--xla_`; TPU flags belong in another variable. XLA \
                  aborts the process if it does not know a flag.",
        fix: "Remove the flag. TPU flags go into `LIBTPU_INIT_ARGS`, TensorFlow's into \
              `TF_XLA_FLAGS`.",
        check: other_backend,
    },
    Rule {
        id: "flag-misspelled",
        severity: Severity::Error,
        meaning: "XLA does not know the flag, but it resembles one that XLA knows. XLA aborts \
                  the process.",
        fix: "Use the intended flag.",
        check: misspelled,
    },
    Rule {
        id: "flag-not-in-this-release",
        severity: Severity::Error,
        meaning: "The flag belongs to other releases. XLA aborts the process if it does not know \
                  a flag.",
        fix: "Remove the flag, or use a release that supports it.",
        check: other_release,
    },
    Rule {
        id: "flag-value",
        severity: Severity::Error,
        meaning: "The flag requires `true` or `false`, or an integer. With anything else, XLA \
                  aborts the process.",
        fix: "Use a valid value.",
        check: flag_value,
    },
    Rule {
        id: "flag-cpu-only",
        severity: Severity::Note,
        meaning: "`--xla_force_host_platform_device_count=1` is often recommended for GPU memory \
                  problems. It sets the number of CPU devices, and 1 is the default.",
        fix: "Remove it.",
        check: |context| Vec::from_iter(cpu_only_flag(context)),
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

/// Returns the change that sets `XLA_FLAGS` to these words.
fn flags_change(words: impl IntoIterator<Item = String>) -> Change {
    let text = join(words);
    if text.is_empty() { Change::unset(XLA_FLAGS) } else { Change::set(XLA_FLAGS, text) }
}

fn without_dashes(context: &LintContext<'_>) -> Option<RawFinding> {
    let words = words(context.non_empty_var(XLA_FLAGS).unwrap_or_default());
    let at = words.iter().position(|word| !word.starts_with("--"))?;
    let wrong = words[at].clone();
    let bare = wrong.trim_start_matches(['-', '\u{2013}', '\u{2014}']);
    let is_flag = bare.starts_with("xla_");
    if at == 0 && !is_flag && !wrong.contains('=') && !wrong.starts_with('-') {
        // It looks like a file name, which is valid.
        return None;
    }
    let following = words.len() - at - 1;
    let message = match (at, following) {
        (0, _) => {
            format!("XLA takes `{wrong}` as a file name, and aborts if the file does not exist")
        }
        (_, 0) => format!("`{wrong}` does not start with two dashes, and is ignored"),
        (_, 1) => format!(
            "`{wrong}` does not start with two dashes: it and the flag after it are \
                           ignored"
        ),
        _ => {
            format!(
                "`{wrong}` does not start with two dashes: it and the {following} flags after it \
                     are ignored"
            )
        }
    };
    let mut fixed = words;
    let fix = if is_flag {
        fixed[at] = format!("--{bare}");
        format!("use `--{bare}`")
    } else {
        fixed.remove(at);
        format!("remove `{wrong}`, which is not an XLA flag")
    };
    Some(RawFinding::new(XLA_FLAGS, message, fix).with_change(flags_change(fixed)))
}

/// Returns the flags that XLA reads, without dashes, with their values.
fn parse_flags(context: &LintContext<'_>) -> Vec<(String, Option<String>)> {
    words(context.non_empty_var(XLA_FLAGS).unwrap_or_default())
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
fn replace(context: &LintContext<'_>, name: &str, other: Option<&str>) -> Change {
    let words = words(context.non_empty_var(XLA_FLAGS).unwrap_or_default());
    flags_change(words.into_iter().filter_map(|word| {
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

fn other_backend(context: &LintContext<'_>) -> Vec<RawFinding> {
    parse_flags(context)
        .into_iter()
        .filter(|(name, _)| !is_xla_flag(name))
        .map(|(name, _)| {
            let place = if name.starts_with("xla_tpu_") {
                ": TPU flags go into `LIBTPU_INIT_ARGS`"
            } else if name.starts_with("tf_xla_") {
                ": it goes into `TF_XLA_FLAGS`"
            } else {
                ""
            };
            RawFinding::new(
                XLA_FLAGS,
                format!("`--{name}` is not an XLA flag for GPUs: the process aborts"),
                format!("remove it{place}"),
            )
            .with_change(replace(context, &name, None))
        })
        .collect()
}

/// The release whose flags are recorded completely.
const RECORDED_RELEASE: Version = Version::new(0, 10, 2);

/// Returns every flag that XLA knows in that release.
fn recorded_flags() -> impl Iterator<Item = &'static str> {
    include_str!("../names/flags.txt").lines().filter(|line| !line.starts_with('#'))
}

fn table_flag(name: &str) -> Option<&'static Setting> {
    settings::find(name).filter(|setting| setting.is_flag() && setting.name == name)
}

fn is_xla_flag(name: &str) -> bool {
    name.starts_with("xla_") && !name.starts_with("xla_tpu_")
}

/// Returns whether a flag is not recorded, nor close to one that is.
fn is_unknown_flag(name: &str) -> bool {
    is_xla_flag(name)
        && recorded_flags().all(|flag| flag != name)
        && nearest::correct_misspelling(name, recorded_flags()).is_none()
}

fn misspelled(context: &LintContext<'_>) -> Vec<RawFinding> {
    let mut all = Vec::new();
    for (name, _) in parse_flags(context) {
        if !is_xla_flag(&name)
            || recorded_flags().any(|flag| flag == name)
            || table_flag(&name).is_some()
        {
            continue;
        }
        if let Some(right) = nearest::correct_misspelling(&name, recorded_flags()) {
            all.push(
                RawFinding::new(
                    XLA_FLAGS,
                    format!("XLA has no flag `--{name}`: the process aborts"),
                    format!("did you mean `--{right}`?"),
                )
                .with_change(replace(context, &name, Some(right))),
            );
        }
    }
    all
}

fn other_release(context: &LintContext<'_>) -> Vec<RawFinding> {
    let Some(version) = context.input.jax else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for (name, _) in parse_flags(context) {
        let range = match table_flag(&name) {
            Some(setting) if setting.is_read_by(version) => continue,
            Some(setting) => match (setting.since, setting.until) {
                (Some(since), _) if version < since => format!("it requires {since}"),
                (_, Some(until)) => format!("the last release to support it is {until}"),
                _ => "other releases do".to_owned(),
            },
            None if version == RECORDED_RELEASE && is_unknown_flag(&name) => {
                "other releases may".to_owned()
            }
            None => continue,
        };
        all.push(
            RawFinding::new(
                XLA_FLAGS,
                format!("JAX {version} does not know `--{name}` ({range}): the process aborts"),
                format!("remove `--{name}`"),
            )
            .with_change(replace(context, &name, None)),
        );
    }
    all
}

fn flag_value(context: &LintContext<'_>) -> Vec<RawFinding> {
    let mut all = Vec::new();
    for (name, value) in parse_flags(context) {
        let Some(setting) = table_flag(&name).filter(|setting| setting.reader == Reader::Xla)
        else {
            continue;
        };
        let accepts = setting.accepts.as_deref().unwrap_or_default();
        let text = value.as_deref();
        let wanted = if accepts == "true or false" {
            let good = text.is_none_or(|text| {
                matches!(text.to_ascii_lowercase().as_str(), "true" | "false" | "1" | "0")
            });
            (!good).then_some("`true` or `false`")
        } else if accepts.starts_with("a whole number") || accepts.starts_with("0 to ") {
            let good = text.is_some_and(|text| text.parse::<i64>().is_ok());
            (!good).then_some("an integer")
        } else {
            None
        };
        if let Some(wanted) = wanted {
            let shown = text.map_or("nothing".to_owned(), |text| format!("`{text}`"));
            all.push(
                RawFinding::new(
                    XLA_FLAGS,
                    format!("`--{name}` expects {wanted}, not {shown}: the process aborts"),
                    format!("set `--{name}=` to {wanted}, or remove it"),
                )
                .with_change(replace(context, &name, None)),
            );
        }
    }
    all
}

fn cpu_only_flag(context: &LintContext<'_>) -> Option<RawFinding> {
    let name = "xla_force_host_platform_device_count";
    let one = parse_flags(context)
        .into_iter()
        .any(|(flag, value)| flag == name && value.as_deref() == Some("1"));
    if !one {
        return None;
    }
    Some(
        RawFinding::new(
            XLA_FLAGS,
            format!(
                "`--{name}=1` sets the number of CPU devices to the default; it does not affect \
                 GPUs"
            ),
            "remove it",
        )
        .with_change(replace(context, name, None)),
    )
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
            assert!(newer || recorded_flags().any(|flag| flag == setting.name), "{}", setting.name);
        }
    }
}
