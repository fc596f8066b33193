//! What can be asked of a loader before anything is read: batches that there are, an order that goes on.

use vramfit_core::{Error, ErrorKind, Result};

use super::request::Request;
use super::unit::Cut;
use crate::order::{Engine, Order};

/// Refuses an order of other rows, or of another seed or manner.
pub(super) fn must_go_on(theirs: Order, ours: Order) -> Result<()> {
    if theirs.seed() != ours.seed() {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "the state is of seed {}, and this loader has seed {}",
                theirs.seed(),
                ours.seed()
            ),
        )
        .hint("make the loader with the seed of the run that goes on"));
    }
    if theirs.rows() != ours.rows() {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "the state is of an order of {} rows, and there are {}",
                theirs.rows(),
                ours.rows()
            ),
        )
        .hint("bring back the file with the old rows, or begin anew"));
    }
    let in_file_order = |order: Order| order.engine() == Engine::Sequential;
    let same_part = Order::new(theirs.rows(), theirs.seed(), ours.engine(), theirs.part())? == ours;
    if !same_part || in_file_order(theirs) != in_file_order(ours) {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "the state is of other rows, or of a shuffled order where this is none, or the reverse",
        )
        .hint("make the loader with the split and the shuffle of the run that goes on"));
    }
    Ok(())
}

/// Refuses batches, or stacks of them, of which an epoch would not have one.
pub(super) fn must_fill_one(request: &Request, rows: u64) -> Result<()> {
    if Cut::of(request, rows, 0)?.count() > 0 {
        return Ok(());
    }
    let message = format!(
        "a stack of {} batches of {} rows is larger than the {rows} rows there are, and what does \
         not fill one is dropped",
        request.super_batch.unwrap_or(1),
        request.batch_size,
    );
    Err(Error::new(ErrorKind::InvalidArgument, message).hint("stack fewer or smaller batches"))
}
