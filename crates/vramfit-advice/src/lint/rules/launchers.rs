//! Settings that never reach the program.

use super::super::context::LintContext;
use super::super::finding::{Change, RawFinding};
use super::super::{Rule, Severity};
use crate::settings::is_jax_related;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "container-prefix",
        severity: Severity::Warning,
        meaning: "The prefixes `SINGULARITYENV_` and `APPTAINERENV_` set a variable inside \
                  containers. A program that runs outside a container does not see it.",
        fix: "Also set the name without the prefix, or run the program in the container.",
        check: prefix,
    },
    Rule {
        id: "srun-drops-settings",
        severity: Severity::Warning,
        meaning: "`SLURM_EXPORT_ENV` selects the variables that `srun` passes on. In a job \
                  submitted with `--export=NONE` it is `NONE`, so job steps get none of the \
                  settings.",
        fix: "Set `SLURM_EXPORT_ENV=ALL` in the job, or use `srun --export=ALL`.",
        check: |context| Vec::from_iter(srun(context)),
    },
];

const PREFIXES: [&str; 2] = ["APPTAINERENV_", "SINGULARITYENV_"];

fn prefix(context: &LintContext<'_>) -> Vec<RawFinding> {
    let environment = &context.input.environment;
    let mut all = Vec::new();
    for (name, value) in environment {
        let bare = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
        let Some(bare) = bare.filter(|bare| is_jax_related(bare)) else {
            continue;
        };
        let here = context.var(bare);
        if here == Some(value) {
            continue;
        }
        let found = match here {
            None => RawFinding::new(
                name,
                format!("`{name}` only takes effect in a container; `{bare}` is not set"),
                format!("also set `{bare}={value}`"),
            )
            .with_change(Change::set(bare, value)),
            Some(here) => RawFinding::new(
                name,
                format!("`{bare}` is {value} in a container and {here} without one"),
                "set both to the same value unless the difference is intended",
            ),
        };
        all.push(found);
    }
    all
}

fn srun(context: &LintContext<'_>) -> Option<RawFinding> {
    let name = "SLURM_EXPORT_ENV";
    let list = context.non_empty_var(name)?;
    let passed_on: Vec<_> =
        list.split(',').map(|item| item.split('=').next().unwrap_or(item).trim()).collect();
    if passed_on.iter().any(|item| item.eq_ignore_ascii_case("ALL")) {
        return None;
    }
    let dropped: Vec<&str> = context
        .input
        .environment
        .keys()
        .map(String::as_str)
        // SLURM sets the list of GPUs for each step.
        .filter(|variable| is_jax_related(variable) && !variable.starts_with("CUDA_"))
        .filter(|variable| !passed_on.contains(variable))
        .collect();
    let [first, rest @ ..] = &dropped[..] else {
        return None;
    };
    let others = match rest.len() {
        0 => String::new(),
        1 => format!(" and `{}`", rest[0]),
        count => format!(" and {count} more"),
    };
    Some(
        RawFinding::new(
            name,
            format!("with `{name}={list}`, steps started by `srun` do not get `{first}`{others}"),
            format!("set `{name}=ALL`, or use `srun --export=ALL`"),
        )
        .with_change(Change::set(name, "ALL")),
    )
}
