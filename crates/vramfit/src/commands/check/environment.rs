//! The environment of an entry's program: the same on every machine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use vramfit_analysis::check::Entry;
use vramfit_runner::environment::unicode_variables;

/// The beginnings of names of variables that change what a program needs. They are those of a machine, not
/// of the program; an entry sets its own with `env`.
const CLEARED: [&str; 7] = [
    "CUDA_VISIBLE_DEVICES",
    "JAX_",
    "NVIDIA_TF32_OVERRIDE",
    "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC",
    "TF_FORCE_UNIFIED_MEMORY",
    "TF_GPU_ALLOCATOR",
    "XLA_",
];

/// The order of sets of texts in Python, which may decide about the order of a program's parameters.
const HASH_SEED: &str = "PYTHONHASHSEED";

/// Returns the variables of this process that are not passed on.
pub(super) fn cleared_variables() -> impl Iterator<Item = String> {
    let names = unicode_variables().map(|(name, _)| name);
    names.filter(|name| CLEARED.iter().any(|start| name.starts_with(start)))
}

/// Returns the changes to the environment of an entry's program. What is checked out elsewhere is imported
/// from there, and not from where it is installed.
pub(super) fn program_variables(
    entry: &Entry,
    directory: &Path,
    is_elsewhere: bool,
) -> BTreeMap<String, Option<OsString>> {
    let mut variables: BTreeMap<String, Option<OsString>> =
        cleared_variables().map(|name| (name, None)).collect();
    variables.insert(HASH_SEED.to_owned(), Some("0".into()));
    let own = entry.env.iter();
    variables.extend(own.map(|(name, value)| (name.clone(), Some(value.into()))));
    if is_elsewhere {
        let name = "PYTHONPATH";
        let before = match variables.get(name) {
            Some(value) => value.clone(),
            None => std::env::var_os(name),
        };
        let folders = [directory.to_owned(), directory.join("src")];
        let before = before.unwrap_or_default();
        let before = std::env::split_paths(&before).filter(|path| !path.as_os_str().is_empty());
        let folders = folders.into_iter().filter(|folder| folder.is_dir());
        if let Ok(path) = std::env::join_paths(folders.chain(before)) {
            variables.insert(name.to_owned(), Some(path));
        }
    }
    variables
}
