//! Other files that a link or a virtual dataset names, found where libhdf5 finds them.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use vramfit_base::{Error, Result};

use super::container::Container;
use crate::source::{Access, Source};

/// Opens another file that a link or a virtual dataset names.
///
/// # Errors
///
/// As [`sibling_path`], and all that opening a file can fail with.
pub(crate) fn open_sibling(container: &Container, name: &str) -> Result<Container> {
    let source = Arc::new(Source::open(&sibling_path(container, name)?, Access::Read)?);
    Container::open_unclosed(source, container.allows_unclosed())
}

/// Returns the path of another file that a link or a virtual dataset names: where an absolute name says, and else in the
/// directory of this file, in the working directory, or beside what this file is a symbolic link to. That is the order
/// of `H5F_prefix_open_file` in libhdf5.
///
/// # Errors
///
/// `unsupported-feature` when it is outside of the directories of this file: an untrusted file must not make us
/// read others.
pub(crate) fn sibling_path(container: &Container, name: &str) -> Result<PathBuf> {
    let own = container.source().path();
    let directory = own.with_file_name("");
    let real = own.canonicalize().ok().and_then(|real| Some(real.parent()?.to_owned()));
    let named = Path::new(name);
    let is_absolute = named.is_absolute();
    // Where an absolute path does not exist, both files may have been moved together.
    let name = if is_absolute { named.file_name().map_or(named, Path::new) } else { named };
    let beside = directory.join(name);
    let places = is_absolute.then(|| named.to_owned()).into_iter();
    let places = places.chain([beside.clone(), name.to_owned()]);
    let mut places = places.chain(real.iter().map(|real| real.join(name)));
    let path = places.find(|path| matches!(path.try_exists(), Ok(true))).unwrap_or(beside);

    // Where a symbolic link in the directory leads is the choice of who made it, and not of the file.
    let is_plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    let is_below = |directory: &Path| {
        path.strip_prefix(directory).is_ok_and(|rest| rest.components().all(is_plain))
    };
    let is_really_below = || {
        let roots = [directory.join(".").canonicalize().ok(), real.clone()];
        let parent = Path::new(".").join(path.parent()?).canonicalize().ok()?;
        roots.iter().flatten().any(|root| parent.starts_with(root)).then_some(())
    };
    if is_below(&directory) || real.as_deref().is_some_and(is_below) || is_really_below().is_some()
    {
        return Ok(path);
    }
    Err(Error::unsupported_feature(format!(
        "a link refers to the file `{}`, outside the directory of this file",
        named.display()
    ))
    .hint("move it into the directory of this file and make the link's path relative"))
}
