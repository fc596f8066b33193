//! Finding an object by its path, through links of every kind.

use std::collections::HashMap;
use std::sync::Arc;

use vramfit_base::{Error, ErrorKind, Result};

use super::container::Container;
use super::group::{self, Link, Target};
use super::header::Header;
use super::path::list_names;
use super::sibling::open_sibling;

/// As many links as a path may lead through, like a path of the file system.
const MAX_LINKS: usize = 40;

/// Finds objects of one file by their paths. The members of each group are listed once, however many paths lead
/// through it.
#[derive(Debug)]
pub(crate) struct ObjectFinder {
    container: Container,
    /// The members of the groups that paths led through, by the group's address.
    members: HashMap<u64, Arc<[Link]>>,
    has_left_file: bool,
}

impl ObjectFinder {
    pub(crate) fn new(container: &Container) -> ObjectFinder {
        ObjectFinder { container: container.clone(), members: HashMap::new(), has_left_file: false }
    }

    /// Returns the file.
    pub(crate) fn container(&self) -> &Container {
        &self.container
    }

    /// Whether a path led through an external link, to a file that there is or not.
    pub(crate) fn has_left_file(&self) -> bool {
        self.has_left_file
    }

    /// Returns the header of the object at a path, and the file it is in.
    ///
    /// # Errors
    ///
    /// `invalid-argument` when nothing is there; `unsupported-feature` when a link leads out of the
    /// directory of the file, or is of a kind that only its writer knows.
    pub(crate) fn find(&mut self, path: &str) -> Result<(Container, Header)> {
        let mut container = self.container.clone();
        let mut is_own = true;
        let mut links_left = MAX_LINKS;
        // What is still to be walked; the next name is the last.
        let mut open: Vec<String> = names(path);
        // Addresses of the groups on the way here, for a soft link that begins where it stands.
        let mut here = container.root;
        while let Some(name) = open.pop() {
            let links = match is_own {
                true => self.list_members(here)?,
                false => group::links(&Header::read(&container, here)?)?.into(),
            };
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
                    self.has_left_file = true;
                    container = open_sibling(&container, file)?;
                    is_own = false;
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

    /// Returns the members of the group at an address, sorted by name.
    fn list_members(&mut self, address: u64) -> Result<Arc<[Link]>> {
        if let Some(known) = self.members.get(&address) {
            return Ok(Arc::clone(known));
        }
        let links: Arc<[Link]> = group::links(&Header::read(&self.container, address)?)?.into();
        self.members.insert(address, Arc::clone(&links));
        Ok(links)
    }

    /// Returns the members of the group at a path; none where no group is there.
    ///
    /// # Errors
    ///
    /// As [`ObjectFinder::find`], but for a path that leads nowhere.
    pub(crate) fn members(&mut self, path: &str) -> Result<Vec<Link>> {
        let (container, header) = match self.find(path) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::InvalidArgument => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        if !group::is_group(&header) {
            return Ok(Vec::new());
        }
        let is_own = std::ptr::eq(container.source(), self.container.source());
        let links = match is_own {
            true => self.list_members(header.address())?,
            false => group::links(&header)?.into(),
        };
        Ok(links.to_vec())
    }
}

/// Splits a path into names, the first one last.
fn names(path: &str) -> Vec<String> {
    let names = path.split('/').filter(|name| !name.is_empty() && *name != ".");
    names.rev().map(str::to_owned).collect()
}

fn nothing(container: &Container, path: &str, name: &str, links: &[Link]) -> Error {
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
