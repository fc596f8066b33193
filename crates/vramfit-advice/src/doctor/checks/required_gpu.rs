//! Is there the GPU that `--require gpu` asks for?

use super::super::check::{Check, Status};
use super::super::system_info::SystemInfo;
use super::{computation, is_virtual};

const ID: &str = "required-gpu";

/// Judges what the computation has shown; nothing where no GPU is asked for.
pub(super) fn check(info: &SystemInfo, others: &[Check]) -> Option<Check> {
    if !info.require_gpu {
        return None;
    }
    let computes =
        others.iter().any(|check| check.id == computation::ID && check.status == Status::Pass);
    Some(if info.skips_jax {
        check_reported(info, others)
    } else if is_virtual(info) {
        Check::fail(
            ID,
            "a GPU is required, but this one is virtual and does not compute",
            "omit `--require gpu` in a dry run",
        )
    } else if computes && super::uses_gpu(info) {
        Check::pass(ID, "the required GPU computes")
    } else {
        Check::fail(
            ID,
            "a GPU is required, but none computes",
            "fix the failed checks above; if there are none, this machine has no GPU",
        )
    })
}

/// Judges what the driver reports, where JAX is not started.
fn check_reported(info: &SystemInfo, others: &[Check]) -> Check {
    let is_broken = others.iter().any(|check| {
        check.status == Status::Fail && ["driver", "gpu", "container"].contains(&check.id)
    });
    if info.virtual_gpu.is_some() {
        Check::fail(
            ID,
            "a GPU is required, but this one is virtual",
            "omit `--require gpu` in a dry run",
        )
    } else if info.gpus().is_empty() || is_broken {
        Check::fail(
            ID,
            "a GPU is required, but the driver reports none that works",
            "fix the failed checks above; if there are none, this machine has no GPU",
        )
    } else {
        Check::pass(
            ID,
            "the driver reports the required GPU; whether it computes is not checked without JAX",
        )
    }
}
