//! The file with the entries: found here or above, as other tools find theirs.

use std::path::{Path, PathBuf};

use vramfit_analysis::check::{CheckConfig, Entry};
use vramfit_analysis::{Error, Result};
use vramfit_base::files::cannot_read;
use vramfit_base::nearest::nearest;

use super::git::Repository;
use super::shown_path;

/// The files that may have entries, in the order in which they are looked for.
const FILES: [&str; 2] = ["vramfit.toml", "pyproject.toml"];

/// The entries, and where they are written.
pub(super) struct ConfigFile {
    pub(super) config: CheckConfig,
    pub(super) path: PathBuf,
    /// The directory of the file, in which commands run.
    pub(super) directory: PathBuf,
}

impl ConfigFile {
    /// Finds the file: the one that is named, else the first here or in a directory above.
    ///
    /// # Errors
    /// `io` where there is none, and those of [`CheckConfig::read`].
    pub(super) fn find(named: Option<&Path>) -> Result<ConfigFile> {
        if let Some(path) = named {
            return ConfigFile::read(path)?.ok_or_else(|| {
                Error::invalid_argument(format!("`{}` has no entries", path.display()))
                    .hint("run `vramfit check --init`, or name another file")
            });
        }
        let current = std::env::current_dir()
            .map_err(|error| Error::io("cannot find the current directory").cause(error))?;
        for directory in current.ancestors() {
            for name in FILES {
                let path = directory.join(name);
                if path.is_file()
                    && let Some(found) = ConfigFile::read(&path)?
                {
                    return Ok(found);
                }
            }
        }
        Err(Error::io(
            "neither `vramfit.toml` nor `pyproject.toml` here or above says what to check",
        )
        .hint("run `vramfit check --init` to write a `vramfit.toml`"))
    }

    /// Reads a file; `None` where it has no table for entries.
    fn read(path: &Path) -> Result<Option<ConfigFile>> {
        let named = shown_path(path);
        let text = std::fs::read_to_string(path).map_err(|error| cannot_read(named, error))?;
        let Some(config) = CheckConfig::read(named, &text)? else {
            return Ok(None);
        };
        let absolute = std::path::absolute(path).map_err(|error| cannot_read(named, error))?;
        let directory = absolute.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Some(ConfigFile { config, path: absolute, directory }))
    }

    /// Returns the entries of these names, or all.
    ///
    /// # Errors
    /// `invalid-argument` for a name that is none.
    pub(super) fn select(&self, names: &[String]) -> Result<Vec<&Entry>> {
        let entries = &self.config.entries;
        if names.is_empty() {
            return Ok(entries.iter().collect());
        }
        for name in names {
            if !entries.iter().any(|entry| entry.name == *name) {
                let known = entries.iter().map(|entry| &*entry.name);
                let error = Error::invalid_argument(format!(
                    "`{}` has no entry `{name}`",
                    shown_path(&self.path).display()
                ));
                return Err(match nearest(name, known.clone()).first() {
                    Some(near) => error.hint(format!("did you mean `{near}`?")),
                    None => error.hint(format!(
                        "its entries are `{}`",
                        known.collect::<Vec<_>>().join("`, `")
                    )),
                });
            }
        }
        let selected = entries.iter().filter(|entry| names.contains(&entry.name));
        Ok(selected.collect())
    }

    /// Returns the path of the file relative to the repository.
    pub(super) fn relative_path(&self, repository: Option<&Repository>) -> String {
        let root = repository.map_or(&*self.directory, |repository| &repository.root);
        let relative = self.path.strip_prefix(root).unwrap_or(&self.path);
        relative.to_string_lossy().into_owned()
    }
}
