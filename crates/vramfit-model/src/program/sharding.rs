//! How XLA divides an array among the devices of a program (`OpSharding` in `xla_data.proto`).

use prost::Message;

use super::Program;

/// An `OpSharding`, as far as it says how many devices have the same part.
#[derive(Clone, PartialEq, Message)]
struct ShardingProto {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(int64, repeated, tag = "3")]
    tile_dimensions: Vec<i64>,
    #[prost(bool, tag = "6")]
    replicates_on_last_dimension: bool,
    /// The kinds of the last tile dimensions, which divide no dimension of the array.
    #[prost(int32, repeated, tag = "8")]
    last_dimensions: Vec<i32>,
}

const REPLICATED: i32 = 0;
const OTHER: i32 = 3;

impl Program {
    /// Returns how many devices have the same part of each parameter; empty where the module has no shardings.
    pub fn parameter_copies(&self) -> Vec<u32> {
        let devices = self.options.devices.len() as u32;
        let shardings = self.parameter_shardings.iter();
        shardings.map(|bytes| copies(bytes, devices)).collect()
    }

    /// Returns how many devices have the same part of each output, by its allocation; empty where the module has no
    /// shardings.
    pub fn output_copies(&self) -> Vec<(u32, u32)> {
        let devices = self.options.devices.len() as u32;
        let outputs = self.output_allocations.iter().zip(&self.output_shardings);
        let outputs = outputs.filter_map(|(allocation, sharding)| {
            Some(((*allocation)? as u32, copies(sharding, devices)))
        });
        outputs.collect()
    }
}

/// Returns how many of the devices have the same part of an array, by its serialized `OpSharding`.
fn copies(sharding: &[u8], devices: u32) -> u32 {
    let Ok(sharding) = ShardingProto::decode(sharding) else {
        return 1;
    };
    let dimensions = &sharding.tile_dimensions;
    let count = match sharding.kind {
        REPLICATED => i64::from(devices),
        OTHER if sharding.replicates_on_last_dimension => dimensions.last().copied().unwrap_or(1),
        OTHER => {
            let kinds = sharding.last_dimensions.iter().rev();
            let replicated = dimensions.iter().rev().zip(kinds);
            let replicated = replicated.filter(|(_, kind)| **kind == REPLICATED);
            replicated.map(|(size, _)| *size).product()
        }
        _ => 1,
    };
    u32::try_from(count).unwrap_or(1).clamp(1, devices.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_with_the_same_part_are_counted() {
        // Serialized by jaxlib's `OpSharding.SerializeToString` for 32 devices.
        let cases: [(&[u8], u32); 5] = [
            (b"", 32),
            (b"\x08\x01", 1),
            (b"\x08\x04", 1),
            (b"\x08\x03\x1a\x03\x01\x04\x08\x30\x01\x4a\x01\x20\x52\x01\x00", 8),
            (b"\x08\x03\x1a\x03\x01\x04\x08\x42\x01\x00\x4a\x01\x20\x52\x01\x00", 8),
        ];
        for (bytes, expected) in cases {
            assert_eq!(copies(bytes, 32), expected, "{bytes:?}");
        }
    }
}
