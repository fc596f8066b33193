//! Which devices does JAX have, and did it go on with the CPU without a word?

use super::super::check::{Check, Status};
use super::super::facts::{Driver, Facts};
use super::super::trial::{Backend, Failure, Outcome};
use super::{settings, unfinished};
use crate::settings::{PLATFORM_NAME, PLATFORMS, allows_gpu};

pub(super) const ID: &str = "backend";

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    vec![match facts.trial.backend() {
        Outcome::Done(told) => judge(facts, &told),
        Outcome::Failed(failure) => failed(facts, &failure),
        Outcome::NotReached => match facts.trial.import() {
            Outcome::Failed(failure) => Check::fail(
                ID,
                format!("`import jax` fails: {}", failure.error),
                "see the check `jax`, or install JAX anew: `pip install --force-reinstall jax`",
            )
            .because_of(tail(&facts.trial.log)),
            import => unfinished(ID, facts, import).because_of(tail(&facts.trial.log)),
        },
        stopped => unfinished(ID, facts, stopped).because_of(tail(&facts.trial.log)),
    }]
}

fn judge(facts: &Facts, told: &Backend) -> Check {
    let version = facts
        .inventory
        .version("jax")
        .unwrap_or("of unknown version");
    match told.platform.as_str() {
        "gpu" | "cuda" => {
            let kinds: Vec<&str> = told.devices.iter().map(|one| one.kind.as_str()).collect();
            let kind = kinds.first().copied().unwrap_or("of unknown kind");
            let others = kinds.iter().any(|other| *other != kind);
            let of = if others { "several kinds" } else { kind };
            let name = match (kinds.len(), told.is_virtual) {
                (1, true) => format!("a virtual GPU ({of})"),
                (1, false) => format!("a GPU ({of})"),
                (count, true) => format!("{count} virtual GPUs ({of})"),
                (count, false) => format!("{count} GPUs ({of})"),
            };
            let devices = told
                .devices
                .iter()
                .map(|device| format!("{}: {}", device.name, device.kind));
            Check::pass(ID, format!("JAX {version} has {name}"))
                .because_of(devices)
                .because(format!(
                    "{}, first use in {:.1} s",
                    told.platform_version.replace('\n', " "),
                    told.seconds
                ))
        }
        "cpu" => on_the_cpu(facts, told),
        "METAL" | "metal" => Check::warn(
            ID,
            "JAX runs on Apple's GPU through Metal, which is experimental and unknown to vramfit",
            "export JAX_PLATFORMS=cpu, or use a machine with an NVIDIA GPU",
        ),
        other => Check::skip(
            ID,
            format!("JAX runs on `{other}`; vramfit knows NVIDIA's GPUs only"),
        ),
    }
}

/// The CPU is right where there is no GPU; else something went wrong without a word.
fn on_the_cpu(facts: &Facts, told: &Backend) -> Check {
    let logged = told.logged.iter().cloned();
    let held = |name: &str| facts.environment.get(name).map(String::as_str);
    let platforms = held(PLATFORMS);
    let (name, chosen) = match (platforms.unwrap_or(""), held(PLATFORM_NAME).unwrap_or("")) {
        ("", "") => (PLATFORMS, None),
        ("", old) => (PLATFORM_NAME, Some(old)),
        (list, _) => (PLATFORMS, Some(list)),
    };
    if facts.gpus().is_empty() {
        let demands = platforms.filter(|list| allows_gpu(list));
        if let (Some(list), Driver::NotInstalled { .. }) = (demands, &facts.driver) {
            // Without device files JAX passes over a platform that is named beside others.
            return Check::warn(
                ID,
                format!("`JAX_PLATFORMS={list}` names a GPU; there is none, and JAX uses the CPU"),
                "unset JAX_PLATFORMS where the CPU is meant; to make it an error: `vramfit run \
                 --require-gpu -- COMMAND`",
            );
        }
        let driver_is_broken = matches!(facts.driver, Driver::Broken { .. } | Driver::Silent(_));
        return match driver_is_broken {
            true => Check::fail(
                ID,
                "JAX goes on with the CPU, without an error: the driver does not work",
                "see the check `driver`",
            )
            .because_of(logged),
            false => Check::pass(ID, "JAX computes on the CPU; there is no GPU here"),
        };
    }
    if let Some(list) = chosen.filter(|list| !allows_gpu(list)) {
        return Check::warn(
            ID,
            format!("`{name}={list}` keeps JAX off the GPU that is here"),
            format!("unset {name}"),
        );
    }
    let hidden = facts
        .environment
        .get("CUDA_VISIBLE_DEVICES")
        .map(String::as_str);
    if let Some(list @ ("" | "-1" | "none" | "void" | "NoDevFiles")) = hidden {
        return Check::warn(
            ID,
            format!("`CUDA_VISIBLE_DEVICES={list}` hides the GPU, so JAX runs on the CPU"),
            "unset CUDA_VISIBLE_DEVICES",
        );
    }
    let plugins = facts.inventory.cuda_plugins();
    if plugins.is_empty() {
        return Check::fail(
            ID,
            "there is a GPU, and JAX goes on with the CPU: it has no plugin for CUDA",
            format!(
                "`{} -m pip install \"jax[cuda13]\"`",
                facts.inventory.executable
            ),
        );
    }
    let why = reason(&told.logged);
    let sentence = match &why {
        Some(why) => format!("there is a GPU, and JAX goes on with the CPU: {why}"),
        None => "there is a GPU, and JAX goes on with the CPU without a word".to_owned(),
    };
    Check::fail(ID, sentence, cure(facts, why.as_deref().unwrap_or(""))).because_of(logged)
}

fn failed(facts: &Facts, failure: &Failure) -> Check {
    // JAX may assert without a text after it has logged the reason.
    let logged = reason(&failure.logged);
    let why = match (&logged, failure.error.trim_end_matches(": ")) {
        (Some(why), "AssertionError" | "") => why.clone(),
        (_, error) => error.to_owned(),
    };
    if facts.gpus().is_empty() && facts.virtual_gpu.is_none() {
        let demands = [PLATFORMS, PLATFORM_NAME].into_iter().filter_map(|name| {
            let list = facts.environment.get(name)?;
            allows_gpu(list).then(|| (name, format!("`{name}={list}`")))
        });
        let (names, said): (Vec<_>, Vec<_>) = demands.unzip();
        if !names.is_empty() {
            let demand = if names.len() == 1 {
                "demands"
            } else {
                "demand"
            };
            return Check::fail(
                ID,
                format!(
                    "{} {demand} a GPU, and there is none here: {why}",
                    said.join(" and ")
                ),
                format!("unset {}, to run on the CPU", names.join(" and ")),
            )
            .because_of(failure.logged.iter());
        }
    }
    Check::fail(ID, format!("JAX has no device: {why}"), cure(facts, &why))
        .because_of(failure.logged.iter())
}

/// Returns the reason in what JAX logged: the last exception, else the last line. Behind an exception
/// JAX may log a guess that leads astray, such as that no CUDA is installed.
fn reason(logged: &[String]) -> Option<String> {
    let exception = logged
        .iter()
        .rev()
        .find(|entry| entry.trim().contains('\n'));
    let line = exception.or(logged.last())?.trim().lines().next_back()?;
    Some(line.trim().to_owned())
}

/// Returns what to do about the reason that JAX logged.
fn cure(facts: &Facts, why: &str) -> String {
    let mend = settings::check(facts)
        .into_iter()
        .find(|check| check.status == Status::Fail)
        .and_then(|check| check.fix);
    if let Some(fix) = mend {
        return fix;
    }
    let cuda = facts
        .inventory
        .cuda_plugins()
        .first()
        .copied()
        .unwrap_or(13);
    let install = format!(
        "`{} -m pip install --upgrade \"jax[cuda{cuda}]\"`",
        facts.inventory.executable
    );
    let tells = |words: &[&str]| words.iter().any(|word| why.contains(word));
    if tells(&["Unable to load", "Outdated", "CUDA components", "cuDNN"]) {
        install
    } else if tells(&["NO_DEVICE", "no CUDA-capable device"]) {
        "`nvidia-smi -L` lists the GPUs; `CUDA_VISIBLE_DEVICES` may hide them".to_owned()
    } else if tells(&["OUT_OF_MEMORY", "out of memory", "RESOURCE_EXHAUSTED"]) {
        "end what holds the GPU (see the check `card`), or use another".to_owned()
    } else if tells(&["could not convert", "MEM_FRACTION", "PREALLOCATE"]) {
        "see the check `settings`, or start with `vramfit run -- COMMAND`, which puts them right"
            .to_owned()
    } else {
        "make `nvidia-smi` work first; the lines above are JAX's own log".to_owned()
    }
}

/// The end of a log, where the reason is. Python's own report of a crash follows it: of that only the
/// first line counts.
fn tail(log: &[String]) -> impl Iterator<Item = String> + '_ {
    const LINES: usize = 8;
    let report = log
        .iter()
        .position(|line| line.starts_with("Fatal Python error"));
    let end = report.map_or(log.len(), |first| first + 1);
    log[end.saturating_sub(LINES)..end].iter().cloned()
}
