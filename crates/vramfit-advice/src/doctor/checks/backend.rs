//! Which devices does JAX have, and did it go on with the CPU without a word?

use super::super::check::{Check, Status};
use super::super::probe::{BackendResult, StepFailure, StepOutcome};
use super::super::system_info::{Driver, SystemInfo};
use super::{incomplete, settings};
use crate::settings::{PLATFORM_NAME, PLATFORMS, allows_gpu};

pub(super) const ID: &str = "backend";

pub(super) fn check(info: &SystemInfo) -> Check {
    match info.probe.backend() {
        StepOutcome::Done(result) => evaluate(info, &result),
        StepOutcome::Failed(failure) => failed(info, &failure),
        StepOutcome::NotReached => match info.probe.import() {
            StepOutcome::Failed(failure) => Check::fail(
                ID,
                format!("`import jax` fails: {}", failure.error),
                "see the check `jax`, or reinstall JAX: `pip install --force-reinstall jax`",
            )
            .evidence_lines(tail(&info.probe.log)),
            import => incomplete(ID, info, import).evidence_lines(tail(&info.probe.log)),
        },
        stopped => incomplete(ID, info, stopped).evidence_lines(tail(&info.probe.log)),
    }
}

fn evaluate(info: &SystemInfo, result: &BackendResult) -> Check {
    let version = info.inventory.version("jax").unwrap_or("of unknown version");
    match result.platform.as_str() {
        "gpu" | "cuda" => {
            let kinds: Vec<&str> = result.devices.iter().map(|one| one.kind.as_str()).collect();
            let kind = kinds.first().copied().unwrap_or("of unknown kind");
            let others = kinds.iter().any(|other| *other != kind);
            let of = if others { "several kinds" } else { kind };
            let name = match (kinds.len(), result.is_virtual) {
                (1, true) => format!("a virtual GPU ({of})"),
                (1, false) => format!("a GPU ({of})"),
                (count, true) => format!("{count} virtual GPUs ({of})"),
                (count, false) => format!("{count} GPUs ({of})"),
            };
            let devices =
                result.devices.iter().map(|device| format!("{}: {}", device.name, device.kind));
            Check::pass(ID, format!("JAX {version} has {name}"))
                .evidence_lines(devices)
                .evidence_line(format!(
                    "{}, first use in {:.1} s",
                    result.platform_version.replace('\n', " "),
                    result.seconds
                ))
        }
        "cpu" => check_cpu_backend(info, result),
        "METAL" | "metal" => Check::warn(
            ID,
            "JAX uses Apple's GPU through Metal, which is experimental and not supported by \
             vramfit",
            "set `JAX_PLATFORMS=cpu`, or use a machine with an NVIDIA GPU",
        ),
        other => Check::skip(ID, format!("JAX uses `{other}`; vramfit only supports NVIDIA GPUs")),
    }
}

/// The CPU is right where there is no GPU; else something went wrong without a word.
fn check_cpu_backend(info: &SystemInfo, result: &BackendResult) -> Check {
    let logged = result.logged.iter().cloned();
    let held = |name: &str| info.environment.get(name).map(String::as_str);
    let platforms = held(PLATFORMS);
    let (name, chosen) = match (platforms.unwrap_or(""), held(PLATFORM_NAME).unwrap_or("")) {
        ("", "") => (PLATFORMS, None),
        ("", old) => (PLATFORM_NAME, Some(old)),
        (list, _) => (PLATFORMS, Some(list)),
    };
    if info.gpus().is_empty() {
        let demands = platforms.filter(|list| allows_gpu(list));
        if let (Some(list), Driver::NotInstalled { .. }) = (demands, &info.driver) {
            // Without device files JAX passes over a platform that is named beside others.
            return Check::warn(
                ID,
                format!(
                    "`JAX_PLATFORMS={list}` includes a GPU, but there is none, and JAX uses \
                         the CPU"
                ),
                "unset JAX_PLATFORMS to use the CPU; to make this an error: `vramfit run \
                 --require-gpu -- COMMAND`",
            );
        }
        let driver_is_broken = matches!(info.driver, Driver::Broken { .. } | Driver::TimedOut(_));
        return match driver_is_broken {
            true => Check::fail(
                ID,
                "JAX silently falls back to the CPU: the driver does not work",
                "see the check `driver`",
            )
            .evidence_lines(logged),
            false => Check::pass(ID, "JAX uses the CPU; there is no GPU"),
        };
    }
    if let Some(list) = chosen.filter(|list| !allows_gpu(list)) {
        return Check::warn(
            ID,
            format!("`{name}={list}` prevents JAX from using the GPU"),
            format!("unset {name}"),
        );
    }
    let hidden = info.environment.get("CUDA_VISIBLE_DEVICES").map(String::as_str);
    if let Some(list @ ("" | "-1" | "none" | "void" | "NoDevFiles")) = hidden {
        return Check::warn(
            ID,
            format!("`CUDA_VISIBLE_DEVICES={list}` hides the GPU, so JAX uses the CPU"),
            "unset CUDA_VISIBLE_DEVICES",
        );
    }
    let plugins = info.inventory.cuda_plugins();
    if plugins.is_empty() {
        return Check::fail(
            ID,
            "there is a GPU, but JAX uses the CPU: it has no CUDA plugin",
            format!("`{} -m pip install \"jax[cuda13]\"`", info.inventory.executable),
        );
    }
    let why = reason(&result.logged);
    let message = match &why {
        Some(why) => format!("there is a GPU, but JAX falls back to the CPU: {why}"),
        None => "there is a GPU, but JAX silently falls back to the CPU".to_owned(),
    };
    Check::fail(ID, message, fix_for(info, why.as_deref().unwrap_or(""))).evidence_lines(logged)
}

fn failed(info: &SystemInfo, failure: &StepFailure) -> Check {
    // JAX may assert without a text after it has logged the reason.
    let logged = reason(&failure.logged);
    let why = match (&logged, failure.error.trim_end_matches(": ")) {
        (Some(why), "AssertionError" | "") => why.clone(),
        (_, error) => error.to_owned(),
    };
    if info.gpus().is_empty() && info.virtual_gpu.is_none() {
        let demands = [PLATFORMS, PLATFORM_NAME].into_iter().filter_map(|name| {
            let list = info.environment.get(name)?;
            allows_gpu(list).then(|| (name, format!("`{name}={list}`")))
        });
        let (names, said): (Vec<_>, Vec<_>) = demands.unzip();
        if !names.is_empty() {
            let demand = if names.len() == 1 { "demands" } else { "demand" };
            return Check::fail(
                ID,
                format!("{} {demand} a GPU, but there is none: {why}", said.join(" and ")),
                format!("unset {} to use the CPU", names.join(" and ")),
            )
            .evidence_lines(failure.logged.iter());
        }
    }
    Check::fail(ID, format!("JAX has no device: {why}"), fix_for(info, &why))
        .evidence_lines(failure.logged.iter())
}

/// Returns the reason in what JAX logged: the last exception, else the last line. Behind an exception
/// JAX may log a guess that leads astray, such as that no CUDA is installed.
fn reason(logged: &[String]) -> Option<String> {
    let exception = logged.iter().rev().find(|entry| entry.trim().contains('\n'));
    let line = exception.or(logged.last())?.trim().lines().next_back()?;
    Some(line.trim().to_owned())
}

/// Returns what to do about the reason that JAX logged.
fn fix_for(info: &SystemInfo, why: &str) -> String {
    let mend = settings::check(info)
        .into_iter()
        .find(|check| check.status == Status::Fail)
        .and_then(|check| check.fix);
    if let Some(fix) = mend {
        return fix;
    }
    let cuda = info.inventory.cuda_plugins().first().copied().unwrap_or(13);
    let install =
        format!("`{} -m pip install --upgrade \"jax[cuda{cuda}]\"`", info.inventory.executable);
    let tells = |words: &[&str]| words.iter().any(|word| why.contains(word));
    if tells(&["Unable to load", "Outdated", "CUDA components", "cuDNN"]) {
        install
    } else if tells(&["NO_DEVICE", "no CUDA-capable device"]) {
        "`nvidia-smi -L` lists the GPUs; `CUDA_VISIBLE_DEVICES` may hide them".to_owned()
    } else if tells(&["OUT_OF_MEMORY", "out of memory", "RESOURCE_EXHAUSTED"]) {
        "stop the processes that use the GPU (see the check `gpu`), or use another GPU".to_owned()
    } else if tells(&["could not convert", "MEM_FRACTION", "PREALLOCATE"]) {
        "see the check `settings`, or start the program with `vramfit run -- COMMAND`, which \
         fixes them"
            .to_owned()
    } else {
        "make `nvidia-smi` work first; the lines above are from JAX's log".to_owned()
    }
}

/// The end of a log, where the reason is. Python's own report of a crash follows it: of that only the
/// first line counts.
fn tail(log: &[String]) -> impl Iterator<Item = String> + '_ {
    const LINES: usize = 8;
    let report = log.iter().position(|line| line.starts_with("Fatal Python error"));
    let end = report.map_or(log.len(), |first| first + 1);
    log[end.saturating_sub(LINES)..end].iter().cloned()
}
