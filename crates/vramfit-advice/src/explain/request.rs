//! The requests that failed: messages about the same request are put together.

use super::log::{Event, Log};
use super::message::Message;
use super::number::Size;
use crate::allocator::PoolEnd;

/// A request that failed: its size as far as all messages about it tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) size: Size,
    /// What the pool rounded it to.
    pub(super) rounded: Option<u64>,
    pub(super) program: Option<String>,
    pub(super) end: Option<PoolEnd>,
    /// Index of the event that tells it first.
    pub(super) event: usize,
    pub(super) kind: RequestKind,
}

/// Which allocator refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RequestKind {
    /// A pool of XLA.
    Pool,
    /// The driver, for an allocator without a pool.
    Direct,
    /// CUDA's own pool.
    Async,
    /// The allocator of virtual memory.
    Budget,
}

impl Log {
    /// Returns the requests that failed, in order. Messages about the same request are one.
    pub(super) fn requests(&self) -> Vec<Request> {
        let mut requests = self.all_requests();
        // A candidate that the autotuner leaves out is no failure, where another request fails for good later.
        let of_autotuner =
            |request: &&Request| self.is_line_of_autotuner(&self.events[request.event]);
        let left_out = requests.iter().take_while(of_autotuner).count();
        if left_out < requests.len() {
            requests.drain(..left_out);
        }
        requests
    }

    /// Returns `true` if the autotuner has written a line itself.
    fn is_line_of_autotuner(&self, event: &Event) -> bool {
        self.events.iter().any(|other| {
            matches!(other.message, Message::Autotuning { .. })
                && (other.source, other.line) == (event.source, event.line)
        })
    }

    fn all_requests(&self) -> Vec<Request> {
        let mut requests: Vec<Request> = Vec::new();
        for (index, event) in self.events.iter().enumerate() {
            let (size, kind) = match &event.message {
                Message::PoolRefusal { size, .. } => (*size, RequestKind::Pool),
                Message::OutOfMemory { size, .. } => (*size, RequestKind::Pool),
                Message::DirectRefusal { size } => (*size, RequestKind::Direct),
                Message::AsyncRefusal { size } => (*size, RequestKind::Async),
                Message::BudgetRefusal { size, .. } => (*size, RequestKind::Budget),
                _ => continue,
            };
            // The autotuner goes on without what it was refused.
            if kind == RequestKind::Direct && self.is_autotuning(index) {
                continue;
            }
            let known = requests.iter_mut().rev().find(|known| {
                known.size.agrees_with(size) && self.events[known.event].source == event.source
            });
            let request = match known {
                Some(known) => known,
                None => {
                    requests.push(Request {
                        size,
                        rounded: None,
                        program: None,
                        end: None,
                        event: index,
                        kind,
                    });
                    requests.last_mut().expect("it was just added")
                }
            };
            request.size = request.size.or_more_exact(size);
            if let Message::PoolRefusal { rounded, end, .. } = &event.message {
                request.rounded = request.rounded.or(*rounded);
                request.end = request.end.or(*end);
            }
            if let Message::OutOfMemory { program, .. } = &event.message {
                request.program = request.program.take().or_else(|| program.clone());
            }
            if kind != RequestKind::Pool {
                request.kind = kind;
            }
        }
        requests
    }

    /// Returns `true` if a refusal is in a line of the autotuner, or of one that it has caused.
    fn is_autotuning(&self, index: usize) -> bool {
        let event = &self.events[index];
        self.events.iter().any(|other| {
            matches!(other.message, Message::Autotuning { .. })
                && other.source == event.source
                && other.line.abs_diff(event.line) <= 1
                && other.writer == event.writer
        })
    }

    /// Returns how many GPUs the program is divided among at least, of which pools have refused requests: they are
    /// numbered from 0. 1 where nothing tells of more.
    pub(super) fn count_refusing_gpus(&self) -> u32 {
        let devices = self.messages().filter_map(|(_, message)| match message {
            Message::PoolRefusal { device, .. } => *device,
            _ => None,
        });
        let (least, most) =
            devices.fold((u32::MAX, 0), |(least, most), it| (least.min(it), most.max(it)));
        // One alone may have any number of the machine's.
        if least < most { most.saturating_add(1) } else { 1 }
    }

    /// Returns the refusals of the driver to a pool: not those that an allocator without a pool has passed on,
    /// nor those of the autotuner.
    pub(super) fn driver_refusals(&self) -> impl Iterator<Item = (&Event, Size)> {
        let refusals = self.messages().filter_map(|(event, message)| match message {
            Message::DriverRefusal { size, pinned_host: false } => Some((event, *size)),
            _ => None,
        });
        refusals.filter(|(event, size)| {
            !self.events.iter().any(|other| {
                let passed_on = match &other.message {
                    Message::DirectRefusal { size: same } => same.agrees_with(*size),
                    Message::Autotuning { .. } => other.line.abs_diff(event.line) <= 2,
                    _ => false,
                };
                passed_on && other.source == event.source
            })
        })
    }
}
