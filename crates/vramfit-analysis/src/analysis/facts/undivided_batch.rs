//! A program for which several devices do the same work: each has every argument in full, the batch included.

use std::cmp::Reverse;

use serde::Serialize;

use crate::analysis::partitions::find_partitioned;
use crate::program::ProgramMemory;
use crate::program::memory::Owner;
use crate::trace::{Note, PartitionedProgram};

/// Smaller batches are numbers and the like.
const MIN_BYTES: u64 = 1 << 20;

/// The largest array of the batch, of which every device has all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UndividedBatch {
    /// How many devices compute the same.
    pub devices: u32,
    /// Its pytree path.
    pub path: String,
    /// Its shape, in XLA's notation.
    pub shape: String,
    /// Its size.
    pub bytes: u64,
}

impl UndividedBatch {
    /// Looks at a program. One that divides an argument among devices, or whose devices exchange data, is another one:
    /// its batch may be whole by intent, or be divided inside.
    pub(in crate::analysis) fn find(
        notes: &[Note],
        program: u32,
        memory: &ProgramMemory,
    ) -> Option<Self> {
        let PartitionedProgram { devices, copies, communicators, communicates, .. } =
            find_partitioned(notes, program)?;
        let is_whole = !copies.is_empty() && copies.iter().all(|copies| copies == devices);
        if *devices < 2 || !is_whole || *communicates || !communicators.is_empty() {
            return None;
        }
        let batch = memory.buffers.iter().filter(|buffer| {
            buffer.owner == Owner::Batch && buffer.parameter.is_some() && buffer.bytes >= MIN_BYTES
        });
        let largest = batch.min_by_key(|buffer| Reverse(buffer.bytes))?;
        Some(UndividedBatch {
            devices: *devices,
            path: largest.path.clone(),
            shape: largest.shape.clone(),
            bytes: largest.bytes,
        })
    }

    /// Says so in a sentence.
    pub(crate) fn describe(&self) -> String {
        let UndividedBatch { devices, path, shape, .. } = self;
        format!(
            "all {devices} GPUs compute the same: each has every argument in full, also the batch `{path}`, `{shape}`; \
             `jax.device_put` with a `NamedSharding` that divides the batch, such as `P(\"data\")`, divides it and what is \
             computed from it"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::memory::Buffer;

    #[test]
    fn only_a_program_that_divides_nothing_does_the_same_on_all_devices() {
        let buffer = |owner, parameter, path: &str, bytes| Buffer {
            owner,
            parameter: Some(parameter),
            path: path.to_owned(),
            bytes,
            ..Buffer::default()
        };
        let memory = ProgramMemory {
            buffers: vec![
                buffer(Owner::Parameters, 0, "params", 8 * MIN_BYTES),
                buffer(Owner::Batch, 1, "y", MIN_BYTES),
                buffer(Owner::Batch, 2, "x", 2 * MIN_BYTES),
            ],
            ..ProgramMemory::default()
        };
        let find = |devices, copies: &[u32], communicators: &[u64], memory: &ProgramMemory| {
            let note = Note::PartitionedProgram(PartitionedProgram {
                program: 7,
                devices,
                copies: copies.to_vec(),
                communicators: communicators.to_vec(),
                ..PartitionedProgram::default()
            });
            UndividedBatch::find(&[note], 7, memory).map(|found| found.path)
        };
        assert_eq!(find(8, &[8, 8, 8], &[], &memory).as_deref(), Some("x"));
        // The model is divided; the batch is; parts are exchanged; it is not known; there is one device.
        assert_eq!(find(8, &[1, 8, 8], &[], &memory), None);
        assert_eq!(find(8, &[8, 8, 1], &[], &memory), None);
        assert_eq!(find(8, &[8, 8, 8], &[1], &memory), None);
        assert_eq!(find(8, &[], &[], &memory), None);
        assert_eq!(find(1, &[1, 1, 1], &[], &memory), None);
        let numbers = ProgramMemory {
            buffers: vec![buffer(Owner::Batch, 0, "rate", 4)],
            ..ProgramMemory::default()
        };
        assert_eq!(find(8, &[8], &[], &numbers), None);
    }
}
