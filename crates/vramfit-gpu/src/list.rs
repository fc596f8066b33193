//! The processes on a card: those that compute and those that draw, one entry a process.

use std::collections::BTreeMap;
use std::ffi::c_uint;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlProcessInfo_t, nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE as TOO_SMALL,
    nvmlReturn_t,
};
use vramfit_core::machine::{Process, ProcessKind};

use crate::nvml::{Unknown, is_unknown_function};
use crate::process;

/// Room for processes at the first try.
const INITIAL_CAPACITY: usize = 64;

/// Asks who holds memory of a card, and the system who they are. Largest first.
///
/// Each of the two lists costs the driver milliseconds.
pub(crate) fn processes(nvml: &Nvml, device: &Device<'_>, unknown: &mut Unknown) -> Vec<Process> {
    let computing = unknown.note("computing processes", computing(nvml, device));
    let drawing = match drawing(nvml, device) {
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

fn computing(nvml: &Nvml, device: &Device<'_>) -> Result<Vec<ProcessInfo>, NvmlError> {
    let lib = nvml.lib();
    match read(device, &lib.nvmlDeviceGetComputeRunningProcesses_v3) {
        Err(error) if is_unknown_function(&error) => {
            read(device, &lib.nvmlDeviceGetComputeRunningProcesses_v2)
        }
        known => known,
    }
}

fn drawing(nvml: &Nvml, device: &Device<'_>) -> Result<Vec<ProcessInfo>, NvmlError> {
    let lib = nvml.lib();
    match read(device, &lib.nvmlDeviceGetGraphicsRunningProcesses_v3) {
        Err(error) if is_unknown_function(&error) => {
            read(device, &lib.nvmlDeviceGetGraphicsRunningProcesses_v2)
        }
        known => known,
    }
}

/// A function that writes a list: how many there is room for, or there are, and where to.
type List = unsafe extern "C" fn(nvmlDevice_t, *mut c_uint, *mut nvmlProcessInfo_t) -> nvmlReturn_t;

/// Reads a list. The wrapper would ask twice, first for the length; each costs milliseconds.
fn read(
    device: &Device<'_>,
    list: &Result<List, libloading::Error>,
) -> Result<Vec<ProcessInfo>, NvmlError> {
    let list = nvml_sym(list.as_ref())?;
    let mut room = INITIAL_CAPACITY;
    loop {
        let mut processes: Vec<nvmlProcessInfo_t> = Vec::with_capacity(room);
        let mut count = room as c_uint;
        // SAFETY: the handle is that of an open session, and there is room for `count` entries.
        let code = unsafe { list(device.handle(), &mut count, processes.as_mut_ptr()) };
        let told = count as usize;
        if code == TOO_SMALL && told > room {
            // Some more, for those that begin in this moment.
            room = told + INITIAL_CAPACITY;
            continue;
        }
        nvml_try(code)?;
        // SAFETY: the driver wrote as many entries as it says, and had room for no more.
        unsafe { processes.set_len(told.min(room)) };
        return Ok(processes.into_iter().map(ProcessInfo::from).collect());
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
