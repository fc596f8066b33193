//! Finding an object by its path, through links of every kind.

use std::path::{Component, Path};
use std::sync::Arc;

use vramfit_base::{Error, Result};

use super::container::Container;
use super::group::{self, Target};
use super::header::Header;
use super::path::list_names;
use crate::source::{Access, Source};

/// As many links as a path may lead through, like a path of the file system.
const MAX_LINKS: usize = 40;

/// Returns the header of the object at a path, and the file it is in.
///
/// # Errors
///
/// `invalid-argument` when nothing is there; `unsupported-feature` when a link leads out of the
/// directory of the file, or is of a kind that only its writer knows.
pub(crate) fn find(container: &Container, path: &str) -> Result<(Container, Header)> {
    let mut container = container.clone();
    let mut links_left = MAX_LINKS;
    // What is still to be walked; the next name is the last.
    let mut open: Vec<String> = names(path);
    // Addresses of the groups on the way here, for a soft link that begins where it stands.
    let mut here = container.root;
    while let Some(name) = open.pop() {
        let header = Header::read(&container, here)?;
        let links = group::links(&header)?;
        let Ok(found) = links.binary_search_by(|link| link.name.as_str().cmp(&name)) else {
            return Err(nothing(&container, path, &name, &links));
        };
        let target = &links[found].target;
        if !matches!(target, Target::Object(_)) {
            links_left = links_left.checked_sub(1).ok_or_else(|| {
                container.damaged(
                    here,
                    format_args!("`{path}` resolves through more than {MAX_LINKS} links"),
                )
            })?;
        }
        match target {
            Target::Object(address) => here = *address,
            Target::Soft(to) => {
                if to.starts_with('/') {
                    here = container.root;
                }
                open.extend(names(to));
            }
            Target::External { file, path } => {
                container = open_sibling(&container, file)?;
                here = container.root;
                open.extend(names(path));
            }
            Target::Unknown(kind) => {
                return Err(Error::unsupported_feature(format!(
                    "`{path}`: links of the type {kind} are not supported"
                )));
            }
        }
    }
    let header = Header::read(&container, here)?;
    Ok((container, header))
}

/// Splits a path into names, the first one last.
fn names(path: &str) -> Vec<String> {
    let names = path.split('/').filter(|name| !name.is_empty() && *name != ".");
    names.rev().map(str::to_owned).collect()
}

fn nothing(container: &Container, path: &str, name: &str, links: &[group::Link]) -> Error {
    let file = container.source().path().display();
    let error = Error::invalid_argument(match path.trim_matches('/') == name {
        true => format!("`{file}` contains no `{path}`"),
        false => format!("`{file}` contains no `{path}`: `{name}` does not exist"),
    });
    match list_names(links.iter().map(|link| &*link.name), 8) {
        None => error,
        Some(names) => error.hint(format!("available: {names}")),
    }
}

/// Opens another file that a link or a virtual dataset names, in the directory of this one or below.
///
/// A path outside the directory is rejected: an untrusted file must not make us read others.
pub(crate) fn open_sibling(container: &Container, name: &str) -> Result<Container> {
    let path = Path::new(name);
    let stays =
        path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !stays {
        return Err(Error::unsupported_feature(format!(
            "a link refers to the file `{name}`, outside the directory of this file"
        ))
        .hint("copy it into the directory of this file and make the link's path relative"));
    }
    let beside = container.source().path().with_file_name("").join(path);
    Container::open(Arc::new(Source::open(&beside, Access::Read)?))
}
