//! Is there the GPU that `--require gpu` asks for?

use super::super::check::{Check, Status};
use super::super::facts::Facts;
use super::{computation, is_virtual};

const ID: &str = "required-gpu";

/// Judges what the computation has shown; nothing where no GPU is asked for.
pub(super) fn check(facts: &Facts, others: &[Check]) -> Option<Check> {
    if !facts.require_gpu {
        return None;
    }
    let computes = others
        .iter()
        .any(|check| check.id == computation::ID && check.status == Status::Pass);
    Some(if is_virtual(facts) {
        Check::fail(
            ID,
            "a GPU is required, and this one is virtual: nothing computes",
            "leave `--require gpu` away in a dry run",
        )
    } else if computes && super::uses_gpu(facts) {
        Check::pass(ID, "a GPU is required, and one computes")
    } else {
        Check::fail(
            ID,
            "a GPU is required, and none computes",
            "mend what FAILs above; without a FAIL there is no GPU here",
        )
    })
}
