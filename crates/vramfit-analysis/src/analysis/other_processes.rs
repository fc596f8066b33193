//! What other processes hold of the GPUs of a run, counted while its events go by.

use serde::Serialize;

use crate::trace::{Note, OtherProcess};

/// What other processes were seen to hold.
#[derive(Default)]
pub(super) struct OtherProcesses {
    devices: Vec<DeviceUsage>,
    /// What they held when a request was refused first.
    pub(super) at_denial: Option<DeviceUsage>,
    pub(super) no_context: Option<NoContextSummary>,
}

/// What other processes hold of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceUsage {
    pub(super) bytes: u64,
    pub(super) max_bytes: u64,
    pub(super) processes: Vec<OtherProcess>,
}

/// A process that had no room for its CUDA context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NoContextSummary {
    /// The device that it could not use.
    pub device: u32,
    /// What a context takes, an estimate.
    pub context_bytes: u64,
    /// What the GPU had left.
    pub free_bytes: u64,
    /// What other processes held of it.
    pub used_by_others_bytes: u64,
}

/// Other processes that hold memory of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherProcessesSummary {
    /// The device of the process whose run this is.
    pub device: u32,
    /// What they held together.
    pub used_bytes: u64,
    /// Those that held most of it, the largest first.
    pub processes: Vec<OtherProcess>,
}

impl OtherProcesses {
    /// Records a note. Prepared for no device, there is nothing to learn: a replay under other
    /// settings has its GPUs to itself.
    pub(super) fn on_note(&mut self, note: &Note) {
        match note {
            _ if self.devices.is_empty() => {}
            Note::Others { device, used_bytes, max_used_bytes, processes } => {
                if let Some(held) = self.device(*device) {
                    *held = DeviceUsage {
                        bytes: *used_bytes,
                        max_bytes: held.max_bytes.max(*max_used_bytes).max(*used_bytes),
                        processes: processes.clone(),
                    };
                }
            }
            Note::NoContext { device, context_bytes, free_bytes } => {
                let held = self.usage(*device);
                let no_context = NoContextSummary {
                    device: *device,
                    context_bytes: *context_bytes,
                    free_bytes: *free_bytes,
                    used_by_others_bytes: held.bytes,
                };
                self.at_denial.get_or_insert(held);
                self.no_context.get_or_insert(no_context);
            }
            _ => {}
        }
    }

    /// Prepares for this many devices.
    pub(super) fn new(devices: usize) -> OtherProcesses {
        OtherProcesses {
            devices: vec![DeviceUsage::default(); devices],
            ..OtherProcesses::default()
        }
    }

    /// Returns what is held of a device now.
    pub(super) fn usage(&self, device: u32) -> DeviceUsage {
        let held = self.devices.get(device as usize);
        held.cloned().unwrap_or_default()
    }

    fn device(&mut self, device: u32) -> Option<&mut DeviceUsage> {
        self.devices.get_mut(device as usize)
    }
}
