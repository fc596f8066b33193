//! Can one train here? A verdict on the other four, and on a few steps of training.

use super::super::check::{Check, Status};
use super::super::facts::Facts;
use super::super::trial::Outcome;
use super::{is_virtual, unfinished, uses_gpu};

const ID: &str = "readiness";

/// Judges the checks that came before, and the training steps.
pub(super) fn check(facts: &Facts, others: &[Check]) -> Check {
    let failing: Vec<&str> = others
        .iter()
        .filter(|check| check.status == Status::Fail)
        .map(|check| check.id)
        .collect();
    if !failing.is_empty() {
        return Check::fail(
            ID,
            format!("not ready to train: {}", failing.join(", ")),
            format!("mend `{}` first", failing[0]),
        );
    }
    let told = match facts.trial.training() {
        Outcome::Done(told) => told,
        other => return unfinished(ID, facts, other).because_of(facts.trial.log.last()),
    };
    if is_virtual(facts) {
        return Check::skip(
            ID,
            format!(
                "{} training steps were compiled and placed; only a real GPU can show that the loss \
                 falls",
                told.steps
            ),
        );
    }
    let (Some(first), Some(last)) = (told.first_loss, told.last_loss) else {
        return Check::fail(
            ID,
            "not ready to train: the loss is not a number",
            "unset XLA_FLAGS and see again; then suspect the card: `nvidia-smi -q -d ECC`",
        );
    };
    let course = format!(
        "loss {first:.4} before, {last:.4} after {} steps",
        told.steps
    );
    if last >= first {
        return Check::fail(
            ID,
            format!("not ready to train: the loss does not fall ({course})"),
            "unset XLA_FLAGS and see again; then suspect the card: `nvidia-smi -q -d ECC`",
        );
    }
    let on_gpu = uses_gpu(facts);
    let strays = told
        .platforms
        .iter()
        .any(|name| name != "gpu" && name != "cuda");
    if on_gpu && strays {
        return Check::fail(
            ID,
            "not ready to train: the parameters are not on the GPU",
            "unset JAX_DEFAULT_DEVICE, or see what sets `jax_default_device`",
        );
    }
    let place = if on_gpu { "the GPU" } else { "the CPU" };
    let sentence = format!("ready to train on {place}: {course}");
    let doubtful: Vec<&str> = others
        .iter()
        .filter(|check| check.status == Status::Warn)
        .map(|check| check.id)
        .collect();
    let check = match doubtful.first() {
        None => Check::pass(ID, sentence),
        Some(first) => Check::warn(
            ID,
            format!("{sentence}, with warnings: {}", doubtful.join(", ")),
            format!("see `{first}`"),
        ),
    };
    check.because(format!("{:.2} ms a step", told.step_seconds * 1e3))
}
