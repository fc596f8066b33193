//! Settings that come when nobody reads them any more.

use super::super::finding::Found;
use super::super::names::{self, Kind};
use super::super::scene::{PREALLOCATE, Scene, python_float};
use super::super::surroundings::{LateChange, Stage};
use super::super::{Rule, Severity};
use super::switches::jax_bool;
use crate::settings::{self, PLATFORM_NAME, PLATFORMS, ReadAt, Reader};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "set-too-late",
    severity: Severity::Error,
    meaning: "The running program sets a variable after the moment at which it is read. Nothing \
              changes in its process, and nothing says so. The `JAX_*` variables are read by \
              `import jax`; those of the pool at the first use of JAX, which a library may make while \
              it is imported. It is found in a dry run, in a program that `vramfit run` starts, and \
              after `import vramfit.jax_memory_fix`.",
    cure: "Set it before the program starts, or further up. Options of `jax.config` can be changed by \
           `jax.config.update`.",
    check: too_late,
}];

fn too_late(scene: &Scene<'_>) -> Vec<Found> {
    let late: Vec<&LateChange> = scene.surroundings.late.iter().collect();
    let is_first = |at: usize| late[..at].iter().all(|other| other.name != late[at].name);
    (0..late.len())
        .filter(|at| is_first(*at))
        .filter_map(|at| of_variable(scene, &late[at].name))
        .collect()
}

/// Judges all changes of one variable: what was read is the value before the first that came too late,
/// what is meant the value after the last.
fn of_variable(scene: &Scene<'_>, name: &str) -> Option<Found> {
    let read_at = read_at(scene, name)?;
    let mut changes = scene
        .surroundings
        .late
        .iter()
        .filter(|change| change.name == name && is_late(change.stage, read_at));
    let first = changes.next()?;
    let last = changes.next_back().unwrap_or(first);
    if meaning(scene, name, first.old.as_deref()) == meaning(scene, name, last.new.as_deref()) {
        return None;
    }
    let event = match read_at {
        ReadAt::Import => "JAX was imported",
        _ => "JAX was used for the first time",
    };
    let at = match last.site.as_str() {
        "" => String::new(),
        site => format!(" at {site}"),
    };
    let what = match &last.new {
        Some(value) => format!("`{name}={value}` is set{at}"),
        None => format!("`{name}` is removed{at}"),
    };
    let read = match &first.old {
        Some(value) => format!("JAX has read `{value}`"),
        None => "it was not set when JAX read it".to_owned(),
    };
    let message = format!("{what}, after {event}, and changes nothing in this process: {read}");
    // What decides the backends is an option, too, but as late as the variable once they are there.
    let has_option = read_at == ReadAt::Import
        && (last.stage < Stage::Started || !DECIDES_BACKENDS.contains(&name));
    let fix = if has_option {
        format!(
            "call `jax.config.update(\"{}\", …)`, or set it {}",
            name.to_lowercase(),
            read_at.latest_stage()
        )
    } else {
        format!("set it {}: `vramfit run` does", read_at.latest_stage())
    };
    Some(Found::new(name, message, fix))
}

/// Options that are read when the backends are made.
const DECIDES_BACKENDS: [&str; 4] = [
    PLATFORMS,
    PLATFORM_NAME,
    "JAX_PJRT_CLIENT_CREATE_OPTIONS",
    "JAX_NUM_CPU_DEVICES",
];

/// Says whether a change at that stage comes after the variable was read.
fn is_late(stage: Stage, read_at: ReadAt) -> bool {
    match read_at {
        ReadAt::Import => stage >= Stage::Imported,
        ReadAt::Backend => stage >= Stage::Discovered,
        // XLA reads its flags, and CUDA its list, when they are first used: for the backend.
        ReadAt::Allocator | ReadAt::Driver | ReadAt::Process => stage >= Stage::Started,
    }
}

/// Returns what JAX makes of a value, so that two texts that mean the same are equal.
fn meaning(scene: &Scene<'_>, name: &str, value: Option<&str>) -> Option<String> {
    let default = settings::find(name).and_then(|setting| setting.default.as_deref());
    let text = value.filter(|value| !value.is_empty()).or(default)?;
    if name == PREALLOCATE {
        return Some((!matches!(text, "false" | "False" | "0")).to_string());
    }
    let is_truth =
        names::of_jax(name, scene.version()).is_some_and(|known| known.kind == Kind::Bool);
    if let Some(truth) = jax_bool(text).filter(|_| is_truth) {
        return Some(truth.to_string());
    }
    Some(match python_float(text) {
        Some(number) => number.to_string(),
        None => text.to_owned(),
    })
}

/// Says when a variable is read, if anybody is known to read it at one moment.
fn read_at(scene: &Scene<'_>, name: &str) -> Option<ReadAt> {
    match settings::find(name).filter(|setting| !setting.is_flag()) {
        // NCCL reads its variables when several GPUs first speak to each other, which nobody tells.
        Some(setting) if setting.reader == Reader::Nccl => None,
        Some(setting) => setting
            .is_read_by(scene.version())
            .then_some(setting.read_at),
        None => names::of_jax(name, scene.version())
            .filter(|known| known.kind != Kind::Option && name.starts_with("JAX_"))
            .map(|_| ReadAt::Import),
    }
}
