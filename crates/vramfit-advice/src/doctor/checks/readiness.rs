//! Can one train here? A verdict on the other four, and on a few steps of training.

use super::super::check::{Check, Status};
use super::super::probe::StepOutcome;
use super::super::system_info::SystemInfo;
use super::{incomplete, is_off_gpu, is_virtual, uses_gpu};

const ID: &str = "readiness";

/// Judges the checks that came before, and the training steps.
pub(super) fn check(info: &SystemInfo, others: &[Check]) -> Check {
    let ids = |status: Status| -> Vec<&str> {
        let of_status = others.iter().filter(|check| check.status == status);
        of_status.map(|check| check.id).collect()
    };
    let failing = ids(Status::Fail);
    if !failing.is_empty() {
        return Check::fail(
            ID,
            format!("not ready to train: {}", failing.join(", ")),
            format!("fix `{}` first", failing[0]),
        );
    }
    let result = match info.probe.training() {
        StepOutcome::Done(result) => result,
        other => return incomplete(ID, info, other).evidence_lines(info.probe.log.last()),
    };
    if is_virtual(info) {
        return Check::skip(
            ID,
            format!(
                "{} training steps were compiled; only a real GPU can show that the loss decreases",
                result.steps
            ),
        );
    }
    let (Some(first), Some(last)) = (result.first_loss, result.last_loss) else {
        return Check::fail(
            ID,
            "not ready to train: the loss is NaN",
            "unset XLA_FLAGS and retry; then check the GPU: `nvidia-smi -q -d ECC`",
        );
    };
    let losses = format!("loss {first:.4} before, {last:.4} after {} steps", result.steps);
    if last >= first {
        return Check::fail(
            ID,
            format!("not ready to train: the loss does not decrease ({losses})"),
            "unset XLA_FLAGS and retry; then check the GPU: `nvidia-smi -q -d ECC`",
        );
    }
    let on_gpu = uses_gpu(info);
    if on_gpu && is_off_gpu(&result.platforms) {
        return Check::fail(
            ID,
            "not ready to train: the parameters are not on the GPU",
            "unset JAX_DEFAULT_DEVICE, or find what sets `jax_default_device`",
        );
    }
    let place = if on_gpu { "the GPU" } else { "the CPU" };
    let message = format!("ready to train on {place}: {losses}");
    let doubtful = ids(Status::Warn);
    let check = match doubtful.first() {
        None => Check::pass(ID, message),
        Some(first) => Check::warn(
            ID,
            format!("{message}, with warnings: {}", doubtful.join(", ")),
            format!("see `{first}`"),
        ),
    };
    check.evidence_line(format!("{:.2} ms per step", result.step_seconds * 1e3))
}
