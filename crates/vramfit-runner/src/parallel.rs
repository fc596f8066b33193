//! Work that is done several pieces at a time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::messages::Messages;

/// Makes dry runs, one for each item and at most `jobs` at the same time, and returns the results in the order of the
/// items. Items for which `work` returns `None` have no result.
pub fn map_dry_runs<T: Send, R: Send>(
    items: Vec<T>,
    jobs: usize,
    messages: &dyn Messages,
    work: impl Fn(T) -> Option<R> + Sync,
) -> Vec<R> {
    let progress = messages.progress("dry runs");
    let (total, done) = (items.len() as u64, AtomicU64::new(0));
    map_parallel(items, jobs, |item| {
        let result = work(item)?;
        progress.show(done.fetch_add(1, Ordering::Relaxed) + 1, total);
        Some(result)
    })
}

fn map_parallel<T: Send, R: Send>(
    items: Vec<T>,
    jobs: usize,
    work: impl Fn(T) -> Option<R> + Sync,
) -> Vec<R> {
    let count = items.len();
    let waiting = Mutex::new(items.into_iter().enumerate().collect::<VecDeque<_>>());
    let done = Mutex::new(Vec::new());
    let next = || {
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.pop_front()
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(count) {
            scope.spawn(|| {
                while let Some((index, item)) = next() {
                    if let Some(result) = work(item) {
                        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                        done.push((index, result));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Waits for a message; without a timeout until there is one.
///
/// # Errors
/// Those of the receiver.
pub fn receive_within<T>(
    receiver: &Receiver<T>,
    timeout: Option<Duration>,
) -> Result<T, RecvTimeoutError> {
    match timeout {
        Some(timeout) => receiver.recv_timeout(timeout),
        None => Ok(receiver.recv()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let odd = |item: u32| (item % 2 == 1).then_some(item * 10);
        assert_eq!(map_parallel((0..6).collect(), 3, odd), [10, 30, 50]);
        assert_eq!(map_parallel(Vec::new(), 2, odd), [0; 0]);
    }
}
