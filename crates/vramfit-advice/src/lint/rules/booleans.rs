//! Values of the other variables: booleans and numbers.

use super::super::context::{LintContext, python_float, python_int};
use super::super::finding::{Change, RawFinding};
use super::super::names::{self, ValueKind};
use super::super::{Rule, Severity};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "not-a-boolean",
        severity: Severity::Error,
        meaning: "JAX's boolean options accept `y`, `yes`, `t`, `true`, `on`, `1` and `n`, `no`, \
                  `f`, `false`, `off`, `0`, in any case. With anything else, including the empty \
                  string, `import jax` fails.",
        fix: "Use `true` or `false`.",
        check: not_a_boolean,
    },
    Rule {
        id: "not-a-number",
        severity: Severity::Error,
        meaning: "The variable requires a number. With anything else in a `JAX_*` variable, \
                  `import jax` fails; in an `XLA_PYTHON_CLIENT_*` variable, JAX logs an error \
                  and falls back to the CPU; in a `TF_*` variable, the process aborts.",
        fix: "Use a number, or remove the variable.",
        check: number,
    },
    Rule {
        id: "xla-boolean-ignored",
        severity: Severity::Warning,
        meaning: "XLA's boolean variables only accept `true`, `1`, `false` and `0`. Other values \
                  are logged at a level that is not shown, and count as false.",
        fix: "Use `true` or `false`.",
        check: xla_boolean_ignored,
    },
    Rule {
        id: "platform-unknown",
        severity: Severity::Error,
        meaning: "`JAX_PLATFORMS` names a backend that does not exist; the first use of JAX \
                  fails.",
        fix: "Use `cuda`, `cpu`, or `cuda,cpu`.",
        check: |context| Vec::from_iter(platforms(context)),
    },
];

/// Variables that JAX's code for the client hands to Python's `int()`.
const CLIENT_INTEGERS: [&str; 3] = [
    "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB",
    "XLA_PYTHON_CLIENT_ABORT_COLLECTIVES_ON_FAILURE",
    "XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT",
];

fn not_a_boolean(context: &LintContext<'_>) -> Vec<RawFinding> {
    let mut all = Vec::new();
    for (name, value) in &context.input.environment {
        if !has_kind(context, name, ValueKind::Bool) || jax_bool(value).is_some() {
            continue;
        }
        let found = RawFinding::new(
            name,
            format!("`{value}` is not a boolean: `import jax` fails"),
            "set it to `true` or `false`, or remove it",
        );
        all.push(found.with_change(match python_float(value) {
            // A number other than 0 was probably meant as true.
            Some(number) => Change::set(name, (number != 0.0).to_string()),
            None => Change::unset(name),
        }));
    }
    all
}

fn number(context: &LintContext<'_>) -> Vec<RawFinding> {
    let mut all = Vec::new();
    for (name, value) in &context.input.environment {
        let whole = has_kind(context, name, ValueKind::Int);
        let float = has_kind(context, name, ValueKind::Float);
        let client = CLIENT_INTEGERS.contains(&name.as_str());
        let plugin = name == "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC";
        let good = if whole || client {
            // An empty size counts as unset; the other two are parsed even so.
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
            "JAX logs an error and falls back to the CPU"
        } else if plugin {
            "the process aborts"
        } else {
            "`import jax` fails"
        };
        let wanted = if float { "number" } else { "integer" };
        let message = format!("`{value}` is not a valid {wanted}: {outcome}");
        let found = RawFinding::new(
            name,
            message,
            format!(
                "set it to a valid {wanted}, or remove \
                                                            it"
            ),
        );
        all.push(found.with_change(match jax_bool(value).filter(|_| client) {
            Some(on) => Change::set(name, u8::from(on).to_string()),
            None => Change::unset(name),
        }));
    }
    all
}

fn xla_boolean_ignored(context: &LintContext<'_>) -> Vec<RawFinding> {
    let names = [
        "TF_FORCE_UNIFIED_MEMORY",
        "XLA_PJRT_GPU_HOST_MEMORY_PREALLOCATE",
        "TF_DETERMINISTIC_ALLOCATOR",
    ];
    let found = |name: &str| {
        let value = context.non_empty_var(name)?;
        if matches!(value.to_lowercase().as_str(), "true" | "1" | "false" | "0") {
            return None;
        }
        let on = jax_bool(value).unwrap_or(false);
        let message = match name {
            "TF_DETERMINISTIC_ALLOCATOR" => format!(
                "XLA does not accept `{value}` as a boolean: with `cuda_async` the process aborts"
            ),
            _ => format!("XLA does not accept `{value}` as a boolean, so it counts as false"),
        };
        Some(
            RawFinding::new(name, message, format!("set `{name}={on}`"))
                .with_change(Change::set(name, on.to_string())),
        )
    };
    names.into_iter().filter_map(found).collect()
}

fn platforms(context: &LintContext<'_>) -> Option<RawFinding> {
    let name = "JAX_PLATFORMS";
    let list = context.non_empty_var(name)?;
    // Plugins add their own names, so only known mistakes are reported.
    let right = |word: &str| match word.to_lowercase().as_str() {
        "cuda" | "nvidia" | "cudnn" if word != "cuda" => Some("cuda"),
        "gpu" if word != "gpu" => Some("cuda"),
        "cpu" | "host" if word != "cpu" => Some("cpu"),
        "rocm" | "amd" if word != "rocm" => Some("rocm"),
        "tpu" if word != "tpu" => Some("tpu"),
        _ => None,
    };
    let words: Vec<_> = list.split(',').collect();
    let wrong = words.iter().find(|word| right(word).is_some())?;
    let fixed: Vec<_> = words.iter().map(|word| right(word).unwrap_or(word)).collect();
    let fixed = fixed.join(",");
    Some(
        RawFinding::new(
            name,
            format!("JAX has no backend `{wrong}`: the first use of JAX fails"),
            format!("set `{name}={fixed}`"),
        )
        .with_change(Change::set(name, fixed)),
    )
}

fn has_kind(context: &LintContext<'_>, name: &str, kind: ValueKind) -> bool {
    let version = context.version();
    names::exists_in(name, version)
        && names::find_jax_name(name, version).is_some_and(|known| known.kind == kind)
}

/// Parses a boolean as JAX's options do.
pub(super) fn jax_bool(text: &str) -> Option<bool> {
    match text.to_lowercase().as_str() {
        "y" | "yes" | "t" | "true" | "on" | "1" => Some(true),
        "n" | "no" | "f" | "false" | "off" | "0" => Some(false),
        _ => None,
    }
}
