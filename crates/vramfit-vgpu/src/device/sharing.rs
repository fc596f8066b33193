//! With which processes the memory of GPUs is shared, and the file that it is shared through.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use vramfit_model::run_config::{RunConfig, Sharing};
use vramfit_model::shared_gpus::{self, SharedGpuUsage};

use super::usage_file::{LockedUsageFile, usage_file_error};
use crate::pjrt::status::{PjrtResult, Status, StatusCode};

/// Opens the file through which GPUs are shared; `None` where they are not. GPUs with a name are shared through a file
/// of the user.
pub(super) fn open(run: &RunConfig) -> PjrtResult<Option<File>> {
    match &run.sharing {
        Sharing::Private => Ok(None),
        Sharing::Run => open_or_create(&run.shared_gpu_file()).map(Some),
        Sharing::Named(name) => open_or_create(&named_path(name)?).map(Some),
    }
}

/// Returns the numbers of the GPUs that `CUDA_VISIBLE_DEVICES` selects. A UUID is the same GPU in every process
/// that shares it.
///
/// # Errors
/// When the file of shared GPUs cannot be used.
pub(crate) fn visible_gpus(run: &RunConfig, list: Option<&str>) -> PjrtResult<Vec<u32>> {
    let count = run.gpus.count;
    let mut usage = SharedGpuUsage::default();
    if !list.is_some_and(shared_gpus::has_uuids) {
        return Ok(usage.visible_gpus(count, list));
    }
    let Some(mut file) = open(run)? else {
        return Ok(usage.visible_gpus(count, list));
    };
    let mut usage_file =
        LockedUsageFile::new(&mut file).map_err(|error| usage_file_error(&error))?;
    usage_file.drop_ended_processes();
    if matches!(run.sharing, Sharing::Named(_)) && usage_file.usage.holdings.is_empty() {
        // The file is from earlier runs, whose GPUs may have had other names.
        usage_file.usage.uuids.clear();
    }
    let visible = usage_file.usage.visible_gpus(count, list);
    usage_file.write().map_err(|error| usage_file_error(&error))?;
    Ok(visible)
}

/// Returns the path of the file of GPUs that are shared by name, in a folder of the user.
fn named_path(name: &str) -> PjrtResult<PathBuf> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_allowed) {
        return Err(Status::invalid_argument(format!(
            "vramfit: `{name}` is not a valid name for shared GPUs; use letters, digits and `-_.`"
        )));
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // SAFETY: takes no argument and cannot fail.
    let user = unsafe { libc::geteuid() };
    let folder = shared_gpus::folder(runtime.as_deref(), &std::env::temp_dir(), user);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(|error| open_error(&error))?;
    // In a directory that is writable for everyone, a folder of another user cannot be trusted.
    let owner = fs::metadata(&folder).map_err(|error| open_error(&error))?;
    if owner.uid() != user {
        return Err(Status::failed_precondition(format!(
            "vramfit: `{}` belongs to another user",
            folder.display()
        )));
    }
    Ok(folder.join(name))
}

pub(super) fn open_or_create(path: &Path) -> PjrtResult<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| open_error(&error))
}

fn open_error(error: &std::io::Error) -> Status {
    Status::new(
        StatusCode::Unavailable,
        format!("vramfit cannot open the file of shared GPUs: {error}"),
    )
}
