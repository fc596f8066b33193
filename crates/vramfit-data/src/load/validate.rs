//! Checks of a loader before anything is read: that there is a batch, and that a saved order is the same.

use vramfit_base::{Error, Result};

use super::batching::BatchPlan;
use super::options::LoaderOptions;
use crate::order::{Engine, Order};

/// Rejects a saved order of other rows, or with another seed or kind of shuffle.
pub(super) fn ensure_resumable(saved: &Order, current: &Order) -> Result<()> {
    let invalid = |message| Error::invalid_argument(message);
    if saved.seed != current.seed {
        let (saved, current) = (saved.seed, current.seed);
        return Err(invalid(format!(
            "the state has seed {saved}, but the loader has seed {current}"
        ))
        .hint(format!("create the loader with `seed={saved}`")));
    }
    if saved.rows() != current.rows() {
        let (saved, current) = (saved.rows(), current.rows());
        return Err(invalid(format!("the state is for {saved} rows, but the file has {current}"))
            .hint("restore the original file, or start over"));
    }
    let in_file_order = |order: &Order| order.engine() == Engine::Sequential;
    let same_subset = saved.with_engine(current.engine()) == *current;
    if !same_subset || in_file_order(saved) != in_file_order(current) {
        let what = "the state was saved with a different `rows`, `split`, `weights` or `shuffle`";
        return Err(invalid(what.to_owned()).hint(
            "create the loader with the `rows`, `split`, `weights` and `shuffle` of the run to resume",
        ));
    }
    Ok(())
}

/// Rejects batches, or stacks of them, of which an epoch would not have one.
pub(super) fn ensure_one_batch(options: &LoaderOptions, rows: u64) -> Result<()> {
    if BatchPlan::new(options, rows, 0)?.count > 0 {
        return Ok(());
    }
    let message = format!(
        "a stack of {} batches of {} rows exceeds the {rows} rows available, and incomplete stacks are dropped",
        options.stacked_batches.unwrap_or(1),
        options.batch_size,
    );
    Err(Error::invalid_argument(message).hint("stack fewer or smaller batches"))
}
