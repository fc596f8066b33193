//! With which processes the memory of GPUs is shared, and the file that it is shared through.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use vramfit_core::shared_gpus::{self, Usage};
use vramfit_core::trace::Sharing;

use super::ledger::{Locked, cannot_use};
use crate::pjrt::status::{Answer, Code, Status};

/// Where it is written down what the processes hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Nowhere: each process has the GPUs to itself.
    Private,
    /// In a file of the dry run that has started this process.
    Run(PathBuf),
    /// In a file for all dry runs that name the GPUs alike.
    Named(String),
}

impl Scope {
    /// Returns what a trace says of it.
    pub(crate) fn sharing(&self) -> Sharing {
        match self {
            Scope::Private => Sharing::Private,
            Scope::Run(_) => Sharing::Run,
            Scope::Named(_) => Sharing::Named,
        }
    }

    /// Opens the file; `None` where GPUs are not shared.
    pub(super) fn open(&self) -> Answer<Option<File>> {
        match self {
            Scope::Private => Ok(None),
            Scope::Run(path) => create(path).map(Some),
            Scope::Named(name) => create(&named(name)?).map(Some),
        }
    }
}

/// Returns the numbers of the GPUs that `CUDA_VISIBLE_DEVICES` leaves. UUIDs mean the same GPUs in every process
/// that shares them.
///
/// # Errors
/// When the file of shared GPUs cannot be used.
pub(crate) fn visible_gpus(scope: &Scope, count: u32, list: Option<&str>) -> Answer<Vec<u32>> {
    let mut alone = Usage::default();
    if !list.is_some_and(shared_gpus::has_uuids) {
        return Ok(alone.visible(count, list));
    }
    let Some(mut file) = scope.open()? else {
        return Ok(alone.visible(count, list));
    };
    let mut locked = Locked::new(&mut file).map_err(|error| cannot_use(&error))?;
    locked.drop_ended();
    if matches!(scope, Scope::Named(_)) && locked.usage.holdings.is_empty() {
        // The file is from earlier runs, whose GPUs may have had other names.
        locked.usage.uuids.clear();
    }
    let seen = locked.usage.visible(count, list);
    locked.write().map_err(|error| cannot_use(&error))?;
    Ok(seen)
}

/// Finds the file of GPUs that are shared by name, in a folder of the user's.
fn named(name: &str) -> Answer<PathBuf> {
    let sane = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(sane) {
        return Err(Status::new(
            Code::InvalidArgument,
            format!("vramfit: `{name}` is no name for shared GPUs; use letters, digits and `-_.`"),
        ));
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // SAFETY: takes no argument and cannot fail.
    let user = unsafe { libc::geteuid() };
    let folder = shared_gpus::folder(runtime.as_deref(), &std::env::temp_dir(), user);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(|error| cannot_open(&error))?;
    // In a place where everybody may write, somebody else's folder is not to be trusted.
    let owner = fs::metadata(&folder).map_err(|error| cannot_open(&error))?;
    if owner.uid() != user {
        return Err(Status::new(
            Code::FailedPrecondition,
            format!("vramfit: `{}` belongs to another user", folder.display()),
        ));
    }
    Ok(folder.join(name))
}

pub(super) fn create(path: &Path) -> Answer<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| cannot_open(&error))
}

fn cannot_open(error: &std::io::Error) -> Status {
    Status::new(
        Code::Unavailable,
        format!("vramfit cannot open the file of shared GPUs: {error}"),
    )
}
