//! What the program's Python loads of vramfit: the publisher of the pool's statistics for `vramfit top`, what explains a
//! failure in a line, and the plan to apply. They need variables, and a directory in front of `PYTHONPATH`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use vramfit_core::{Error, Result};

use crate::python::{Installed, MIN_PYTHON, prepend_python_path};

/// Returns the variables to set, none where it would not work: in a Python without JAX or too old for the
/// extension module, in one that does not read `PYTHONPATH`, or where the user has set `VRAMFIT_PUBLISH`.
pub(super) fn variables(
    package: Option<&Path>,
    installed: Option<&Installed>,
    policy: &str,
    explains: bool,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let Some(shim) = find_shim(package, installed) else {
        return Vec::new();
    };
    if variable("VRAMFIT_PUBLISH").is_some() {
        return Vec::new();
    }
    let mut variables = vec![("VRAMFIT_PUBLISH", OsString::from("1"))];
    if explains {
        variables.push(("VRAMFIT_EXPLAIN", OsString::from("1")));
    }
    if !policy.is_empty() {
        variables.push(("VRAMFIT_POLICY", policy.into()));
    }
    variables.extend(python_path(shim, variable("PYTHONPATH")));
    variables
}

/// Returns the variables with which the program's Python applies a plan.
///
/// # Errors
/// `unsupported-feature` for a program whose Python cannot.
pub(super) fn plan_variables(
    plan: &Path,
    package: Option<&Path>,
    installed: Option<&Installed>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<(&'static str, OsString)>> {
    let shim = find_shim(package, installed).ok_or_else(|| {
        Error::unsupported_feature("the plan cannot be applied: the program is not started by a Python that has JAX and vramfit")
        .hint("start it as `python train.py`, with Python 3.11 or newer and without `-I` and `-E`")
    })?;
    let plan = std::path::absolute(plan).unwrap_or_else(|_| plan.to_owned());
    let mut variables = vec![("VRAMFIT_PLAN", plan.into_os_string())];
    variables.extend(python_path(shim, variable("PYTHONPATH")));
    Ok(variables)
}

/// Returns the directory that the program's Python is to load first; none where it would not work.
fn find_shim(package: Option<&Path>, installed: Option<&Installed>) -> Option<PathBuf> {
    let is_supported = installed.is_some_and(|installed| {
        installed.jax.is_some()
            && installed.python_version >= MIN_PYTHON
            && installed.reads_pythonpath
    });
    let shim = package.map(|package| package.join("_jax_shim"));
    shim.filter(|folder| is_supported && folder.is_dir())
}

/// Returns `PYTHONPATH` with the directory in front, unless it is there already, as inside a dry run.
fn python_path(shim: PathBuf, users: Option<OsString>) -> Option<(&'static str, OsString)> {
    let first = users
        .as_ref()
        .and_then(|users| std::env::split_paths(users).next());
    let is_there = first.as_deref() == Some(&*shim);
    (!is_there).then(|| ("PYTHONPATH", prepend_python_path(shim, users)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(installed: Option<&Installed>, users: &[(&str, &str)]) -> Vec<String> {
        let package = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(package.path().join("_jax_shim")).expect("made");
        let set = variables(
            Some(package.path()),
            installed,
            "--limit 8.0 GiB",
            true,
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
                "PYTHONPATH=PACKAGE/_jax_shim:/mine"
            ]
        );
    }

    #[test]
    fn nothing_is_set_where_it_would_not_work_or_the_user_decided() {
        let old = Installed {
            python_version: (3, 10),
            ..supported()
        };
        let bare = Installed {
            jax: None,
            ..supported()
        };
        let isolated = Installed {
            reads_pythonpath: false,
            ..supported()
        };
        for installed in [None, Some(&old), Some(&bare), Some(&isolated)] {
            assert!(names(installed, &[]).is_empty(), "{installed:?}");
        }
        assert!(names(Some(&supported()), &[("VRAMFIT_PUBLISH", "0")]).is_empty());
    }
}
