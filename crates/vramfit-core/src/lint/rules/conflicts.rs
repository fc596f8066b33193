//! Settings that are right by themselves and wrong together.

use super::super::finding::{Change, Found};
use super::super::scene::{
    ALLOCATOR, FRACTION, OLD_FRACTION, PREALLOCATE, Scene, UNIFIED, XLA_FLAGS,
};
use super::super::{Rule, Severity};
use super::flags;
use crate::allocator::Kind;
use crate::settings::{Version, XlaFlags};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "two-fractions",
        severity: Severity::Error,
        meaning: "From JAX 0.4.33 on, both names of the fraction together are refused: JAX logs an \
                  error and goes on with the CPU only.",
        cure: "Keep `XLA_CLIENT_MEM_FRACTION`.",
        check: two_fractions,
    },
    Rule {
        id: "ignored-by-allocator",
        severity: Severity::Warning,
        meaning: "The chosen allocator does not look at the setting. `platform` and `address` have no \
                  pool, so neither a fraction nor preallocation means anything to them; `vmm` never \
                  preallocates; `TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC` counts only with \
                  `cuda_async` and without preallocation.",
        cure: "Remove either the setting or the allocator.",
        check: ignored,
    },
    Rule {
        id: "unified-fraction-below-one",
        severity: Severity::Warning,
        meaning: "With `TF_FORCE_UNIFIED_MEMORY` a fraction below 1 counts as 1.",
        cure: "Remove the fraction, or write how many times the GPU the pool may be.",
        check: unified,
    },
    Rule {
        id: "create-options-malformed",
        severity: Severity::Error,
        meaning: "`JAX_PJRT_CLIENT_CREATE_OPTIONS` is `name:value;name:value`, and every value stays a \
                  text. A fraction, a switch or a number in it is refused at the first use of JAX.",
        cure: "Use the variable of the same purpose, or `jax.config.update` with a dict.",
        check: malformed_options,
    },
    Rule {
        id: "create-options-override",
        severity: Severity::Warning,
        meaning: "`JAX_PJRT_CLIENT_CREATE_OPTIONS` is merged last: what it names wins over the \
                  variable.",
        cure: "Say it in one place.",
        check: overriding_options,
    },
    Rule {
        id: "remat-switch-drops-passes",
        severity: Severity::Warning,
        meaning: "Up to JAX 0.11.0, `JAX_COMPILER_ENABLE_REMAT_PASS=false` overwrites the passes that \
                  `--xla_disable_hlo_passes` names.",
        cure: "Add `rematerialization` to `--xla_disable_hlo_passes` and remove the variable.",
        check: remat,
    },
];

fn two_fractions(scene: &Scene<'_>) -> Vec<Found> {
    if scene.fraction_name() != FRACTION {
        return Vec::new();
    }
    let (Some(new), Some(old)) = (scene.held(FRACTION), scene.held(OLD_FRACTION)) else {
        return Vec::new();
    };
    vec![
        Found::new(
            OLD_FRACTION,
            format!(
                "`{FRACTION}={new}` and `{OLD_FRACTION}={old}` are both set: JAX logs an error and \
                 goes on with the CPU only"
            ),
            format!("remove `{OLD_FRACTION}`, the older name"),
        )
        .change(Change::unset(OLD_FRACTION)),
    ]
}

fn ignored(scene: &Scene<'_>) -> Vec<Found> {
    let Some(kind) = scene.allocator() else {
        return Vec::new();
    };
    let prealloc = "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC";
    let collective = "XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB";
    let mut names = Vec::new();
    let why = match kind {
        Kind::Platform | Kind::Address => {
            names.extend([FRACTION, OLD_FRACTION, PREALLOCATE, collective]);
            "asks the driver for every buffer and has no pool"
        }
        Kind::Vmm => {
            names.push(PREALLOCATE);
            "takes memory as it is needed"
        }
        Kind::CudaAsync | Kind::Bfc => "",
    };
    let mut all: Vec<Found> = names
        .into_iter()
        .filter_map(|name| {
            let value = scene.held(name)?;
            // Off is what these allocators do anyway; but someone who writes it believes in a pool.
            if name == PREALLOCATE && kind == Kind::Vmm && matches!(value, "false" | "False" | "0")
            {
                return None;
            }
            Some(
                Found::new(
                    name,
                    format!(
                        "`{name}={value}` means nothing beside `{ALLOCATOR}={}`, which {why}",
                        kind.name()
                    ),
                    format!("remove `{name}`, or remove `{ALLOCATOR}` if a pool is wanted"),
                )
                .change(Change::unset(name)),
            )
        })
        .collect();
    if let Some(value) = scene.held(prealloc).filter(|value| *value != "0") {
        let found = match kind {
            Kind::CudaAsync if scene.preallocates() => Some(
                Found::new(
                    prealloc,
                    format!("`{prealloc}={value}` counts only where preallocation is off"),
                    format!("write `{PREALLOCATE}=false`, or remove `{prealloc}`"),
                )
                .change(Change::set(PREALLOCATE, "false")),
            ),
            Kind::CudaAsync => None,
            _ => Some(
                Found::new(
                    prealloc,
                    format!("`{prealloc}={value}` counts only with `{ALLOCATOR}=cuda_async`"),
                    format!("write `{ALLOCATOR}=cuda_async`, or remove `{prealloc}`"),
                )
                .change(Change::unset(prealloc)),
            ),
        };
        all.extend(found);
    }
    all
}

fn unified(scene: &Scene<'_>) -> Vec<Found> {
    let pooled = scene.allocator() == Some(Kind::Bfc);
    let fraction = scene
        .fraction()
        .filter(|fraction| fraction.value.is_some_and(|part| part > 0.0 && part < 1.0));
    let Some(fraction) = fraction.filter(|_| pooled && scene.unified()) else {
        return Vec::new();
    };
    let (name, text) = (fraction.name, fraction.text);
    vec![
        Found::new(
            name,
            format!("`{name}={text}` counts as 1, because `{UNIFIED}` is on"),
            format!("remove `{name}`, or remove `{UNIFIED}` if {text} is meant"),
        )
        .change(Change::unset(name)),
    ]
}

const CREATE_OPTIONS: &str = "JAX_PJRT_CLIENT_CREATE_OPTIONS";

/// Options of the client that are texts; all others want another type.
const TEXT_OPTIONS: [&str; 4] = [
    "allocator",
    "platform_name",
    "mock_gpu_topology",
    // From JAX 0.12.0 on.
    "memory_fraction_policy",
];

fn malformed_options(scene: &Scene<'_>) -> Vec<Found> {
    let Some(options) = scene.held(CREATE_OPTIONS) else {
        return Vec::new();
    };
    let good = |item: &&str| {
        item.split_once(':')
            .is_some_and(|(name, value)| TEXT_OPTIONS.contains(&name) && !value.contains(':'))
    };
    let Some(bad) = options.split(';').find(|item| !good(item)) else {
        return Vec::new();
    };
    let (message, fix) = match bad.split_once(':') {
        Some((name, value)) if !value.contains(':') => (
            format!("the option `{name}` is no text, and a variable can hold only texts: refused"),
            match name {
                "memory_fraction" => format!("write `{}={value}` instead", scene.fraction_name()),
                "preallocate" => format!("write `{PREALLOCATE}={}` instead", value.to_lowercase()),
                _ => "hand the options to `jax.config.update` as a dict".to_owned(),
            },
        ),
        _ => (
            format!("`{bad}` is not of the form `name:value`: refused"),
            "write `name:value;name:value`".to_owned(),
        ),
    };
    let rest: Vec<_> = options.split(';').filter(good).collect();
    let change = match rest.is_empty() {
        true => Change::unset(CREATE_OPTIONS),
        false => Change::set(CREATE_OPTIONS, rest.join(";")),
    };
    vec![Found::new(CREATE_OPTIONS, message, fix).change(change)]
}

fn overriding_options(scene: &Scene<'_>) -> Vec<Found> {
    let options = scene.held(CREATE_OPTIONS).unwrap_or_default();
    let named = options.split(';').filter_map(|item| item.split_once(':'));
    let mut all = Vec::new();
    for (option, value) in named {
        let variable = match option {
            "allocator" => ALLOCATOR,
            "preallocate" => PREALLOCATE,
            "memory_fraction" => scene.fraction_name(),
            _ => continue,
        };
        let Some(text) = scene.held(variable) else {
            continue;
        };
        if text != value {
            all.push(Found::new(
                variable,
                format!(
                    "`{variable}={text}` loses against `{option}:{value}` in `{CREATE_OPTIONS}`"
                ),
                "remove one of the two",
            ));
        }
    }
    all
}

fn remat(scene: &Scene<'_>) -> Vec<Found> {
    let switch = "JAX_COMPILER_ENABLE_REMAT_PASS";
    let passes = "xla_disable_hlo_passes";
    let last_with_trap = Version::new(0, 11, 0);
    let off = scene.held(switch).is_some_and(|text| {
        let text = text.to_lowercase();
        matches!(text.as_str(), "n" | "no" | "f" | "false" | "off" | "0")
    });
    let text = scene.held(XLA_FLAGS).unwrap_or_default();
    let flags = XlaFlags::parse(text);
    let list = flags.value(passes).filter(|list| !list.is_empty());
    let Some(list) = list.filter(|_| off && scene.version() <= last_with_trap) else {
        return Vec::new();
    };
    let words = flags::words(text)
        .into_iter()
        .map(|word| match word.split_once('=') {
            Some((name, list)) if name.trim_start_matches('-') == passes => {
                format!("--{passes}={list},rematerialization")
            }
            _ => word,
        });
    vec![
        Found::new(
            switch,
            format!("`{switch}` off overwrites `--{passes}={list}`: those passes run again"),
            format!("write `--{passes}={list},rematerialization` and remove `{switch}`"),
        )
        .change(Change::set(XLA_FLAGS, flags::join(words)))
        .change(Change::unset(switch)),
    ]
}
