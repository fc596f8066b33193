//! What is said to a terminal that shows ASCII only.

use std::borrow::Cow;
use std::ffi::OsString;

/// The signs that our texts use, and what stands for them. Whatever else is not ASCII is the user's own
/// (a path, a name) and stays as it is.
const SIGNS: [(char, &str); 39] = [
    ('…', "..."),
    ('–', "-"),
    ('—', "-"),
    ('−', "-"),
    ('→', "->"),
    ('←', "<-"),
    ('↑', "^"),
    ('↓', "v"),
    ('·', "."),
    ('×', "x"),
    ('²', "^2"),
    ('°', ""),
    ('µ', "u"),
    ('≤', "<="),
    ('≥', ">="),
    ('≈', "~"),
    ('✓', "ok"),
    ('✗', "NO"),
    ('█', "#"),
    ('▓', "+"),
    ('▒', "-"),
    ('░', "."),
    ('▁', "_"),
    ('▂', "."),
    ('▃', ":"),
    ('▄', "-"),
    ('▅', "="),
    ('▆', "+"),
    ('▇', "*"),
    ('▼', "v"),
    ('▏', "|"),
    ('─', "-"),
    ('│', "|"),
    ('┌', "+"),
    ('┐', "+"),
    ('└', "+"),
    ('┘', "+"),
    ('├', "+"),
    ('┤', "+"),
];

/// Returns `true` if the locale is `C`, `POSIX` or of another character set than UTF-8: what the first of
/// `LC_ALL`, `LC_CTYPE` and `LANG` says that is set. Where none is, terminals are taken to show UTF-8.
///
/// Under `LANG=C` the Python that started us has set `LC_CTYPE` to UTF-8, for its own files (PEP 538), so
/// those values say nothing beside a `LANG`.
pub(crate) fn is_wanted(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
    let is_pythons =
        |locale: &OsString| ["C.UTF-8", "C.utf8", "UTF-8"].iter().any(|own| locale == own);
    let of_type = set(&"LC_CTYPE").filter(|locale| !is_pythons(locale) || set(&"LANG").is_none());
    let locale = set(&"LC_ALL").or(of_type).or_else(|| set(&"LANG"));
    locale.is_some_and(|locale| {
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        !(locale.contains("utf-8") || locale.contains("utf8"))
    })
}

/// Replaces the signs of our texts.
pub(crate) fn in_ascii(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for sign in text.chars() {
        match SIGNS.iter().find(|(known, _)| *known == sign) {
            Some((_, instead)) => out.push_str(instead),
            None => out.push(sign),
        }
    }
    Cow::Owned(out)
}

/// Replaces each sign by one character, so that columns stay where they are.
pub(crate) fn in_ascii_columns(text: &str) -> String {
    let one = |sign: char| {
        let known = SIGNS.iter().find(|(known, _)| *known == sign);
        known.map_or(sign, |(_, instead)| instead.chars().next().unwrap_or(' '))
    };
    text.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_is_that_of_the_first_variable_that_is_set() {
        for (variables, wanted) in [
            (&[][..], false),
            (&[("LANG", "C")], true),
            (&[("LANG", "POSIX")], true),
            (&[("LANG", "de_DE.ISO-8859-1")], true),
            (&[("LANG", "de_DE.UTF-8")], false),
            (&[("LANG", "C.utf8")], false),
            (&[("LC_ALL", ""), ("LANG", "C")], true),
            (&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")], true),
            (&[("LC_CTYPE", "C.UTF-8"), ("LANG", "C")], true),
            (&[("LC_CTYPE", "C.UTF-8")], false),
            (&[("LC_CTYPE", "C.UTF-8"), ("LANG", "de_DE.UTF-8")], false),
            (&[("LC_CTYPE", "C"), ("LANG", "de_DE.UTF-8")], true),
        ] {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            };
            assert_eq!(is_wanted(variable), wanted, "{variables:?}");
        }
    }

    #[test]
    fn signs_are_replaced_and_names_stay() {
        assert_eq!(in_ascii("fits ✓ – 3 × 2 → 6…"), "fits ok - 3 x 2 -> 6...");
        assert_eq!(in_ascii("größe.py"), "größe.py");
        assert_eq!(in_ascii_columns("│ 3 °C █▓·…"), "| 3  C #+..");
        assert!(SIGNS.iter().all(|(_, instead)| instead.is_ascii()));
    }

    /// Every text that the command line or a report can say is made of ASCII and the signs above; so a
    /// new sign in a source file must be added to the list.
    #[test]
    fn all_signs_of_our_sources_are_known() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut folders =
            vec![root.join("src"), root.join("../vramfit-analysis/src/report/render/text")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                // This file has letters of names in its tests.
                if path.ends_with("ascii.rs") || path.extension() != Some("rs".as_ref()) {
                    continue;
                }
                let source = std::fs::read_to_string(&path).expect("a source file");
                for (line, text) in source.lines().enumerate() {
                    let text = in_ascii(text);
                    assert!(text.is_ascii(), "{}:{}: {text}", path.display(), line + 1);
                }
            }
        }
    }
}
