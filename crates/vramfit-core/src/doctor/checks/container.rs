//! Does the container let the GPU through?

use super::super::check::Check;
use super::super::facts::{Driver, Facts};

const ID: &str = "container";

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    let around = &facts.surroundings;
    let Some(container) = &around.container else {
        return vec![match around.wsl {
            true => Check::pass(ID, "no container; Windows Subsystem for Linux")
                .because("the driver is that of Windows, and pinned host memory is scarce"),
            false => Check::pass(ID, "not in a container"),
        }];
    };
    let files = match around.device_files.is_empty() {
        true => "no device files of a GPU in /dev".to_owned(),
        false => format!("in /dev: {}", around.device_files.join(", ")),
    };
    let answers = matches!(facts.driver, Driver::Machine(_));
    let controlled = around
        .device_files
        .iter()
        .any(|name| name == "nvidiactl" || name == "dxg");
    let hidden = around.nvidia_visible_devices.as_deref();
    let check = match hidden {
        _ if facts.virtual_gpu.is_some() => Check::pass(
            ID,
            format!("in a container ({container}); the GPU is virtual"),
        ),
        Some(list @ ("none" | "void")) if answers || controlled => Check::warn(
            ID,
            format!(
                "`NVIDIA_VISIBLE_DEVICES={list}` asks for no GPU in this container ({container})"
            ),
            "start the container with `--gpus all`, or `NVIDIA_VISIBLE_DEVICES=all`",
        ),
        _ if answers && !controlled => Check::warn(
            ID,
            format!("the driver answers in this container ({container}) without its device files"),
            "start the container with `--gpus all`, which brings `/dev/nvidiactl` along; JAX looks \
             for these files",
        ),
        _ if !answers && !controlled => Check::skip(
            ID,
            format!("in a container ({container}) that was given no GPU"),
        ),
        _ => Check::pass(
            ID,
            format!("in a container ({container}), and the GPU is let through"),
        ),
    };
    vec![check.because(files)]
}
