//! A batch that the program divides among devices, of which each device nevertheless computes all rows: XLA's
//! partitioner has chosen another dimension for what it computes of the batch.
//!
//! A module that was partitioned has shapes of one device only, so that a dimension as long as the whole batch may be
//! another one, such as the heads of attention. It is certain where a constraint was measured and helps.

use crate::analysis::partitions::parts_of_parameters;
use crate::bytes::Bytes;
use crate::program::memory::{Buffer, Owner};
use crate::program::{ProgramMemory, parse_dimensions};
use crate::section::phrases::file_name;
use crate::trace::Note;

/// Less than one in this many of a program's bytes is not named.
const MIN_FRACTION: u64 = 10;

/// Values that may be of the whole batch on each device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeBatch {
    /// Pytree path of the argument that is divided.
    pub argument: String,
    /// Its rows on all devices together.
    pub rows: u64,
    /// Its rows on each device.
    pub rows_per_device: u64,
    /// How many bytes at the peak are values of all rows.
    pub bytes: u64,
    /// The line of the first value of all rows; empty if not known.
    pub site: String,
}

impl WholeBatch {
    /// Looks for values of all rows among the buffers of a program.
    pub(in crate::analysis) fn find(
        notes: &[Note],
        program: u32,
        memory: &ProgramMemory,
    ) -> Option<Self> {
        let parts = parts_of_parameters(notes, program);
        let divided = memory.buffers.iter().filter_map(|buffer| {
            let own_parts = u64::from(*parts.get(buffer.parameter? as usize)?);
            let rows_per_device = rows(buffer)?;
            (buffer.owner == Owner::Batch && own_parts > 1).then_some((
                buffer,
                rows_per_device,
                rows_per_device * own_parts,
            ))
        });
        let (argument, rows_per_device, all_rows) = divided.max_by_key(|(.., rows)| *rows)?;
        let is_whole = |buffer: &&Buffer| {
            matches!(buffer.owner, Owner::Activations | Owner::Temporaries)
                && rows(buffer) == Some(all_rows)
        };
        let whole = memory.buffers.iter().filter(is_whole);
        let bytes: u64 = whole.clone().map(|buffer| buffer.peak_bytes).sum();
        if bytes < (memory.occupied_bytes() / MIN_FRACTION).max(1) {
            return None;
        }
        // Counters and masks may be of all rows without harm.
        let is_large = |buffer: &&Buffer| buffer.bytes >= bytes / 100;
        let first = whole.filter(is_large).min_by_key(|buffer| buffer.start);
        let site = first.and_then(|buffer| memory.user_site(buffer.frame)).unwrap_or_default();
        Some(WholeBatch {
            argument: argument.path.clone(),
            rows: all_rows,
            rows_per_device,
            bytes,
            site: site.to_owned(),
        })
    }

    /// Says so in a sentence.
    pub(crate) fn describe(&self) -> String {
        let at = match &*self.site {
            "" => String::new(),
            site => format!(", first at {}", file_name(site)),
        };
        format!(
            "the whole batch is on each GPU: up to {} are values of all {} rows, although `{}` has {} on each; XLA does not keep \
             the batch divided{at}",
            Bytes(self.bytes),
            self.rows,
            self.argument,
            self.rows_per_device
        )
    }
}

/// Returns the first dimension of a buffer's shape.
fn rows(buffer: &Buffer) -> Option<u64> {
    parse_dimensions(&buffer.shape)?.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::PartitionedProgram;

    /// Returns what is found in a program on so many devices, whose batch of one row each has so many copies.
    fn find(devices: u32, copies: u32, shape: &str) -> Option<WholeBatch> {
        let buffer = |owner, parameter, shape: &str, bytes| Buffer {
            owner,
            parameter,
            shape: shape.to_owned(),
            bytes,
            peak_bytes: bytes,
            ..Buffer::default()
        };
        let memory = ProgramMemory {
            buffers: vec![
                buffer(Owner::Batch, Some(0), "s32[1,64]", 256),
                buffer(Owner::Activations, None, shape, 1 << 20),
            ],
            ..ProgramMemory::default()
        };
        let note = Note::PartitionedProgram(PartitionedProgram {
            program: 3,
            devices,
            copies: vec![copies],
            ..PartitionedProgram::default()
        });
        WholeBatch::find(&[note], 3, &memory)
    }

    #[test]
    fn values_of_all_rows_are_found_where_the_batch_is_divided() {
        let found = find(8, 1, "f32[8,64,32]").expect("all of them");
        assert_eq!((found.rows, found.rows_per_device, found.bytes), (8, 1, 1 << 20));
        // Divided among four, twice.
        assert_eq!(find(8, 2, "f32[4,64,32]").expect("all of them").rows, 4);
        assert_eq!(find(8, 1, "f32[1,64,32]"), None);
        assert_eq!(find(8, 8, "f32[8,64,32]"), None);
        assert_eq!(find(1, 1, "f32[1,64,32]"), None);
    }
}
