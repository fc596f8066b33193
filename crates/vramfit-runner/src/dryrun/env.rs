//! The environment of the user's program: the only thing about it that a dry run changes.
//!
//! The user's own settings for JAX stay as they are, unless an option changes them; `--verbose` prints
//! every change.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use vramfit_base::{Error, ErrorKind, Result};
use vramfit_model::run_config::RUN_CONFIG_VARIABLE;
use vramfit_model::settings::{PLATFORMS, ResolvedSettings, allows_gpu};

use super::hosts::launcher_variables;
use super::spec::DryrunSpec;
use crate::python::prepend_python_path;

/// The variable that names the file of the plan that a program applies under `vramfit run`.
pub const PLAN_VARIABLE: &str = "VRAMFIT_PLAN";
/// How many frames of Python's stack JAX records with each operation; negative for all.
const STACK_LIMIT: &str = "JAX_TRACEBACK_IN_LOCATIONS_LIMIT";

/// Changes to an environment: a value to set, or `None` to remove the variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EnvDelta {
    changes: BTreeMap<Cow<'static, str>, Option<OsString>>,
    /// The variables for JAX among them that every dry run sets, and not the user.
    own: Vec<String>,
}

impl EnvDelta {
    /// Returns the changes for a dry run, given the user's environment.
    pub(super) fn for_dryrun(
        spec: &DryrunSpec,
        config: &Path,
        shim: &Path,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let non_empty = |name: &str| variable(name).filter(|value| !value.is_empty());
        let users = spec.variables.iter();
        let users = users.map(|(name, value)| (name.clone().into(), value.clone()));
        let mut delta = EnvDelta { changes: users.collect(), own: Vec::new() };
        delta.set(RUN_CONFIG_VARIABLE, config);
        // Of a `vramfit run` around this one.
        delta.changes.insert(PLAN_VARIABLE.into(), None);
        for (name, value) in spec.run.host.iter().flat_map(launcher_variables) {
            delta.set(name, value);
        }

        // The first directory that has `jax_plugins.xla_cudaXX` is used.
        let users = variable("PYTHONPATH");
        let path = prepend_python_path(shim.to_owned(), users);
        delta.set("PYTHONPATH", path);

        if spec.run.attribution && non_empty(STACK_LIMIT).is_none() {
            // Up to JAX 0.9 it is 10 frames, too few to reach the user's line from a deep library.
            delta.set(STACK_LIMIT, "-1");
        }

        if non_empty(PLATFORMS).is_none() {
            // Without it JAX silently falls back to the CPU where it finds no GPU.
            delta.set(PLATFORMS, "cuda,cpu");
        }

        if spec.run.compilation_cache.is_some() {
            // Above ours: what JAX loads from its own cache may have been compiled at other lines.
            delta.changes.insert("JAX_COMPILATION_CACHE_DIR".into(), None);
        }

        // So that the report can distinguish the user's settings from ours.
        let is_own = |name: &&Cow<'static, str>| {
            name.starts_with("JAX_") && !spec.variables.contains_key(&***name)
        };
        delta.own = delta.changes.keys().filter(is_own).map(|name| name.to_string()).collect();
        delta
    }

    /// Returns the variables for JAX that every dry run sets.
    pub(super) fn own(&self) -> &[String] {
        &self.own
    }

    /// Applies the changes to a command.
    pub(super) fn apply(&self, command: &mut Command) {
        for (name, value) in &self.changes {
            match value {
                Some(value) => command.env(&**name, value),
                None => command.env_remove(&**name),
            };
        }
    }

    pub(super) fn add(&mut self, settings: &ResolvedSettings) {
        for assignment in &settings.set {
            self.set(assignment.name, assignment.value.clone());
        }
        for name in &settings.removed {
            self.changes.insert((*name).into(), None);
        }
    }

    /// Returns an environment with the changes that the user requested. What every dry run sets for JAX
    /// is left out: on a real GPU it would not be set.
    pub(super) fn applied_to(
        &self,
        mut environment: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let is_requested = |name: &str| self.own.iter().all(|own| own != name);
        for (name, value) in self.changes.iter().filter(|(name, _)| is_requested(name)) {
            match value.as_ref().map(|value| value.to_string_lossy()) {
                Some(value) => environment.insert(name.to_string(), value.into_owned()),
                None => environment.remove(&**name),
            };
        }
        environment
    }

    /// Lists the changes, one `NAME=value` a line, in the order of their names.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.changes.iter().map(|(name, value)| match value {
            Some(value) => format!("{name}={}", value.to_string_lossy()),
            None => format!("{name} unset"),
        })
    }

    fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.changes.insert(name.into(), Some(value.into()));
    }
}

/// Rejects an environment in which the user's own settings disable every GPU.
///
/// # Errors
/// `gpu-not-used`.
pub(super) fn check_platforms(variable: impl Fn(&str) -> Option<OsString>) -> Result<()> {
    match variable(PLATFORMS).filter(|platforms| !platforms.is_empty()) {
        Some(platforms) if !allows_gpu(&platforms.to_string_lossy()) => {
            let platforms = platforms.to_string_lossy();
            Err(Error::new(
                ErrorKind::GpuNotUsed,
                format!("`{PLATFORMS}={platforms}` disables every GPU, including the virtual one"),
            )
            .hint("unset it for the dry run: `env -u JAX_PLATFORMS vramfit dryrun …`"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use vramfit_model::run_config::RunConfig;
    use vramfit_model::settings::Assignment;

    use super::*;

    fn delta_of(edit: impl FnOnce(&mut DryrunSpec), users: &[(&str, &str)]) -> EnvDelta {
        let run = RunConfig::new("h100-80gx2".parse().expect("in the catalog"));
        let mut spec = DryrunSpec::new(run, Vec::new());
        edit(&mut spec);
        let (config, shim) = (Path::new("/tmp/run/run.json"), Path::new("/p/_jax_shim"));
        EnvDelta::for_dryrun(&spec, config, shim, |name| {
            let found = users.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.into())
        })
    }

    fn value(delta: &EnvDelta, name: &str) -> Option<String> {
        delta.changes.get(name)?.as_ref().map(|value| value.to_string_lossy().into_owned())
    }

    #[test]
    fn the_program_finds_the_configuration_and_the_virtual_gpu() {
        let delta = delta_of(|_| {}, &[]);
        for (name, expected) in [
            (RUN_CONFIG_VARIABLE, "/tmp/run/run.json"),
            ("JAX_PLATFORMS", "cuda,cpu"),
            ("PYTHONPATH", "/p/_jax_shim"),
        ] {
            assert_eq!(value(&delta, name).as_deref(), Some(expected), "{name}");
        }
        assert_eq!(delta.own(), ["JAX_PLATFORMS", STACK_LIMIT]);
    }

    #[test]
    fn whole_stacks_are_recorded_unless_attribution_is_off() {
        let delta = delta_of(|_| {}, &[]);
        assert_eq!(value(&delta, STACK_LIMIT).as_deref(), Some("-1"));
        let delta = delta_of(|_| {}, &[(STACK_LIMIT, "5")]);
        assert_eq!(delta.changes.get(STACK_LIMIT), None);
        let delta = delta_of(|spec| spec.run.attribution = false, &[]);
        assert_eq!(delta.changes.get(STACK_LIMIT), None);
    }

    #[test]
    fn the_users_path_comes_after_the_shim() {
        let delta = delta_of(|_| {}, &[("PYTHONPATH", "/a:/b")]);
        assert_eq!(value(&delta, "PYTHONPATH").as_deref(), Some("/p/_jax_shim:/a:/b"));
    }

    #[test]
    fn platforms_without_a_gpu_are_rejected_and_others_kept() {
        let given = |platforms: &str| {
            let platforms = OsString::from(platforms);
            move |_: &str| Some(platforms.clone())
        };
        for kept in ["cuda", "gpu", "cpu,cuda", "cuda, cpu"] {
            check_platforms(given(kept)).expect(kept);
            let delta = delta_of(|_| {}, &[("JAX_PLATFORMS", kept)]);
            assert_eq!(delta.changes.get("JAX_PLATFORMS"), None, "{kept}");
        }
        for refused in ["cpu", "tpu,cpu", "rocm"] {
            let error = check_platforms(given(refused)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::GpuNotUsed, "{refused}");
        }
        check_platforms(given("")).expect("empty is unset");
        let delta = delta_of(|_| {}, &[("JAX_PLATFORMS", "")]);
        assert_eq!(value(&delta, "JAX_PLATFORMS").as_deref(), Some("cuda,cpu"));
    }

    #[test]
    fn the_users_settings_for_jax_stay_unless_an_option_changes_them() {
        let users = [("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")];
        let mut delta = delta_of(|_| {}, &users);
        let touched = |delta: &EnvDelta| delta.changes.keys().any(|name| name.starts_with("XLA_"));
        assert!(!touched(&delta));
        delta.add(&ResolvedSettings {
            set: vec![Assignment {
                name: "XLA_CLIENT_MEM_FRACTION",
                value: "0.9".into(),
                reason: String::new(),
            }],
            removed: vec!["XLA_PYTHON_CLIENT_MEM_FRACTION"],
            ..ResolvedSettings::default()
        });
        assert_eq!(value(&delta, "XLA_CLIENT_MEM_FRACTION").as_deref(), Some("0.9"));
        assert_eq!(delta.changes.get("XLA_PYTHON_CLIENT_MEM_FRACTION"), Some(&None));
    }
}
