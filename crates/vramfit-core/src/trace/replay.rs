//! The allocators of a traced run, built again from its header and driven by its events.
//!
//! What the card answered is taken from the trace, so that a card that other processes shared gives
//! the same regions again. Every difference between what the trace says and what the allocators do is
//! an error: a figure that two ways of computing disagree on is worth nothing.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use super::{Event, Header};
use crate::allocator::{
    self, Allocator, DeviceMemory, JaxVersion, Kind, MAX_REGION_BYTES, PoolOptions, Refusal, Region,
};
use crate::error::{Error, ErrorKind, Result};

/// More cards than any host has; a limit for damaged headers.
const MAX_DEVICES: u32 = 4096;

/// Beyond the addresses and sizes of any card, and far enough below 64 bits for every sum.
const MAX_ADDRESS: u64 = 1 << 60;

/// The pools of all devices of a run, and what is allocated in them.
pub struct Replay {
    pools: Vec<Pool>,
    live: FxHashMap<u64, Placed>,
    allocations: u64,
    events: u64,
}

struct Pool {
    /// Made at the first request. Some kinds ask the card while they are made; what it said is
    /// in the trace right before that request.
    allocator: Option<Box<dyn Allocator>>,
    options: PoolOptions,
    card: RecordedCard,
    /// Answers of the card that the next request will ask for.
    answers_waiting: bool,
}

/// Where an allocation lies.
#[derive(Clone, Copy, Debug)]
struct Placed {
    device: u32,
    address: u64,
}

/// What an event did to the pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing was allocated, freed or refused.
    None,
    /// Bytes were given out on a device.
    Allocated(u32),
    /// Bytes came back on a device.
    Freed(u32),
    /// Bytes came back on a device, and its allocator would have aborted the process.
    Aborted(u32),
    /// A request on a device was refused.
    Refused(u32, Refusal),
}

impl Replay {
    /// Builds the allocators that the header describes, with nothing allocated.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidFile`] when the header describes none.
    pub fn new(header: &Header) -> Result<Replay> {
        let memory = header.total_memory_bytes;
        if header.devices > MAX_DEVICES || memory > MAX_ADDRESS {
            let message = format!("the trace names {} cards of {memory} bytes", header.devices);
            return Err(Error::new(ErrorKind::InvalidFile, message));
        }
        let options = pool_options(header)?;
        let pools = (0..header.devices).map(|ordinal| Pool {
            allocator: None,
            options: PoolOptions {
                ordinal,
                ..options.clone()
            },
            card: RecordedCard::default(),
            answers_waiting: false,
        });
        Ok(Replay {
            pools: pools.collect(),
            live: FxHashMap::default(),
            allocations: 0,
            events: 0,
        })
    }

    /// Returns how many devices there are.
    pub fn devices(&self) -> u32 {
        self.pools.len() as u32
    }

    /// Returns the number of events applied so far: the index of the next one.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the allocator of a device, which is made now if nothing was asked of it so far.
    ///
    /// # Panics
    /// If the device is not below [`Replay::devices`].
    pub fn allocator(&mut self, device: u32) -> &dyn Allocator {
        &**self.pools[device as usize].allocator()
    }

    /// Returns the device that a live allocation is on.
    pub fn device_of(&self, allocation: u64) -> Option<u32> {
        self.live.get(&allocation).map(|placed| placed.device)
    }

    /// Lets one event happen.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidFile`] when the event makes no sense here, and
    /// [`ErrorKind::Internal`] when the allocators do something else than they did in the run.
    pub fn apply(&mut self, event: &Event) -> Result<Effect> {
        self.events += 1;
        if !plausible(event) {
            let what = "an address or size is beyond any card's";
            return Err(inconsistent(self.events, what));
        }
        match *event {
            Event::Allocate {
                device,
                bytes,
                alignment,
                space,
                ..
            } => {
                let number = self.allocations;
                self.allocations += 1;
                let at = self.events;
                let pool = self.pool(device)?;
                match pool.allocator().allocate(bytes, alignment, space) {
                    Ok(address) => {
                        pool.settle(at)?;
                        self.live.insert(number, Placed { device, address });
                        Ok(Effect::Allocated(device))
                    }
                    Err(_) => Err(disagreement(
                        at,
                        &format!("{bytes} bytes were granted in the run and are refused here"),
                    )),
                }
            }
            Event::Free { allocation } => {
                let (device, result) = self.free(allocation)?;
                result.map_err(|error| {
                    let what = format!("an allocation was freed in the run and cannot be: {error}");
                    disagreement(self.events, &what)
                })?;
                Ok(Effect::Freed(device))
            }
            Event::FreeAborts { allocation, .. } => {
                let (device, result) = self.free(allocation)?;
                match result {
                    Err(error) if error.kind() == ErrorKind::AllocatorAborts => {
                        Ok(Effect::Aborted(device))
                    }
                    _ => Err(disagreement(
                        self.events,
                        "freeing an allocation aborted in the run and does not here",
                    )),
                }
            }
            Event::Refuse {
                device,
                bytes,
                alignment,
                space,
                ..
            } => {
                let at = self.events;
                let pool = self.pool(device)?;
                match pool.allocator().allocate(bytes, alignment, space) {
                    Ok(_) => Err(disagreement(
                        at,
                        &format!("{bytes} bytes were refused in the run and are granted here"),
                    )),
                    Err(refusal) => {
                        pool.settle(at)?;
                        Ok(Effect::Refused(device, refusal))
                    }
                }
            }
            Event::Driver {
                device,
                asked,
                address,
                granted,
            } => {
                let pool = self.pool(device)?;
                let region = (granted > 0).then_some(Region {
                    address,
                    bytes: granted,
                });
                pool.card.answers().push_back((asked, region));
                pool.answers_waiting = true;
                Ok(Effect::None)
            }
            Event::Outside { device, .. } | Event::ClearPeak { device } => {
                self.pool(device).map(|_| Effect::None)
            }
            Event::Program { .. }
            | Event::Variant { .. }
            | Event::Unload { .. }
            | Event::Begin { .. }
            | Event::End
            | Event::UnknownRead { .. }
            | Event::ShapeRead { .. } => Ok(Effect::None),
        }
    }

    /// Frees an allocation; returns its device and what the allocator said.
    fn free(&mut self, allocation: u64) -> Result<(u32, Result<()>)> {
        let at = self.events;
        let Some(Placed { device, address }) = self.live.remove(&allocation) else {
            return Err(inconsistent(at, "an allocation is freed that is not there"));
        };
        let pool = self.pool(device)?;
        let result = pool.allocator().free(address);
        pool.settle(at)?;
        Ok((device, result))
    }

    fn pool(&mut self, device: u32) -> Result<&mut Pool> {
        let at = self.events;
        self.pools
            .get_mut(device as usize)
            .ok_or_else(|| inconsistent(at, "an event is on a device that is not there"))
    }
}

impl Pool {
    fn allocator(&mut self) -> &mut Box<dyn Allocator> {
        self.allocator
            .get_or_insert_with(|| allocator::build(&self.options, Box::new(self.card.clone())))
    }

    /// Checks that a request asked the card exactly what it asked in the run.
    fn settle(&mut self, at: u64) -> Result<()> {
        let mut differs = self.card.0.differs.load(Relaxed);
        if self.answers_waiting {
            differs |= !self.card.answers().is_empty();
            self.answers_waiting = false;
        }
        if differs {
            let what = "the card was asked for other amounts of memory than in the run";
            return Err(disagreement(at, what));
        }
        Ok(())
    }
}

/// Says whether the numbers of an event can be those of a card. The allocators rely on it.
fn plausible(event: &Event) -> bool {
    match *event {
        Event::Allocate {
            bytes, alignment, ..
        }
        | Event::Refuse {
            bytes, alignment, ..
        } => {
            // Sizes are signed in XLA.
            bytes <= i64::MAX as u64 && alignment <= MAX_ADDRESS
        }
        Event::Driver {
            asked,
            address,
            granted,
            ..
        } => {
            granted == 0
                || (granted >= asked
                    && granted <= MAX_REGION_BYTES
                    && (1..=MAX_ADDRESS).contains(&address))
        }
        _ => true,
    }
}

/// Says that replay and run differ at an event.
pub(super) fn disagreement(events: u64, what: &str) -> Error {
    let at = events.saturating_sub(1);
    Error::new(
        ErrorKind::Internal,
        format!("replay and run disagree at event {at}: {what}"),
    )
    .hint("keep the trace file and report this; no figure of it can be trusted")
}

/// Says that an event of the trace cannot have happened.
pub(super) fn inconsistent(events: u64, what: &str) -> Error {
    let at = events.saturating_sub(1);
    Error::new(
        ErrorKind::InvalidFile,
        format!("the trace is inconsistent at event {at}: {what}"),
    )
}

/// A card that gives the answers it gave in the run.
#[derive(Clone, Default)]
struct RecordedCard(Arc<Script>);

#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<(u64, Option<Region>)>>,
    /// Something was asked that is not in the trace.
    differs: AtomicBool,
}

impl RecordedCard {
    fn answers(&self) -> MutexGuard<'_, VecDeque<(u64, Option<Region>)>> {
        self.0
            .answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceMemory for RecordedCard {
    fn allocate(&mut self, _alignment: u64, bytes: u64) -> Option<Region> {
        match self.answers().pop_front() {
            Some((asked, region)) if asked == bytes => region,
            _ => {
                self.0.differs.store(true, Relaxed);
                None
            }
        }
    }

    fn free(&mut self, _region: Region) {}

    fn free_bytes(&self) -> u64 {
        // Only texts for people are made of it, and those are in the trace.
        0
    }
}

/// Reads the allocators' options from a header.
pub(super) fn pool_options(header: &Header) -> Result<PoolOptions> {
    let kind: Kind = header.allocator.parse().map_err(|error: Error| {
        let what = format!(
            "the trace names the unknown allocator `{}`",
            header.allocator
        );
        Error::new(ErrorKind::InvalidFile, what).cause(error)
    })?;
    Ok(PoolOptions {
        kind,
        ordinal: 0,
        total_memory_bytes: header.total_memory_bytes,
        memory_fraction: header.memory_fraction,
        preallocate: header.preallocate,
        spatial_partitioning: header.spatial_partitioning,
        unified_memory: header.unified_memory,
        cuda_async_prealloc: header.cuda_async_prealloc,
        collective_memory_bytes: header.collective_memory_bytes,
        jax_version: jax_version(&header.jax),
    })
}

/// Reads `0.10.2` or `0.10.2.dev20260601`; what is missing or no number is 0.
fn jax_version(text: &str) -> JaxVersion {
    let mut parts = text.split('.').map(|part| {
        let digits = part
            .split(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap_or_default();
        digits.parse().unwrap_or(0)
    });
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_jax_writes_them() {
        for (text, version) in [
            ("0.10.2", (0, 10, 2)),
            ("0.11.0.dev20260801", (0, 11, 0)),
            ("0.9.2rc1", (0, 9, 2)),
            ("1", (1, 0, 0)),
            ("", (0, 0, 0)),
        ] {
            assert_eq!(jax_version(text), version, "{text}");
        }
    }
}
