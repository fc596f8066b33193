//! The environment of the user's program: the only thing about it that a dry run changes.
//!
//! The user's own settings for JAX stay as they are, unless an option changes them; `--verbose` prints
//! every change.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use clap::ValueEnum;
use vramfit_core::settings::{PLATFORMS, ResolvedSettings, allows_gpu};
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::compile_cache::COMPILATION_CACHE;
use super::plugin_paths::PluginPaths;
use super::spec::{Callbacks, DryrunSpec, Sharing};
use crate::python::prepend_python_path;

/// How many frames of Python's stack JAX records with each operation; negative for all.
const STACK_LIMIT: &str = "JAX_TRACEBACK_IN_LOCATIONS_LIMIT";

/// The variables for JAX that every dry run sets, with commas between.
const SET_BY_VRAMFIT: &str = "VRAMFIT_SET_BY_VRAMFIT";

/// The file in which the processes of a run keep what they use of its GPUs, in the folder of the run.
const SHARED_FILE: &str = "gpu-memory";

/// Paths of one dry run.
pub(super) struct RunPaths<'a> {
    pub(super) trace: &'a Path,
    /// The folder of the run.
    pub(super) scratch: &'a Path,
    /// Where the program's checkpoints go instead of its own directories.
    pub(super) checkpoints: &'a Path,
    pub(super) autotune_results: Option<&'a Path>,
    pub(super) plugin: &'a PluginPaths,
}

/// Changes to an environment: a value to set, or `None` to remove the variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EnvDelta(BTreeMap<Cow<'static, str>, Option<OsString>>);

impl EnvDelta {
    /// Returns the changes for a dry run, given the user's environment.
    pub(super) fn for_dryrun(
        spec: &DryrunSpec,
        paths: &RunPaths<'_>,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let non_empty = |name: &str| variable(name).filter(|value| !value.is_empty());
        let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0.to_string());
        let flag = |value: &str, is_set: bool| is_set.then(|| value.to_owned());
        let variables = spec.variables.iter();
        let variables = variables.map(|(name, value)| (name.clone().into(), value.clone()));
        let mut delta = EnvDelta(variables.collect());

        delta.set("VRAMFIT_GPU", &spec.gpus.name);
        delta.set("VRAMFIT_GPU_COUNT", spec.gpus.count.to_string());
        delta.set("VRAMFIT_TRACE", paths.trace);
        delta.set("VRAMFIT_COMPILER_LOG", paths.scratch);
        delta.set("VRAMFIT_PLUGIN", &paths.plugin.plugin);
        delta.set_vramfit("VRAMFIT_STEPS", spec.steps.map(|steps| steps.to_string()));
        delta.set_vramfit("VRAMFIT_STEP", spec.step.clone());
        delta.set_vramfit("VRAMFIT_OCCUPIED", bytes(spec.occupied));
        delta.set_vramfit("VRAMFIT_TOTAL", bytes(spec.total));
        // For the report: JAX itself only reads a fraction.
        delta.set_vramfit("VRAMFIT_LIMIT", bytes(spec.settings.options.limit));
        let (name, file) = match &spec.sharing {
            Sharing::Private => (None, None),
            Sharing::Run => (None, Some(paths.scratch.join(SHARED_FILE))),
            Sharing::Named(name) => (Some(name.clone()), None),
        };
        delta.set_vramfit("VRAMFIT_SHARED", name);
        delta.set_vramfit("VRAMFIT_SHARED_FILE", file);
        delta.set("VRAMFIT_CHECKPOINTS", paths.checkpoints);
        let host = spec.host.as_ref();
        let launcher = host.and_then(|host| host.launcher);
        delta.set_vramfit("VRAMFIT_HOSTS", host.map(|host| host.count.to_string()));
        delta.set_vramfit("VRAMFIT_HOST", host.map(|host| host.index.to_string()));
        delta.set_vramfit("VRAMFIT_HOST_DIRECTORY", host.map(|host| &host.folder));
        delta.set_vramfit("VRAMFIT_LAUNCHER", launcher.as_ref().map(value_name));
        for (name, value) in host.iter().flat_map(|host| host.launcher_variables()) {
            delta.set(name, value);
        }
        delta.set_vramfit("VRAMFIT_FILL", spec.fill.as_ref().map(value_name));
        delta.set_vramfit("VRAMFIT_VALUES", flag("0", !spec.values));
        let skips = spec.callbacks == Some(Callbacks::Skip);
        delta.set_vramfit("VRAMFIT_CALLBACKS", flag("skip", skips));
        delta.set_vramfit("VRAMFIT_AUTOTUNE_RANGE", flag("1", spec.autotune_range));
        delta.set_vramfit("VRAMFIT_PLAN", spec.plan.as_deref());
        delta.set_vramfit("VRAMFIT_PLAN_SITES", spec.plan_sites.as_deref());
        delta.set_vramfit("VRAMFIT_UNLIMITED", flag("1", spec.unlimited));
        delta.set_vramfit("VRAMFIT_ATTRIBUTION", flag("0", !spec.attribution));
        delta.set_vramfit("VRAMFIT_AUTOTUNE_RESULTS", paths.autotune_results);
        delta.set_vramfit("VRAMFIT_CALIBRATION", spec.calibration.as_deref());

        // The first directory that has `jax_plugins.xla_cudaXX` is used.
        let users = variable("PYTHONPATH");
        let path = prepend_python_path(paths.plugin.shim.clone(), users);
        delta.set("PYTHONPATH", path);

        if spec.attribution && non_empty(STACK_LIMIT).is_none() {
            // Up to JAX 0.9 it is 10 frames, too few to reach the user's line from a deep library.
            delta.set(STACK_LIMIT, "-1");
        }

        if non_empty(PLATFORMS).is_none() {
            // Without it JAX silently falls back to the CPU where it finds no GPU.
            delta.set(PLATFORMS, "cuda,cpu");
        }

        if let Some(cache) = &spec.compilation_cache {
            delta.set(COMPILATION_CACHE, cache);
            // Above ours: what JAX loads from its own cache may have been compiled at other lines.
            delta.0.insert("JAX_COMPILATION_CACHE_DIR".into(), None);
        }

        // So that the report can distinguish the user's settings from ours.
        let is_own = |name: &&Cow<'static, str>| {
            name.starts_with("JAX_") && !spec.variables.contains_key(&***name)
        };
        let own = delta.0.keys().filter(is_own);
        let own: Vec<&str> = own.map(|name| &**name).collect();
        delta.set_vramfit(SET_BY_VRAMFIT, (!own.is_empty()).then(|| own.join(",")));
        delta
    }

    /// Applies the changes to a command.
    pub(super) fn apply(&self, command: &mut Command) {
        for (name, value) in &self.0 {
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
            self.0.insert((*name).into(), None);
        }
    }

    /// Returns an environment with the changes that the user requested. What every dry run sets for JAX
    /// is left out: on a real GPU it would not be set.
    pub(super) fn applied_to(
        &self,
        mut environment: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let own = self.0.get(SET_BY_VRAMFIT).and_then(Option::as_ref);
        let own = own.map_or_else(String::new, |own| own.to_string_lossy().into_owned());
        let is_requested = |name: &str| own.split(',').all(|other| other != name);
        for (name, value) in self.0.iter().filter(|(name, _)| is_requested(name)) {
            match value.as_ref().map(|value| value.to_string_lossy()) {
                Some(value) => environment.insert(name.to_string(), value.into_owned()),
                None => environment.remove(&**name),
            };
        }
        environment
    }

    /// Lists the changes, one `NAME=value` a line, in the order of their names.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(name, value)| match value {
            Some(value) => format!("{name}={}", value.to_string_lossy()),
            None => format!("{name} unset"),
        })
    }

    fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.0.insert(name.into(), Some(value.into()));
    }

    /// Sets a variable of vramfit, or removes it: a dry run around this one may have set it.
    fn set_vramfit(&mut self, name: &'static str, value: Option<impl Into<OsString>>) {
        self.0.insert(name.into(), value.map(Into::into));
    }
}

/// Returns the name of a value of an option, as the program reads it, too.
fn value_name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.expect("none is hidden").get_name().to_owned()
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
    use vramfit_core::settings::Assignment;
    use vramfit_core::trace::StepLimit;

    use super::super::spec::Fill;
    use super::*;

    fn delta_of(edit: impl FnOnce(&mut DryrunSpec), users: &[(&str, &str)]) -> EnvDelta {
        delta_with_results(edit, None, users)
    }

    fn delta_with_results(
        edit: impl FnOnce(&mut DryrunSpec),
        autotune_results: Option<&Path>,
        users: &[(&str, &str)],
    ) -> EnvDelta {
        let gpus = "h100-80gx2".parse().expect("in the catalog");
        let mut spec = DryrunSpec::new(gpus, Vec::new());
        edit(&mut spec);
        let paths = RunPaths {
            trace: Path::new("/tmp/t.trace"),
            scratch: Path::new("/tmp/run"),
            checkpoints: Path::new("/tmp/run/checkpoints"),
            autotune_results,
            plugin: &PluginPaths { plugin: "/p/_native.so".into(), shim: "/p/_jax_shim".into() },
        };
        EnvDelta::for_dryrun(&spec, &paths, |name| {
            let found = users.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.into())
        })
    }

    fn value(delta: &EnvDelta, name: &str) -> Option<String> {
        delta.0.get(name)?.as_ref().map(|value| value.to_string_lossy().into_owned())
    }

    #[test]
    fn the_plugin_gets_every_option() {
        let delta = delta_with_results(
            |spec| {
                spec.steps = Some(StepLimit::Calls(3));
                spec.step = Some("train_step".to_owned());
                spec.occupied = Some(Bytes(2 << 30));
                spec.sharing = Sharing::Named("desk".to_owned());
                spec.fill = Some(Fill::Nan);
                spec.values = false;
                spec.callbacks = Some(Callbacks::Skip);
                spec.autotune_range = true;
            },
            Some(Path::new("/tmp/a.txt")),
            &[],
        );
        for (name, expected) in [
            ("VRAMFIT_GPU", "h100-80g"),
            ("VRAMFIT_GPU_COUNT", "2"),
            ("VRAMFIT_TRACE", "/tmp/t.trace"),
            ("VRAMFIT_COMPILER_LOG", "/tmp/run"),
            ("VRAMFIT_CHECKPOINTS", "/tmp/run/checkpoints"),
            ("VRAMFIT_PLUGIN", "/p/_native.so"),
            ("VRAMFIT_STEPS", "3"),
            ("VRAMFIT_STEP", "train_step"),
            ("VRAMFIT_OCCUPIED", "2147483648"),
            ("VRAMFIT_SHARED", "desk"),
            ("VRAMFIT_FILL", "nan"),
            ("VRAMFIT_VALUES", "0"),
            ("VRAMFIT_CALLBACKS", "skip"),
            ("VRAMFIT_AUTOTUNE_RANGE", "1"),
            ("VRAMFIT_AUTOTUNE_RESULTS", "/tmp/a.txt"),
            ("JAX_PLATFORMS", "cuda,cpu"),
            ("PYTHONPATH", "/p/_jax_shim"),
        ] {
            assert_eq!(value(&delta, name).as_deref(), Some(expected), "{name}");
        }
    }

    #[test]
    fn the_processes_of_a_run_share_its_gpus_unless_private() {
        let shared = |sharing| {
            let delta = delta_of(|spec| spec.sharing = sharing, &[("VRAMFIT_SHARED", "outer")]);
            let names = ["VRAMFIT_SHARED", "VRAMFIT_SHARED_FILE"];
            names.map(|name| value(&delta, name))
        };
        let text = |text: &str| Some(text.to_owned());
        let file = text("/tmp/run/gpu-memory");
        assert_eq!(shared(Sharing::Run), [None, file]);
        assert_eq!(shared(Sharing::Named("desk".to_owned())), [text("desk"), None]);
        assert_eq!(shared(Sharing::Private), [None, None]);
    }

    #[test]
    fn whole_stacks_are_recorded_unless_attribution_is_off() {
        let delta = delta_of(|_| {}, &[]);
        assert_eq!(value(&delta, STACK_LIMIT).as_deref(), Some("-1"));
        assert_eq!(delta.0.get("VRAMFIT_ATTRIBUTION"), Some(&None));
        let delta = delta_of(|_| {}, &[(STACK_LIMIT, "5")]);
        assert_eq!(delta.0.get(STACK_LIMIT), None);
        let delta = delta_of(|spec| spec.attribution = false, &[]);
        assert_eq!(delta.0.get(STACK_LIMIT), None);
        assert_eq!(value(&delta, "VRAMFIT_ATTRIBUTION").as_deref(), Some("0"));
    }

    #[test]
    fn options_of_an_outer_dry_run_are_not_inherited() {
        let delta = delta_of(|_| {}, &[("VRAMFIT_STEPS", "9")]);
        assert_eq!(delta.0.get("VRAMFIT_STEPS"), Some(&None));
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
            assert_eq!(delta.0.get("JAX_PLATFORMS"), None, "{kept}");
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
        let touched = |delta: &EnvDelta| delta.0.keys().any(|name| name.starts_with("XLA_"));
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
        assert_eq!(delta.0.get("XLA_PYTHON_CLIENT_MEM_FRACTION"), Some(&None));
    }
}
