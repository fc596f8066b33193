//! Does NVIDIA's driver answer?

use super::super::check::Check;
use super::super::system_info::{Driver, SystemInfo};

const ID: &str = "driver";

pub(super) fn check(info: &SystemInfo) -> Check {
    match &info.driver {
        Driver::Available(host) => {
            let version = host.driver.as_deref().unwrap_or("of unknown version");
            let cuda = host.cuda.as_deref().map_or_else(
                || "(supported CUDA version unknown)".to_owned(),
                |cuda| format!("supports CUDA up to {cuda}"),
            );
            let gpus = match host.gpus.len() {
                1 => "1 GPU".to_owned(),
                count => format!("{count} GPUs"),
            };
            let evidence = host.unknown.iter().map(|one| format!("unknown: {one}"));
            let message = format!("NVIDIA driver {version} {cuda}; {gpus}");
            match host.gpus.is_empty() {
                true => Check::warn(
                    ID,
                    message,
                    "check `nvidia-smi -L`; if it lists none, the machine has no GPU, or the \
                     container was given none",
                ),
                false => Check::pass(ID, message),
            }
            .evidence_lines(evidence)
        }
        Driver::NotInstalled { cause } => not_installed(info, cause),
        Driver::Broken { message, .. } if info.virtual_gpu.is_some() => {
            Check::skip(ID, format!("a virtual GPU needs no driver; on this machine: {message}"))
        }
        Driver::Broken { message, cause, fix } => {
            Check::fail(ID, message, fix).evidence_lines(cause.clone())
        }
        Driver::TimedOut(seconds) => Check::fail(
            ID,
            format!("the NVIDIA driver did not respond within {seconds} s"),
            "check whether `nvidia-smi` hangs, too; if so, see `sudo dmesg | grep -i nvrm` and \
             reboot",
        ),
    }
}

/// Without the library there may simply be no GPU; what speaks for one is told.
fn not_installed(info: &SystemInfo, cause: &str) -> Check {
    if info.virtual_gpu.is_some() {
        return Check::skip(ID, "a virtual GPU needs no driver").evidence_line(cause);
    }
    let around = &info.host_environment;
    let asked_for = around
        .nvidia_visible_devices
        .as_deref()
        .filter(|list| !matches!(*list, "" | "none" | "void"));
    if !around.device_files.is_empty() {
        return Check::fail(
            ID,
            "GPU device files exist, but the NVIDIA driver library is missing",
            if around.container.is_some() {
                "start the container with `--gpus all` and the NVIDIA Container Toolkit, which \
                 adds the library"
            } else {
                "install the NVIDIA driver with its libraries: `libnvidia-ml.so.1`, `libcuda.so.1`"
            },
        )
        .evidence_line(format!("in /dev: {}", around.device_files.join(", ")))
        .evidence_line(cause);
    }
    if let (Some(list), true) = (asked_for, around.container.is_some()) {
        return Check::warn(
            ID,
            format!("the image requests GPUs (`NVIDIA_VISIBLE_DEVICES={list}`), but has none"),
            "start the container with `--gpus all`, on a machine with a GPU and the NVIDIA \
             Container Toolkit",
        )
        .evidence_line(cause);
    }
    Check::skip(ID, "no NVIDIA driver installed, so there is no GPU").evidence_line(cause)
}
