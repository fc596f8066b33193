//! Which devices of a program exchange data: its collectives, and the groups in which they are made.

use std::collections::BTreeSet;

use super::proto::{HloInstructionProto, HloModuleProto, IotaReplicaGroupList};

/// Beginnings of the opcodes of collectives; asynchronous ones end with `-start` and `-done`.
const COLLECTIVES: [&str; 8] = [
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-broadcast",
    "collective-permute",
    "ragged-all-to-all",
    "reduce-scatter",
    "send",
];

/// Groups of devices; a device is its number in the program, replica-major.
pub type DeviceGroups = Vec<Vec<u32>>;

fn is_collective_name(text: &str) -> bool {
    COLLECTIVES.iter().any(|name| text.starts_with(name))
}

pub(super) fn is_collective(instruction: &HloInstructionProto) -> bool {
    // What a generic asynchronous instruction does is in its name and in the computation that it calls.
    let is_async = instruction.opcode.starts_with("async-");
    is_collective_name(&instruction.opcode) || (is_async && is_collective_name(&instruction.name))
}

/// Returns the different ways in which the collectives of a module group its `devices`: XLA makes a communicator
/// of each group.
pub(super) fn device_groups(module: &HloModuleProto, devices: usize) -> Vec<DeviceGroups> {
    if devices < 2 {
        return Vec::new();
    }
    let collectives = module.instructions().filter(|instruction| {
        is_collective_name(&instruction.opcode) && !instruction.opcode.ends_with("-done")
    });
    let different: BTreeSet<DeviceGroups> =
        collectives.map(|instruction| groups_of(instruction, devices)).collect();
    different.into_iter().collect()
}

/// Returns the groups of one collective. All devices are one group where none are given, and for transfers from
/// device to device.
fn groups_of(instruction: &HloInstructionProto, devices: usize) -> DeviceGroups {
    let number = |id: &i64| u32::try_from(*id).ok();
    let list = instruction.collective_device_list.as_ref();
    let explicit = list.map_or(&instruction.replica_groups, |list| &list.replica_groups);
    let mut groups: DeviceGroups = explicit
        .iter()
        .map(|group| group.replica_ids.iter().filter_map(number).collect())
        .collect();
    let in_list = list.and_then(|list| list.iota_replica_group_list.as_ref());
    if let Some(iota) = in_list.or(instruction.iota_collective_device_list.as_ref()) {
        groups = unfold(iota);
    }
    groups.retain(|group: &Vec<u32>| !group.is_empty());
    if groups.is_empty() {
        groups = vec![(0..devices as u32).collect()];
    }
    groups.sort();
    groups
}

/// Unfolds XLA's short form: numbers in a box whose axes are exchanged, cut into groups.
fn unfold(iota: &IotaReplicaGroupList) -> DeviceGroups {
    /// More devices than any program has.
    const MAX_DEVICES: usize = 1 << 20;
    let sizes: Vec<usize> = iota.reshape_dims.iter().map(|size| (*size).max(0) as usize).collect();
    let total = sizes.iter().try_fold(1usize, |all, size| all.checked_mul(*size));
    let per_group = iota.devices_per_group.max(0) as usize;
    let order: Vec<usize> = iota.transpose_perm.iter().map(|axis| *axis as usize).collect();
    let is_valid = order.len() == sizes.len() && order.iter().all(|axis| *axis < sizes.len());
    let Some(total) = total.filter(|total| *total <= MAX_DEVICES && is_valid && per_group > 0)
    else {
        return Vec::new();
    };
    let mut strides = vec![1; sizes.len()];
    for axis in (1..sizes.len()).rev() {
        strides[axis - 1] = strides[axis] * sizes[axis];
    }
    let number = |mut place: usize| {
        let mut number = 0;
        for axis in order.iter().rev() {
            number += place % sizes[*axis] * strides[*axis];
            place /= sizes[*axis];
        }
        number as u32
    };
    let numbers: Vec<u32> = (0..total).map(number).collect();
    numbers.chunks(per_group).map(<[u32]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::program::proto::{CollectiveDeviceList, ReplicaGroup};

    fn collective(opcode: &str, list: Option<CollectiveDeviceList>) -> HloInstructionProto {
        HloInstructionProto {
            opcode: opcode.to_owned(),
            collective_device_list: list,
            ..HloInstructionProto::default()
        }
    }

    fn explicit(groups: &[&[i64]]) -> Option<CollectiveDeviceList> {
        let groups = groups.iter().map(|ids| ReplicaGroup { replica_ids: ids.to_vec() });
        Some(CollectiveDeviceList {
            replica_groups: groups.collect(),
            iota_replica_group_list: None,
        })
    }

    #[test]
    fn equal_groups_are_one_and_no_groups_are_all_devices() {
        let module = HloModuleProto::of(vec![
            collective("all-reduce-start", explicit(&[&[0, 2], &[1, 3]])),
            collective("all-reduce-done", None),
            collective("all-gather", explicit(&[&[1, 3], &[0, 2]])),
            collective("add", None),
            collective("collective-permute", None),
        ]);
        let groups = device_groups(&module, 4);
        assert_eq!(groups, [vec![vec![0, 1, 2, 3]], vec![vec![0, 2], vec![1, 3]]]);
    }

    #[test]
    fn groups_are_read_from_what_xla_has_written() {
        // Field 92 of an `all-gather-start` with `replica_groups=[2,4]<=[4,2]T(1,0)`, as JAX 0.10.2 serializes it.
        let bytes =
            b"\x12\x10all-gather-start\xe2\x05\x0c\x08\x02\x10\x04\x1a\x02\x04\x02\"\x02\x01\x00";
        let instruction = HloInstructionProto::decode(bytes.as_slice()).expect("an instruction");
        let groups = device_groups(&HloModuleProto::of(vec![instruction]), 8);
        assert_eq!(groups, [vec![vec![0, 2, 4, 6], vec![1, 3, 5, 7]]]);
    }

    #[test]
    fn the_short_form_is_unfolded_as_xla_does() {
        // `[4,2]<=[2,2,2]T(2,1,0)` of XLA's notation: 4 groups of 2, of 8 devices in a box of 2 x 2 x 2.
        let iota = IotaReplicaGroupList {
            groups: 4,
            devices_per_group: 2,
            reshape_dims: vec![2, 2, 2],
            transpose_perm: vec![2, 1, 0],
        };
        assert_eq!(unfold(&iota), [vec![0, 4], vec![2, 6], vec![1, 5], vec![3, 7]]);
        let damaged = IotaReplicaGroupList { transpose_perm: vec![7], ..iota };
        assert!(unfold(&damaged).is_empty());
    }
}
