//! Settings that come when nobody reads them any more.

use super::super::finding::Found;
use super::super::names::{self, Kind};
use super::super::scene::Scene;
use super::super::surroundings::Moment;
use super::super::{Rule, Severity};
use crate::settings::{self, ReadAt, Reader};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "set-too-late",
    severity: Severity::Error,
    meaning: "The running program sets a variable after the moment at which it is read. Nothing \
              changes, and nothing says so. The `JAX_*` variables are read by `import jax`; those of \
              the pool at the first use of JAX, which a library may make while it is imported.",
    cure: "Set it before the program starts, or further up. Options of `jax.config` can be changed by \
           `jax.config.update`.",
    check: too_late,
}];

fn too_late(scene: &Scene<'_>) -> Vec<Found> {
    let (after_backend, culprit) = match &scene.surroundings.moment {
        Moment::BeforeStart => return Vec::new(),
        Moment::AfterImport { culprit } => (false, culprit),
        Moment::AfterBackend { culprit } => (true, culprit),
    };
    let mut all = Vec::new();
    for name in &scene.surroundings.set_now {
        let Some(read_at) = read_at(scene, name) else {
            continue;
        };
        // Between the import and the first use only what the import reads is late: XLA reads its
        // flags, and NCCL its variables, when they are first used.
        if read_at != ReadAt::Import && !after_backend {
            continue;
        }
        let event = match read_at {
            ReadAt::Import => "JAX was imported",
            _ => "JAX was used for the first time",
        };
        let by = culprit
            .as_ref()
            .map_or(String::new(), |culprit| format!(", by `{culprit}`"));
        let option = names::of_jax(name, scene.version())
            .is_some_and(|known| known.kind != Kind::Option && name.starts_with("JAX_"))
            && read_at == ReadAt::Import
            && !after_backend;
        let fix = if option {
            format!(
                "call `jax.config.update(\"{}\", …)`, or set it {}",
                name.to_lowercase(),
                read_at.deadline()
            )
        } else {
            format!("set it {}: `vramfit run` does", read_at.deadline())
        };
        all.push(Found::new(
            name,
            format!("`{name}` is set after {event}{by}: it changes nothing"),
            fix,
        ));
    }
    all
}

/// Says when a variable is read, if anybody reads it.
fn read_at(scene: &Scene<'_>, name: &str) -> Option<ReadAt> {
    match settings::lookup(name).filter(|setting| !setting.is_flag()) {
        Some(setting) => {
            let read = !matches!(setting.reader, Reader::Tensorflow | Reader::Nobody);
            read.then_some(setting.read_at)
        }
        None => names::of_jax(name, scene.version())
            .filter(|known| known.kind != Kind::Option && name.starts_with("JAX_"))
            .map(|_| ReadAt::Import),
    }
}
