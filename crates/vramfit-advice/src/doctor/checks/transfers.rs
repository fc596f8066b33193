//! Do bytes arrive as they went, and how fast?

use super::super::check::Check;
use super::super::probe::StepOutcome;
use super::super::system_info::SystemInfo;
use super::{cpu_fallback, incomplete, is_virtual, uses_gpu};
use crate::Bytes;

pub(super) const ID: &str = "transfers";

pub(super) fn check(info: &SystemInfo) -> Check {
    let result = match info.probe.transfers() {
        StepOutcome::Done(result) => result,
        other => return incomplete(ID, info, other).evidence_lines(info.probe.log.last()),
    };
    if cpu_fallback(info) {
        return Check::skip(ID, "JAX does not use the GPU; see `backend`");
    }
    if !result.right {
        return Check::fail(
            ID,
            format!("{} came back corrupted", Bytes(result.bytes)),
            "run `nvidia-smi -q -d ECC,PCIE`, and do not trust this GPU until it reports no errors",
        );
    }
    let untransferred = if is_virtual(info) {
        Some("a virtual GPU transfers nothing over a bus, so there is no bandwidth to measure")
    } else if !uses_gpu(info) {
        Some("on the CPU nothing is transferred")
    } else {
        None
    };
    if let Some(why) = untransferred {
        return Check::skip(ID, why)
            .evidence_line(format!("{} came back unchanged", Bytes(result.bytes)));
    }
    let speed = |seconds: f64| {
        let per_second = result.bytes as f64 / seconds.max(f64::MIN_POSITIVE);
        format!("{:.1} GB/s", per_second / 1e9)
    };
    Check::pass(
        ID,
        format!(
            "{} to the device, {} back; data unchanged",
            speed(result.to_device_seconds),
            speed(result.to_host_seconds)
        ),
    )
    .evidence_line(format!(
        "{} of pageable host memory, best of {}",
        Bytes(result.bytes),
        result.times
    ))
}
