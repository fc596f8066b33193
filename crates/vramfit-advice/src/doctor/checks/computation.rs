//! Does the GPU compute, and rightly?

use super::super::check::Check;
use super::super::probe::StepOutcome;
use super::super::system_info::SystemInfo;
use super::{cpu_fallback, incomplete, is_off_gpu, is_virtual, uses_gpu};

pub(super) const ID: &str = "computation";

pub(super) fn check(info: &SystemInfo) -> Check {
    let result = match info.probe.computation() {
        StepOutcome::Done(result) => result,
        other => return incomplete(ID, info, other).evidence_lines(info.probe.log.last()),
    };
    let place = result.devices.join(", ");
    if is_virtual(info) {
        return Check::skip(ID, "a virtual GPU does not compute, so there is no result to compare")
            .evidence_line(format!("the programs were compiled and placed on {place}"));
    }
    if cpu_fallback(info) {
        return Check::skip(ID, "JAX does not use the GPU; see `backend`");
    }
    let strays = uses_gpu(info) && is_off_gpu(&result.platforms);
    if !result.right {
        Check::fail(
            ID,
            format!("{place} computes wrong results: some of {} numbers differ", result.compared),
            "run `nvidia-smi -q -d ECC,ROW_REMAPPER`, and do not trust this GPU until it reports \
             no errors",
        )
    } else if strays || result.platforms.is_empty() {
        Check::fail(
            ID,
            format!("the result is correct, but was computed on {place} instead of the GPU"),
            "unset JAX_DEFAULT_DEVICE, or find what sets `jax_default_device`",
        )
    } else {
        Check::pass(
            ID,
            format!("{place} computes correctly ({} numbers compared)", result.compared),
        )
    }
}
