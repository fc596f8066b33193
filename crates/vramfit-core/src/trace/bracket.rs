//! The same run with other kernels: the trace once more, on cards of its own, with the temporaries
//! that the programs need when they are compiled another way.
//!
//! Nothing here is compared with what the run recorded, since it did not happen. All but the
//! temporaries stays as it was: arguments and outputs do not depend on kernels.

use rustc_hash::FxHashMap;

use super::replay::pool_options;
use super::{Event, Header, Purpose};
use crate::allocator::{self, Allocator, CardMemory, PoolOptions, Space};
use crate::error::Result;

/// What the allocators ask for the temporary block of a program that had none in the run.
const ALIGNMENT: u64 = 64;

/// Allocators to which the run happens with other temporaries.
pub(super) struct WhatIf {
    pools: Vec<Box<dyn Allocator>>,
    /// Device and address of what is allocated, by its number in the run.
    live: FxHashMap<u64, (u32, u64)>,
    allocations: u64,
    programs: FxHashMap<u32, Program>,
    /// The executions that are going on, the innermost last.
    running: Vec<Execution>,
    refused: bool,
    /// Set when the program would have taken another path from here on.
    parted: bool,
}

#[derive(Clone, Copy)]
struct Program {
    /// Temporaries in the run.
    temp_bytes: u64,
    devices: u32,
    /// Temporaries when compiled the other way.
    other_bytes: Option<u64>,
}

#[derive(Default)]
struct Execution {
    program: Option<Program>,
    /// Devices on which anything was allocated.
    seen: Vec<u32>,
    /// Devices on which the block of temporaries was taken.
    taken: Vec<u32>,
    /// Whether a request was refused in the run, so that nothing was executed.
    failed: bool,
}

impl WhatIf {
    /// Builds the allocators that the header describes, each on a card that nobody shares.
    pub(super) fn new(header: &Header) -> Result<WhatIf> {
        let options = pool_options(header)?;
        let elsewhere = header.taken_bytes.saturating_add(header.context_bytes);
        let free_bytes = header.total_memory_bytes.saturating_sub(elsewhere);
        let pools = (0..header.devices).map(|ordinal| {
            let options = PoolOptions {
                ordinal,
                ..options.clone()
            };
            allocator::build(&options, Box::new(CardMemory::new(free_bytes)))
        });
        Ok(WhatIf {
            pools: pools.collect(),
            live: FxHashMap::default(),
            allocations: 0,
            programs: FxHashMap::default(),
            running: Vec::new(),
            refused: false,
            parted: false,
        })
    }

    /// Lets an event happen that the replay of the run has found plausible.
    pub(super) fn apply(&mut self, event: &Event) {
        if self.parted {
            return;
        }
        match *event {
            Event::Program {
                program,
                sizes,
                devices,
                ..
            } => {
                let known = Program {
                    temp_bytes: sizes.temp_bytes,
                    devices,
                    other_bytes: None,
                };
                self.programs.insert(program, known);
            }
            Event::Variant { program, sizes, .. } => {
                if let Some(program) = self.programs.get_mut(&program) {
                    program.other_bytes = Some(sizes.temp_bytes);
                }
            }
            Event::Begin { program, .. } => self.running.push(Execution {
                program: self.programs.get(&program).copied(),
                ..Execution::default()
            }),
            Event::Allocate {
                device,
                bytes,
                alignment,
                space,
                purpose,
                ..
            } => {
                let number = self.allocations;
                self.allocations += 1;
                let bytes = self.other_bytes(device, bytes, purpose);
                if bytes == 0 && purpose == Purpose::Temporary {
                    return;
                }
                match self.allocate(device, bytes, alignment, space) {
                    Some(address) => {
                        self.live.insert(number, (device, address));
                    }
                    // The run went on from here with bytes that it would not have had.
                    None => self.parted = true,
                }
            }
            Event::Refuse {
                device,
                bytes,
                alignment,
                space,
                purpose,
                ..
            } => {
                let bytes = self.other_bytes(device, bytes, purpose);
                if let Some(execution) = self.running.last_mut() {
                    execution.failed = true;
                }
                self.parted = self.allocate(device, bytes, alignment, space).is_some();
            }
            Event::Free { allocation } | Event::FreeAborts { allocation, .. } => {
                if let Some((device, address)) = self.live.remove(&allocation) {
                    self.free(device, address);
                }
            }
            Event::End => self.end(),
            _ => {}
        }
    }

    /// Returns the peak of each device.
    pub(super) fn peak_bytes(&self) -> Vec<u64> {
        let stats = self.pools.iter().map(|pool| pool.stats());
        stats.map(|stats| stats.peak_bytes_in_use).collect()
    }

    /// Says whether every request was met; `None` when how it would have gone on is not known.
    pub(super) fn fits(&self) -> Option<bool> {
        match (self.refused, self.parted) {
            (true, _) => Some(false),
            (false, true) => None,
            (false, false) => Some(true),
        }
    }

    /// Returns how much a request asks for now. The first temporary block of an execution on a
    /// device takes what all of them take together.
    fn other_bytes(&mut self, device: u32, bytes: u64, purpose: Purpose) -> u64 {
        let Some(execution) = self.running.last_mut() else {
            return bytes;
        };
        note(&mut execution.seen, device);
        match execution.program.and_then(|program| program.other_bytes) {
            Some(other) if purpose == Purpose::Temporary => {
                match note(&mut execution.taken, device) {
                    true => other,
                    false => 0,
                }
            }
            _ => bytes,
        }
    }

    /// Ends an execution. A program that had no temporaries in the run asked for none, so the ones
    /// that it has now come and go here, while its outputs are there.
    fn end(&mut self) {
        let Some(execution) = self.running.pop() else {
            return;
        };
        let Some((program, bytes)) = execution
            .program
            .and_then(|program| Some((program, program.other_bytes?)))
        else {
            return;
        };
        if program.temp_bytes > 0 || bytes == 0 || execution.failed {
            return;
        }
        let mut devices = execution.seen;
        // A program whose outputs are all arguments reused allocates nowhere at all.
        let others = (0..self.pools.len() as u32).filter(|device| !devices.contains(device));
        let missing = (program.devices as usize).saturating_sub(devices.len());
        let others: Vec<_> = others.take(missing).collect();
        devices.extend(others);
        for device in devices {
            match self.allocate(device, bytes, ALIGNMENT, Space::Default) {
                Some(address) => self.free(device, address),
                None => self.parted = true,
            }
        }
    }

    fn allocate(&mut self, device: u32, bytes: u64, alignment: u64, space: Space) -> Option<u64> {
        let pool = self.pools.get_mut(device as usize)?;
        let address = pool.allocate(bytes, alignment, space).ok();
        self.refused |= address.is_none();
        address
    }

    fn free(&mut self, device: u32, address: u64) {
        let pool = self.pools.get_mut(device as usize);
        // The allocator of a real process aborts where this fails.
        self.refused |= pool.is_none_or(|pool| pool.free(address).is_err());
    }
}

/// Adds a device to a short list; says whether it was not in it.
fn note(devices: &mut Vec<u32>, device: u32) -> bool {
    let new = !devices.contains(&device);
    if new {
        devices.push(device);
    }
    new
}
