//! The allocators of a traced run, built again from its header and driven by its events.
//!
//! [`Replay::new`] takes what the GPU answered from the trace, so that a GPU that other processes
//! shared gives the same regions again. Every difference between what the trace says and what the
//! allocators do is an error then: a figure that two ways of computing disagree on is worth nothing.
//!
//! [`Replay::what_if`] lets the same events happen under other settings, on GPUs of its own. There
//! a difference is what one wants to know, and where one begins the run is not known any further.

use rustc_hash::FxHashMap;

use super::bounds::{MAX_ADDRESS, MAX_LIVE_ALLOCATIONS, is_valid, too_many_allocations};
use super::effect::{Block, Divergence, EventEffect};
use super::pool::{DeviceSource, PoolLevel, PoolState, ReplayPool, corrupt_trace, replay_mismatch};
use super::recorded_device::RecordedDevice;
use super::recorded_options::{allocatable_bytes, pool_options};
use crate::allocator::{Allocator, PoolOptions, PoolSpace, Region};
use crate::error::{Error, ErrorKind, Result};
use crate::trace::{Event, Header};

/// More GPUs than any host has; a limit for damaged headers.
const MAX_DEVICES: u32 = 4096;

/// More answers of a GPU than any one request asks for.
const MAX_PENDING_RESULTS: usize = 1 << 12;

/// The pools of all devices of a run, and what is allocated in them.
pub struct Replay {
    pub(super) pools: Vec<ReplayPool>,
    pub(super) live: FxHashMap<u64, Block>,
    pub(super) allocations: u64,
    pub(super) events: u64,
    pub(super) mode: ReplayMode,
    pub(super) divergence: Option<Divergence>,
}

/// Which way the events take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplayMode {
    /// That of the run, or it is an error.
    Verify,
    /// Their own, up to the first request that is answered otherwise than in the run.
    WhatIf,
    /// Their own to the end: who asked does not mind a refusal.
    IgnoreFailures,
}

impl Replay {
    /// Builds the allocators that the header describes, with nothing allocated, to follow the run.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidFile`] when the header describes none.
    pub fn new(header: &Header) -> Result<Replay> {
        Replay::build(header, ReplayMode::Verify, || {
            DeviceSource::Recorded(RecordedDevice::default())
        })
    }

    /// Builds the allocators that the header describes on GPUs that nobody shares, to let another
    /// run's events happen there. What the GPU has beside the context and what others hold, going
    /// by the header, is free.
    ///
    /// `regardless` says that the events do not depend on whether a request is met, so that they go
    /// on to the end.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidFile`] when the header describes none.
    pub fn what_if(header: &Header, regardless: bool) -> Result<Replay> {
        let free_bytes = allocatable_bytes(header)?;
        let mode = match regardless {
            true => ReplayMode::IgnoreFailures,
            false => ReplayMode::WhatIf,
        };
        Replay::build(header, mode, || DeviceSource::Simulated(free_bytes))
    }

    fn build(
        header: &Header,
        mode: ReplayMode,
        device: impl Fn() -> DeviceSource,
    ) -> Result<Replay> {
        let memory = header.total_memory_bytes();
        if header.devices > MAX_DEVICES || memory > MAX_ADDRESS {
            let message = format!("the trace names {} GPUs of {memory} bytes", header.devices);
            return Err(Error::invalid_file(message));
        }
        let options = pool_options(header)?;
        let pools = (0..header.devices).map(|ordinal| {
            let options = PoolOptions { ordinal, ..options.clone() };
            ReplayPool::new(options, device())
        });
        Ok(Replay {
            pools: pools.collect(),
            live: FxHashMap::default(),
            allocations: 0,
            events: 0,
            mode,
            divergence: None,
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

    /// Returns how many allocations were numbered so far: the number of the next one.
    pub fn allocations(&self) -> u64 {
        self.allocations
    }

    /// Returns the allocator of a device, which is made now if nothing was asked of it so far.
    ///
    /// # Panics
    /// If the device is not below [`Replay::devices`].
    pub fn allocator(&mut self, device: u32) -> &dyn Allocator {
        &**self.pools[device as usize].allocator()
    }

    /// Returns how full the pool of a device is, as it was after the last request there.
    pub(crate) fn pool_level(&self, device: u32) -> PoolLevel {
        self.pools[device as usize].level
    }

    /// Returns how full the pool of a device is, and its largest free block.
    pub(crate) fn device_state(&mut self, device: u32) -> PoolState {
        let pool = &mut self.pools[device as usize];
        // Where nothing was asked for, not even the kind of pool was looked at so far.
        pool.update_level();
        let (in_use_bytes, pool_bytes) = (pool.level.in_use_bytes, pool.level.pool_bytes);
        let largest = self.allocator(device).largest_free_block();
        PoolState {
            in_use_bytes,
            free_bytes: pool_bytes.map(|pool| pool.saturating_sub(in_use_bytes)),
            // A full pool has a largest free block of nothing.
            largest_free_block_bytes: largest.or(pool_bytes.map(|_| 0)),
        }
    }

    /// Returns the largest request that a device could meet now, rounding aside: the largest free
    /// block, or what the pool may still grow by. `gpu_bytes` is what the GPU has for this process,
    /// which is the limit where nothing is pooled.
    pub(crate) fn available_bytes(&mut self, device: u32, gpu_bytes: u64) -> u64 {
        if self.pools[device as usize].allocator.is_none() {
            // Making it here could ask the driver for memory before the run did.
            return gpu_bytes;
        }
        let largest = self.device_state(device).largest_free_block_bytes;
        let growth = self.allocator(device).obtainable_bytes(gpu_bytes);
        largest.unwrap_or(0).max(growth)
    }

    /// Returns what is allocated now, in no order.
    pub fn live(&self) -> impl Iterator<Item = &Block> {
        self.live.values()
    }

    /// Returns the device that a live allocation is on.
    pub fn device_of(&self, allocation: u64) -> Option<u32> {
        self.live.get(&allocation).map(|block| block.device)
    }

    /// Returns a live allocation.
    pub fn live_block(&self, allocation: u64) -> Option<&Block> {
        self.live.get(&allocation)
    }

    /// Returns why the run is not followed any further; from then on no event does anything.
    pub fn divergence(&self) -> Option<Divergence> {
        self.divergence
    }

    /// Applies one event. What it allocates belongs to `owner`, a number that means something
    /// to the caller only.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidFile`] when the event makes no sense here or, where the run is to be followed,
    /// when the allocators do something else than they did in it.
    pub fn apply(&mut self, event: &Event, owner: u32) -> Result<EventEffect> {
        if self.divergence.is_some() {
            return Ok(EventEffect::None);
        }
        self.events += 1;
        if !is_valid(event) {
            let what = "an address or size exceeds 2^60";
            return Err(corrupt_trace(self.events, what));
        }
        match *event {
            Event::Allocate { device, bytes, alignment, space, .. } => {
                let number = self.allocations;
                self.allocations += 1;
                self.allocate(device, bytes, alignment, space, (number, owner))
            }
            Event::Free { allocation } => match self.free(allocation)? {
                None => Ok(EventEffect::None),
                Some((block, Ok(()))) => Ok(EventEffect::Freed(block)),
                Some((_, Err(error))) if self.mode == ReplayMode::Verify => {
                    let what =
                        format!("an allocation that was freed in the run cannot be freed: {error}");
                    Err(replay_mismatch(self.events, &what))
                }
                Some((block, Err(error))) => Ok(EventEffect::Aborted(block, error.to_string())),
            },
            Event::FreeAborts { allocation, .. } => match self.free(allocation)? {
                None => Ok(EventEffect::None),
                Some((block, Err(error))) if error.kind() == ErrorKind::AllocatorAborts => {
                    Ok(EventEffect::Aborted(block, error.to_string()))
                }
                Some(_) if self.mode == ReplayMode::Verify => Err(replay_mismatch(
                    self.events,
                    "a free aborted in the run, but succeeds in the replay",
                )),
                Some((block, Ok(()))) => Ok(EventEffect::Freed(block)),
                Some((block, Err(error))) => Ok(EventEffect::Aborted(block, error.to_string())),
            },
            Event::AllocationFailure { device, bytes, alignment, space, .. } => {
                self.refuse(device, bytes, alignment, space)
            }
            Event::Driver { device, asked, address, granted } => {
                let pool = self.pool(device)?;
                if let DeviceSource::Recorded(recorded) = &pool.device {
                    let bytes = granted;
                    let region = (granted > 0).then_some(Region { address, bytes });
                    if recorded.push_result(asked, region) > MAX_PENDING_RESULTS {
                        let what = "the GPU returned results that no request caused";
                        return Err(corrupt_trace(self.events, what));
                    }
                    pool.has_pending_results = true;
                }
                Ok(EventEffect::None)
            }
            Event::OutsidePool { device, .. } | Event::ClearPeak { device } => {
                self.pool(device).map(|_| EventEffect::None)
            }
            Event::Program { .. }
            | Event::Variant { .. }
            | Event::Scratch { .. }
            | Event::Unload { .. }
            | Event::Begin { .. }
            | Event::Argument { .. }
            | Event::End
            | Event::UnknownRead { .. }
            | Event::ShapeRead { .. }
            | Event::DecisiveRead { .. }
            | Event::Unread { .. }
            | Event::Callback { .. }
            | Event::CallbackSkipped { .. } => Ok(EventEffect::None),
        }
    }

    /// Allocates and frees at once something that has no number in the trace. Only elsewhere.
    ///
    /// # Errors
    /// As [`Replay::apply`].
    pub(crate) fn allocate_transient(
        &mut self,
        device: u32,
        bytes: u64,
        alignment: u64,
    ) -> Result<EventEffect> {
        let pool = self.pool(device)?;
        match pool.allocator().allocate(bytes, alignment, PoolSpace::Default) {
            Ok(address) => pool.allocator().free(address).map(|()| EventEffect::None),
            Err(refusal) => {
                self.divergence = Some(Divergence::Refused);
                Ok(EventEffect::Refused(device, refusal))
            }
        }
    }

    fn allocate(
        &mut self,
        device: u32,
        bytes: u64,
        alignment: u64,
        space: PoolSpace,
        (number, owner): (u64, u32),
    ) -> Result<EventEffect> {
        let (at, mode) = (self.events, self.mode);
        if self.live.len() == MAX_LIVE_ALLOCATIONS {
            return Err(too_many_allocations(at));
        }
        let pool = self.pool(device)?;
        let address = match pool.allocator().allocate(bytes, alignment, space) {
            Ok(address) => address,
            Err(_) if mode == ReplayMode::Verify => {
                let what = format!(
                    "a request for {bytes} bytes succeeded in the run, but fails in the replay"
                );
                return Err(replay_mismatch(at, &what));
            }
            Err(refusal) => {
                pool.update_level();
                if mode == ReplayMode::WhatIf {
                    self.divergence = Some(Divergence::Refused);
                }
                return Ok(EventEffect::Refused(device, refusal));
            }
        };
        pool.verify_driver_calls(at)?;
        let before = pool.level.in_use_bytes;
        pool.update_level();
        let block = Block {
            number,
            device,
            owner,
            address,
            requested_bytes: bytes,
            allocated_bytes: pool.level.in_use_bytes.saturating_sub(before),
        };
        self.live.insert(number, block);
        Ok(EventEffect::Allocated(block))
    }

    fn refuse(
        &mut self,
        device: u32,
        bytes: u64,
        alignment: u64,
        space: PoolSpace,
    ) -> Result<EventEffect> {
        let (at, mode) = (self.events, self.mode);
        let pool = self.pool(device)?;
        match pool.allocator().allocate(bytes, alignment, space) {
            Err(refusal) => {
                pool.verify_driver_calls(at)?;
                // A request that is refused may leave a larger pool behind.
                pool.update_level();
                Ok(EventEffect::Refused(device, refusal))
            }
            Ok(_) if mode == ReplayMode::Verify => {
                let what = format!(
                    "a request for {bytes} bytes failed in the run, but succeeds in the replay"
                );
                Err(replay_mismatch(at, &what))
            }
            Ok(_) => {
                self.divergence = Some(Divergence::Granted);
                Ok(EventEffect::None)
            }
        }
    }

    /// Frees an allocation; returns what it was and what the allocator said. `None` for one that was
    /// refused elsewhere.
    fn free(&mut self, allocation: u64) -> Result<Option<(Block, Result<()>)>> {
        let at = self.events;
        let Some(block) = self.live.remove(&allocation) else {
            if self.mode == ReplayMode::IgnoreFailures && allocation < self.allocations {
                return Ok(None);
            }
            return Err(corrupt_trace(at, "an allocation that does not exist is freed"));
        };
        let pool = self.pool(block.device)?;
        let result = pool.allocator().free(block.address);
        pool.verify_driver_calls(at)?;
        pool.update_level();
        Ok(Some((block, result)))
    }

    fn pool(&mut self, device: u32) -> Result<&mut ReplayPool> {
        let at = self.events;
        self.pools
            .get_mut(device as usize)
            .ok_or_else(|| corrupt_trace(at, "an event refers to a device that does not exist"))
    }
}
