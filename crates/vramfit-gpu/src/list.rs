//! The processes on a card: those that compute and those that draw, one entry a process.

use std::collections::BTreeMap;

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use vramfit_core::machine::{Process, ProcessKind};

use crate::nvml::{Unknown, is_unknown_function};
use crate::process;

/// Asks who holds memory of a card, and the system who they are. Largest first.
///
/// Each of the two lists costs the driver milliseconds.
pub(crate) fn processes(device: &Device<'_>, unknown: &mut Unknown) -> Vec<Process> {
    let computing = unknown.note("computing processes", computing(device));
    let drawing = match drawing(device) {
        // A slice cannot draw, and says so in this way.
        Err(NvmlError::NotSupported) => None,
        known => unknown.note("drawing processes", known),
    };
    let mut processes = merge(computing.unwrap_or_default(), drawing.unwrap_or_default());
    let mut strangers = Vec::new();
    for process in &mut processes {
        if !process::describe(process) {
            strangers.push(process.pid.to_string());
        }
    }
    if !strangers.is_empty() {
        unknown.because("commands", strangers_told(&strangers));
    }
    if !processes.is_empty() && processes.iter().all(|one| one.used_bytes.is_none()) {
        let reason = "the driver does not tell it here, as in containers and under WSL".to_owned();
        unknown.because("memory of each process", reason);
    }
    processes
}

fn strangers_told(pids: &[String]) -> String {
    format!(
        "no process {} is to be seen from here; inside a container the driver may tell the \
         numbers of the host",
        pids.join(", ")
    )
}

fn computing(device: &Device<'_>) -> Result<Vec<ProcessInfo>, NvmlError> {
    match device.running_compute_processes() {
        Err(error) if is_unknown_function(&error) => device.running_compute_processes_v2(),
        known => known,
    }
}

fn drawing(device: &Device<'_>) -> Result<Vec<ProcessInfo>, NvmlError> {
    match device.running_graphics_processes() {
        Err(error) if is_unknown_function(&error) => device.running_graphics_processes_v2(),
        known => known,
    }
}

/// Makes one entry of a process that is in both lists.
fn merge(computing: Vec<ProcessInfo>, drawing: Vec<ProcessInfo>) -> Vec<Process> {
    let mut by_pid: BTreeMap<u32, Process> = BTreeMap::new();
    let both = computing
        .into_iter()
        .map(|info| (info, ProcessKind::Compute))
        .chain(
            drawing
                .into_iter()
                .map(|info| (info, ProcessKind::Graphics)),
        );
    for (info, kind) in both {
        let used = match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        by_pid
            .entry(info.pid)
            .and_modify(|known| {
                // Both lists tell the whole of a process. A slice with several compute instances
                // lists a process once for each, which a process can be in only one of.
                known.used_bytes = known.used_bytes.max(used);
                if known.kind != kind {
                    known.kind = ProcessKind::Both;
                }
            })
            .or_insert_with(|| Process {
                pid: info.pid,
                used_bytes: used,
                kind,
                ..Process::default()
            });
    }
    let mut processes: Vec<Process> = by_pid.into_values().collect();
    processes.sort_by_key(|process| std::cmp::Reverse(process.used_bytes));
    processes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(pid: u32, bytes: Option<u64>) -> ProcessInfo {
        ProcessInfo {
            pid,
            used_gpu_memory: bytes.map_or(UsedGpuMemory::Unavailable, UsedGpuMemory::Used),
            gpu_instance_id: None,
            compute_instance_id: None,
        }
    }

    #[test]
    fn a_process_in_both_lists_is_one() {
        let merged = merge(
            vec![info(7, Some(100)), info(9, None)],
            vec![info(7, Some(100)), info(3, Some(500))],
        );
        let told: Vec<_> = merged
            .iter()
            .map(|one| (one.pid, one.used_bytes, one.kind))
            .collect();
        assert_eq!(
            told,
            [
                (3, Some(500), ProcessKind::Graphics),
                (7, Some(100), ProcessKind::Both),
                (9, None, ProcessKind::Compute),
            ]
        );
    }
}
