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
        check: |context| Vec::from_iter(not_a_number(context)),
    },
    Rule {
        id: "fraction-out-of-range",
        severity: Severity::Error,
        meaning: "JAX does not check the range. `75` requests 75 times the GPU's memory, with \
                  `0` every allocation fails, and negative values are undefined. Values above 1 \
                  only make sense with `TF_FORCE_UNIFIED_MEMORY=1`.",
        fix: "Use a number greater than 0 and at most 1, such as `0.9`.",
        check: |context| Vec::from_iter(out_of_range(context)),
    },
    Rule {
        id: "preallocate-not-a-boolean",
        severity: Severity::Error,
        meaning: "Only `false`, `False` and `0` disable preallocation. Any other value enables \
                  it, including `FALSE`, `no` and `off`.",
        fix: "Use `false` or `true`.",
        check: |context| Vec::from_iter(preallocate(context)),
    },
    Rule {
        id: "allocator-unknown",
        severity: Severity::Error,
        meaning: "JAX rejects the value, logs a traceback and falls back to the CPU. The empty \
                  string is rejected, too. `vmm` requires JAX 0.10.0, `address` 0.11.0.",
        fix: "Use `default`, `bfc`, `platform` or `cuda_async`, or remove the variable.",
        check: |context| Vec::from_iter(allocator(context)),
    },
];

const SET_A_FRACTION: &str = "set it to a number greater than 0 and at most 1; the default is 0.75";

fn not_a_number(context: &LintContext<'_>) -> Option<RawFinding> {
    let fraction = context.fraction().filter(|fraction| fraction.value.is_none())?;
    let (name, text) = (fraction.name, fraction.text);
    let message = format!("`{text}` is not a number: JAX logs an error and falls back to the CPU");
    let percent = text.trim().strip_suffix('%').and_then(python_float);
    let decimal = python_float(&text.replacen(',', ".", 1));
    let part = percent
        .map(|percent| percent / 100.0)
        .or(decimal)
        .filter(|part| *part > 0.0 && *part <= 1.0);
    let (fix, change) = match part {
        Some(part) => (format!("set `{name}={part}`"), Change::set(name, part.to_string())),
        None if is_boolean_word(text) => (
            format!("remove it; preallocation is controlled by `{PREALLOCATE}`"),
            Change::unset(name),
        ),
        None => (SET_A_FRACTION.to_owned(), Change::unset(name)),
    };
    Some(RawFinding::new(name, message, fix).with_change(change))
}

fn out_of_range(context: &LintContext<'_>) -> Option<RawFinding> {
    let fraction = context.fraction()?;
    let (name, text) = (fraction.name, fraction.text);
    let value = fraction.value?;
    // The C API uses 32-bit floats: smaller values become 0.
    let enough = value as f32 > 0.0 && (value as f32).is_finite();
    if enough && (value <= 1.0 || context.unified()) {
        return None;
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
    let (fix, change) = if (10.0..100.0).contains(&value) {
        let part = value / 100.0;
        let fix = format!("for {text} percent, set `{name}={part}`");
        (fix, Change::set(name, part.to_string()))
    } else if enough {
        let fix = format!(
            "set it to at most 1; more than the GPU's memory requires `{UNIFIED}=1` and enough host memory, as \
             `vramfit run --spill` sets it"
        );
        (fix, Change::unset(name))
    } else {
        (SET_A_FRACTION.to_owned(), Change::unset(name))
    };
    Some(RawFinding::new(name, message, fix).with_change(change))
}

fn preallocate(context: &LintContext<'_>) -> Option<RawFinding> {
    let text = context.non_empty_var(PREALLOCATE)?;
    if matches!(text, "false" | "False" | "0" | "true" | "True" | "1") {
        return None;
    }
    let lowered = text.trim().to_lowercase();
    let means_false = matches!(
        lowered.as_str(),
        "false" | "f" | "no" | "n" | "off" | "0" | "never" | "none" | "disable" | "disabled"
    );
    if means_false {
        let message =
            format!("`{text}` does not disable preallocation; only `false`, `False` and `0` do");
        let fix = format!("set `{PREALLOCATE}=false`");
        let change = Change::set(PREALLOCATE, "false");
        return Some(RawFinding::new(PREALLOCATE, message, fix).with_change(change));
    }
    let mut fix = "set it to `true` or `false`".to_owned();
    let mut fraction = None;
    let message = if let Some(number) = python_float(&lowered) {
        if number > 0.0 && number < 1.0 && context.fraction().is_none() {
            let name = context.fraction_name();
            fix = format!("set `{name}={lowered}` and `{PREALLOCATE}=true`");
            fraction = Some(Change::set(name, &lowered));
        }
        format!("it is a boolean, not a fraction: `{text}` enables preallocation")
    } else if is_boolean_word(&lowered) {
        // It means true and counts as true.
        return None;
    } else {
        format!("`{text}` is not a boolean, and counts as true")
    };
    let found = RawFinding::new(PREALLOCATE, message, fix).with_changes(fraction);
    Some(found.with_change(Change::set(PREALLOCATE, "true")))
}

fn allocator(context: &LintContext<'_>) -> Option<RawFinding> {
    let word = context.var(ALLOCATOR)?;
    if context.allocator().is_some() {
        return None;
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
        return Some(
            RawFinding::new(ALLOCATOR, message, fix).with_change(Change::set(ALLOCATOR, instead)),
        );
    }
    let message = match word {
        "" => format!("the empty string is not an allocator: {outcome}"),
        _ => format!("JAX has no allocator `{word}`: {outcome}"),
    };
    let lowered = word.trim().to_lowercase();
    let intended_name = match lowered.as_str() {
        "cuda_malloc_async" | "cudamallocasync" | "async" | "cuda-async" => Some("cuda_async"),
        _ if lowered.is_empty() => None,
        _ => {
            let known = AllocatorKind::ALL
                .into_iter()
                .filter(|kind| allocator_since(*kind) <= context.version())
                .map(AllocatorKind::name);
            let same = known.clone().find(|name| *name == lowered);
            same.or_else(|| nearest::correct_misspelling(&lowered, known.chain(["default"])))
        }
    };
    let (fix, change) = match intended_name {
        Some(name) => (format!("set `{ALLOCATOR}={name}`"), Change::set(ALLOCATOR, name)),
        None => (
            "remove it to use JAX's default pool, or set it to `platform` or `cuda_async`"
                .to_owned(),
            Change::unset(ALLOCATOR),
        ),
    };
    Some(RawFinding::new(ALLOCATOR, message, fix).with_change(change))
}

/// Returns whether a text is a common word for true or false.
fn is_boolean_word(text: &str) -> bool {
    matches!(
        text.trim().to_lowercase().as_str(),
        "true" | "false" | "yes" | "no" | "on" | "off" | "t" | "f" | "y" | "n" | "always"
    )
}
