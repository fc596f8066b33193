//! Is the driver new enough for the plugin's CUDA, and the GPU not too old?

use super::super::check::Check;
use super::super::requirement::numbers;
use super::super::system_info::{Driver, SystemInfo};

const ID: &str = "cuda";

/// The oldest driver for each major version of CUDA, as NVIDIA's page on minor version compatibility
/// has it, and the oldest compute capability that its libraries are built for.
const MIN_SUPPORTED: [(u32, u64, (u32, u32)); 3] =
    [(11, 450, (3, 5)), (12, 525, (5, 0)), (13, 580, (7, 5))];

pub(super) fn check(info: &SystemInfo) -> Vec<Check> {
    let Some(cuda) = info.inventory.cuda_plugins().first().copied() else {
        return vec![Check::skip(ID, "JAX has no CUDA plugin")];
    };
    let Driver::Available(host) = &info.driver else {
        return vec![Check::skip(
            ID,
            "there is no driver to compare with the plugin's CUDA version",
        )];
    };
    if info.virtual_gpu.is_some() {
        return vec![Check::skip(ID, "a virtual GPU needs no driver")];
    }
    let Some((_, oldest, capability)) = MIN_SUPPORTED.iter().find(|(major, ..)| *major == cuda)
    else {
        return vec![Check::skip(
            ID,
            format!("the driver version that CUDA {cuda} requires is unknown"),
        )];
    };
    let mut checks = Vec::new();
    let version = host.driver.as_deref().unwrap_or_default();
    match numbers(version).and_then(|all| all.first().copied()) {
        None => checks.push(Check::skip(ID, "the driver does not report its version")),
        Some(major) if major < *oldest => {
            let other = MIN_SUPPORTED
                .iter()
                .rev()
                .find(|(other, needs, _)| *other >= 12 && *needs <= major);
            let fix = match other {
                Some((other, ..)) => format!(
                    "update the driver to {oldest} or later, or install a plugin that it \
                     supports: `{} -m pip install \"jax[cuda{other}]\"`",
                    info.inventory.executable
                ),
                None => format!("update the driver to {oldest} or later"),
            };
            checks.push(Check::fail(
                ID,
                format!("CUDA {cuda} requires driver {oldest} or later; this is {version}"),
                fix,
            ));
        }
        Some(_) => checks.push(Check::pass(
            ID,
            format!("driver {version} supports CUDA {cuda}, which requires {oldest} or later"),
        )),
    }
    for gpu in host.gpus.iter().filter(|gpu| gpu.is_usable()) {
        let (Some(has), (major, minor)) = (gpu.compute_capability, *capability) else {
            continue;
        };
        if has < (major, minor) {
            checks.push(Check::fail(
                ID,
                format!(
                    "GPU {} ({}) has compute capability {}.{}; CUDA {cuda} requires \
                     {major}.{minor}",
                    gpu.index, gpu.name, has.0, has.1
                ),
                format!(
                    "`{} -m pip install \"jax[cuda12]\"`, and uninstall the CUDA {cuda} plugin",
                    info.inventory.executable
                ),
            ));
        }
    }
    checks
}
