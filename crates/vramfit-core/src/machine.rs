//! What the driver says of the cards in this machine, at one moment.
//!
//! Plain values: `vramfit-gpu` fills them in from a real driver, a recording or a test does so too, and
//! the settings, the doctor and `top` think about them. What cannot be known is `None`; where the
//! driver said why, the reason is in [`Card::unknown`].

use serde::{Deserialize, Serialize};

/// The cards of a machine and who uses them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Version of the driver, such as `580.82.07`.
    pub driver: Option<String>,
    /// The newest version of CUDA that the driver supports, such as `13.0`.
    pub cuda: Option<String>,
    /// The cards, in the order of the driver, which is the order of `nvidia-smi`.
    pub cards: Vec<Card>,
}

/// One card, or one MIG slice of a card: what a process can be given as a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Card {
    /// The card's number in the driver's order; a slice has its parent's.
    pub index: u32,
    /// The driver's lasting name for it: `GPU-…`, or `MIG-…` for a slice.
    pub uuid: String,
    /// What it is sold as.
    pub name: String,
    /// Compute capability, major and minor.
    pub compute_capability: Option<(u32, u32)>,
    /// Its memory.
    pub memory: Option<Memory>,
    /// Whether the card is divided, and what of it this is.
    pub mig: Mig,
    /// Whether a display runs on it.
    pub display: Option<bool>,
    /// How processes may use it.
    pub compute_mode: Option<ComputeMode>,
    /// Part of the last sampling period in which a kernel ran, in percent.
    pub utilization_percent: Option<u32>,
    /// Temperature in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Power drawn and the limit, in milliwatts.
    pub power_mw: Option<(u32, u32)>,
    /// Processes that hold memory on it.
    pub processes: Vec<Process>,
    /// What could not be learnt, each with the driver's reason.
    pub unknown: Vec<String>,
}

/// A card's memory in bytes, as the driver counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// All of it.
    pub total_bytes: u64,
    /// What the driver and the firmware keep for themselves.
    pub reserved_bytes: u64,
    /// What processes hold, contexts included.
    pub used_bytes: u64,
    /// What can still be had.
    pub free_bytes: u64,
}

/// How a card is divided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mig {
    /// Not divided.
    #[default]
    Off,
    /// A card that is divided: its slices follow it, and no program can use it as a whole.
    Parent,
    /// A slice of the card with the same index.
    Slice {
        /// The driver's number of the instance.
        gpu_instance: u32,
        /// Total memory of the card it is a part of.
        parent_total_bytes: u64,
    },
}

/// Who may make a context on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComputeMode {
    /// Any number of processes.
    Default,
    /// One process.
    ExclusiveProcess,
    /// Nobody.
    Prohibited,
}

/// A process that holds memory of a card.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its number as this process sees it.
    pub pid: u32,
    /// What it holds, context included; the driver does not tell it everywhere (containers, WSL).
    pub used_bytes: Option<u64>,
    /// Whether it draws, computes, or both.
    pub kind: ProcessKind,
    /// Its command line, joined by spaces.
    pub command: Option<String>,
    /// The user it runs as.
    pub user: Option<String>,
    /// The container it runs in, as far as its control group tells.
    pub container: Option<String>,
}

/// What a process uses a card for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessKind {
    /// Computing.
    #[default]
    Compute,
    /// Drawing, such as a desktop.
    Graphics,
    /// Both.
    Both,
}
