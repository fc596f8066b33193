//! Is the driver new enough for the plugin's CUDA, and the GPU not too old?

use super::super::check::Check;
use super::super::facts::{Driver, Facts};
use super::super::requirement::numbers;

const ID: &str = "cuda";

/// The oldest driver for each major version of CUDA, as NVIDIA's page on minor version compatibility
/// has it, and the oldest compute capability that its libraries are built for.
const MIN_SUPPORTED: [(u32, u64, (u32, u32)); 3] =
    [(11, 450, (3, 5)), (12, 525, (5, 0)), (13, 580, (7, 5))];

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    let Some(cuda) = facts.inventory.cuda_plugins().first().copied() else {
        return vec![Check::skip(ID, "JAX has no plugin for CUDA")];
    };
    let Driver::Machine(machine) = &facts.driver else {
        return vec![Check::skip(
            ID,
            "no driver to compare the plugin's CUDA with",
        )];
    };
    if facts.virtual_gpu.is_some() {
        return vec![Check::skip(ID, "the GPU is virtual and needs no driver")];
    }
    let Some((_, oldest, capability)) = MIN_SUPPORTED.iter().find(|(major, ..)| *major == cuda)
    else {
        return vec![Check::skip(
            ID,
            format!("which drivers do for CUDA {cuda} is not known here"),
        )];
    };
    let mut checks = Vec::new();
    let version = machine.driver.as_deref().unwrap_or_default();
    match numbers(version).and_then(|all| all.first().copied()) {
        None => checks.push(Check::skip(ID, "the driver does not tell its version")),
        Some(major) if major < *oldest => {
            let other = MIN_SUPPORTED
                .iter()
                .rev()
                .find(|(other, needs, _)| *other >= 12 && *needs <= major);
            let fix = match other {
                Some((other, ..)) => format!(
                    "update the driver to {oldest} or newer, or install the plugin that it does \
                     for: `{} -m pip install \"jax[cuda{other}]\"`",
                    facts.inventory.executable
                ),
                None => format!("update the driver to {oldest} or newer"),
            };
            checks.push(Check::fail(
                ID,
                format!("CUDA {cuda} needs a driver from {oldest} on; this one is {version}"),
                fix,
            ));
        }
        Some(_) => checks.push(Check::pass(
            ID,
            format!("driver {version} does for CUDA {cuda}, which needs {oldest} or newer"),
        )),
    }
    for gpu in machine.gpus.iter().filter(|gpu| gpu.is_usable()) {
        let (Some(has), (major, minor)) = (gpu.compute_capability, *capability) else {
            continue;
        };
        if has < (major, minor) {
            checks.push(Check::fail(
                ID,
                format!(
                    "GPU {} ({}) has compute capability {}.{}; CUDA {cuda} needs {major}.{minor}",
                    gpu.index, gpu.name, has.0, has.1
                ),
                format!(
                    "`{} -m pip install \"jax[cuda12]\"`, without the plugin of CUDA {cuda}",
                    facts.inventory.executable
                ),
            ));
        }
    }
    checks
}
