//! Values of the variables that decide the pool.

use super::super::finding::{Change, Found};
use super::super::scene::{ALLOCATOR, PREALLOCATE, Scene, UNIFIED, python_float};
use super::super::{Rule, Severity};
use crate::allocator::Kind;
use crate::nearest;
use crate::settings::allocator_since;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "fraction-not-a-number",
        severity: Severity::Error,
        meaning: "The fraction goes through Python's `float()`. What that refuses (`75%`, `.XX`, \
                  `true`) makes JAX log a traceback and go on with the CPU.",
        cure: "Write a number above 0 and up to 1, such as `0.9`.",
        check: not_a_number,
    },
    Rule {
        id: "fraction-out-of-range",
        severity: Severity::Error,
        meaning: "No range is checked. `75` asks for 75 times the GPU, at `0` every allocation \
                  fails, below 0 the outcome is undefined. Above 1 only makes sense with \
                  `TF_FORCE_UNIFIED_MEMORY=1`.",
        cure: "Write a number above 0 and up to 1, such as `0.9`.",
        check: out_of_range,
    },
    Rule {
        id: "preallocate-not-a-boolean",
        severity: Severity::Error,
        meaning: "Only `false`, `False` and `0` switch preallocation off. Every other text leaves it \
                  on: `FALSE`, `no` and `off`, too.",
        cure: "Write `false` or `true`.",
        check: preallocate,
    },
    Rule {
        id: "allocator-unknown",
        severity: Severity::Error,
        meaning: "JAX refuses the word, logs a traceback and goes on with the CPU. The empty text is \
                  refused, too. `vmm` came with JAX 0.10.0, `address` with 0.11.0.",
        cure: "Write `default`, `bfc`, `platform` or `cuda_async`, or remove the variable.",
        check: allocator,
    },
];

fn not_a_number(scene: &Scene<'_>) -> Vec<Found> {
    let Some(fraction) = scene.fraction().filter(|fraction| fraction.value.is_none()) else {
        return Vec::new();
    };
    let (name, text) = (fraction.name, fraction.text);
    let message =
        format!("`{text}` is not a number: JAX logs an error and goes on with the CPU only");
    let percent = text.trim().strip_suffix('%').and_then(python_float);
    let decimal = python_float(&text.replacen(',', ".", 1));
    let part = percent
        .map(|percent| percent / 100.0)
        .or(decimal)
        .filter(|part| *part > 0.0 && *part <= 1.0);
    let found = match part {
        Some(part) => Found::new(name, message, format!("write `{name}={part}`"))
            .change(Change::set(name, part.to_string())),
        None if is_truth(text) => Found::new(
            name,
            message,
            format!("remove it; whether the pool is taken at once is `{PREALLOCATE}`"),
        )
        .change(Change::unset(name)),
        None => Found::new(
            name,
            message,
            "write a number above 0 and up to 1; without it JAX takes 0.75",
        )
        .change(Change::unset(name)),
    };
    vec![found]
}

fn out_of_range(scene: &Scene<'_>) -> Vec<Found> {
    let Some(fraction) = scene.fraction() else {
        return Vec::new();
    };
    let (name, text) = (fraction.name, fraction.text);
    let Some(value) = fraction.value else {
        return Vec::new();
    };
    // The C API carries 32 bits: what is too small for them arrives as 0.
    let enough = value as f32 > 0.0 && (value as f32).is_finite();
    if enough && (value <= 1.0 || scene.unified()) {
        return Vec::new();
    }
    let message = if enough {
        format!(
            "{text} asks for {value} times the card: the pool becomes what the driver grants, and \
             the program is told it has more"
        )
    } else if value as f32 == 0.0 {
        format!("{text} gives the pool nothing: every allocation fails")
    } else {
        format!("{text} is no part of a GPU, and what JAX's plugin makes of it is undefined")
    };
    // 100 is the whole GPU, which no program can have: the libraries need some of it.
    let found = if (10.0..100.0).contains(&value) {
        let part = value / 100.0;
        Found::new(
            name,
            message,
            format!("write {text} percent as `{name}={part}`"),
        )
        .change(Change::set(name, part.to_string()))
    } else if enough {
        Found::new(
            name,
            message,
            format!("write a number up to 1; more than the GPU needs `{UNIFIED}=1` and RAM for it"),
        )
        .change(Change::unset(name))
    } else {
        Found::new(
            name,
            message,
            "write a number above 0 and up to 1; without it JAX takes 0.75",
        )
        .change(Change::unset(name))
    };
    vec![found]
}

fn preallocate(scene: &Scene<'_>) -> Vec<Found> {
    let Some(text) = scene.held(PREALLOCATE) else {
        return Vec::new();
    };
    if matches!(text, "false" | "False" | "0" | "true" | "True" | "1") {
        return Vec::new();
    }
    let lowered = text.trim().to_lowercase();
    let means_off = matches!(
        lowered.as_str(),
        "false" | "f" | "no" | "n" | "off" | "0" | "never" | "none" | "disable" | "disabled"
    );
    let found = if means_off {
        Found::new(
            PREALLOCATE,
            format!(
                "`{text}` leaves preallocation on; only `false`, `False` and `0` switch it off"
            ),
            format!("write `{PREALLOCATE}=false`"),
        )
        .change(Change::set(PREALLOCATE, "false"))
    } else if let Some(number) = python_float(&lowered) {
        let meant = number > 0.0 && number < 1.0 && scene.fraction().is_none();
        let message = format!("it is a switch and not a share: `{text}` means on");
        if meant {
            let name = scene.fraction_name();
            Found::new(
                PREALLOCATE,
                message,
                format!("write `{name}={lowered}` and `{PREALLOCATE}=true`"),
            )
            .change(Change::set(name, &lowered))
            .change(Change::set(PREALLOCATE, "true"))
        } else {
            Found::new(PREALLOCATE, message, "write `true` or `false`")
                .change(Change::set(PREALLOCATE, "true"))
        }
    } else if is_truth(&lowered) {
        // On is what it means and what it does.
        return Vec::new();
    } else {
        Found::new(
            PREALLOCATE,
            format!("`{text}` is neither true nor false, and counts as true"),
            "write `true` or `false`",
        )
        .change(Change::set(PREALLOCATE, "true"))
    };
    vec![found]
}

fn allocator(scene: &Scene<'_>) -> Vec<Found> {
    let Some(word) = scene.raw(ALLOCATOR) else {
        return Vec::new();
    };
    if scene.allocator().is_some() {
        return Vec::new();
    }
    let outcome = "JAX logs an error and goes on with the CPU only";
    if let Ok(kind) = word.parse::<Kind>() {
        let message = format!(
            "JAX {} has no allocator `{word}`, which came with {}: {outcome}",
            scene.version(),
            allocator_since(kind)
        );
        // The nearest that every release has: also without a pool, or also CUDA's own.
        let instead = match kind {
            Kind::Vmm => "cuda_async",
            _ => "platform",
        };
        let fix = format!("write `{ALLOCATOR}={instead}`, or install a newer JAX");
        return vec![Found::new(ALLOCATOR, message, fix).change(Change::set(ALLOCATOR, instead))];
    }
    let message = match word {
        "" => format!("the empty text is no allocator: {outcome}"),
        _ => format!("JAX has no allocator `{word}`: {outcome}"),
    };
    let lowered = word.trim().to_lowercase();
    let meant = match lowered.as_str() {
        "cuda_malloc_async" | "cudamallocasync" | "async" | "cuda-async" => Some("cuda_async"),
        _ if lowered.is_empty() => None,
        _ => Kind::ALL
            .into_iter()
            .filter(|kind| allocator_since(*kind) <= scene.version())
            .map(Kind::name)
            .find(|name| *name == lowered)
            .or_else(|| {
                let names = Kind::ALL
                    .into_iter()
                    .filter(|kind| allocator_since(*kind) <= scene.version());
                nearest::slip_of(&lowered, names.map(Kind::name).chain(["default"]))
            }),
    };
    let found = match meant {
        Some(name) => Found::new(ALLOCATOR, message, format!("write `{ALLOCATOR}={name}`"))
            .change(Change::set(ALLOCATOR, name)),
        None => Found::new(
            ALLOCATOR,
            message,
            "remove it for JAX's own pool, or write `platform` or `cuda_async`",
        )
        .change(Change::unset(ALLOCATOR)),
    };
    vec![found]
}

/// Says whether a text is one of the words for true or false that programs use.
fn is_truth(text: &str) -> bool {
    matches!(
        text.trim().to_lowercase().as_str(),
        "true" | "false" | "yes" | "no" | "on" | "off" | "t" | "f" | "y" | "n" | "always"
    )
}
