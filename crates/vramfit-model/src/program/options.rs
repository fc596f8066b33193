//! JAX's compile options: on which devices a program runs, and flags added for a compile attempt.

use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::proto::{
    CompileOptionsProto, ComputationDevice, DeviceAssignmentProto, EntryLayoutOptions,
    EnvOptionOverride, EnvOptionOverridesEntry, OptionOverrideProto, OptionValue,
    ResultLayoutOption, ShapeProto,
};
use super::shape::{ElementType, MemorySpace, Shape};
use crate::error::{Error, Result};

/// What vramfit needs of the options a program was compiled with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompileOptions {
    /// Number of replicas.
    pub replicas: usize,
    /// Number of partitions (SPMD).
    pub partitions: usize,
    /// Global device ids, replica-major, then partition.
    pub devices: Vec<i64>,
}

impl CompileOptions {
    /// Reads serialized options. Without a device assignment, devices count from 0.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] when the bytes are not compile options.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let options = CompileOptionsProto::decode(bytes)
            .map_err(|error| Error::invalid_file("cannot read the compile options").cause(error))?;
        let build = options.executable_build_options.unwrap_or_default();
        let replicas = build.num_replicas.max(1) as usize;
        let partitions = build.num_partitions.max(1) as usize;
        let assigned = build.device_assignment.unwrap_or_default().computation_devices;
        let devices = (0..replicas)
            .flat_map(|replica| (0..partitions).map(move |partition| (replica, partition)))
            .map(|(replica, partition)| {
                assigned
                    .get(partition)
                    .and_then(|computation| computation.replica_device_ids.get(replica).copied())
                    .unwrap_or((replica * partitions + partition) as i64)
            })
            .collect();
        Ok(CompileOptions { replicas, partitions, devices })
    }

    /// Returns the device assignment as XLA serializes it.
    pub fn device_assignment(&self) -> Vec<u8> {
        let computation_devices = (0..self.partitions)
            .map(|partition| ComputationDevice {
                replica_device_ids: (0..self.replicas)
                    .map(|replica| self.devices[replica * self.partitions + partition])
                    .collect(),
            })
            .collect();
        DeviceAssignmentProto {
            replica_count: self.replicas as i32,
            computation_count: self.partitions as i32,
            computation_devices,
        }
        .encode_to_vec()
    }
}

/// Returns `options` with XLA flags added for this compile only; the user's environment and the
/// options JAX keeps stay as they are.
pub fn with_flags(options: &[u8], flags: &[(&str, OptionValue)]) -> Vec<u8> {
    let added = EnvOptionOverride {
        entries: flags
            .iter()
            .map(|(key, value)| EnvOptionOverridesEntry {
                key: (*key).to_owned(),
                value: Some(OptionOverrideProto { value: Some(value.clone()) }),
            })
            .collect(),
    };
    [options, &added.encode_to_vec()].concat()
}

/// Returns `options` with the arguments and results in the memory spaces of these shapes.
///
/// XLA's client derives the entry layout from the module's attributes `mhlo.memory_kind` before it
/// compiles (`GetArgMemoryKinds` and `LayoutModesToXla` in `xla/pjrt`). The deviceless compile of older
/// plugins does not, but takes the layouts of the compile options (`DetermineArgumentLayoutsFromCompileOptions`
/// in `xla/pjrt/utils.cc`). A shape in host memory is given with its layout there; the layouts of all
/// others are left to the compiler.
pub fn with_memory_spaces(options: &[u8], parameters: &[Shape], outputs: &[Shape]) -> Vec<u8> {
    let write = |shape: &Shape| match shape.space {
        MemorySpace::Host => shape.to_proto(),
        MemorySpace::Device | MemorySpace::Collective => shape.to_proto_without_layout(),
    };
    let result = match outputs {
        [only] => write(only),
        several => ShapeProto {
            element_type: ElementType::TUPLE.0,
            tuple_shapes: several.iter().map(write).collect(),
            ..ShapeProto::default()
        },
    };
    let added = EntryLayoutOptions {
        argument_layouts: parameters.iter().map(write).collect(),
        executable_build_options: Some(ResultLayoutOption { result_layout: Some(result) }),
    };
    [options, &added.encode_to_vec()].concat()
}

/// Returns the options with the entries of each map in the order of their keys: protobuf writes them in any order, in
/// each process another.
pub fn with_sorted_maps(options: &[u8]) -> Vec<u8> {
    const MAX_DEPTH: usize = 8;
    sort_maps(options, MAX_DEPTH).unwrap_or_else(|| options.to_vec())
}

/// Sorts the maps of a message and of those in it; `None` if the bytes are no message. A map is told by its form:
/// neighbors with one number, a text as key, and at most one value. Only those move.
fn sort_maps(message: &[u8], depth: usize) -> Option<Vec<u8>> {
    let mut fields: Vec<(u32, Vec<u8>, Option<Vec<u8>>)> = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let start = rest;
        let (number, wire_type) = decode_key(&mut rest).ok()?;
        if wire_type == WireType::LengthDelimited {
            let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
            let (payload, after) = rest.split_at_checked(length)?;
            let head = &start[..start.len() - rest.len()];
            let sorted = (depth > 0).then(|| sort_maps(payload, depth - 1)).flatten();
            let field = [head, sorted.as_deref().unwrap_or(payload)].concat();
            fields.push((number, field, map_key(payload)));
            rest = after;
        } else {
            skip_field(wire_type, number, &mut rest, DecodeContext::default()).ok()?;
            fields.push((number, start[..start.len() - rest.len()].to_vec(), None));
        }
    }
    let is_same_map = |a: &(u32, _, Option<Vec<u8>>), b: &(u32, _, Option<Vec<u8>>)| {
        a.0 == b.0 && a.2.is_some() && b.2.is_some()
    };
    for entries in fields.chunk_by_mut(is_same_map) {
        entries.sort_by(|a, b| a.2.cmp(&b.2));
    }
    Some(fields.into_iter().flat_map(|(_, field, _)| field).collect())
}

/// Returns the key if a message has the form of an entry of a map with texts as keys.
fn map_key(entry: &[u8]) -> Option<Vec<u8>> {
    let mut rest = entry;
    let is_text = decode_key(&mut rest).ok()? == (1, WireType::LengthDelimited);
    let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
    let (key, mut rest) = rest.split_at_checked(length)?;
    let is_name = !key.is_empty() && key.iter().all(u8::is_ascii_graphic);
    if !rest.is_empty() {
        let (number, wire_type) = decode_key(&mut rest).ok()?;
        skip_field(wire_type, number, &mut rest, DecodeContext::default()).ok()?;
        if number != 2 || !rest.is_empty() {
            return None;
        }
    }
    (is_text && is_name).then(|| key.to_vec())
}

/// Returns the names of the XLA flags that the options set; none if they cannot be read.
pub fn flag_names(options: &[u8]) -> Vec<String> {
    let overrides = EnvOptionOverride::decode(options).unwrap_or_default();
    overrides.entries.into_iter().map(|entry| entry.key).collect()
}

/// Returns the value that the options give an XLA flag, as the user wrote it: `jit` and `compile`
/// take `compiler_options`. `None` when they leave it alone, or cannot be read.
pub fn flag(options: &[u8], name: &str) -> Option<OptionValue> {
    let overrides = EnvOptionOverride::decode(options).ok()?;
    let last = overrides.entries.into_iter().rev().find(|entry| entry.key == name)?;
    last.value?.value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::proto::ExecutableBuildOptionsProto;

    #[test]
    fn the_order_of_entries_in_a_map_makes_no_difference() {
        let entry = |key: &str, value: &str| {
            let entry = EnvOptionOverridesEntry {
                key: key.to_owned(),
                value: Some(OptionOverrideProto {
                    value: Some(OptionValue::Text(value.to_owned())),
                }),
            };
            EnvOptionOverride { entries: vec![entry] }.encode_to_vec()
        };
        let number = [0x18, 7];
        let [a, b, c] = [entry("a", "1"), entry("b", "2"), entry("c", "3")];
        let nested = |parts: &[&[u8]]| {
            let inner = parts.concat();
            [&[0x1a, inner.len() as u8][..], &inner].concat()
        };
        let one = nested(&[&number, &a, &b, &c]);
        let other = nested(&[&number, &c, &a, &b]);
        assert_ne!(one, other);
        assert_eq!(with_sorted_maps(&one), with_sorted_maps(&other));
        assert_eq!(with_sorted_maps(&one).len(), one.len());
        // A value, a place among other fields, and the order of other lists count.
        for different in [
            nested(&[&number, &a, &b, &entry("c", "4")]),
            nested(&[&a, &b, &c, &number]),
            nested(&[&number, &a, &b]),
        ] {
            assert_ne!(with_sorted_maps(&one), with_sorted_maps(&different));
        }
        let list = |numbers: [u8; 2]| numbers.map(|number| [0x0a, 2, 0x08, number]).concat();
        assert_ne!(with_sorted_maps(&list([1, 2])), with_sorted_maps(&list([2, 1])));
        let no_message = [0xff; 5];
        assert_eq!(with_sorted_maps(&no_message), no_message);
    }

    #[test]
    fn device_order_is_replica_major() {
        let assignment = DeviceAssignmentProto {
            replica_count: 2,
            computation_count: 2,
            computation_devices: vec![
                ComputationDevice { replica_device_ids: vec![7, 5] },
                ComputationDevice { replica_device_ids: vec![6, 4] },
            ],
        };
        let bytes = CompileOptionsProto {
            executable_build_options: Some(ExecutableBuildOptionsProto {
                num_replicas: 2,
                num_partitions: 2,
                device_assignment: Some(assignment.clone()),
                device_memory_size: 0,
            }),
        }
        .encode_to_vec();
        let options = CompileOptions::parse(&bytes).expect("valid");
        assert_eq!(options.devices, [7, 6, 5, 4]);
        assert_eq!(options.device_assignment(), assignment.encode_to_vec());
    }

    #[test]
    fn only_shapes_in_host_memory_get_a_layout() {
        let device = Shape::dense(ElementType(11), &[2, 3]);
        let host = Shape { space: MemorySpace::Host, ..device.clone() };
        let build = CompileOptionsProto {
            executable_build_options: Some(ExecutableBuildOptionsProto {
                num_partitions: 2,
                ..ExecutableBuildOptionsProto::default()
            }),
        };
        let parameters = [device.clone(), host.clone()];
        let outputs = [host.clone()];
        let options = with_memory_spaces(&build.encode_to_vec(), &parameters, &outputs);
        assert_eq!(CompileOptions::parse(&options).expect("valid").partitions, 2);
        let read = EntryLayoutOptions::decode(options.as_slice()).expect("valid");
        assert_eq!(read.argument_layouts[0].layout, None);
        assert_eq!(read.argument_layouts[0].dimensions, [2, 3]);
        assert_eq!(Shape::from_proto(&read.argument_layouts[1]), host);
        let result = |options: &[u8]| {
            let read = EntryLayoutOptions::decode(options).expect("valid");
            let build = read.executable_build_options.expect("there");
            build.result_layout.expect("there")
        };
        assert_eq!(Shape::from_proto(&result(&options)), host);
        let pair = with_memory_spaces(&[], &[], &[host.clone(), device]);
        let pair = result(&pair);
        assert_eq!(pair.element_type, ElementType::TUPLE.0);
        assert_eq!(Shape::from_proto(&pair.tuple_shapes[0]), host);
        assert_eq!(pair.tuple_shapes[1].layout, None);
    }

    #[test]
    fn the_flags_of_the_options_are_found() {
        let options = with_flags(&[], &[("a", OptionValue::Bool(true))]);
        let options = with_flags(&options, &[("a", OptionValue::Bool(false))]);
        assert_eq!(flag(&options, "a"), Some(OptionValue::Bool(false)));
        assert_eq!(flag(&options, "b"), None);
        assert_eq!(flag(b"\xff", "a"), None);
    }

    #[test]
    fn without_an_assignment_devices_count_from_zero() {
        let options = CompileOptions::parse(&[]).expect("empty options are valid");
        assert_eq!((options.replicas, options.partitions, options.devices), (1, 1, vec![0]));
    }
}
