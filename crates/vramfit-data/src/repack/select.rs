//! Some of a file's datasets instead of all: those that were named, or are in groups that were.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use vramfit_core::{Error, Result};

use super::Omission;
use super::manifest::{FileManifest, StreamedDataset};
use crate::hdf5::Container;
use crate::hdf5::path::{hint_contents, is_descendant};
use crate::write::{Link, Target};

/// Keeps what is at or below one of the paths, and the groups on the way there.
///
/// # Errors
/// `invalid-argument` when nothing is at a path, or only a link to it.
pub(super) fn select(
    file: &Path,
    container: &Container,
    manifest: &mut FileManifest,
    paths: &[String],
) -> Result<()> {
    if paths.is_empty() {
        return Ok(());
    }
    let wanted: Vec<&str> = paths.iter().map(|path| path.trim_matches('/')).collect();
    for path in &wanted {
        ensure_exists(file, container, manifest, path)?;
    }
    let kept = |path: &str| wanted.iter().any(|wanted| is_descendant(path, wanted));
    let on_the_way =
        |path: &str| kept(path) || wanted.iter().any(|wanted| is_descendant(wanted, path));
    keep_target(manifest, &kept);
    manifest.streamed.retain(|streamed| kept(&streamed.dataset.path));
    manifest.content.inline.retain(|object| kept(&object.path));
    manifest.content.links.retain(|link| kept(&link.path));
    manifest.refused.retain(|(path, _)| kept(path));
    manifest.content.groups.retain(|group| on_the_way(&group.path));
    // The order of members is that of all of them.
    for group in &mut manifest.content.groups {
        if !kept(&group.path) {
            group.order = None;
        }
    }
    manifest.omissions.retain(|omission| on_the_way(omission.path.trim_matches('/')));
    Ok(())
}

fn ensure_exists(
    file: &Path,
    container: &Container,
    manifest: &FileManifest,
    path: &str,
) -> Result<()> {
    let content = &manifest.content;
    let mut paths = (manifest.datasets())
        .chain(content.inline.iter().map(|object| object.path.as_str()))
        .chain(content.groups.iter().map(|group| group.path.as_str()))
        .chain(manifest.refused.iter().map(|(path, _)| path.as_str()));
    if paths.any(|other| other == path) {
        return Ok(());
    }
    if let Some(link) = content.links.iter().find(|link| link.path == path) {
        return match &link.target {
            Target::Object(_) => Ok(()),
            Target::Soft(to) => Err(link_only(path, to)),
            Target::External { file, path: to } => Err(link_only(path, &format!("{file}:{to}"))),
        };
    }
    // What is there behind a link of a group has a name of its own.
    let exists = crate::hdf5::object::find(container, path).is_ok();
    let message = match exists {
        true => format!("`/{path}` of `{}` is only reachable through a link", file.display()),
        false => format!("`{}` contains no `/{path}`", file.display()),
    };
    let error = Error::invalid_argument(message);
    Err(hint_contents(error, manifest.datasets()))
}

fn link_only(path: &str, to: &str) -> Error {
    Error::invalid_argument(format!("`/{path}` is a link to `{}`", to.escape_debug()))
        .hint("use its target")
}

/// Where only a further name of an object is kept, that becomes its name.
fn keep_target(manifest: &mut FileManifest, kept: &dyn Fn(&str) -> bool) {
    let groups = manifest.content.groups.iter();
    let groups: HashSet<&str> = groups.map(|group| group.path.as_str()).collect();
    let mut names: HashMap<String, String> = HashMap::new();
    let mut lost = Vec::new();
    for link in &manifest.content.links {
        let Target::Object(to) = &link.target else {
            continue;
        };
        if !kept(&link.path) || kept(to) {
            continue;
        }
        if groups.contains(to.as_str()) {
            lost.push(Omission {
                path: format!("/{}", link.path),
                what: format!("the link `/{}`", link.path),
                reason: format!("its target, the group `/{to}`, is not copied"),
            });
            continue;
        }
        names.entry(to.clone()).or_insert_with(|| link.path.clone());
    }
    drop(groups);
    manifest
        .content
        .links
        .retain(|link| lost.iter().all(|omission| omission.path != format!("/{}", link.path)));
    manifest.omissions.extend(lost);
    for StreamedDataset { dataset, .. } in &mut manifest.streamed {
        rename(&mut dataset.path, &names);
    }
    for object in &mut manifest.content.inline {
        rename(&mut object.path, &names);
    }
    let is_name = |link: &Link| match &link.target {
        Target::Object(to) => names.get(to) != Some(&link.path),
        _ => true,
    };
    manifest.content.links.retain(is_name);
    for link in &mut manifest.content.links {
        if let Target::Object(to) = &mut link.target {
            rename(to, &names);
        }
    }
}

fn rename(path: &mut String, names: &HashMap<String, String>) {
    if let Some(name) = names.get(path) {
        path.clone_from(name);
    }
}
