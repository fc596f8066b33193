//! The environment of the user's program: the only thing about it that a dry run changes.
//!
//! Settings for JAX that the user made stay as they are, unless an option of ours says otherwise;
//! what is changed is told with `--verbose`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use vramfit_core::settings::Assignments;
use vramfit_core::{Bytes, Error, ErrorKind, Result};

use super::{Callbacks, Fill};
use crate::cards::Cards;

/// How many frames of Python's stack JAX notes with each operation; negative for all.
const STACK_LIMIT: &str = "JAX_TRACEBACK_IN_LOCATIONS_LIMIT";

/// The variables for JAX that every dry run sets, with commas between.
const OWN_SETTINGS: &str = "VRAMFIT_OWN_SETTINGS";

/// What the virtual GPU shall be like.
#[derive(Clone, Debug)]
pub(super) struct Wish<'a> {
    pub(super) cards: &'a Cards,
    pub(super) steps: Option<u64>,
    pub(super) step: Option<&'a str>,
    pub(super) occupied: Option<Bytes>,
    /// The total memory of each GPU, where it is not the catalogue's.
    pub(super) total: Option<Bytes>,
    /// The bytes that the pool was to be limited to, for the report.
    pub(super) limit: Option<Bytes>,
    pub(super) sharing: Sharing<'a>,
    pub(super) fill: Option<Fill>,
    pub(super) no_values: bool,
    pub(super) callbacks: Option<Callbacks>,
    pub(super) autotune_range: bool,
    pub(super) no_attribution: bool,
    pub(super) autotune_results: Option<&'a Path>,
    pub(super) trace: &'a Path,
    pub(super) compiler_log: &'a Path,
    pub(super) plugin: &'a Path,
    pub(super) standin: &'a Path,
}

/// Who draws on the memory of the same virtual GPUs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sharing<'a> {
    /// Each process has them to itself.
    Private,
    /// The processes of this run, which keep that file.
    Run(&'a Path),
    /// The processes of all dry runs that give them this name.
    Named(&'a str),
}

/// Changes to an environment: a value to set, or `None` to remove the variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes(BTreeMap<&'static str, Option<OsString>>);

impl Changes {
    /// Applies the changes to a command.
    pub(super) fn apply(&self, command: &mut Command) {
        for (name, value) in &self.0 {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
    }

    /// Adds what the options about JAX's pool come to.
    pub(super) fn add(&mut self, assignments: &Assignments) {
        for assignment in &assignments.set {
            self.set(assignment.name, assignment.value.clone());
        }
        for name in &assignments.remove {
            self.0.insert(name, None);
        }
    }

    /// Returns an environment with the changes in it that were asked for. What every dry run sets for JAX
    /// is left out: on a card the user would not have it.
    pub(super) fn applied_to(
        &self,
        mut environment: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let own = self.0.get(OWN_SETTINGS).and_then(Option::as_ref);
        let own = own.map_or_else(String::new, |own| own.to_string_lossy().into_owned());
        let asked = |name: &str| own.split(',').all(|other| other != name);
        for (name, value) in self.0.iter().filter(|(name, _)| asked(name)) {
            match value.as_ref().map(|value| value.to_string_lossy()) {
                Some(value) => environment.insert((*name).to_owned(), value.into_owned()),
                None => environment.remove(*name),
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
        self.0.insert(name, Some(value.into()));
    }

    /// Sets a variable of ours, or removes what an outer dry run may have left.
    fn own(&mut self, name: &'static str, value: Option<String>) {
        self.0.insert(name, value.map(OsString::from));
    }
}

/// Refuses an environment in which the user's own settings keep JAX off every GPU.
///
/// # Errors
/// `gpu-not-used`.
pub(super) fn check_platforms(inherited: impl Fn(&str) -> Option<OsString>) -> Result<()> {
    match inherited("JAX_PLATFORMS").filter(|platforms| !platforms.is_empty()) {
        Some(platforms) if !names_cuda(&platforms) => {
            let platforms = platforms.to_string_lossy();
            Err(Error::new(
                ErrorKind::GpuNotUsed,
                format!("`JAX_PLATFORMS={platforms}` keeps JAX off every GPU, the virtual one too"),
            )
            .hint("unset it for the dry run: `env -u JAX_PLATFORMS vramfit dryrun …`"))
        }
        _ => Ok(()),
    }
}

/// Decides what to change, given what the user's environment holds.
pub(super) fn changes(wish: &Wish<'_>, inherited: impl Fn(&str) -> Option<OsString>) -> Changes {
    let set = |name: &str| inherited(name).filter(|value| !value.is_empty());
    let mut changes = Changes::default();

    changes.set("VRAMFIT_GPU", wish.cards.name.clone());
    changes.set("VRAMFIT_GPU_COUNT", wish.cards.count.to_string());
    changes.set("VRAMFIT_TRACE", wish.trace);
    changes.set("VRAMFIT_COMPILER_LOG", wish.compiler_log);
    changes.set("VRAMFIT_PLUGIN", wish.plugin);
    changes.own("VRAMFIT_STEPS", wish.steps.map(|steps| steps.to_string()));
    changes.own("VRAMFIT_STEP", wish.step.map(str::to_owned));
    changes.own(
        "VRAMFIT_OCCUPIED",
        wish.occupied.map(|bytes| bytes.0.to_string()),
    );
    changes.own("VRAMFIT_TOTAL", wish.total.map(|bytes| bytes.0.to_string()));
    changes.own("VRAMFIT_LIMIT", wish.limit.map(|bytes| bytes.0.to_string()));
    let (name, file) = match wish.sharing {
        Sharing::Private => (None, None),
        Sharing::Run(file) => (None, Some(OsString::from(file))),
        Sharing::Named(name) => (Some(name.to_owned()), None),
    };
    changes.own("VRAMFIT_SHARED", name);
    changes.0.insert("VRAMFIT_SHARED_FILE", file);
    changes.own(
        "VRAMFIT_FILL",
        wish.fill.map(|fill| fill.as_str().to_owned()),
    );
    changes.own("VRAMFIT_VALUES", wish.no_values.then(|| "0".to_owned()));
    let skip = wish.callbacks == Some(Callbacks::Skip);
    changes.own("VRAMFIT_CALLBACKS", skip.then(|| "skip".to_owned()));
    changes.own(
        "VRAMFIT_AUTOTUNE_RANGE",
        wish.autotune_range.then(|| "1".to_owned()),
    );
    changes.own(
        "VRAMFIT_ATTRIBUTION",
        wish.no_attribution.then(|| "0".to_owned()),
    );
    changes.0.insert(
        "VRAMFIT_AUTOTUNE_RESULTS",
        wish.autotune_results.map(OsString::from),
    );

    // The first directory that holds `jax_plugins.xla_cudaXX` wins.
    let mut path = OsString::from(wish.standin);
    if let Some(users) = set("PYTHONPATH") {
        path.push(":");
        path.push(users);
    }
    changes.set("PYTHONPATH", path);

    if !wish.no_attribution && set(STACK_LIMIT).is_none() {
        // Up to JAX 0.9 it is 10 frames, too few to reach the user's line from a deep library.
        changes.set(STACK_LIMIT, "-1");
    }

    if set("JAX_PLATFORMS").is_none() {
        // Named, a GPU that cannot be had is an error; unnamed, JAX goes on without a word.
        changes.set("JAX_PLATFORMS", "cuda,cpu");
    }

    // So that the report can tell the user's settings from ours.
    let own = changes.0.keys().filter(|name| name.starts_with("JAX_"));
    let own: Vec<&str> = own.copied().collect();
    changes.own(OWN_SETTINGS, (!own.is_empty()).then(|| own.join(",")));

    changes
}

/// Says whether a `JAX_PLATFORMS` list includes the CUDA platform; `gpu` stands for it too.
fn names_cuda(platforms: &OsStr) -> bool {
    platforms
        .to_string_lossy()
        .split(',')
        .any(|name| matches!(name.trim(), "cuda" | "gpu"))
}

#[cfg(test)]
mod tests {
    use vramfit_core::settings::Assignment;

    use super::*;
    use crate::cards::cards;

    fn decide(edit: impl FnOnce(&mut Wish<'_>), users: &[(&str, &str)]) -> Changes {
        let cards = cards("h100-80gx2").expect("in the catalogue");
        let mut wish = Wish {
            cards: &cards,
            steps: None,
            step: None,
            occupied: None,
            total: None,
            limit: None,
            sharing: Sharing::Run(Path::new("/tmp/gpus")),
            fill: None,
            no_values: false,
            callbacks: None,
            autotune_range: false,
            no_attribution: false,
            autotune_results: None,
            trace: Path::new("/tmp/t.trace"),
            compiler_log: Path::new("/tmp/log"),
            plugin: Path::new("/p/_native.so"),
            standin: Path::new("/p/_standin"),
        };
        edit(&mut wish);
        changes(&wish, |name| {
            users
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.into())
        })
    }

    fn value(changes: &Changes, name: &str) -> Option<String> {
        changes
            .0
            .get(name)?
            .as_ref()
            .map(|value| value.to_string_lossy().into_owned())
    }

    #[test]
    fn the_plugin_learns_what_was_asked_for() {
        let changes = decide(
            |wish| {
                wish.steps = Some(3);
                wish.step = Some("train_step");
                wish.occupied = Some(Bytes(2 << 30));
                wish.sharing = Sharing::Named("desk");
                wish.fill = Some(Fill::Nan);
                wish.no_values = true;
                wish.callbacks = Some(Callbacks::Skip);
                wish.autotune_range = true;
                wish.autotune_results = Some(Path::new("/tmp/a.txt"));
            },
            &[],
        );
        for (name, expected) in [
            ("VRAMFIT_GPU", "h100-80g"),
            ("VRAMFIT_GPU_COUNT", "2"),
            ("VRAMFIT_TRACE", "/tmp/t.trace"),
            ("VRAMFIT_COMPILER_LOG", "/tmp/log"),
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
            ("PYTHONPATH", "/p/_standin"),
        ] {
            assert_eq!(value(&changes, name).as_deref(), Some(expected), "{name}");
        }
    }

    #[test]
    fn the_processes_of_a_run_share_its_gpus_unless_they_are_not_to() {
        let shared = |sharing| {
            let changes = decide(
                |wish| wish.sharing = sharing,
                &[("VRAMFIT_SHARED", "outer")],
            );
            let names = ["VRAMFIT_SHARED", "VRAMFIT_SHARED_FILE"];
            names.map(|name| value(&changes, name))
        };
        let text = |text: &str| Some(text.to_owned());
        let file = Path::new("/tmp/gpus");
        assert_eq!(shared(Sharing::Run(file)), [None, text("/tmp/gpus")]);
        assert_eq!(shared(Sharing::Named("desk")), [text("desk"), None]);
        assert_eq!(shared(Sharing::Private), [None, None]);
    }

    #[test]
    fn whole_stacks_are_noted_unless_they_are_not_wanted() {
        let changes = decide(|_| {}, &[]);
        assert_eq!(value(&changes, STACK_LIMIT).as_deref(), Some("-1"));
        assert_eq!(changes.0.get("VRAMFIT_ATTRIBUTION"), Some(&None));
        let changes = decide(|_| {}, &[(STACK_LIMIT, "5")]);
        assert_eq!(changes.0.get(STACK_LIMIT), None);
        let changes = decide(|wish| wish.no_attribution = true, &[]);
        assert_eq!(changes.0.get(STACK_LIMIT), None);
        assert_eq!(value(&changes, "VRAMFIT_ATTRIBUTION").as_deref(), Some("0"));
    }

    #[test]
    fn what_an_outer_dry_run_asked_for_is_not_inherited() {
        let changes = decide(|_| {}, &[("VRAMFIT_STEPS", "9")]);
        assert_eq!(changes.0.get("VRAMFIT_STEPS"), Some(&None));
    }

    #[test]
    fn the_users_path_comes_after_the_stand_in() {
        let changes = decide(|_| {}, &[("PYTHONPATH", "/a:/b")]);
        assert_eq!(
            value(&changes, "PYTHONPATH").as_deref(),
            Some("/p/_standin:/a:/b")
        );
    }

    #[test]
    fn platforms_without_a_gpu_are_refused_and_others_kept() {
        let given = |platforms: &str| {
            let platforms = OsString::from(platforms);
            move |_: &str| Some(platforms.clone())
        };
        for kept in ["cuda", "gpu", "cpu,cuda", "cuda, cpu"] {
            check_platforms(given(kept)).expect(kept);
            let changes = decide(|_| {}, &[("JAX_PLATFORMS", kept)]);
            assert_eq!(changes.0.get("JAX_PLATFORMS"), None, "{kept}");
        }
        for refused in ["cpu", "tpu,cpu", "rocm"] {
            let error = check_platforms(given(refused)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::GpuNotUsed, "{refused}");
        }
        check_platforms(given("")).expect("empty is unset");
        let changes = decide(|_| {}, &[("JAX_PLATFORMS", "")]);
        assert_eq!(
            value(&changes, "JAX_PLATFORMS").as_deref(),
            Some("cuda,cpu")
        );
    }

    #[test]
    fn the_users_settings_for_jax_stay_unless_an_option_says_otherwise() {
        let users = [("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5")];
        let mut changes = decide(|_| {}, &users);
        let touched = |changes: &Changes| changes.0.keys().any(|name| name.starts_with("XLA_"));
        assert!(!touched(&changes));
        changes.add(&Assignments {
            set: vec![Assignment {
                name: "XLA_CLIENT_MEM_FRACTION",
                value: "0.9".into(),
                reason: String::new(),
            }],
            remove: vec!["XLA_PYTHON_CLIENT_MEM_FRACTION"],
            notes: Vec::new(),
        });
        assert_eq!(
            value(&changes, "XLA_CLIENT_MEM_FRACTION").as_deref(),
            Some("0.9")
        );
        assert_eq!(changes.0.get("XLA_PYTHON_CLIENT_MEM_FRACTION"), Some(&None));
    }
}
