//! The buffers of a program, by the slots that an execution passes or allocates.

use rustc_hash::FxHashMap;

use crate::program::ProgramMemory;
use crate::program::memory::{Buffer, Owner};
use crate::trace::Purpose;

/// The buffers of a program, by what is asked for.
#[derive(Default)]
pub(super) struct ProgramSlots<'a> {
    pub(super) arguments: FxHashMap<u32, &'a Buffer>,
    /// Those that are no arguments, by their allocation.
    others: FxHashMap<u32, Vec<&'a Buffer>>,
}

impl<'a> ProgramSlots<'a> {
    pub(super) fn new(memory: &'a ProgramMemory) -> Self {
        let mut places = ProgramSlots::default();
        for buffer in &memory.buffers {
            match buffer.parameter {
                Some(parameter) => drop(places.arguments.entry(parameter).or_insert(buffer)),
                None => {
                    let others = places.others.entry(buffer.allocation);
                    others.or_default().push(buffer);
                }
            }
        }
        places
    }

    /// Returns the slots that an execution allocates after one: with what for, and how many bytes.
    pub(super) fn allocated_after(&self, slot: u32, temp_bytes: u64) -> Vec<(u32, Purpose, u64)> {
        let later = self.others.iter().filter(|(number, _)| **number > slot);
        let mut later: Vec<_> = later
            .filter_map(|(number, buffers)| {
                let first = buffers.first()?;
                match first.owner {
                    Owner::Constants => None,
                    Owner::Outputs => Some((*number, Purpose::Output, first.bytes)),
                    _ => Some((*number, Purpose::Temporary, temp_bytes)),
                }
            })
            .collect();
        later.sort_unstable_by_key(|(number, ..)| *number);
        later
    }

    pub(super) fn others(&self, allocation: u32) -> &[&'a Buffer] {
        self.others.get(&allocation).map_or(&[], Vec::as_slice)
    }
}
