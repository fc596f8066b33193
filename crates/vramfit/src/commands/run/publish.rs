//! What the program's Python loads of vramfit: the publisher of the pool's statistics for `vramfit top`, what explains a
//! failure in a line, and the plan to apply. They need variables, and a directory in front of `PYTHONPATH`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use vramfit_analysis::{Error, Result};
use vramfit_runner::dryrun::PLAN_VARIABLE;
use vramfit_runner::python::{Installed, MIN_PYTHON, prepend_python_path, shim_of};
use vramfit_runner::scratch::TempDirectory;

use crate::status::Status;

/// Returns the variables to set, none where it would not work: in a Python without JAX or too old for the
/// extension module, in one that does not read `PYTHONPATH`, or where the user has set `VRAMFIT_PUBLISH`.
/// `explanation` is `1` if the program explains its failure itself, or the file for its state.
pub(super) fn variables(
    package: Option<&Path>,
    installed: Option<&Installed>,
    policy: &str,
    explanation: Option<OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let Some(shim) = find_shim(package, installed) else {
        return Vec::new();
    };
    if variable("VRAMFIT_PUBLISH").is_some() {
        return Vec::new();
    }
    let mut variables = vec![("VRAMFIT_PUBLISH", OsString::from("1"))];
    variables.extend(explanation.map(|target| ("VRAMFIT_EXPLAIN", target)));
    if !policy.is_empty() {
        variables.push(("VRAMFIT_POLICY", policy.into()));
    }
    variables.extend(python_path(shim, variable("PYTHONPATH")));
    variables
}

/// Returns the variables with which the program's Python applies a plan. `installed` is `None` for a launcher, of
/// which nothing is known before it runs.
///
/// # Errors
/// `unsupported-feature` for a program whose Python cannot.
pub(super) fn plan_variables(
    plan: &Path,
    package: Option<&Path>,
    installed: Option<&Installed>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<(&'static str, OsString)>> {
    let shim = match installed {
        Some(_) => find_shim(package, installed),
        None => package.map(shim_of),
    };
    let shim = shim.ok_or_else(|| {
        let reason = match installed {
            Some(found) if found.jax.is_none() => {
                format!("its Python {} has no JAX", found.python)
            }
            Some(found) if !found.reads_pythonpath => {
                "its Python ignores `PYTHONPATH` (`-I` or `-E`)".to_owned()
            }
            Some(found) => format!("its Python is {}, and 3.11 is needed", found.python),
            None => "it is not known where vramfit's Python package is".to_owned(),
        };
        Error::unsupported_feature("the plan cannot be applied to the program")
            .cause(reason)
            .hint("start it with a Python 3.11 or newer that has JAX, without `-I` and `-E`")
    })?;
    let plan = std::path::absolute(plan).unwrap_or_else(|_| plan.to_owned());
    let mut variables = vec![(PLAN_VARIABLE, plan.into_os_string())];
    variables.extend(python_path(shim, variable("PYTHONPATH")));
    Ok(variables)
}

/// The variable that names a file which the program's Python makes when it applies a plan.
const APPLIED_VARIABLE: &str = "VRAMFIT_PLAN_APPLIED";

/// Returns `true` if a Python that a launcher has started applies the plan.
pub(super) struct AppliedPlan {
    folder: TempDirectory,
}

impl AppliedPlan {
    /// # Errors
    /// `io` where there is no room for a file.
    pub(super) fn watch() -> Result<Self> {
        let folder = TempDirectory::create()?;
        Ok(AppliedPlan { folder })
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("applied")
    }

    /// Returns the variable that the launcher is to pass on.
    pub(super) fn variable(&self) -> (&'static str, PathBuf) {
        (APPLIED_VARIABLE, self.file())
    }

    /// Returns the status of a launcher that has ended.
    ///
    /// # Errors
    /// `unsupported-feature` where no Python has applied the plan.
    pub(super) fn check(&self, program: &Path, status: Status) -> Result<Status> {
        if self.file().exists() {
            return Ok(status);
        }
        let message = "the plan was not applied: no Python that the program started has imported JAX and loaded the plan";
        let launcher = program.display();
        Err(Error::unsupported_feature(message)
            .cause(format!("`{launcher}` has ended with exit code {}", status.code()))
            .hint("start Python itself, as in `vramfit run --plan FILE -- python train.py`; the launcher may remove `PYTHONPATH` or `VRAMFIT_PLAN`"))
    }
}

/// Returns the directory that the program's Python is to load first; none where it would not work.
fn find_shim(package: Option<&Path>, installed: Option<&Installed>) -> Option<PathBuf> {
    let is_supported = installed.is_some_and(|installed| {
        installed.jax.is_some()
            && installed.python_version >= MIN_PYTHON
            && installed.reads_pythonpath
    });
    let shim = package.map(shim_of);
    shim.filter(|folder| is_supported && folder.is_dir())
}

/// Returns `PYTHONPATH` with the directory in front, unless it is there already, as inside a dry run.
fn python_path(shim: PathBuf, users: Option<OsString>) -> Option<(&'static str, OsString)> {
    let first = users.as_ref().and_then(|users| std::env::split_paths(users).next());
    let is_there = first.as_deref() == Some(&*shim);
    (!is_there).then(|| ("PYTHONPATH", prepend_python_path(shim, users)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(installed: Option<&Installed>, users: &[(&str, &str)]) -> Vec<String> {
        let package = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir_all(shim_of(package.path())).expect("made");
        let set = variables(
            Some(package.path()),
            installed,
            "--limit 8.0 GiB",
            Some("1".into()),
            |name| {
                let found = users.iter().find(|(known, _)| *known == name)?;
                Some(found.1.into())
            },
        );
        set.into_iter()
            .map(|(name, value)| format!("{name}={}", value.to_string_lossy()))
            .map(|text| text.replace(&*package.path().to_string_lossy(), "PACKAGE"))
            .collect()
    }

    fn supported() -> Installed {
        Installed {
            python_version: (3, 12),
            reads_pythonpath: true,
            jax: Some("0.10.2".to_owned()),
            ..Installed::default()
        }
    }

    #[test]
    fn a_python_with_jax_publishes() {
        assert_eq!(
            names(Some(&supported()), &[("PYTHONPATH", "/mine")]),
            [
                "VRAMFIT_PUBLISH=1",
                "VRAMFIT_EXPLAIN=1",
                "VRAMFIT_POLICY=--limit 8.0 GiB",
                "PYTHONPATH=PACKAGE/_inprogram/_jax_shim:/mine"
            ]
        );
    }

    #[test]
    fn nothing_is_set_where_it_would_not_work_or_the_user_decided() {
        let old = Installed { python_version: (3, 10), ..supported() };
        let bare = Installed { jax: None, ..supported() };
        let isolated = Installed { reads_pythonpath: false, ..supported() };
        for installed in [None, Some(&old), Some(&bare), Some(&isolated)] {
            assert!(names(installed, &[]).is_empty(), "{installed:?}");
        }
        assert!(names(Some(&supported()), &[("VRAMFIT_PUBLISH", "0")]).is_empty());
    }
}
