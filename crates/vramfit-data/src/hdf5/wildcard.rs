//! Paths with wildcards: `data/*/obs` is the dataset `obs` of every group in `data`.

use vramfit_base::{ErrorKind, Result};

use super::description::Description;
use super::group::{self, Link, Target};
use super::object::ObjectFinder;
use crate::natural_order;

/// Whether a path has a wildcard, unless an object has just that name.
///
/// # Errors
///
/// As [`ObjectFinder::find`], but for a path that leads nowhere.
pub(crate) fn has_wildcard(finder: &mut ObjectFinder, pattern: &str) -> Result<bool> {
    if !pattern.contains('*') {
        return Ok(false);
    }
    match finder.find(pattern) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::InvalidArgument => Ok(true),
        Err(error) => Err(error),
    }
}

/// Returns for every dataset that a pattern means the names that stand where it has wildcards, one for each name of
/// the path that has some. Numbers in names are compared by value, so `demo_2` comes before `demo_10`.
///
/// What a `*` stands for must be a group where names follow, and a dataset at the end; other objects are left out.
/// Whether the names that follow are in each group is not looked at.
///
/// # Errors
///
/// As [`ObjectFinder::find`], but for paths that lead nowhere.
pub(crate) fn expand(finder: &mut ObjectFinder, pattern: &str) -> Result<Vec<Vec<String>>> {
    let names: Vec<&str> = pattern.split('/').filter(|name| !name.is_empty()).collect();
    let mut found = Vec::new();
    walk(finder, &names, String::new(), &mut Vec::new(), &mut found)?;
    Ok(found)
}

fn walk(
    finder: &mut ObjectFinder,
    names: &[&str],
    path: String,
    chosen: &mut Vec<String>,
    found: &mut Vec<Vec<String>>,
) -> Result<()> {
    let Some(place) = names.iter().position(|name| name.contains('*')) else {
        found.push(chosen.clone());
        return Ok(());
    };
    let group = names[..place].iter().fold(path, |path, name| format!("{path}/{name}"));
    let rest = &names[place + 1..];
    let pattern = if rest.is_empty() { without_field(names[place]) } else { names[place] };
    let mut members = finder.members(&group)?;
    members.retain(|member| matches(pattern, &member.name));
    members.sort_by(|one, other| natural_order::compare(&one.name, &other.name));
    for Link { name, target, .. } in members {
        let path = format!("{group}/{name}");
        let header = match finder.find(&path) {
            Ok((_, header)) => header,
            // A soft link may lead nowhere; anything else that cannot be found is missing.
            Err(error)
                if error.kind() == ErrorKind::InvalidArgument
                    && matches!(target, Target::Soft(_)) =>
            {
                continue;
            }
            Err(error) => return Err(error),
        };
        let is_wanted = match rest.is_empty() {
            true => Description::is_present(&header),
            false => group::is_group(&header),
        };
        if is_wanted {
            chosen.push(name);
            walk(finder, rest, path, chosen, found)?;
            chosen.pop();
        }
    }
    Ok(())
}

/// Returns the path with names in place of those that have wildcards; `None` where there are more or fewer of them,
/// or where a name is none that the wildcards stand for.
pub(crate) fn fill(pattern: &str, chosen: &[String]) -> Option<String> {
    let mut chosen = chosen.iter();
    let names: Vec<&str> = pattern.split('/').filter(|name| !name.is_empty()).collect();
    let mut path = String::new();
    for (place, name) in names.iter().enumerate() {
        path.push('/');
        if !name.contains('*') {
            path.push_str(name);
            continue;
        }
        let is_last = place + 1 == names.len();
        let bare = if is_last { without_field(name) } else { name };
        let one = chosen.next().filter(|one| matches(bare, one))?;
        path.push_str(one);
        path.push_str(&name[bare.len()..]);
    }
    chosen.next().is_none().then_some(path)
}

/// Returns the last name of a path without a field of its records: `points_*` of `points_*[x]`.
fn without_field(name: &str) -> &str {
    match (name.rfind('['), name.ends_with(']'), name.rfind('*')) {
        (Some(field), true, Some(wildcard)) if wildcard < field => &name[..field],
        _ => name,
    }
}

/// Whether a name is one that a pattern stands for: each `*` is any number of characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    // Each part as early as possible leaves most for those behind it.
    for part in parts {
        match rest.find(part) {
            Some(place) => rest = &rest[place + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_number_of_characters() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "demo_1", true),
            ("demo_*", "demo_", true),
            ("demo_*", "demo1", false),
            ("*_1", "demo_1", true),
            ("*_1", "demo_12", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "acb", false),
            ("*é*", "né", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} and {name}");
        }
    }

    #[test]
    fn names_take_the_place_of_wildcards() {
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let filled = |pattern, chosen: &[&str]| fill(pattern, &names(chosen));
        assert_eq!(filled("data/*/obs", &["demo_1"]).as_deref(), Some("/data/demo_1/obs"));
        assert_eq!(filled("/data/demo_*/obs", &["demo_1"]).as_deref(), Some("/data/demo_1/obs"));
        assert_eq!(filled("a/*/b_*[x]", &["1", "b_2"]).as_deref(), Some("/a/1/b_2[x]"));
        assert_eq!(filled("x", &[]).as_deref(), Some("/x"));
        assert_eq!(filled("data/*/obs", &[]), None);
        assert_eq!(filled("data/demo_*/obs", &["episode_1"]), None);
        assert_eq!(filled("data/obs", &["demo_1"]), None);
    }
}
