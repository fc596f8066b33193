//! Paths and names in files: what is below what, and lists of them for hints.

use vramfit_base::Error;

/// Whether a path is another one, or below it. The path of the root is empty, or a slash.
pub(crate) fn is_descendant(path: &str, outer: &str) -> bool {
    let outer = outer.trim_end_matches('/');
    let rest = path.strip_prefix(outer);
    rest.is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

/// Lists names, of many only the first `most`; `None` where there are none.
pub(crate) fn list_names<'a>(
    mut names: impl Iterator<Item = &'a str>,
    most: usize,
) -> Option<String> {
    let shown = names.by_ref().take(most).map(|name| format!("`{name}`"));
    let shown: Vec<String> = shown.collect();
    match (shown.is_empty(), names.count()) {
        (true, _) => None,
        (false, 0) => Some(shown.join(", ")),
        (false, more) => Some(format!("{} and {more} more", shown.join(", "))),
    }
}

/// Adds to an error that a path is not in a file some paths that are.
pub(crate) fn hint_contents<'a>(error: Error, paths: impl Iterator<Item = &'a str>) -> Error {
    let names = paths.map(|path| path.trim_start_matches('/').escape_debug());
    let names: Vec<String> = names.take(8).map(|path| format!("`/{path}`")).collect();
    match names.is_empty() {
        true => error,
        false => error.hint(format!("it contains {}", names.join(", "))),
    }
}
