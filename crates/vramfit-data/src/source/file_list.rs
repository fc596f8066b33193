//! The files that paths, directories and patterns name.

use std::path::{Path, PathBuf};

use vramfit_base::{Error, Result};

use crate::natural_order;

/// How the names of files end that are taken from a directory.
const EXTENSIONS: [&str; 6] = ["h5", "hdf5", "hdf", "he5", "nc", "mat"];

/// Returns the files that `paths` name, in that order. Of a directory these are the files directly in it whose names
/// end as those of HDF5 files do; of a pattern such as `shards/*.h5` those that match; both in the order of their names,
/// with numbers compared by value. Any other path is returned as it is, whether it exists or not.
///
/// # Errors
///
/// `invalid-argument` when a directory has no such file, nothing matches a pattern, or a file is named twice; `io` when a
/// directory cannot be read.
pub fn list_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        ensure_local(path)?;
        match path.to_str() {
            // Opening it says what it is.
            _ if is_zarr_store(path) => files.push(path.clone()),
            _ if path.is_dir() => files.extend(list_directory(path)?),
            Some(pattern) if pattern.contains(['*', '?', '[']) && !path.exists() => {
                files.extend(list_matches(pattern)?);
            }
            _ => files.push(path.clone()),
        }
    }
    // One file may have several paths.
    let target = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let mut sorted: Vec<(PathBuf, &PathBuf)> = match &files[..] {
        [_] => Vec::new(),
        files => files.iter().map(|path| (target(path), path)).collect(),
    };
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Error::invalid_argument(format!(
            "the file `{}` was given twice",
            pair[1].1.display()
        ))
        .hint("name each file once"));
    }
    if files.is_empty() {
        return Err(Error::invalid_argument("no file was given"));
    }
    Ok(files)
}

/// Refuses addresses.
///
/// # Errors
///
/// `unsupported-feature` when a path that is not there has a scheme, such as `s3://`.
pub(super) fn ensure_local(path: &Path) -> Result<()> {
    let text = path.to_str().unwrap_or_default();
    let Some((scheme, _)) = text.split_once("://").filter(|_| !path.exists()) else {
        return Ok(());
    };
    Err(Error::unsupported_feature(format!("`{text}`: files are read from local directories, not by {scheme}"))
        .hint(format!(
            "copy it first, or once for all runs: `fsspec.open_local(\"simplecache::{text}\", simplecache={{\"cache_storage\": \"cache\"}})`"
        )))
}

/// Whether a directory is a Zarr store.
pub fn is_zarr_store(path: &Path) -> bool {
    let names = ["zarr.json", ".zgroup", ".zarray"];
    path.is_dir() && names.iter().any(|name| path.join(name).is_file())
}

fn list_directory(path: &Path) -> Result<Vec<PathBuf>> {
    let failed =
        |error| Error::io(format!("cannot list the directory `{}`", path.display())).cause(error);
    let mut files = Vec::new();
    for entry in path.read_dir().map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let extension = file.extension().and_then(|extension| extension.to_str());
        // macOS writes `._name.h5` beside `name.h5`.
        let is_visible =
            file.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b"."));
        let is_hdf5 = extension
            .is_some_and(|name| EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(name)));
        if is_hdf5 && is_visible && file.is_file() {
            files.push(file);
        }
    }
    if files.is_empty() {
        let endings: Vec<String> = EXTENSIONS.iter().map(|name| format!("`.{name}`")).collect();
        return Err(Error::invalid_argument(format!(
            "the directory `{}` has no HDF5 files",
            path.display()
        ))
        .hint(format!(
            "files whose names end in {} are taken; name others with a pattern: `{}/*`",
            endings.join(", "),
            path.display()
        )));
    }
    Ok(sorted(files))
}

fn list_matches(pattern: &str) -> Result<Vec<PathBuf>> {
    let options = glob::MatchOptions { require_literal_leading_dot: true, ..Default::default() };
    let found = glob::glob_with(pattern, options).map_err(|error| {
        Error::invalid_argument(format!("`{pattern}` is not a valid file pattern")).cause(error)
    })?;
    let mut files = Vec::new();
    for path in found {
        let path = path.map_err(|error| {
            Error::io(format!("cannot list the files that match `{pattern}`")).cause(error)
        })?;
        if path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(Error::invalid_argument(format!("no file matches `{pattern}`"))
            .hint("check the directory: patterns are relative to the working directory"));
    }
    Ok(sorted(files))
}

fn sorted(mut files: Vec<PathBuf>) -> Vec<PathBuf> {
    files.sort_by(|one, other| {
        natural_order::compare(&one.to_string_lossy(), &other.to_string_lossy())
    });
    files
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn directories_and_patterns_are_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b_10.h5", "b_9.h5", "a.hdf5", "notes.txt"] {
            File::create(folder.path().join(name)).unwrap();
        }
        let names = |paths: &[PathBuf]| -> Vec<String> {
            let files = list_files(paths).unwrap();
            let name = |file: &PathBuf| file.file_name().unwrap().to_string_lossy().into_owned();
            files.iter().map(name).collect()
        };
        assert_eq!(names(&[folder.path().into()]), ["a.hdf5", "b_9.h5", "b_10.h5"]);
        assert_eq!(names(&[folder.path().join("b_*.h5")]), ["b_9.h5", "b_10.h5"]);
        let listed = [folder.path().join("b_10.h5"), folder.path().join("missing.h5")];
        assert_eq!(names(&listed), ["b_10.h5", "missing.h5"]);
        let refused = |paths: &[PathBuf]| list_files(paths).unwrap_err().message().to_owned();
        assert!(refused(&[folder.path().join("c_*.h5")]).starts_with("no file matches"));
        let twice = [folder.path().into(), folder.path().join("a.hdf5")];
        assert!(refused(&twice).ends_with("a.hdf5` was given twice"));
        assert_eq!(refused(&[]), "no file was given");
        assert!(refused(&["s3://bucket/x.h5".into()]).ends_with("not by s3"));
    }
}
