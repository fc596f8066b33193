//! Does the GPU compute, and rightly?

use super::super::check::Check;
use super::super::facts::Facts;
use super::super::trial::Outcome;
use super::{fell_back, is_virtual, unfinished, uses_gpu};

pub(super) const ID: &str = "computation";

pub(super) fn check(facts: &Facts) -> Vec<Check> {
    let told = match facts.trial.computation() {
        Outcome::Done(told) => told,
        other => return vec![unfinished(ID, facts, other).because_of(facts.trial.log.last())],
    };
    let place = told.devices.join(", ");
    if is_virtual(facts) {
        return vec![
            Check::skip(
                ID,
                "a virtual GPU does no arithmetic, so there is no result to compare",
            )
            .because(format!("the programs were compiled and placed on {place}")),
        ];
    }
    if fell_back(facts) {
        return vec![Check::skip(ID, "JAX is not on the GPU; see `backend`")];
    }
    let on_gpu = uses_gpu(facts);
    let strays = on_gpu
        && told
            .platforms
            .iter()
            .any(|name| name != "gpu" && name != "cuda");
    vec![if !told.right {
        Check::fail(
            ID,
            format!(
                "{place} computes wrongly: of {} numbers some differ",
                told.compared
            ),
            "run `nvidia-smi -q -d ECC,ROW_REMAPPER`, and do not trust this GPU until it is clean",
        )
    } else if strays || told.platforms.is_empty() {
        Check::fail(
            ID,
            format!("the result is right, but it lies on {place} and not on the GPU"),
            "unset JAX_DEFAULT_DEVICE, or see what sets `jax_default_device`",
        )
    } else {
        Check::pass(
            ID,
            format!(
                "{place} computes rightly ({} numbers compared)",
                told.compared
            ),
        )
    }]
}
