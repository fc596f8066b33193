//! Does the container let the GPU through?

use super::super::check::Check;
use super::super::system_info::{Driver, SystemInfo};

const ID: &str = "container";

pub(super) fn check(info: &SystemInfo) -> Check {
    let around = &info.host_environment;
    let Some(container) = &around.container else {
        return match around.wsl {
            true => Check::pass(ID, "not in a container; Windows Subsystem for Linux")
                .evidence_line("uses the Windows driver; pinned host memory is limited"),
            false => Check::pass(ID, "not in a container"),
        };
    };
    let files = match around.device_files.is_empty() {
        true => "no GPU device files in /dev".to_owned(),
        false => format!("in /dev: {}", around.device_files.join(", ")),
    };
    let answers = matches!(info.driver, Driver::Available(_));
    let controlled = around.device_files.iter().any(|name| name == "nvidiactl" || name == "dxg");
    let hidden = around.nvidia_visible_devices.as_deref();
    let check = match hidden {
        _ if info.virtual_gpu.is_some() => {
            Check::pass(ID, format!("in a container ({container}); the GPU is virtual"))
        }
        Some(list @ ("none" | "void")) if answers || controlled => Check::warn(
            ID,
            format!(
                "`NVIDIA_VISIBLE_DEVICES={list}` requests no GPU for this container ({container})"
            ),
            "start the container with `--gpus all`, or with `NVIDIA_VISIBLE_DEVICES=all`",
        ),
        _ if answers && !controlled => Check::warn(
            ID,
            format!(
                "the driver works in this container ({container}), but its device files are \
                     missing"
            ),
            "start the container with `--gpus all`, which adds `/dev/nvidiactl`; JAX requires \
             these files",
        ),
        _ if !answers && !controlled => {
            Check::skip(ID, format!("in a container ({container}) without GPU access"))
        }
        _ => Check::pass(ID, format!("in a container ({container}) with GPU access")),
    };
    check.evidence_line(files)
}
