//! Settings that are valid on their own but conflict with each other.

use super::super::context::{
    ALLOCATOR, FRACTION, LintContext, OLD_FRACTION, PREALLOCATE, UNIFIED, XLA_FLAGS,
};
use super::super::finding::{Change, RawFinding};
use super::super::{Rule, Severity};
use super::flags;
use crate::allocator::{AllocatorKind, JaxVersion, POOL_GROWS_SINCE};
use crate::settings::{FractionPolicy, Version, XlaFlags};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "conflicting-fractions",
        severity: Severity::Error,
        meaning: "Since JAX 0.4.33, setting both names of the fraction is rejected: JAX logs an \
                  error and falls back to the CPU.",
        fix: "Keep `XLA_CLIENT_MEM_FRACTION`.",
        check: |context| Vec::from_iter(two_fractions(context)),
    },
    Rule {
        id: "ignored-by-allocator",
        severity: Severity::Warning,
        meaning: "The selected allocator ignores the setting. `platform` and `address` have no \
                  pool, so neither a fraction nor preallocation applies; `vmm` never \
                  preallocates; `TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC` only applies to \
                  `cuda_async` without preallocation.",
        fix: "Remove either the setting or the allocator.",
        check: ignored_by_allocator,
    },
    Rule {
        id: "unified-fraction-below-one",
        severity: Severity::Warning,
        meaning: "With `TF_FORCE_UNIFIED_MEMORY`, a fraction below 1 counts as 1, the default of 0.75 as well: \
                  the pool is all of the GPU, and only with a fraction above 1 it uses host memory, too.",
        fix: "Set the fraction to the multiple of the GPU's memory that the pool may use, as `vramfit run --spill` \
              does.",
        check: |context| Vec::from_iter(unified(context)),
    },
    Rule {
        id: "create-options-malformed",
        severity: Severity::Error,
        meaning: "`JAX_PJRT_CLIENT_CREATE_OPTIONS` has the form `name:value;name:value`, and \
                  every value is passed as a string. A fraction, boolean or number is rejected \
                  at the first use of JAX.",
        fix: "Use the corresponding variable, or `jax.config.update` with a dict.",
        check: |context| Vec::from_iter(malformed_options(context)),
    },
    Rule {
        id: "create-options-override",
        severity: Severity::Warning,
        meaning: "`JAX_PJRT_CLIENT_CREATE_OPTIONS` is merged last: its values override the \
                  corresponding variables.",
        fix: "Set each option in one place only.",
        check: overriding_options,
    },
    Rule {
        id: "pool-does-not-grow",
        severity: Severity::Warning,
        meaning: "JAX 0.12.0 and 0.12.0.1 read `memory_fraction_policy` in the forms `0.75+` and \
                  `0.75-0.85`, but their pool never grows: it has the first fraction, once and \
                  for all.",
        fix: "Set the fraction that the pool may need, as one number.",
        check: |context| Vec::from_iter(policy_without_growth(context)),
    },
    Rule {
        id: "remat-option-overrides-passes",
        severity: Severity::Warning,
        meaning: "Up to JAX 0.11.0, `JAX_COMPILER_ENABLE_REMAT_PASS=false` overwrites the list \
                  in `--xla_disable_hlo_passes`.",
        fix: "Add `rematerialization` to `--xla_disable_hlo_passes` and remove the variable.",
        check: |context| Vec::from_iter(remat(context)),
    },
];

fn two_fractions(context: &LintContext<'_>) -> Option<RawFinding> {
    if context.fraction_name() != FRACTION {
        return None;
    }
    let new = context.non_empty_var(FRACTION)?;
    let old = context.non_empty_var(OLD_FRACTION)?;
    Some(
        RawFinding::new(
            OLD_FRACTION,
            format!(
                "`{FRACTION}={new}` and `{OLD_FRACTION}={old}` are both set: JAX logs an error \
                 and falls back to the CPU"
            ),
            format!("remove `{OLD_FRACTION}`, the older name"),
        )
        .with_change(Change::unset(OLD_FRACTION)),
    )
}

fn ignored_by_allocator(context: &LintContext<'_>) -> Vec<RawFinding> {
    let Some(kind) = context.allocator() else {
        return Vec::new();
    };
    let prealloc = "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC";
    let collective = "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB";
    let mut names = Vec::new();
    let why = match kind {
        AllocatorKind::Platform | AllocatorKind::Address => {
            names.extend([FRACTION, OLD_FRACTION, PREALLOCATE, collective]);
            "allocates every buffer from the driver and has no pool"
        }
        AllocatorKind::Vmm => {
            names.push(PREALLOCATE);
            "allocates memory on demand"
        }
        AllocatorKind::CudaAsync | AllocatorKind::Bfc => "",
    };
    let mut all: Vec<RawFinding> = names
        .into_iter()
        .filter_map(|name| {
            let value = context.non_empty_var(name)?;
            // `vmm` never preallocates, so `false` is harmless.
            if name == PREALLOCATE
                && kind == AllocatorKind::Vmm
                && matches!(value, "false" | "False" | "0")
            {
                return None;
            }
            Some(
                RawFinding::new(
                    name,
                    format!(
                        "`{name}={value}` has no effect with `{ALLOCATOR}={}`, which {why}",
                        kind.name()
                    ),
                    format!("remove `{name}`, or remove `{ALLOCATOR}` to use a pool"),
                )
                .with_change(Change::unset(name)),
            )
        })
        .collect();
    if let Some(value) = context.non_empty_var(prealloc).filter(|value| *value != "0") {
        let found = match kind {
            AllocatorKind::CudaAsync if context.preallocates() => Some(
                RawFinding::new(
                    prealloc,
                    format!("`{prealloc}={value}` only takes effect without preallocation"),
                    format!("set `{PREALLOCATE}=false`, or remove `{prealloc}`"),
                )
                .with_change(Change::set(PREALLOCATE, "false")),
            ),
            AllocatorKind::CudaAsync => None,
            _ => Some(
                RawFinding::new(
                    prealloc,
                    format!("`{prealloc}={value}` only takes effect with `{ALLOCATOR}=cuda_async`"),
                    format!("set `{ALLOCATOR}=cuda_async`, or remove `{prealloc}`"),
                )
                .with_change(Change::unset(prealloc)),
            ),
        };
        all.extend(found);
    }
    all
}

fn unified(context: &LintContext<'_>) -> Option<RawFinding> {
    let pooled = context.allocator() == Some(AllocatorKind::Bfc) && context.unified();
    match context.fraction().filter(|_| pooled) {
        Some(fraction) if fraction.value.is_some_and(|part| part > 0.0 && part < 1.0) => {
            let (name, text) = (fraction.name, fraction.text);
            let finding = RawFinding::new(
                name,
                format!("`{name}={text}` counts as 1, because `{UNIFIED}` is set"),
                format!("remove `{name}`, or remove `{UNIFIED}` if {text} is intended"),
            );
            Some(finding.with_change(Change::unset(name)))
        }
        // The client's options may have one.
        None if pooled && context.non_empty_var(CREATE_OPTIONS).is_none() => Some(RawFinding::new(
            UNIFIED,
            format!(
                "`{UNIFIED}` without a fraction above 1: the pool is all of the GPU, and uses no host memory"
            ),
            format!(
                "let `vramfit run --spill -- COMMAND` set both, or set `{}` to the multiple of the GPU's memory \
                 that the pool may use",
                context.fraction_name()
            ),
        )),
        _ => None,
    }
}

const CREATE_OPTIONS: &str = "JAX_PJRT_CLIENT_CREATE_OPTIONS";

/// The fraction as a text.
const POLICY_OPTION: &str = "memory_fraction_policy";
const POLICY_SINCE: JaxVersion = (0, 12, 0);

/// Client options that are strings; all others require another type.
const TEXT_OPTIONS: [&str; 4] = ["allocator", "platform_name", "mock_gpu_topology", POLICY_OPTION];

fn malformed_options(context: &LintContext<'_>) -> Option<RawFinding> {
    let options = context.non_empty_var(CREATE_OPTIONS)?;
    let good = |item: &&str| {
        item.split_once(':')
            .is_some_and(|(name, value)| TEXT_OPTIONS.contains(&name) && !value.contains(':'))
    };
    let bad = options.split(';').find(|item| !good(item))?;
    let (message, fix) = match bad.split_once(':') {
        Some((name, value)) if !value.contains(':') => (
            format!(
                "the option `{name}` is not a string, and the variable can only pass strings: \
                     JAX rejects it"
            ),
            match name {
                "memory_fraction" => format!("set `{}={value}` instead", context.fraction_name()),
                "preallocate" => format!("set `{PREALLOCATE}={}` instead", value.to_lowercase()),
                _ => "pass the options to `jax.config.update` as a dict".to_owned(),
            },
        ),
        _ => (
            format!("`{bad}` does not have the form `name:value`: JAX rejects it"),
            "use the form `name:value;name:value`".to_owned(),
        ),
    };
    let rest: Vec<_> = options.split(';').filter(good).collect();
    let change = match rest.is_empty() {
        true => Change::unset(CREATE_OPTIONS),
        false => Change::set(CREATE_OPTIONS, rest.join(";")),
    };
    Some(RawFinding::new(CREATE_OPTIONS, message, fix).with_change(change))
}

fn overriding_options(context: &LintContext<'_>) -> Vec<RawFinding> {
    let options = context.non_empty_var(CREATE_OPTIONS).unwrap_or_default();
    let named = options.split(';').filter_map(|item| item.split_once(':'));
    let mut all = Vec::new();
    for (option, value) in named {
        let variable = match option {
            "allocator" => ALLOCATOR,
            "preallocate" => PREALLOCATE,
            "memory_fraction" | "memory_fraction_policy" => context.fraction_name(),
            _ => continue,
        };
        let Some(text) = context.non_empty_var(variable) else {
            continue;
        };
        if text != value {
            all.push(RawFinding::new(
                variable,
                format!(
                    "`{variable}={text}` is overridden by `{option}:{value}` in `{CREATE_OPTIONS}`"
                ),
                "remove one of the two",
            ));
        }
    }
    all
}

fn policy_without_growth(context: &LintContext<'_>) -> Option<RawFinding> {
    let options = context.non_empty_var(CREATE_OPTIONS).unwrap_or_default();
    let mut named = options.split(';').filter_map(|item| item.split_once(':'));
    let text = named.find_map(|(name, text)| (name == POLICY_OPTION).then_some(text));
    let version = JaxVersion::from(context.version());
    let ignores_cap = (POLICY_SINCE..POOL_GROWS_SINCE).contains(&version);
    let text = text.filter(|_| ignores_cap)?;
    let policy = FractionPolicy::parse(text).ok()?;
    let cap = policy.cap?;
    let start = policy.start;
    let changed: Vec<String> = options
        .split(';')
        .map(|item| match item.split_once(':') {
            Some((POLICY_OPTION, _)) => format!("{POLICY_OPTION}:{start}"),
            _ => item.to_owned(),
        })
        .collect();
    Some(
        RawFinding::new(
            CREATE_OPTIONS,
            format!(
                "`{POLICY_OPTION}:{text}` lets the pool grow to {:.0} % of the GPU, but in this \
                 release it stays at {:.0} %",
                cap * 100.0,
                start * 100.0,
            ),
            format!(
                "`{POLICY_OPTION}:{start}` is the same; for a larger pool, write one larger \
                 fraction, at most `{POLICY_OPTION}:{cap}`"
            ),
        )
        .with_change(Change::set(CREATE_OPTIONS, changed.join(";"))),
    )
}

fn remat(context: &LintContext<'_>) -> Option<RawFinding> {
    let variable = "JAX_COMPILER_ENABLE_REMAT_PASS";
    let passes = "xla_disable_hlo_passes";
    let last_affected = Version::new(0, 11, 0);
    let off = context.non_empty_var(variable).is_some_and(|text| {
        let text = text.to_lowercase();
        matches!(text.as_str(), "n" | "no" | "f" | "false" | "off" | "0")
    });
    let text = context.non_empty_var(XLA_FLAGS).unwrap_or_default();
    let flags = XlaFlags::parse(text);
    let list = flags.value(passes).filter(|list| !list.is_empty());
    let list = list.filter(|_| off && context.version() <= last_affected)?;
    let words = flags::words(text).into_iter().map(|word| match word.split_once('=') {
        Some((name, list)) if name.trim_start_matches('-') == passes => {
            format!("--{passes}={list},rematerialization")
        }
        _ => word,
    });
    Some(
        RawFinding::new(
            variable,
            format!("`{variable}` overwrites `--{passes}={list}`, so those passes run again"),
            format!("set `--{passes}={list},rematerialization` and remove `{variable}`"),
        )
        .with_change(Change::set(XLA_FLAGS, flags::join(words)))
        .with_change(Change::unset(variable)),
    )
}
