//! Values of all the other variables: switches that are no switches, numbers that are no numbers.

use super::super::finding::{Change, Found};
use super::super::names::{self, Kind};
use super::super::scene::{Scene, python_float, python_int};
use super::super::{Rule, Severity};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "not-a-truth-value",
        severity: Severity::Error,
        meaning: "JAX's own switches take `y`, `yes`, `t`, `true`, `on`, `1` and `n`, `no`, `f`, \
                  `false`, `off`, `0`, in any case. Everything else, the empty text included, ends \
                  `import jax`.",
        cure: "Write `true` or `false`.",
        check: truth,
    },
    Rule {
        id: "not-a-number",
        severity: Severity::Error,
        meaning: "The variable wants a number. In a `JAX_*` variable anything else ends \
                  `import jax`; in an `XLA_PYTHON_CLIENT_*` one JAX logs an error and goes on with \
                  the CPU; at a `TF_*` one the process is aborted.",
        cure: "Write a number, or remove the variable.",
        check: number,
    },
    Rule {
        id: "switch-is-ignored",
        severity: Severity::Warning,
        meaning: "XLA's own switches take only `true`, `1`, `false` and `0`. Other words are logged \
                  where nobody looks, and count as false.",
        cure: "Write `true` or `false`.",
        check: ignored,
    },
    Rule {
        id: "platform-unknown",
        severity: Severity::Error,
        meaning: "`JAX_PLATFORMS` names a backend that no JAX has; the first use of JAX fails.",
        cure: "Write `cuda`, `cpu`, or `cuda,cpu`.",
        check: platforms,
    },
];

/// Variables that JAX's code for the client hands to Python's `int()`.
const CLIENT_INTEGERS: [&str; 3] = [
    "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB",
    "XLA_PYTHON_CLIENT_ABORT_COLLECTIVES_ON_FAILURE",
    "XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT",
];

fn truth(scene: &Scene<'_>) -> Vec<Found> {
    let mut all = Vec::new();
    for (name, value) in &scene.surroundings.environment {
        if !is_kind(scene, name, Kind::Bool) || jax_bool(value).is_some() {
            continue;
        }
        let found = Found::new(
            name,
            format!("`{value}` is neither true nor false: `import jax` fails"),
            "write `true` or `false`, or remove it",
        );
        all.push(found.change(match python_float(value) {
            // A number that is not 0 was meant to switch it on.
            Some(number) => Change::set(name, (number != 0.0).to_string()),
            None => Change::unset(name),
        }));
    }
    all
}

fn number(scene: &Scene<'_>) -> Vec<Found> {
    let mut all = Vec::new();
    for (name, value) in &scene.surroundings.environment {
        let whole = is_kind(scene, name, Kind::Int);
        let float = is_kind(scene, name, Kind::Float);
        let client = CLIENT_INTEGERS.contains(&name.as_str());
        let plugin = name == "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC";
        let good = if whole || client {
            // An empty size is as none; the other two are read even so.
            python_int(value).is_some() || (name == CLIENT_INTEGERS[0] && value.is_empty())
        } else if float {
            python_float(value).is_some()
        } else if plugin {
            value.trim().parse::<i64>().is_ok()
        } else {
            true
        };
        if good {
            continue;
        }
        let outcome = if client {
            "JAX logs an error and goes on with the CPU only"
        } else if plugin {
            "the process is aborted"
        } else {
            "`import jax` fails"
        };
        let wanted = if float { "number" } else { "whole number" };
        let message = format!("`{value}` is not a {wanted}: {outcome}");
        let found = Found::new(name, message, format!("write a {wanted}, or remove it"));
        all.push(found.change(match jax_bool(value).filter(|_| client) {
            Some(on) => Change::set(name, u8::from(on).to_string()),
            None => Change::unset(name),
        }));
    }
    all
}

fn ignored(scene: &Scene<'_>) -> Vec<Found> {
    let names = [
        "TF_FORCE_UNIFIED_MEMORY",
        "XLA_PJRT_GPU_HOST_MEMORY_PREALLOCATE",
        "TF_DETERMINISTIC_ALLOCATOR",
    ];
    let found = |name: &str| {
        let value = scene.held(name)?;
        if matches!(value.to_lowercase().as_str(), "true" | "1" | "false" | "0") {
            return None;
        }
        let on = jax_bool(value).unwrap_or(false);
        let message = match name {
            "TF_DETERMINISTIC_ALLOCATOR" => format!(
                "`{value}` is not a switch that XLA understands: with `cuda_async` the process is \
                 aborted"
            ),
            _ => format!("`{value}` is not a switch that XLA understands, and counts as false"),
        };
        Some(
            Found::new(name, message, format!("write `{name}={on}`"))
                .change(Change::set(name, on.to_string())),
        )
    };
    names.into_iter().filter_map(found).collect()
}

fn platforms(scene: &Scene<'_>) -> Vec<Found> {
    let name = "JAX_PLATFORMS";
    let Some(list) = scene.held(name) else {
        return Vec::new();
    };
    // Plugins bring names of their own, so only words that are known to be wrong are told.
    let right = |word: &str| match word.to_lowercase().as_str() {
        "cuda" | "nvidia" | "cudnn" if word != "cuda" => Some("cuda"),
        "gpu" if word != "gpu" => Some("cuda"),
        "cpu" | "host" if word != "cpu" => Some("cpu"),
        "rocm" | "amd" if word != "rocm" => Some("rocm"),
        "tpu" if word != "tpu" => Some("tpu"),
        _ => None,
    };
    let words: Vec<_> = list.split(',').collect();
    let Some(wrong) = words.iter().find(|word| right(word).is_some()) else {
        return Vec::new();
    };
    let mended: Vec<_> = words
        .iter()
        .map(|word| right(word).unwrap_or(word))
        .collect();
    let mended = mended.join(",");
    vec![
        Found::new(
            name,
            format!("JAX has no backend called `{wrong}`: its first use fails"),
            format!("write `{name}={mended}`"),
        )
        .change(Change::set(name, mended)),
    ]
}

fn is_kind(scene: &Scene<'_>, name: &str, kind: Kind) -> bool {
    let version = scene.version();
    names::has(name, version)
        && names::of_jax(name, version).is_some_and(|known| known.kind == kind)
}

/// Reads a truth value as JAX's own options have it.
pub(super) fn jax_bool(text: &str) -> Option<bool> {
    match text.to_lowercase().as_str() {
        "y" | "yes" | "t" | "true" | "on" | "1" => Some(true),
        "n" | "no" | "f" | "false" | "off" | "0" => Some(false),
        _ => None,
    }
}
