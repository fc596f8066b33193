//! Values of the variables that configure the pool.

use super::super::context::{ALLOCATOR, LintContext, PREALLOCATE, UNIFIED, python_float};
use super::super::finding::{Change, RawFinding};
use super::super::{Rule, Severity};
use crate::allocator::AllocatorKind;
use crate::nearest;
use crate::settings::allocator_since;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "fraction-not-a-number",
        severity: Severity::Error,
        meaning: "The fraction is parsed by Python's `float()`. If that fails (`75%`, `.XX`, \
                  `true`), JAX logs a traceback and falls back to the CPU.",
        fix: "Use a number greater than 0 and at most 1, such as `0.9`.",
        check: not_a_number,
    },
    Rule {
        id: "fraction-out-of-range",
        severity: Severity::Error,
        meaning: "JAX does not check the range. `75` requests 75 times the GPU's memory, with \
                  `0` every allocation fails, and negative values are undefined. Values above 1 \
                  only make sense with `TF_FORCE_UNIFIED_MEMORY=1`.",
        fix: "Use a number greater than 0 and at most 1, such as `0.9`.",
        check: out_of_range,
    },
    Rule {
        id: "preallocate-not-a-boolean",
        severity: Severity::Error,
        meaning: "Only `false`, `False` and `0` disable preallocation. Any other value enables \
                  it, including `FALSE`, `no` and `off`.",
        fix: "Use `false` or `true`.",
        check: preallocate,
    },
    Rule {
        id: "allocator-unknown",
        severity: Severity::Error,
        meaning: "JAX rejects the value, logs a traceback and falls back to the CPU. The empty \
                  string is rejected, too. `vmm` requires JAX 0.10.0, `address` 0.11.0.",
        fix: "Use `default`, `bfc`, `platform` or `cuda_async`, or remove the variable.",
        check: allocator,
    },
];

fn not_a_number(context: &LintContext<'_>) -> Vec<RawFinding> {
    let Some(fraction) = context
        .fraction()
        .filter(|fraction| fraction.value.is_none())
    else {
        return Vec::new();
    };
    let (name, text) = (fraction.name, fraction.text);
    let message = format!("`{text}` is not a number: JAX logs an error and falls back to the CPU");
    let percent = text.trim().strip_suffix('%').and_then(python_float);
    let decimal = python_float(&text.replacen(',', ".", 1));
    let part = percent
        .map(|percent| percent / 100.0)
        .or(decimal)
        .filter(|part| *part > 0.0 && *part <= 1.0);
    let found = match part {
        Some(part) => RawFinding::new(name, message, format!("set `{name}={part}`"))
            .with_change(Change::set(name, part.to_string())),
        None if is_boolean_word(text) => RawFinding::new(
            name,
            message,
            format!("remove it; preallocation is controlled by `{PREALLOCATE}`"),
        )
        .with_change(Change::unset(name)),
        None => RawFinding::new(
            name,
            message,
            "set it to a number greater than 0 and at most 1; the default is 0.75",
        )
        .with_change(Change::unset(name)),
    };
    vec![found]
}

fn out_of_range(context: &LintContext<'_>) -> Vec<RawFinding> {
    let Some(fraction) = context.fraction() else {
        return Vec::new();
    };
    let (name, text) = (fraction.name, fraction.text);
    let Some(value) = fraction.value else {
        return Vec::new();
    };
    // The C API uses 32-bit floats: smaller values become 0.
    let enough = value as f32 > 0.0 && (value as f32).is_finite();
    if enough && (value <= 1.0 || context.unified()) {
        return Vec::new();
    }
    let message = if enough {
        format!(
            "{text} requests {value} times the GPU's memory: the pool gets what the driver \
             grants, but reports a higher limit"
        )
    } else if value as f32 == 0.0 {
        format!("with {text} the pool is empty: every allocation fails")
    } else {
        format!("{text} is not a valid fraction, and its effect in JAX's plugin is undefined")
    };
    // 100 is the whole GPU, which is never available: libraries need some of it.
    let found = if (10.0..100.0).contains(&value) {
        let part = value / 100.0;
        RawFinding::new(
            name,
            message,
            format!("for {text} percent, set `{name}={part}`"),
        )
        .with_change(Change::set(name, part.to_string()))
    } else if enough {
        RawFinding::new(
            name,
            message,
            format!(
                "set it to at most 1; more than the GPU's memory requires `{UNIFIED}=1` and \
                     enough RAM"
            ),
        )
        .with_change(Change::unset(name))
    } else {
        RawFinding::new(
            name,
            message,
            "set it to a number greater than 0 and at most 1; the default is 0.75",
        )
        .with_change(Change::unset(name))
    };
    vec![found]
}

fn preallocate(context: &LintContext<'_>) -> Vec<RawFinding> {
    let Some(text) = context.non_empty_var(PREALLOCATE) else {
        return Vec::new();
    };
    if matches!(text, "false" | "False" | "0" | "true" | "True" | "1") {
        return Vec::new();
    }
    let lowered = text.trim().to_lowercase();
    let means_false = matches!(
        lowered.as_str(),
        "false" | "f" | "no" | "n" | "off" | "0" | "never" | "none" | "disable" | "disabled"
    );
    let found = if means_false {
        RawFinding::new(
            PREALLOCATE,
            format!("`{text}` does not disable preallocation; only `false`, `False` and `0` do"),
            format!("set `{PREALLOCATE}=false`"),
        )
        .with_change(Change::set(PREALLOCATE, "false"))
    } else if let Some(number) = python_float(&lowered) {
        let intended_name = number > 0.0 && number < 1.0 && context.fraction().is_none();
        let message = format!("it is a boolean, not a fraction: `{text}` enables preallocation");
        if intended_name {
            let name = context.fraction_name();
            RawFinding::new(
                PREALLOCATE,
                message,
                format!("set `{name}={lowered}` and `{PREALLOCATE}=true`"),
            )
            .with_change(Change::set(name, &lowered))
            .with_change(Change::set(PREALLOCATE, "true"))
        } else {
            RawFinding::new(PREALLOCATE, message, "set it to `true` or `false`")
                .with_change(Change::set(PREALLOCATE, "true"))
        }
    } else if is_boolean_word(&lowered) {
        // It means true and counts as true.
        return Vec::new();
    } else {
        RawFinding::new(
            PREALLOCATE,
            format!("`{text}` is not a boolean, and counts as true"),
            "set it to `true` or `false`",
        )
        .with_change(Change::set(PREALLOCATE, "true"))
    };
    vec![found]
}

fn allocator(context: &LintContext<'_>) -> Vec<RawFinding> {
    let Some(word) = context.var(ALLOCATOR) else {
        return Vec::new();
    };
    if context.allocator().is_some() {
        return Vec::new();
    }
    let outcome = "JAX logs an error and falls back to the CPU";
    if let Ok(kind) = word.parse::<AllocatorKind>() {
        let message = format!(
            "JAX {} has no allocator `{word}`, which requires {}: {outcome}",
            context.version(),
            allocator_since(kind)
        );
        // The closest one that every release has: without a pool, or CUDA's own.
        let instead = match kind {
            AllocatorKind::Vmm => "cuda_async",
            _ => "platform",
        };
        let fix = format!("set `{ALLOCATOR}={instead}`, or install a newer JAX");
        return vec![
            RawFinding::new(ALLOCATOR, message, fix).with_change(Change::set(ALLOCATOR, instead)),
        ];
    }
    let message = match word {
        "" => format!("the empty string is not an allocator: {outcome}"),
        _ => format!("JAX has no allocator `{word}`: {outcome}"),
    };
    let lowered = word.trim().to_lowercase();
    let intended_name = match lowered.as_str() {
        "cuda_malloc_async" | "cudamallocasync" | "async" | "cuda-async" => Some("cuda_async"),
        _ if lowered.is_empty() => None,
        _ => AllocatorKind::ALL
            .into_iter()
            .filter(|kind| allocator_since(*kind) <= context.version())
            .map(AllocatorKind::name)
            .find(|name| *name == lowered)
            .or_else(|| {
                let names = AllocatorKind::ALL
                    .into_iter()
                    .filter(|kind| allocator_since(*kind) <= context.version());
                nearest::slip_of(&lowered, names.map(AllocatorKind::name).chain(["default"]))
            }),
    };
    let found = match intended_name {
        Some(name) => RawFinding::new(ALLOCATOR, message, format!("set `{ALLOCATOR}={name}`"))
            .with_change(Change::set(ALLOCATOR, name)),
        None => RawFinding::new(
            ALLOCATOR,
            message,
            "remove it to use JAX's default pool, or set it to `platform` or `cuda_async`",
        )
        .with_change(Change::unset(ALLOCATOR)),
    };
    vec![found]
}

/// Returns whether a text is a common word for true or false.
fn is_boolean_word(text: &str) -> bool {
    matches!(
        text.trim().to_lowercase().as_str(),
        "true" | "false" | "yes" | "no" | "on" | "off" | "t" | "f" | "y" | "n" | "always"
    )
}
