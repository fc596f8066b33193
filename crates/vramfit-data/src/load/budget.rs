//! Which budget is enough, and the errors that name it.

use vramfit_base::{Bytes, Error, Result};

/// Returns the smallest budget for this many fixed bytes, a batch, and two windows of this many bytes.
pub(super) fn required_budget(fixed: u64, batch: u64, window: u64) -> u64 {
    let small = fixed.saturating_add(window.saturating_mul(2));
    let with_batches = small.saturating_add(batch.saturating_mul(2));
    (with_batches.saturating_mul(8).div_ceil(7))
        .max(match window {
            0 => 0,
            _ => small.saturating_mul(8).div_ceil(5),
        })
        .saturating_add(64)
}

/// A budget that is too small: why, and what would be needed if the rest stayed as it is.
pub(super) struct BudgetTooSmall {
    pub(super) what: String,
    pub(super) required: u64,
}

/// Larger budgets are not tried.
pub(super) const MAX_BUDGET: u64 = 1 << 60;

/// Makes a plan within a budget. The hint of the error names a budget with which that succeeds: it is tried, because
/// more memory may be spent on larger windows, more threads and more of the index.
pub(super) fn plan_within<T>(
    budget: Bytes,
    attempt: impl Fn(Bytes) -> std::result::Result<T, BudgetTooSmall>,
) -> Result<T> {
    let BudgetTooSmall { what, mut required } = match attempt(budget) {
        Ok(plan) => return Ok(plan),
        Err(shortage) => shortage,
    };
    required = required.max(budget.0.saturating_add(1));
    while required < MAX_BUDGET
        && let Err(shortage) = attempt(Bytes(required))
    {
        required = match shortage.required {
            more if more > required => more,
            _ => required + required / 8 + 1,
        };
    }
    let hint = format!("increase it to at least {} ({required} bytes)", Bytes(required));
    Err(Error::invalid_argument(what).hint(hint))
}

pub(super) fn too_small(budget: Bytes, batch: u64, band: u64, fixed: u64) -> String {
    let windows = match band {
        0 => String::new(),
        _ => format!(", two windows of {}", Bytes(band)),
    };
    format!(
        "the memory budget of {budget} is too small for two batches of {}{windows}, and {} for decoding",
        Bytes(batch),
        Bytes(fixed)
    )
}
