//! A GPU whose memory this process shares with others: what it uses is reserved in the [usage file](super::usage_file),
//! and what others use is noted in the trace.

use std::fs::File;
use std::sync::{Arc, Mutex};

use vramfit_model::allocator::{DeviceMemory, PAGE_BYTES, Region, SimulatedDeviceMemory};
use vramfit_model::shared_gpus::{Holding, SharedGpuUsage};
use vramfit_model::trace::{Note, OtherProcess};

use super::usage_file::{LockedUsageFile, usage_file_error};
use crate::lock;
use crate::pjrt::status::{PjrtResult, Status};
use crate::process::{command_line, start_ticks};
use crate::session::log;

/// Other processes that a note names; all are counted.
const MAX_PROCESSES_NAMED: usize = 8;
/// Maximum number of notes about other processes. With growing pools each request could add one.
const MAX_NOTES: u32 = 256;
/// Characters of another process's command line that a note keeps.
const MAX_COMMAND_CHARACTERS: usize = 200;

/// A GPU whose memory several processes use.
#[derive(Clone)]
pub(crate) struct SharedGpu(Arc<Mutex<SharedGpuState>>);

pub(super) struct SharedGpuState {
    file: File,
    device: u32,
    /// Its number in the machine.
    pub(super) gpu: u32,
    /// The memory of the GPU that the sharing processes can use in total.
    free_bytes: u64,
    addresses: SimulatedDeviceMemory,
    others: OtherProcesses,
    /// Whether a note in the trace says what `others` says.
    is_note_written: bool,
    notes_written: u32,
}

/// What other processes use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OtherProcesses {
    bytes: u64,
    max_bytes: u64,
    /// Those that use most.
    largest: Vec<Holding>,
}

impl SharedGpuState {
    /// Makes the state of GPU `gpu` of the machine, of which the sharing processes can use `free_bytes`.
    pub(super) fn new(file: File, device: u32, gpu: u32, free_bytes: u64) -> Self {
        SharedGpuState {
            file,
            device,
            gpu,
            free_bytes,
            // Each process has its own addresses; the file decides what is granted.
            addresses: SimulatedDeviceMemory::new(u64::MAX / 4),
            others: OtherProcesses::default(),
            is_note_written: true,
            notes_written: 0,
        }
    }

    /// Returns the bytes that other processes were last seen to use.
    pub(super) fn others_bytes(&self) -> u64 {
        self.others.bytes
    }

    /// Registers this process for the GPU, which must be of the same model as for the others.
    pub(super) fn register(&mut self, machine: &str) -> PjrtResult {
        let mut usage_file =
            LockedUsageFile::new(&mut self.file).map_err(|error| usage_file_error(&error))?;
        usage_file.drop_ended_processes();
        // A process that has become another program (`exec`) has its number and start, and none of its memory.
        let (own, gpu) = (std::process::id(), self.gpu);
        let is_own = |one: &Holding| one.process == own && one.gpu == gpu;
        usage_file.usage.holdings.retain(|one| !is_own(one));
        if usage_file.usage.holdings.is_empty() {
            machine.clone_into(&mut usage_file.usage.machine);
        }
        if usage_file.usage.machine != machine {
            return Err(Status::failed_precondition(format!(
                "vramfit: the shared GPUs are in use as `{}` (GPU, count, bytes), but `{machine}` \
                     was requested; use another name for them",
                usage_file.usage.machine
            )));
        }
        // A full disk is reported when there is something to write; the program continues.
        let _ = usage_file.write();
        Ok(())
    }

    /// Adds to what this process uses, if the GPU has that much left; returns whether it has.
    pub(super) fn reserve(&mut self, bytes: u64) -> bool {
        self.update(|own, left| own.checked_add(bytes).filter(|sum| *sum <= left))
    }

    fn release(&mut self, bytes: u64) {
        self.update(|own, _| Some(own.saturating_sub(bytes)));
    }

    /// Reads what others use.
    fn refresh(&mut self) {
        self.update(|own, _| Some(own));
    }

    /// Changes the bytes that this process uses from `own` to `new_bytes(own, left)`, where `left` is
    /// what others leave. Returns whether it did.
    fn update(&mut self, new_bytes: impl Fn(u64, u64) -> Option<u64>) -> bool {
        let (process, gpu) = (std::process::id(), self.gpu);
        let mut usage_file = match LockedUsageFile::new(&mut self.file) {
            Ok(usage_file) => usage_file,
            Err(error) => {
                log::print_line(&format!(
                    "the GPU memory of other processes cannot be read ({error}); this process continues as if alone"
                ));
                return true;
            }
        };
        let result = |usage: &SharedGpuUsage| {
            let others = usage.used_by_others(process, gpu);
            let own = usage.of(process, gpu).map_or(0, |holding| holding.bytes);
            (others, new_bytes(own, self.free_bytes.saturating_sub(others)))
        };
        let (mut others, mut bytes) = result(&usage_file.usage);
        // Processes that have ended are looked for only where it makes a difference: it costs much more.
        if bytes.is_none() || others != self.others.bytes {
            usage_file.drop_ended_processes();
            (others, bytes) = result(&usage_file.usage);
        }
        let is_granted = bytes.is_some();
        if let Some(bytes) = bytes {
            let start =
                start_ticks(process).filter(|_| usage_file.usage.of(process, gpu).is_none());
            usage_file.usage.set(process, start.unwrap_or(0), gpu, bytes);
        }
        let own = usage_file.usage.of(process, gpu);
        let max_bytes = own.map_or(others, |own| own.max_others_bytes).max(others);
        if (others, max_bytes) != (self.others.bytes, self.others.max_bytes) {
            self.others = OtherProcesses {
                bytes: others,
                max_bytes,
                largest: largest_holders(usage_file.usage.others(process, gpu)),
            };
            self.is_note_written = false;
        }
        if let Err(error) = usage_file.write() {
            log::print_line(&format!("the GPU memory of this process cannot be recorded: {error}"));
        }
        is_granted
    }

    /// Returns a note of what others use.
    pub(super) fn others_note(&mut self) -> Note {
        self.is_note_written = true;
        self.notes_written += 1;
        let processes = self.others.largest.iter().map(|other| OtherProcess {
            pid: other.process,
            bytes: other.bytes,
            command: command_line(other.process)
                .join(" ")
                .chars()
                .take(MAX_COMMAND_CHARACTERS)
                .collect(),
        });
        Note::Others {
            device: self.device,
            used_bytes: self.others.bytes,
            max_used_bytes: self.others.max_bytes,
            processes: processes.collect(),
        }
    }
}

/// Returns the processes that use most, the largest first.
fn largest_holders<'a>(others: impl Iterator<Item = &'a Holding>) -> Vec<Holding> {
    let mut others: Vec<Holding> = others.filter(|other| other.bytes > 0).copied().collect();
    others.sort_by_key(|other| std::cmp::Reverse(other.bytes));
    others.truncate(MAX_PROCESSES_NAMED);
    others
}

impl SharedGpu {
    pub(super) fn new(state: SharedGpuState) -> Self {
        SharedGpu(Arc::new(Mutex::new(state)))
    }

    /// Returns a note of what other processes were last seen to use, if it has changed.
    pub(crate) fn unwritten_note(&self) -> Option<Note> {
        let mut state = lock(&self.0);
        (!state.is_note_written && state.notes_written < MAX_NOTES).then(|| state.others_note())
    }

    /// Reads what other processes use now, and returns a note of it if it has changed.
    pub(crate) fn refresh(&self) -> Option<Note> {
        let mut state = lock(&self.0);
        state.refresh();
        (!state.is_note_written).then(|| state.others_note())
    }
}

impl DeviceMemory for SharedGpu {
    fn allocate(&mut self, alignment: u64, bytes: u64) -> Option<Region> {
        let cost = bytes.checked_next_multiple_of(PAGE_BYTES)?;
        let mut state = lock(&self.0);
        if bytes == 0 || !state.reserve(cost) {
            return None;
        }
        let region = state.addresses.allocate(alignment, bytes);
        if region.is_none() {
            state.release(cost);
        }
        region
    }

    fn free(&mut self, region: Region) {
        let mut state = lock(&self.0);
        state.addresses.free(region);
        state.release(region.bytes.next_multiple_of(PAGE_BYTES));
    }

    fn free_bytes(&self) -> u64 {
        let mut state = lock(&self.0);
        state.refresh();
        let (process, gpu) = (std::process::id(), state.gpu);
        let used = LockedUsageFile::new(&mut state.file).map_or(u64::MAX, |usage_file| {
            let own = usage_file.usage.of(process, gpu).map_or(0, |own| own.bytes);
            own.saturating_add(usage_file.usage.used_by_others(process, gpu))
        });
        state.free_bytes.saturating_sub(used)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::device::sharing::open_or_create;

    fn state(file: &Path, gpu: u32, free_bytes: u64) -> SharedGpuState {
        let file = open_or_create(file).expect("a file in the temporary directory");
        let mut state = SharedGpuState::new(file, 0, gpu, free_bytes);
        state.register("t4 1 100").expect("the same GPUs");
        state
    }

    /// Makes another process use some memory.
    fn set_usage(state: &mut SharedGpuState, process: u32, bytes: u64) {
        let gpu = state.gpu;
        let mut usage_file = LockedUsageFile::new(&mut state.file).expect("the file is there");
        let start = start_ticks(process).unwrap_or(1);
        usage_file.usage.set(process, start, gpu, bytes);
        usage_file.write().expect("room on the disk");
    }

    #[test]
    fn a_process_gets_what_others_leave_and_ended_processes_leave_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut own = state(&folder.path().join("gpus"), 0, 10 * PAGE_BYTES);
        // The parent of this process lives as long as the test.
        let other = std::os::unix::process::parent_id();
        set_usage(&mut own, other, 4 * PAGE_BYTES);
        assert!(!own.reserve(7 * PAGE_BYTES));
        assert_eq!(own.others.bytes, 4 * PAGE_BYTES);
        assert!(own.reserve(6 * PAGE_BYTES));
        own.release(2 * PAGE_BYTES);
        set_usage(&mut own, other, PAGE_BYTES);
        own.refresh();
        assert_eq!((own.others.bytes, own.others.max_bytes), (PAGE_BYTES, 4 * PAGE_BYTES));
        assert!(matches!(
            own.others_note(),
            Note::Others { used_bytes, .. } if used_bytes == PAGE_BYTES
        ));
        // A process that has ended: there is none of its number.
        set_usage(&mut own, other, 0);
        set_usage(&mut own, u32::MAX, 6 * PAGE_BYTES);
        assert!(own.reserve(6 * PAGE_BYTES));
        assert_eq!(own.others.bytes, 0);
        let shared = SharedGpu::new(own);
        assert_eq!(shared.free_bytes(), 0);
    }

    #[test]
    fn each_gpu_of_a_machine_has_its_own_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gpus");
        let (mut first, mut second) = (state(&path, 0, PAGE_BYTES), state(&path, 1, PAGE_BYTES));
        assert!(first.reserve(PAGE_BYTES) && second.reserve(PAGE_BYTES));
        assert!(!first.reserve(PAGE_BYTES));
        // As after `exec`: the same process registers again.
        let mut again = state(&path, 0, PAGE_BYTES);
        assert!(again.reserve(PAGE_BYTES));
        assert!(!second.reserve(PAGE_BYTES));
    }

    #[test]
    fn different_gpus_under_a_name_in_use_are_rejected() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut own = state(&folder.path().join("gpus"), 0, PAGE_BYTES);
        set_usage(&mut own, std::os::unix::process::parent_id(), PAGE_BYTES);
        assert!(own.register("h100-80g 1 100").is_err());
        set_usage(&mut own, std::os::unix::process::parent_id(), 0);
    }

    #[test]
    fn this_process_is_running() {
        assert!(start_ticks(std::process::id()).is_some());
        assert_eq!(start_ticks(u32::MAX), None);
    }
}
