//! Arrays that every device holds in full although there are several: results of programs that run on all of them and
//! whose sharding divides nothing.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::bytes::Bytes;
use crate::program::memory::Buffer;
use crate::program::parse_dimensions;
use crate::trace::{Note, PartitionedProgram};

/// Less than one in this many of the bytes in use is not named.
const MIN_FRACTION: u64 = 10;

/// Numbers and the like are not counted.
const MIN_BYTES: u64 = 1 << 10;

/// What of a device's memory every other device has as well, at the moment that decides. At least: of arrays that were
/// copied from the host it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReplicatedArrays {
    /// On how many devices, of all hosts together.
    pub devices: u32,
    /// How many bytes each of them holds.
    pub bytes: u64,
    /// How many arrays.
    pub count: u64,
    /// Pytree path of the largest.
    pub largest: String,
    /// Its shape, in XLA's notation.
    pub shape: String,
    /// The longest of its dimensions that the devices could divide evenly, and its length.
    pub divisible: Option<(usize, u64)>,
    #[serde(skip)]
    largest_bytes: u64,
}

/// Adds them up.
pub(in crate::analysis) struct ReplicatedOutputs<'a> {
    programs: FxHashMap<u32, &'a PartitionedProgram>,
    found: ReplicatedArrays,
}

impl<'a> ReplicatedOutputs<'a> {
    pub(in crate::analysis) fn new(notes: &'a [Note]) -> Self {
        let programs = notes.iter().filter_map(|note| match note {
            Note::PartitionedProgram(program) if program.devices > 1 => Some(program),
            _ => None,
        });
        // What some of the devices have in full, others may lack.
        let devices = programs.clone().map(|program| program.devices).max();
        let programs = programs.filter(|program| Some(program.devices) == devices);
        ReplicatedOutputs {
            programs: programs.map(|program| (program.program, program)).collect(),
            found: ReplicatedArrays::default(),
        }
    }

    /// Adds an output of a program; `output` is its buffer, where that is known.
    pub(in crate::analysis) fn add(
        &mut self,
        program: u32,
        slot: u32,
        bytes: u64,
        output: Option<&Buffer>,
    ) {
        let Some(program) = self.programs.get(&program).filter(|_| bytes >= MIN_BYTES) else {
            return;
        };
        let mut outputs = program.output_copies.iter();
        if !outputs.any(|(allocation, copies)| *allocation == slot && *copies == program.devices) {
            return;
        }
        let found = &mut self.found;
        found.devices = program.devices;
        found.bytes = found.bytes.saturating_add(bytes);
        found.count += 1;
        if let Some(output) = output.filter(|_| bytes > found.largest_bytes) {
            found.largest_bytes = bytes;
            found.largest.clone_from(&output.path);
            found.shape.clone_from(&output.shape);
            found.divisible = longest_divisible(&output.shape, program.devices);
        }
    }

    /// Returns what was found, if it is worth naming beside so many bytes in use.
    pub(in crate::analysis) fn finish(self, total_bytes: u64) -> Option<ReplicatedArrays> {
        Some(self.found).filter(|found| found.bytes > total_bytes / MIN_FRACTION)
    }
}

impl ReplicatedArrays {
    /// Says so in a sentence.
    pub(crate) fn describe(&self) -> String {
        let ReplicatedArrays { devices, bytes, count, largest, shape, .. } = self;
        let arrays = match count {
            1 => "an array".to_owned(),
            count => format!("{count} arrays"),
        };
        let which = match (largest.as_str(), self.count) {
            ("", _) => String::new(),
            (largest, 1) => format!(", `{largest}`, `{shape}`"),
            (largest, _) => format!(", the largest `{largest}`, `{shape}`"),
        };
        let way = match self.divisible {
            Some((dimension, length)) => {
                format!(": its dimension {dimension} ({length}) can be divided among them")
            }
            None => format!(": none of its dimensions is divisible by {devices}"),
        };
        let way = if which.is_empty() { String::new() } else { way };
        format!("{} are {arrays} that all {devices} GPUs hold in full{which}{way}", Bytes(*bytes))
    }
}

/// Returns the longest dimension of a shape such as `f32[126,1024]` that so many devices can divide.
fn longest_divisible(shape: &str, devices: u32) -> Option<(usize, u64)> {
    let lengths = parse_dimensions(shape)?.into_iter().enumerate();
    let divisible = lengths.filter(|(_, length)| *length > 0 && length % u64::from(devices) == 0);
    divisible.max_by_key(|(dimension, length)| (*length, std::cmp::Reverse(*dimension)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(devices: u32, output_copies: &[(u32, u32)]) -> Note {
        Note::PartitionedProgram(PartitionedProgram {
            program: 5,
            devices,
            output_copies: output_copies.to_vec(),
            ..PartitionedProgram::default()
        })
    }

    fn output(path: &str, shape: &str) -> Buffer {
        Buffer { path: path.to_owned(), shape: shape.to_owned(), ..Buffer::default() }
    }

    #[test]
    fn arrays_in_full_on_all_devices_are_added_up() {
        let of_some = PartitionedProgram {
            program: 6,
            devices: 8,
            output_copies: vec![(0, 8)],
            ..PartitionedProgram::default()
        };
        let notes = [
            note(16, &[(0, 16), (1, 1), (2, 16), (3, 4)]),
            // All of the eight devices that it runs on.
            Note::PartitionedProgram(of_some),
        ];
        let mut outputs = ReplicatedOutputs::new(&notes);
        outputs.add(5, 0, 100 << 10, Some(&output("k", "f32[3,64,8]")));
        outputs.add(5, 1, 1000 << 10, Some(&output("q", "f32[64]")));
        outputs.add(5, 2, 50 << 10, Some(&output("v", "f32[5]")));
        // Divided among four of four groups.
        outputs.add(5, 3, 1000 << 10, Some(&output("o", "f32[64]")));
        outputs.add(6, 0, 1000 << 10, Some(&output("other", "f32[64]")));
        let found = outputs.finish(1000 << 10).expect("more than a tenth");
        assert_eq!((found.devices, found.bytes, found.count), (16, 150 << 10, 2));
        assert_eq!(
            found.describe(),
            "150.0 KiB are 2 arrays that all 16 GPUs hold in full, the largest `k`, `f32[3,64,8]`: its dimension 1 (64) can be \
             divided among them"
        );
    }

    #[test]
    fn few_bytes_are_not_named_and_one_device_has_nothing_twice() {
        let notes = [note(16, &[(0, 16)])];
        let mut outputs = ReplicatedOutputs::new(&notes);
        outputs.add(5, 0, 100 << 10, Some(&output("v", "f32[5]")));
        outputs.add(5, 0, 4, Some(&output("count", "s32[]")));
        assert_eq!(outputs.found.count, 1);
        assert!(outputs.found.describe().ends_with("none of its dimensions is divisible by 16"));
        assert_eq!(outputs.finish(1000 << 10), None);
        let notes = [note(1, &[(0, 1)])];
        let mut outputs = ReplicatedOutputs::new(&notes);
        outputs.add(5, 0, 100 << 10, None);
        assert_eq!(outputs.finish(100 << 10), None);
    }
}
