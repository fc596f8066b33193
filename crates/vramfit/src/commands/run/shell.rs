//! Settings as lines that a shell reads back.

use vramfit_model::settings::ResolvedSettings;

/// Returns one `NAME=value` a line, quoted where necessary. Variables to remove are set to an empty
/// value, which JAX takes as unset: `export` and `env` cannot express a removal.
pub(super) fn lines(settings: &ResolvedSettings) -> String {
    let set = settings.set.iter().map(|set| (set.name, &*set.value));
    let removed = settings.removed.iter().map(|name| (*name, ""));
    set.chain(removed).map(|(name, value)| format!("{name}={}\n", quoted(value))).collect()
}

/// Quotes a text for a POSIX shell, if it has anything that a shell would change.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/=+@%".contains(c);
    if text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_shell_would_change_is_quoted() {
        for (text, line) in [
            ("", ""),
            ("0.5", "0.5"),
            ("cuda,cpu", "cuda,cpu"),
            ("--a=1 --b=2", "'--a=1 --b=2'"),
            ("it's $HOME", r"'it'\''s $HOME'"),
            ("a\nb", "'a\nb'"),
        ] {
            assert_eq!(quoted(text), line);
        }
    }
}
