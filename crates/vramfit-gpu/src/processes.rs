//! The processes that use a GPU for compute or graphics, one entry per process.

use std::collections::BTreeMap;
use std::ffi::c_uint;
use std::iter::repeat;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlProcessInfo_t, nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE as TOO_SMALL,
    nvmlReturn_t,
};
use vramfit_model::host::{Process, ProcessKind};

use crate::nvml::{UnavailableReadings, is_unknown_function};
use crate::process;

const INITIAL_CAPACITY: usize = 64;

/// Lists the processes that use memory of a GPU, with what `/proc` knows of them; largest first.
///
/// Each of the driver's two lists takes milliseconds.
pub(crate) fn list_processes(
    nvml: &Nvml,
    device: &Device<'_>,
    unknown: &mut UnavailableReadings,
) -> Vec<Process> {
    let lib = nvml.lib();
    let compute = read(
        device,
        &lib.nvmlDeviceGetComputeRunningProcesses_v3,
        &lib.nvmlDeviceGetComputeRunningProcesses_v2,
    );
    let compute = unknown.ok_or_note("compute processes", compute);
    let graphics = match read(
        device,
        &lib.nvmlDeviceGetGraphicsRunningProcesses_v3,
        &lib.nvmlDeviceGetGraphicsRunningProcesses_v2,
    ) {
        // What a MIG slice answers, which has no graphics.
        Err(NvmlError::NotSupported) => None,
        known => unknown.ok_or_note("graphics processes", known),
    };
    let mut processes = merge(compute.unwrap_or_default(), graphics.unwrap_or_default());
    let mut unresolved = Vec::new();
    for process in &mut processes {
        if !process::fill_details(process) {
            unresolved.push(process.pid.to_string());
        }
    }
    if !unresolved.is_empty() {
        unknown.note("commands", unresolved_reason(&unresolved));
    }
    if !processes.is_empty() && processes.iter().all(|one| one.used_bytes.is_none()) {
        let reason = "not reported by the driver here, as in containers and under WSL".to_owned();
        unknown.note("memory per process", reason);
    }
    processes
}

fn unresolved_reason(pids: &[String]) -> String {
    format!(
        "no process {} exists in this PID namespace; inside a container the driver may report \
         PIDs of the host",
        pids.join(", ")
    )
}

/// A function that fills a list: capacity in, length out, and the buffer.
type ListFn =
    unsafe extern "C" fn(nvmlDevice_t, *mut c_uint, *mut nvmlProcessInfo_t) -> nvmlReturn_t;

/// Reads a list with the newest function that the driver has.
fn read(
    device: &Device<'_>,
    newest: &Result<ListFn, libloading::Error>,
    older: &Result<ListFn, libloading::Error>,
) -> Result<Vec<ProcessInfo>, NvmlError> {
    match read_with(device, newest) {
        Err(error) if is_unknown_function(&error) => read_with(device, older),
        known => known,
    }
}

/// Reads a list. `nvml_wrapper` would call twice, first for the length; each call takes milliseconds.
fn read_with(
    device: &Device<'_>,
    function: &Result<ListFn, libloading::Error>,
) -> Result<Vec<ProcessInfo>, NvmlError> {
    let function = nvml_sym(function.as_ref())?;
    let mut capacity = INITIAL_CAPACITY;
    loop {
        let mut processes: Vec<nvmlProcessInfo_t> = Vec::with_capacity(capacity);
        let mut length = capacity as c_uint;
        // SAFETY: the handle is that of an open session, and the buffer has room for `length` entries.
        let code = unsafe { function(device.handle(), &mut length, processes.as_mut_ptr()) };
        let length = length as usize;
        if code == TOO_SMALL && length > capacity {
            // Some more, for processes that start meanwhile.
            capacity = length + INITIAL_CAPACITY;
            continue;
        }
        nvml_try(code)?;
        // SAFETY: the driver wrote as many entries as it says, and had room for no more.
        unsafe { processes.set_len(length.min(capacity)) };
        return Ok(processes.into_iter().map(ProcessInfo::from).collect());
    }
}

/// Merges both lists into one entry per process.
fn merge(compute: Vec<ProcessInfo>, graphics: Vec<ProcessInfo>) -> Vec<Process> {
    let mut by_pid: BTreeMap<u32, Process> = BTreeMap::new();
    let compute = compute.into_iter().zip(repeat(ProcessKind::Compute));
    let graphics = graphics.into_iter().zip(repeat(ProcessKind::Graphics));
    for (info, kind) in compute.chain(graphics) {
        let used = match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        by_pid
            .entry(info.pid)
            .and_modify(|known| {
                // Both lists report the total of a process. A slice with several compute instances
                // lists a process once per instance, though it runs in only one of them.
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
    fn a_process_in_both_lists_is_merged() {
        let merged = merge(
            vec![info(7, Some(100)), info(9, None)],
            vec![info(7, Some(100)), info(3, Some(500))],
        );
        let told: Vec<_> = merged.iter().map(|one| (one.pid, one.used_bytes, one.kind)).collect();
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
