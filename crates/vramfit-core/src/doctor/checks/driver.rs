//! Does NVIDIA's driver answer?

use super::super::check::Check;
use super::super::facts::{Driver, Facts};

const ID: &str = "driver";

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    vec![match &facts.driver {
        Driver::Machine(machine) => {
            let version = machine.driver.as_deref().unwrap_or("of unknown version");
            let cuda = machine.cuda.as_deref().map_or_else(
                || "which CUDA it supports is not known".to_owned(),
                |cuda| format!("supports CUDA up to {cuda}"),
            );
            let gpus = match machine.gpus.len() {
                1 => "1 GPU".to_owned(),
                count => format!("{count} GPUs"),
            };
            let evidence = machine
                .unknown
                .iter()
                .map(|one| format!("not known: {one}"));
            let sentence = format!("NVIDIA's driver {version} {cuda}: {gpus}");
            match machine.gpus.is_empty() {
                true => Check::warn(
                    ID,
                    sentence,
                    "`nvidia-smi -L` lists the GPUs; without any, a container was given none or \
                     the machine has none",
                ),
                false => Check::pass(ID, sentence),
            }
            .because_of(evidence)
        }
        Driver::NotInstalled { cause } => not_installed(facts, cause),
        Driver::Broken { message, .. } if facts.virtual_gpu.is_some() => Check::skip(
            ID,
            format!("the GPU is virtual and needs no driver; of the machine's: {message}"),
        ),
        Driver::Broken {
            message,
            cause,
            fix,
        } => Check::fail(ID, message, fix).because_of(cause.clone()),
        Driver::Silent(seconds) => Check::fail(
            ID,
            format!("NVIDIA's driver gave no answer within {seconds} s"),
            "see whether `nvidia-smi` hangs, too; then restart the machine, and read `sudo dmesg | \
             grep -i nvrm`",
        ),
    }]
}

/// Without the library there may simply be no GPU; what speaks for one is told.
fn not_installed(facts: &Facts, cause: &str) -> Check {
    if facts.virtual_gpu.is_some() {
        return Check::skip(ID, "the GPU is virtual and needs no driver").because(cause);
    }
    let around = &facts.surroundings;
    let asked_for = around
        .nvidia_visible_devices
        .as_deref()
        .filter(|list| !matches!(*list, "" | "none" | "void"));
    if !around.device_files.is_empty() {
        return Check::fail(
            ID,
            "there are device files of a GPU, and no library of NVIDIA's driver",
            if around.container.is_some() {
                "start the container with `--gpus all` and NVIDIA's container toolkit, which bring \
                 the library along"
            } else {
                "install NVIDIA's driver with its libraries: `libnvidia-ml.so.1`, `libcuda.so.1`"
            },
        )
        .because(format!("in /dev: {}", around.device_files.join(", ")))
        .because(cause);
    }
    if let (Some(list), true) = (asked_for, around.container.is_some()) {
        return Check::warn(
            ID,
            format!("the image asks for GPUs (`NVIDIA_VISIBLE_DEVICES={list}`) and has none"),
            "start the container with `--gpus all`, on a machine with a GPU and NVIDIA's \
             container toolkit",
        )
        .because(cause);
    }
    Check::skip(ID, "no NVIDIA driver here: without one there is no GPU").because(cause)
}
