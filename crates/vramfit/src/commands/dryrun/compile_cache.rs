//! JAX's persistent compilation cache for dry runs that are repeated: what two of them have in common is
//! compiled once, and what has not changed is not compiled again.
//!
//! JAX's key of a program leaves out the memory that the compiler may plan with, so each amount has a
//! directory of its own.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::spec::DryrunSpec;
use crate::scratch::TempDirectory;

/// Above this, programs that were compiled longest ago are removed.
const MAX_BYTES: u64 = 2 << 30;

/// Where compiled programs are kept.
#[derive(Clone, Debug)]
pub(crate) struct CompileCache {
    root: PathBuf,
}

impl CompileCache {
    /// Returns the user's cache, `$XDG_CACHE_HOME/vramfit/compilations`; `None` where it is not writable.
    fn open() -> Option<Self> {
        let root = cache_home()?.join("compilations");
        fs::create_dir_all(&root).ok()?;
        remove_oldest(&root, MAX_BYTES);
        Some(CompileCache { root })
    }

    /// Returns the user's cache if it is wanted and writable, else one that ends with a folder.
    pub(crate) fn open_or_temporary(is_wanted: bool, folder: &TempDirectory) -> Self {
        let users = is_wanted.then(CompileCache::open).flatten();
        users.unwrap_or_else(|| CompileCache::temporary(folder))
    }

    /// Returns one that ends with a folder.
    pub(crate) fn temporary(folder: &TempDirectory) -> Self {
        CompileCache {
            root: folder.path().to_owned(),
        }
    }

    /// Returns the directory for programs that are compiled for the GPUs of a dry run with its settings.
    pub(crate) fn directory(&self, spec: &DryrunSpec) -> PathBuf {
        let mut key = DefaultHasher::new();
        let gpu = &spec.gpus.gpu;
        (env!("CARGO_PKG_VERSION"), &gpu.name, gpu.total_memory_bytes).hash(&mut key);
        format!("{:?}", spec.settings.options).hash(&mut key);
        for name in ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"] {
            spec.variable(name).hash(&mut key);
        }
        let name = format!("{}-{:016x}", gpu.name, key.finish());
        self.root.join(name)
    }
}

/// Returns `$XDG_CACHE_HOME/vramfit`, by default `~/.cache/vramfit`.
pub(crate) fn cache_home() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = variable("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(home)?;
    Some(cache.join("vramfit"))
}

/// Removes the files in the folders of a folder that were written first, until the rest is small enough. What cannot be removed stays.
pub(crate) fn remove_oldest(root: &Path, max_bytes: u64) {
    let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    let folders = fs::read_dir(root).into_iter().flatten().flatten();
    for entry in folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten()) {
        let Some((path, data)) = entry
            .ok()
            .and_then(|it| Some((it.path(), it.metadata().ok()?)))
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
