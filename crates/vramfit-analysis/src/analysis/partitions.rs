//! Programs that run on several devices: what each device has a copy of, and how many groups exchange data.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::Serialize;

use crate::program::ProgramMemory;
use crate::program::memory::Owner;
use crate::trace::{Note, PartitionedProgram};

/// State of which several devices have the same part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReplicatedArgument {
    /// Its owner.
    pub owner: Owner,
    /// Its pytree path.
    pub path: String,
    /// Shape of the part, in XLA's notation.
    pub shape: String,
    /// Bytes on each device.
    pub bytes: u64,
    /// How many devices have the same bytes.
    pub copies: u32,
}

impl ReplicatedArgument {
    /// Returns the bytes that each device would have less if the copies were divided among the devices that have them.
    pub fn divisible_bytes(&self) -> u64 {
        let copies = u64::from(self.copies.max(1));
        self.bytes / copies * (copies - 1)
    }
}

fn partitioned(notes: &[Note]) -> impl Iterator<Item = &PartitionedProgram> {
    notes.iter().filter_map(|note| match note {
        Note::PartitionedProgram(program) => Some(program),
        _ => None,
    })
}

/// Returns how a program is divided, if it runs on several devices.
pub(super) fn find_partitioned(notes: &[Note], program: u32) -> Option<&PartitionedProgram> {
    partitioned(notes).find(|known| known.program == program)
}

/// Returns among how many devices each parameter of a program is divided; empty where that is not known.
pub(super) fn parts_of_parameters(notes: &[Note], program: u32) -> Vec<u32> {
    find_partitioned(notes, program).map_or_else(Vec::new, |found| {
        found.copies.iter().map(|copies| found.devices / (*copies).max(1)).collect()
    })
}

/// Returns the state of a program of which several devices have the same part, the largest first.
pub(super) fn replicated_arguments(
    notes: &[Note],
    program: u32,
    memory: &ProgramMemory,
) -> Vec<ReplicatedArgument> {
    let Some(PartitionedProgram { copies, .. }) = find_partitioned(notes, program) else {
        return Vec::new();
    };
    let is_state =
        |owner| matches!(owner, Owner::Parameters | Owner::OptimizerState | Owner::OtherState);
    let mut found: Vec<_> = memory
        .buffers
        .iter()
        .filter(|buffer| is_state(buffer.owner))
        .filter_map(|buffer| {
            let copies = *copies.get(buffer.parameter? as usize)?;
            (copies > 1).then(|| ReplicatedArgument {
                owner: buffer.owner,
                path: buffer.path.clone(),
                shape: buffer.shape.clone(),
                bytes: buffer.bytes,
                copies,
            })
        })
        .collect();
    found.sort_by_key(|argument| Reverse(argument.divisible_bytes()));
    found
}

/// Returns in how many different ways the devices of all programs are grouped to exchange data: each device is in as
/// many communicators of NCCL.
pub(super) fn count_communicators(notes: &[Note]) -> u64 {
    let groups: BTreeSet<u64> =
        partitioned(notes).flat_map(|program| program.communicators.iter().copied()).collect();
    groups.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::memory::Buffer;

    fn note(program: u32, copies: &[u32], communicators: &[u64]) -> Note {
        Note::PartitionedProgram(PartitionedProgram {
            program,
            copies: copies.to_vec(),
            communicators: communicators.to_vec(),
            ..PartitionedProgram::default()
        })
    }

    #[test]
    fn state_with_copies_is_found_and_batches_are_not() {
        let buffer = |owner, parameter, bytes| Buffer {
            owner,
            parameter: Some(parameter),
            bytes,
            ..Buffer::default()
        };
        let memory = ProgramMemory {
            buffers: vec![
                buffer(Owner::Parameters, 0, 100),
                buffer(Owner::OptimizerState, 1, 400),
                buffer(Owner::OptimizerState, 2, 800),
                buffer(Owner::Batch, 3, 900),
            ],
            ..ProgramMemory::default()
        };
        let notes = [note(7, &[2, 4, 1, 8], &[])];
        let found = replicated_arguments(&notes, 7, &memory);
        let saved = found.iter().map(ReplicatedArgument::divisible_bytes);
        assert_eq!(saved.collect::<Vec<_>>(), [300, 50]);
        assert!(replicated_arguments(&notes, 8, &memory).is_empty());
    }

    #[test]
    fn equal_groups_of_two_programs_are_one_communicator() {
        let notes = [note(0, &[], &[1, 2]), note(1, &[], &[2, 3])];
        assert_eq!(count_communicators(&notes), 3);
    }
}
