//! What connects a GPU with host memory.

use serde::{Deserialize, Serialize};

/// A link between GPU and host, as data sheets name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HostLink {
    /// PCI Express 3.0 with 16 lanes.
    #[serde(rename = "pcie3")]
    Pcie3,
    /// PCI Express 4.0 with 8 lanes.
    #[serde(rename = "pcie4-x8")]
    Pcie4X8,
    /// PCI Express 4.0 with 16 lanes.
    #[serde(rename = "pcie4")]
    Pcie4,
    /// PCI Express 5.0 with 16 lanes.
    #[serde(rename = "pcie5")]
    Pcie5,
    /// PCI Express 6.0 with 16 lanes.
    #[serde(rename = "pcie6")]
    Pcie6,
    /// NVLink-C2C between a Grace CPU and a GPU.
    #[serde(rename = "nvlink-c2c")]
    NvlinkC2c,
}

impl HostLink {
    /// Returns how many bytes it transfers in a second in one direction, without protocol headers: lanes
    /// times transfer rate times coding (128 of 130 bits; PCI Express 6.0: 242 of 256 bytes of a flit).
    pub fn bytes_per_s(self) -> u64 {
        match self {
            HostLink::Pcie3 | HostLink::Pcie4X8 => 15_753_846_153,
            HostLink::Pcie4 => 31_507_692_307,
            HostLink::Pcie5 => 63_015_384_615,
            HostLink::Pcie6 => 121_000_000_000,
            HostLink::NvlinkC2c => 450_000_000_000,
        }
    }

    /// Returns how people call it.
    pub fn label(self) -> &'static str {
        match self {
            HostLink::Pcie3 => "PCIe 3.0 x16",
            HostLink::Pcie4X8 => "PCIe 4.0 x8",
            HostLink::Pcie4 => "PCIe 4.0 x16",
            HostLink::Pcie5 => "PCIe 5.0 x16",
            HostLink::Pcie6 => "PCIe 6.0 x16",
            HostLink::NvlinkC2c => "NVLink-C2C",
        }
    }
}
