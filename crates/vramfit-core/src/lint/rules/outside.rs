//! Settings that are right and never reach the program.

use super::super::finding::{Change, Found};
use super::super::names;
use super::super::scene::Scene;
use super::super::{Rule, Severity};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "container-prefix",
        severity: Severity::Warning,
        meaning: "With the prefix `SINGULARITYENV_` or `APPTAINERENV_` a variable is set inside a \
                  container that is started from here. A program that is started without a container \
                  does not see it.",
        cure: "Set the name without the prefix, too, or start the program in the container.",
        check: prefix,
    },
    Rule {
        id: "srun-drops-settings",
        severity: Severity::Warning,
        meaning: "`SLURM_EXPORT_ENV` decides which variables `srun` hands on. A job submitted with \
                  `--export=NONE` has it set to `NONE`: its steps get none of the settings.",
        cure: "Set `SLURM_EXPORT_ENV=ALL` in the job, or call `srun --export=ALL`.",
        check: srun,
    },
];

const PREFIXES: [&str; 2] = ["APPTAINERENV_", "SINGULARITYENV_"];

fn prefix(scene: &Scene<'_>) -> Vec<Found> {
    let environment = &scene.surroundings.environment;
    let mut all = Vec::new();
    for (name, value) in environment {
        let bare = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
        let Some(bare) = bare.filter(|bare| names::is_ours(bare)) else {
            continue;
        };
        let here = scene.raw(bare);
        if here == Some(value) {
            continue;
        }
        let found = match here {
            None => Found::new(
                name,
                format!("`{name}` counts only in a container; here `{bare}` is not set"),
                format!("write `{bare}={value}` as well"),
            )
            .change(Change::set(bare, value)),
            Some(here) => Found::new(
                name,
                format!("`{bare}` is {value} in a container and {here} without one"),
                "write the same value twice, if no difference is meant",
            ),
        };
        all.push(found);
    }
    all
}

fn srun(scene: &Scene<'_>) -> Vec<Found> {
    let name = "SLURM_EXPORT_ENV";
    let Some(list) = scene.held(name) else {
        return Vec::new();
    };
    let handed: Vec<_> = list
        .split(',')
        .map(|item| item.split('=').next().unwrap_or(item).trim())
        .collect();
    if handed.iter().any(|item| item.eq_ignore_ascii_case("ALL")) {
        return Vec::new();
    }
    let dropped: Vec<&str> = scene
        .surroundings
        .environment
        .keys()
        .map(String::as_str)
        // SLURM itself sets the list of GPUs for each step.
        .filter(|variable| names::is_ours(variable) && !variable.starts_with("CUDA_"))
        .filter(|variable| !handed.contains(variable))
        .collect();
    let [first, rest @ ..] = &dropped[..] else {
        return Vec::new();
    };
    let others = match rest.len() {
        0 => String::new(),
        1 => format!(" and `{}`", rest[0]),
        count => format!(" and {count} more"),
    };
    vec![
        Found::new(
            name,
            format!("`{name}={list}` keeps `{first}`{others} from every step that `srun` starts"),
            format!("write `{name}=ALL`, or call `srun --export=ALL`"),
        )
        .change(Change::set(name, "ALL")),
    ]
}
