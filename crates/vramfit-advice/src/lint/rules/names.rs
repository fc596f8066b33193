//! Names: misspelled, made up, of another program or release.

use super::super::context::{
    ALLOCATOR, FRACTION, LintContext, OLD_FRACTION, PREALLOCATE, VISIBLE, python_int,
};
use super::super::finding::{Change, RawFinding};
use super::super::names::{self, ValueKind};
use super::super::{Rule, Severity};
use crate::Bytes;
use crate::allocator::AllocatorKind;
use crate::nearest;
use crate::settings::{
    self, GPU_REQUIRED, GpuBudgets, Options, PLATFORM_NAME, PLATFORMS, Reader, Target, allows_gpu,
    is_jax_related, prefers_gpu,
};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "misspelled-name",
        severity: Severity::Warning,
        meaning: "The name differs by a letter or two from a variable that is read. It is \
                  silently ignored.",
        fix: "Use the intended name.",
        check: misspelled,
    },
    Rule {
        id: "unknown-name",
        severity: Severity::Note,
        meaning: "The name looks like a JAX variable, but no JAX release from 0.4.26 to 0.12.0 \
                  reads it. Your own program may.",
        fix: "Remove it unless your program reads it.",
        check: unknown,
    },
    Rule {
        id: "unread-variable",
        severity: Severity::Warning,
        meaning: "The name appears in many recipes, or is a `jax.config` option without an \
                  environment variable. Setting it has no effect.",
        fix: "Use a setting that is read; `docs/reference/settings.md` lists one for each.",
        check: read_by_nobody,
    },
    Rule {
        id: "tensorflow-variable",
        severity: Severity::Warning,
        meaning: "Only TensorFlow reads the variable. XLA's message after a failed allocation \
                  suggests `TF_GPU_ALLOCATOR`, but JAX's plugin does not read it.",
        fix: "Use the corresponding JAX variable.",
        check: tensorflow,
    },
    Rule {
        id: "not-in-this-release",
        severity: Severity::Warning,
        meaning: "Other JAX releases read the variable, but the installed one does not.",
        fix: "Use the name of the installed release, or install another release.",
        check: other_release,
    },
    Rule {
        id: "platform-name-deprecated",
        severity: Severity::Warning,
        meaning: "`JAX_PLATFORM_NAME` only selects the default platform. With `cpu`, JAX still \
                  allocates memory on the GPU. With `cuda` or `gpu`, a missing GPU is an error, \
                  but the reason is hidden; together with `JAX_PLATFORMS=cuda,cpu` it is correct \
                  and not reported: `vramfit run --require-gpu` and `vramfit.jax_memory_fix` set \
                  these two variables.",
        fix: "To require a GPU, also set `JAX_PLATFORMS=cuda,cpu`; to use the CPU, set \
              `JAX_PLATFORMS=cpu` instead.",
        check: |context| Vec::from_iter(platform_name(context)),
    },
];

/// Names that are confused with others, but differ by more than a letter or two.
const KNOWN_CONFUSIONS: &[(&str, &str)] = &[
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

/// Returns the name that was probably intended.
fn intended_name(context: &LintContext<'_>, name: &str) -> Option<&'static str> {
    let full = KNOWN_CONFUSIONS.iter().find(|(wrong, _)| *wrong == name);
    match full {
        Some((_, FRACTION)) => Some(context.fraction_name()),
        Some((_, right)) => Some(right),
        None => nearest::correct_misspelling(name, names::names_read_by_jax(context.version())),
    }
}

fn unknown_names<'a>(context: &LintContext<'a>) -> impl Iterator<Item = (&'a str, &'a str)> {
    let environment = &context.input.environment;
    environment
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .filter(|(name, _)| is_jax_related(name) && !names::is_known(name))
}

fn misspelled(context: &LintContext<'_>) -> Vec<RawFinding> {
    let found = |(name, value): (&str, &str)| {
        let right = intended_name(context, name)?;
        let change = if context.var(right).is_none() {
            RawFinding::new(
                name,
                format!("nothing reads `{name}`; `{right}` is read, but not set"),
                format!("set `{right}={value}` instead"),
            )
            .with_change(Change::set(right, value))
        } else {
            RawFinding::new(
                name,
                format!("nothing reads `{name}`; `{right}`, which is read, is also set"),
                format!("remove `{name}`"),
            )
        };
        Some(change.with_change(Change::unset(name)))
    };
    unknown_names(context).filter_map(found).collect()
}

fn unknown(context: &LintContext<'_>) -> Vec<RawFinding> {
    // Other names of these families may well have a reader of their own: NCCL's plugins, TensorFlow.
    let families = ["JAX_", "XLA_PYTHON_CLIENT_", "XLA_CLIENT_", "XLA_PJRT_"];
    unknown_names(context)
        .filter(|(name, _)| families.iter().any(|family| name.starts_with(family)))
        .filter(|(name, _)| intended_name(context, name).is_none())
        .map(|(name, _)| {
            RawFinding::new(
                name,
                format!("no JAX release from 0.4.26 to 0.12.0 reads `{name}`"),
                format!("remove `{name}`, unless your program reads it"),
            )
        })
        .collect()
}

fn read_by_nobody(context: &LintContext<'_>) -> Vec<RawFinding> {
    let environment = &context.input.environment;
    let mut all = Vec::new();
    for (name, value) in environment {
        let invented = settings::find(name).is_some_and(|setting| setting.reader == Reader::Unread);
        let option = names::find_jax_name(name, context.version())
            .is_some_and(|known| known.kind == ValueKind::Option);
        if !invented && !option {
            continue;
        }
        let (message, fix, changes) = match name.as_str() {
            "JAX_PREALLOCATION_SIZE_LIMIT_BYTES" => nonexistent_limit(context, value),
            "JAX_CUDA_VISIBLE_DEVICES" => (
                "the variable has no effect: the name is only a `jax.config` option".to_owned(),
                format!("set `{VISIBLE}={value}` instead"),
                Vec::from_iter(replacement(context, VISIBLE, value)),
            ),
            "JAX_ENABLE_REMAT_OPT_PASS" => {
                let right = "JAX_COMPILER_ENABLE_REMAT_PASS";
                (
                    format!("no JAX release reads it; the correct name is `{right}`"),
                    format!("set `{right}={value}` instead"),
                    Vec::from_iter(replacement(context, right, value)),
                )
            }
            _ => (
                "the variable has no effect: the name is only a `jax.config` option".to_owned(),
                format!("call `jax.config.update(\"{}\", …)` in the program", name.to_lowercase()),
                Vec::new(),
            ),
        };
        let found = RawFinding::new(name, message, fix).with_changes(changes);
        all.push(found.with_change(Change::unset(name)));
    }
    all
}

/// Returns the change that sets a variable under its correct name, unless that is already set.
fn replacement(context: &LintContext<'_>, right: &str, value: &str) -> Option<Change> {
    let is_unset = context.var(right).is_none();
    is_unset.then(|| Change::set(right, value))
}

/// Checks a limit in bytes, which JAX does not have: on a known GPU it corresponds to a fraction.
fn nonexistent_limit(context: &LintContext<'_>, value: &str) -> (String, String, Vec<Change>) {
    let message = "no JAX release reads it, so the pool is not limited".to_owned();
    let bytes = python_int(value).and_then(|bytes| u64::try_from(bytes).ok());
    let amount = bytes.map_or("8GiB".to_owned(), |bytes| Bytes(bytes).to_exact_text());
    if let Some(
        kind @ (AllocatorKind::Platform | AllocatorKind::Address | AllocatorKind::CudaAsync),
    ) = context.allocator()
    {
        let name = kind.name();
        return (
            format!("no JAX release reads it, and `{ALLOCATOR}={name}` has no limit"),
            format!(
                "choose one: for the limit, remove `{ALLOCATOR}` and start the program with \
                 `vramfit run --limit {amount} -- …`; for `{name}`, remove this"
            ),
            Vec::new(),
        );
    }
    let memory_budgets = context.memory_budgets();
    let smallest = memory_budgets.iter().map(|(_, room)| room.total_bytes).min();
    let (Some(limit_bytes), Some(total_bytes), None) = (bytes, smallest, context.fraction()) else {
        let fix = format!("start the program with `vramfit run --limit {amount} -- …`");
        return (message, fix, Vec::new());
    };
    let options = Options { limit: Some(Bytes(limit_bytes)), ..Options::default() };
    let target = Target {
        jax: Some(context.version()),
        variable: &|name| context.var(name).map(str::to_owned),
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
            let assignments: Vec<_> = changes
                .iter()
                .filter_map(|change| Some(format!("{}={}", change.name, change.value.as_ref()?)))
                .collect();
            let fix = format!(
                "set `{}`: {} of the GPU's {}",
                assignments.join(" "),
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

fn tensorflow(context: &LintContext<'_>) -> Vec<RawFinding> {
    let has_tensorflow = context.packages().is_some_and(|packages| packages.tensorflow.is_some());
    let environment = &context.input.environment;
    let mut all = Vec::new();
    for (name, value) in environment {
        let reader = settings::find(name).map(|setting| setting.reader);
        if reader != Some(Reader::Tensorflow) || has_tensorflow {
            continue;
        }
        let message = "only TensorFlow reads it; it does not affect JAX".to_owned();
        let lowered = value.to_lowercase();
        let on = matches!(lowered.as_str(), "true" | "1");
        let instead = match name.as_str() {
            "TF_GPU_ALLOCATOR" if lowered == "cuda_malloc_async" => Some((ALLOCATOR, "cuda_async")),
            "TF_FORCE_GPU_ALLOW_GROWTH" if on => Some((PREALLOCATE, "false")),
            _ => None,
        };
        let found = match instead {
            Some((right, value)) => RawFinding::new(
                name,
                message,
                format!("set `{right}={value}` instead, or remove it"),
            )
            .with_changes(replacement(context, right, value)),
            None => RawFinding::new(name, message, format!("remove `{name}`")),
        };
        all.push(found.with_change(Change::unset(name)));
    }
    all
}

fn other_release(context: &LintContext<'_>) -> Vec<RawFinding> {
    let Some(version) = context.input.jax else {
        return Vec::new();
    };
    let environment = &context.input.environment;
    let mut all = Vec::new();
    for (name, value) in environment {
        // The table of settings knows their releases, the recorded names those of all others.
        let setting = settings::find(name).filter(|setting| !setting.is_flag());
        let unread = match setting {
            Some(setting) => {
                !matches!(setting.reader, Reader::Tensorflow | Reader::Unread)
                    && !setting.is_read_by(version)
            }
            None => !names::exists_in(name, version),
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
            let fix = format!("set `{OLD_FRACTION}={value}` instead");
            RawFinding::new(name, message, fix).with_changes(replacement(
                context,
                OLD_FRACTION,
                value,
            ))
        } else {
            RawFinding::new(name, message, format!("remove `{name}`"))
        };
        all.push(found.with_change(Change::unset(name)));
    }
    all
}

fn releases(since: Option<settings::Version>, until: Option<settings::Version>) -> String {
    match (since, until) {
        (Some(since), Some(until)) => format!("{since} to {until} do"),
        (Some(since), None) => format!("it requires {since}"),
        (None, Some(until)) => format!("the last release to support it is {until}"),
        (None, None) => "other releases do".to_owned(),
    }
}

fn platform_name(context: &LintContext<'_>) -> Option<RawFinding> {
    let value = context.non_empty_var(PLATFORM_NAME)?;
    let list = context.non_empty_var(PLATFORMS);
    let found = if prefers_gpu(&value.trim().to_lowercase()) {
        let (name, required) = GPU_REQUIRED[0];
        let (message, fix) = match list {
            Some(list) if prefers_gpu(list) => return None,
            None => (
                "it is deprecated, and on its own it hides why no GPU is available".to_owned(),
                format!("also set `{name}={required}`, which reports the reason"),
            ),
            Some(list) if allows_gpu(list) => (
                format!("it is deprecated, and contradicts `{PLATFORMS}={list}`"),
                format!("set `{name}={required}`"),
            ),
            Some(list) => {
                let message = format!(
                    "`{PLATFORMS}={list}` excludes GPUs, but `{PLATFORM_NAME}={value}` requires \
                     one: the first use of JAX fails"
                );
                let fix =
                    format!("remove `{PLATFORM_NAME}`, or set `{name}={required}` to use a GPU");
                return Some(
                    RawFinding::new(PLATFORM_NAME, message, fix)
                        .with_change(Change::unset(PLATFORM_NAME)),
                );
            }
        };
        RawFinding::new(PLATFORM_NAME, message, fix).with_change(Change::set(name, required))
    } else {
        let message = match value {
            "cpu" => {
                "it only selects the default device: JAX still opens the GPU, and its context \
                 uses memory there"
            }
            _ => "it only selects the default device, and is deprecated",
        };
        let found = match list {
            None => RawFinding::new(
                PLATFORM_NAME,
                message,
                format!("set `{PLATFORMS}={value}` instead"),
            )
            .with_change(Change::set(PLATFORMS, value)),
            Some(_) => RawFinding::new(
                PLATFORM_NAME,
                message,
                format!("remove it: `{PLATFORMS}` is set and replaces it"),
            ),
        };
        found.with_change(Change::unset(PLATFORM_NAME))
    };
    Some(found)
}
