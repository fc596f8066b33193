//! What a loader takes, and that what it has handed out stays as it is.

use std::time::Duration;

use vramfit_base::{Bytes, ErrorKind};
use vramfit_data::load::{BatchPoll, Loader, LoaderOptions};

use super::files::*;

#[test]
fn t2_a_budget_that_is_too_small_is_refused_with_the_one_that_does() {
    let directory = tempfile::tempdir().unwrap();
    for (x, y) in storages() {
        let path = file(directory.path(), x, y);
        let with = |budget| Loader::open(LoaderOptions { budget: Bytes(budget), ..request(&path) });
        let error = with(5_000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let enough = least(&request(&path)).0;
        assert_eq!(epoch_rows(with(enough).unwrap()), every_row(), "{enough}");
        assert!(with(enough - 200).is_err(), "{enough} is not the least");
    }
}

fn epoch_rows(mut loader: Loader) -> Vec<u64> {
    let plan = loader.plan().clone();
    let used = plan.window_bytes
        + plan.scratch_bytes
        + plan.index_bytes
        + plan.batch_bytes * plan.buffers as u64;
    assert!(used <= plan.budget.0, "{plan:?}");
    loader.start(0, 0).expect("an epoch begins");
    let rows = rest(&mut loader);
    let made = loader.stats().expect("it is here").buffer_bytes;
    // Each buffer has up to 64 bytes more, to begin at a boundary.
    assert!(made <= (plan.batch_bytes + 128) * plan.buffers as u64);
    sorted(&rows)
}

#[test]
fn t1_memory_is_not_used_again_before_it_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), gzip(10), gzip(10));
    // More batches than there is memory for.
    let mut loader =
        Loader::open(LoaderOptions { batch_size: 8, budget: Bytes(150_000), ..request(&path) })
            .unwrap();
    loader.start(0, 0).unwrap();
    let mut held = Vec::new();
    loop {
        match loader.poll_batch(LONG, Duration::ZERO).unwrap() {
            BatchPoll::Ready(filled) => {
                let copy: Vec<Vec<u8>> =
                    filled.columns.iter().map(|c| c.bytes().to_vec()).collect();
                held.push((filled, copy));
            }
            BatchPoll::Pending { is_starved } if is_starved => break,
            other => panic!("{other:?} after {} batches", held.len()),
        }
    }
    // Those that are kept are made anew, as long as the budget has room.
    assert_eq!(held.len(), loader.plan().max_buffers);
    assert!(held.len() > loader.plan().buffers);
    let plan = loader.plan();
    let beside = plan.window_bytes + plan.scratch_bytes + plan.index_bytes;
    let made = loader.stats().unwrap().buffer_bytes;
    assert!(beside + made <= plan.budget.0, "{made} bytes, {plan:?}");
    // One by one they are let go, and those behind come into their memory; the others stay.
    while held.len() > 1 {
        held.remove(0);
        drop(next(&mut loader).unwrap());
        for (filled, copy) in &held {
            for (now, then) in filled.columns.iter().zip(copy) {
                assert!(now.bytes() == then, "a batch that is held was changed");
            }
        }
    }
    // Also when the loader is gone.
    drop(loader);
    let (last, copy) = held.pop().unwrap();
    assert!(last.columns[0].bytes() == copy[0]);
}
