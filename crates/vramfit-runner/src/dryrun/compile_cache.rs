//! The folder in which dry runs that are repeated keep what the compiler made of their programs: what two of
//! them have in common is compiled once, and what has not changed is not compiled again.
//!
//! The plugin reads and writes it (`vramfit-vgpu`, `compile/compilation_cache.rs`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::scratch::TempDirectory;

/// The variable by which users choose the folder.
pub(super) const COMPILATION_CACHE: &str = "VRAMFIT_COMPILATION_CACHE";
/// Above this, programs that were compiled longest ago are removed from the user's cache.
const MAX_BYTES: u64 = 2 << 30;

/// Returns the folder for compiled programs: the one that the user has chosen, else that of vramfit in the
/// user's cache. A temporary one where none is wanted, or none is writable.
pub fn open_compilation_cache(is_wanted: bool, temporary: &TempDirectory) -> PathBuf {
    let users = || {
        let chosen = non_empty_var(COMPILATION_CACHE).map(PathBuf::from);
        chosen.or_else(default_folder)
    };
    let users = is_wanted.then(users).flatten();
    users.unwrap_or_else(|| temporary.path().to_owned())
}

/// Returns `$XDG_CACHE_HOME/vramfit/compilations`; `None` where it is not writable.
fn default_folder() -> Option<PathBuf> {
    let root = cache_home()?.join("compilations");
    fs::create_dir_all(&root).ok()?;
    remove_oldest(&root, MAX_BYTES);
    Some(root)
}

fn non_empty_var(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns `$XDG_CACHE_HOME/vramfit`, by default `~/.cache/vramfit`.
pub fn cache_home() -> Option<PathBuf> {
    let home = || non_empty_var("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = non_empty_var("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?;
    Some(cache.join("vramfit"))
}

/// Removes the files in the folders of a folder that were written first, until the rest is small enough. What cannot be removed stays.
pub fn remove_oldest(root: &Path, max_bytes: u64) {
    let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    let folders = fs::read_dir(root).into_iter().flatten().flatten();
    for entry in folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten()) {
        let Some((path, data)) = entry.ok().and_then(|it| Some((it.path(), it.metadata().ok()?)))
        else {
            continue;
        };
        if data.is_file() {
            let written = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            files.push((written, data.len(), path));
        }
    }
    files.sort();
    let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    for (_, size, path) in files {
        if bytes <= max_bytes {
            return;
        }
        let _ = fs::remove_file(path);
        bytes -= size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compiled_first_is_removed_first() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let folder = root.path().join("t4-0");
        fs::create_dir(&folder).expect("created");
        for (name, age) in [("old", 30), ("new", 10), ("middle", 20)] {
            let path = folder.join(name);
            fs::write(&path, [0; 100]).expect("written");
            let file = fs::File::options().write(true).open(&path).expect("open");
            let written = SystemTime::now() - std::time::Duration::from_secs(age);
            file.set_modified(written).expect("times can be set");
        }
        remove_oldest(root.path(), 250);
        let left = |name: &str| folder.join(name).exists();
        assert!(!left("old") && left("middle") && left("new"));
        remove_oldest(root.path(), 0);
        assert!(!left("middle") && !left("new"));
    }
}
