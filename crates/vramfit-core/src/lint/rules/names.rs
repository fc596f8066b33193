//! Names: misspelt, invented, of another program, of another release.

use super::super::finding::{Change, Found};
use super::super::names::{self, Kind as LookUp};
use super::super::scene::{
    ALLOCATOR, FRACTION, OLD_FRACTION, PREALLOCATE, Scene, VISIBLE, python_int,
};
use super::super::{Rule, Severity};
use crate::Bytes;
use crate::allocator::Kind;
use crate::nearest;
use crate::settings::{
    self, GPU_REQUIRED, GpuBudgets, Options, PLATFORM_NAME, PLATFORMS, Reader, Target, allows_gpu,
    prefers_gpu,
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "misspelt-name",
        severity: Severity::Warning,
        meaning: "The name differs by a letter or two from one that is read. Nobody reads it, and \
                  nobody says so.",
        cure: "Write the name that is meant.",
        check: misspelt,
    },
    Rule {
        id: "unknown-name",
        severity: Severity::Note,
        meaning: "The name looks like one of JAX's, but no release of JAX from 0.4.26 to 0.11.0 looks \
                  it up. Perhaps your own program does; then all is well.",
        cure: "Remove it if nothing of yours reads it.",
        check: unknown,
    },
    Rule {
        id: "read-by-nobody",
        severity: Severity::Warning,
        meaning: "The name is found in many recipes, or is an option of `jax.config` that has no \
                  variable. Setting it changes nothing.",
        cure: "Say the same in a way that is read; `docs/reference/settings.md` names it for each.",
        check: nobody,
    },
    Rule {
        id: "tensorflow-name",
        severity: Severity::Warning,
        meaning: "Only TensorFlow reads the name. XLA's own message after a failed allocation \
                  suggests `TF_GPU_ALLOCATOR`, and JAX's plugin does not read it.",
        cure: "Use the variable that JAX reads for the same purpose.",
        check: tensorflow,
    },
    Rule {
        id: "not-in-this-release",
        severity: Severity::Warning,
        meaning: "The name is read by other releases of JAX, and not by the installed one.",
        cure: "Use the name of the installed release, or another release.",
        check: other_release,
    },
    Rule {
        id: "platform-name-deprecated",
        severity: Severity::Warning,
        meaning: "`JAX_PLATFORM_NAME` only chooses the default. `cpu` in it still takes memory on the \
                  GPU. `cuda` or `gpu` makes a GPU that cannot be had an error, but hides why; \
                  beside `JAX_PLATFORMS=cuda,cpu` it is right, and nothing is found: these are the \
                  two variables that `vramfit run --require-gpu` and `vramfit.jax_memory_fix` set.",
        cure: "Where a GPU is meant, set `JAX_PLATFORMS=cuda,cpu` beside it; where the CPU is, set \
               `JAX_PLATFORMS=cpu` instead.",
        check: platform_name,
    },
];

/// What a name that was taken for another one is called in full, where letters alone do not tell.
const MEANT: &[(&str, &str)] = &[
    ("XLA_CLIENT_PREALLOCATE", PREALLOCATE),
    ("XLA_CLIENT_ALLOCATOR", ALLOCATOR),
    ("XLA_PREALLOCATE", PREALLOCATE),
    ("XLA_PYTHON_PREALLOCATE", PREALLOCATE),
    ("XLA_MEM_FRACTION", FRACTION),
    ("JAX_PREALLOCATE", PREALLOCATE),
    ("JAX_ALLOCATOR", ALLOCATOR),
    ("JAX_MEM_FRACTION", FRACTION),
    ("JAX_X64", "JAX_ENABLE_X64"),
];

/// Returns the name that was meant.
fn meant(scene: &Scene<'_>, name: &str) -> Option<&'static str> {
    let full = MEANT.iter().find(|(wrong, _)| *wrong == name);
    match full {
        Some((_, FRACTION)) => Some(scene.fraction_name()),
        Some((_, right)) => Some(right),
        None => nearest::slip_of(name, names::looked_up(scene.version())),
    }
}

fn strangers<'a>(scene: &Scene<'a>) -> impl Iterator<Item = (&'a str, &'a str)> {
    let environment = &scene.surroundings.environment;
    environment
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .filter(|(name, _)| names::is_ours(name) && !names::is_known(name))
}

fn misspelt(scene: &Scene<'_>) -> Vec<Found> {
    let found = |(name, value): (&str, &str)| {
        let right = meant(scene, name)?;
        let change = if scene.raw(right).is_none() {
            Found::new(
                name,
                format!("`{name}` is read by nobody; `{right}` is, and it is not set"),
                format!("write `{right}={value}` instead"),
            )
            .change(Change::set(right, value))
        } else {
            Found::new(
                name,
                format!("`{name}` is read by nobody; `{right}`, which is read, is set as well"),
                format!("remove `{name}`"),
            )
        };
        Some(change.change(Change::unset(name)))
    };
    strangers(scene).filter_map(found).collect()
}

fn unknown(scene: &Scene<'_>) -> Vec<Found> {
    // Other names of these families may well have a reader of their own: NCCL's plugins, TensorFlow.
    let families = ["JAX_", "XLA_PYTHON_CLIENT_", "XLA_CLIENT_", "XLA_PJRT_"];
    strangers(scene)
        .filter(|(name, _)| families.iter().any(|family| name.starts_with(family)))
        .filter(|(name, _)| meant(scene, name).is_none())
        .map(|(name, _)| {
            Found::new(
                name,
                format!("`{name}` is looked up by no release of JAX from 0.4.26 to 0.11.0"),
                format!("remove `{name}`, unless a program of yours reads it"),
            )
        })
        .collect()
}

fn nobody(scene: &Scene<'_>) -> Vec<Found> {
    let environment = &scene.surroundings.environment;
    let mut all = Vec::new();
    for (name, value) in environment {
        let invented = settings::find(name).is_some_and(|setting| setting.reader == Reader::Nobody);
        let option =
            names::of_jax(name, scene.version()).is_some_and(|known| known.kind == LookUp::Option);
        if !invented && !option {
            continue;
        }
        let (message, fix, changes) = match name.as_str() {
            "JAX_PREALLOCATION_SIZE_LIMIT_BYTES" => limit(scene, value),
            "JAX_CUDA_VISIBLE_DEVICES" => (
                "the variable does nothing: only `jax.config` has an option of this name"
                    .to_owned(),
                format!("write `{VISIBLE}={value}` instead"),
                replacement(scene, VISIBLE, value),
            ),
            "JAX_ENABLE_REMAT_OPT_PASS" => {
                let right = "JAX_COMPILER_ENABLE_REMAT_PASS";
                (
                    format!("no release of JAX reads it; the name that is read is `{right}`"),
                    format!("write `{right}={value}` instead"),
                    replacement(scene, right, value),
                )
            }
            _ => (
                "the variable does nothing: only `jax.config` has an option of this name"
                    .to_owned(),
                format!(
                    "call `jax.config.update(\"{}\", …)` in the program",
                    name.to_lowercase()
                ),
                Vec::new(),
            ),
        };
        let found = Found::new(name, message, fix);
        let found = changes.into_iter().fold(found, Found::change);
        all.push(found.change(Change::unset(name)));
    }
    all
}

/// Says a variable under its right name, where that does not hold another value.
fn replacement(scene: &Scene<'_>, right: &str, value: &str) -> Vec<Change> {
    match scene.raw(right) {
        None => vec![Change::set(right, value)],
        Some(_) => Vec::new(),
    }
}

/// The limit in bytes that JAX does not have: on a known GPU it is a fraction, unless the allocator
/// keeps to none.
fn limit(scene: &Scene<'_>, value: &str) -> (String, String, Vec<Change>) {
    let message = "no release of JAX reads it, so nothing limits the pool".to_owned();
    let bytes = python_int(value).and_then(|bytes| u64::try_from(bytes).ok());
    let amount = bytes.map_or("8GiB".to_owned(), |bytes| Bytes(bytes).exact());
    if let Some(kind @ (Kind::Platform | Kind::Address | Kind::CudaAsync)) = scene.allocator() {
        let name = kind.name();
        return (
            format!(
                "no release of JAX reads it, and `{ALLOCATOR}={name}` keeps to no limit at all"
            ),
            format!(
                "choose: for the limit remove `{ALLOCATOR}` and start the program with \
                 `vramfit run --limit {amount} -- …`; for `{name}` remove this"
            ),
            Vec::new(),
        );
    }
    let rooms = scene.rooms();
    let smallest = rooms.iter().map(|(_, room)| room.total_bytes).min();
    let (Some(limit_bytes), Some(total_bytes), None) = (bytes, smallest, scene.fraction()) else {
        let fix = format!("start the program with `vramfit run --limit {amount} -- …`");
        return (message, fix, Vec::new());
    };
    let options = Options {
        limit: Some(Bytes(limit_bytes)),
        ..Options::default()
    };
    let target = Target {
        jax: Some(scene.version()),
        variable: &|name| scene.raw(name).map(str::to_owned),
        gpu_budgets: &|| Ok(GpuBudgets::TotalOnly(total_bytes)),
        ..Target::default()
    };
    match settings::resolve(&options, &target) {
        Ok(resolved) => {
            let changes: Vec<_> = resolved
                .set
                .into_iter()
                .map(|assignment| Change::set(assignment.name, assignment.value))
                .collect();
            let told: Vec<_> = changes
                .iter()
                .filter_map(|change| Some(format!("{}={}", change.name, change.value.as_ref()?)))
                .collect();
            let fix = format!(
                "write `{}`: {} of the GPU's {}",
                told.join(" "),
                Bytes(limit_bytes),
                Bytes(total_bytes)
            );
            (message, fix, changes)
        }
        Err(_) => {
            let fix = format!(
                "remove it: {} is more than the GPU's {}",
                Bytes(limit_bytes),
                Bytes(total_bytes)
            );
            (message, fix, Vec::new())
        }
    }
}

fn tensorflow(scene: &Scene<'_>) -> Vec<Found> {
    let has_tensorflow = scene
        .packages()
        .is_some_and(|packages| packages.tensorflow.is_some());
    let environment = &scene.surroundings.environment;
    let mut all = Vec::new();
    for (name, value) in environment {
        let reader = settings::find(name).map(|setting| setting.reader);
        if reader != Some(Reader::Tensorflow) || has_tensorflow {
            continue;
        }
        let message = "only TensorFlow reads it; nothing changes in JAX".to_owned();
        let lowered = value.to_lowercase();
        let on = matches!(lowered.as_str(), "true" | "1");
        let found = match name.as_str() {
            "TF_GPU_ALLOCATOR" if lowered == "cuda_malloc_async" => {
                let found = Found::new(
                    name,
                    message,
                    format!("write `{ALLOCATOR}=cuda_async` instead, or remove it"),
                );
                let changes = replacement(scene, ALLOCATOR, "cuda_async");
                changes.into_iter().fold(found, Found::change)
            }
            "TF_FORCE_GPU_ALLOW_GROWTH" if on => {
                let found = Found::new(
                    name,
                    message,
                    format!("write `{PREALLOCATE}=false` instead, or remove it"),
                );
                let changes = replacement(scene, PREALLOCATE, "false");
                changes.into_iter().fold(found, Found::change)
            }
            _ => Found::new(name, message, format!("remove `{name}`")),
        };
        all.push(found.change(Change::unset(name)));
    }
    all
}

fn other_release(scene: &Scene<'_>) -> Vec<Found> {
    let Some(version) = scene.surroundings.jax else {
        return Vec::new();
    };
    let environment = &scene.surroundings.environment;
    let mut all = Vec::new();
    for (name, value) in environment {
        // The table knows the releases of the settings it holds; the record those of all others.
        let setting = settings::find(name).filter(|setting| !setting.is_flag());
        let unread = match setting {
            Some(setting) => {
                !matches!(setting.reader, Reader::Tensorflow | Reader::Nobody)
                    && !setting.is_read_by(version)
            }
            None => !names::has(name, version),
        };
        if !unread {
            continue;
        }
        let range = match setting {
            Some(setting) => releases(setting.since, setting.until),
            None => "other releases do".to_owned(),
        };
        let message = format!("JAX {version} does not read it; {range}");
        let found = if name == FRACTION {
            let found = Found::new(
                name,
                message,
                format!("write `{OLD_FRACTION}={value}` instead"),
            );
            let changes = replacement(scene, OLD_FRACTION, value);
            changes.into_iter().fold(found, Found::change)
        } else {
            Found::new(name, message, format!("remove `{name}`"))
        };
        all.push(found.change(Change::unset(name)));
    }
    all
}

fn releases(since: Option<settings::Version>, until: Option<settings::Version>) -> String {
    match (since, until) {
        (Some(since), Some(until)) => format!("{since} to {until} do"),
        (Some(since), None) => format!("it came with {since}"),
        (None, Some(until)) => format!("the last release that did is {until}"),
        (None, None) => "other releases do".to_owned(),
    }
}

fn platform_name(scene: &Scene<'_>) -> Vec<Found> {
    let Some(value) = scene.held(PLATFORM_NAME) else {
        return Vec::new();
    };
    let list = scene.held(PLATFORMS);
    let found = if prefers_gpu(&value.trim().to_lowercase()) {
        let (name, required) = GPU_REQUIRED[0];
        let (message, fix) = match list {
            Some(list) if prefers_gpu(list) => return Vec::new(),
            None => (
                "it is deprecated, and alone it hides why a GPU cannot be had".to_owned(),
                format!("write `{name}={required}` beside it, which says why"),
            ),
            Some(list) if allows_gpu(list) => (
                format!("it is deprecated, and says something else than `{PLATFORMS}={list}`"),
                format!("write `{name}={required}`"),
            ),
            Some(list) => {
                let message = format!(
                    "`{PLATFORMS}={list}` leaves JAX no GPU, and `{PLATFORM_NAME}={value}` asks for \
                     one: the first use of JAX fails"
                );
                let fix =
                    format!("remove `{PLATFORM_NAME}`, or write `{name}={required}` for a GPU");
                return vec![
                    Found::new(PLATFORM_NAME, message, fix).change(Change::unset(PLATFORM_NAME)),
                ];
            }
        };
        Found::new(PLATFORM_NAME, message, fix).change(Change::set(name, required))
    } else {
        let message = match value {
            "cpu" => {
                "it only chooses the default device: the GPU is opened all the same, and its \
                 context takes memory there"
            }
            _ => "it only chooses the default device, and is deprecated",
        };
        let found = match list {
            None => Found::new(
                PLATFORM_NAME,
                message,
                format!("write `{PLATFORMS}={value}` instead"),
            )
            .change(Change::set(PLATFORMS, value)),
            Some(_) => Found::new(
                PLATFORM_NAME,
                message,
                format!("remove it: `{PLATFORMS}` is set and says the same and more"),
            ),
        };
        found.change(Change::unset(PLATFORM_NAME))
    };
    vec![found]
}
