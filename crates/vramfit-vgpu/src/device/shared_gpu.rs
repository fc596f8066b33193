//! A GPU whose memory this process shares with others: what it holds is reserved in the [ledger](super::ledger),
//! and what others hold is noted in the trace.

use std::fs::{self, File};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vramfit_core::allocator::{CardMemory, DeviceMemory, Region};
use vramfit_core::shared_gpus::{Holding, Usage};
use vramfit_core::trace::{Note, OtherProcess};

use super::gpu_memory::PAGE_BYTES;
use super::ledger::{Locked, cannot_use};
use crate::pjrt::status::{Answer, Code, Status};
use crate::process::started;
use crate::session::log;

/// Other processes that a note names; all are counted.
const MAX_PROCESSES_NAMED: usize = 8;
/// Notes of what others hold that a process makes while it runs. Growing pools could make one for each request.
const MAX_NOTES: u32 = 256;
/// Characters of another process's command line that a note keeps.
const MAX_COMMAND_CHARACTERS: usize = 200;

/// A GPU whose memory several processes draw on.
#[derive(Clone)]
pub(crate) struct SharedGpu(Arc<Mutex<State>>);

pub(super) struct State {
    file: File,
    device: u32,
    /// Its number in the machine.
    gpu: u32,
    /// The GPU's memory before any of the sharing processes.
    free_bytes: u64,
    addresses: CardMemory,
    others: Others,
    /// Whether the trace knows of `others`.
    is_noted: bool,
    notes: u32,
}

/// What other processes hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Others {
    bytes: u64,
    max_bytes: u64,
    /// Those that hold most.
    largest: Vec<Holding>,
}

impl State {
    /// Makes the state of GPU `gpu` of the machine, of whose memory `free_bytes` are there for the processes
    /// that share it.
    pub(super) fn new(file: File, device: u32, gpu: u32, free_bytes: u64) -> Self {
        State {
            file,
            device,
            gpu,
            free_bytes,
            // Addresses are each process's own; the file decides what is granted.
            addresses: CardMemory::new(u64::MAX / 4),
            others: Others::default(),
            is_noted: true,
            notes: 0,
        }
    }

    /// Returns its number in the machine.
    pub(super) fn gpu(&self) -> u32 {
        self.gpu
    }

    /// Returns the bytes that other processes were last seen to hold.
    pub(super) fn others_bytes(&self) -> u64 {
        self.others.bytes
    }

    /// Begins to use the GPU, which must be the one that others use.
    pub(super) fn begin(&mut self, machine: &str) -> Answer {
        let mut locked = Locked::new(&mut self.file).map_err(|error| cannot_use(&error))?;
        locked.drop_ended();
        // A process that has become another program (`exec`) has its number and start, and none of its memory.
        let (own, gpu) = (std::process::id(), self.gpu);
        let is_own = |one: &Holding| one.process == own && one.gpu == gpu;
        locked.usage.holdings.retain(|one| !is_own(one));
        if locked.usage.holdings.is_empty() {
            machine.clone_into(&mut locked.usage.machine);
        }
        if locked.usage.machine != machine {
            return Err(Status::new(
                Code::FailedPrecondition,
                format!(
                    "vramfit: the shared GPUs are in use as `{}` (GPU, count, bytes), and `{machine}` \
                     was asked for; give them another name",
                    locked.usage.machine
                ),
            ));
        }
        // A disk that is full is told of when there is something to write; the program goes on.
        let _ = locked.write();
        Ok(())
    }

    /// Adds to what this process holds, if the GPU has that much left.
    pub(super) fn reserve(&mut self, bytes: u64) -> bool {
        self.change(|own, left| own.checked_add(bytes).filter(|sum| *sum <= left))
    }

    fn give_back(&mut self, bytes: u64) {
        self.change(|own, _| Some(own.saturating_sub(bytes)));
    }

    /// Takes note of what others hold.
    fn look(&mut self) {
        self.change(|own, _| Some(own));
    }

    /// Changes what this process holds from `own` to what `wanted(own, left)` makes of it, where `left` is
    /// what others leave. Says whether it did.
    fn change(&mut self, wanted: impl Fn(u64, u64) -> Option<u64>) -> bool {
        let (process, gpu) = (std::process::id(), self.gpu);
        let mut locked = match Locked::new(&mut self.file) {
            Ok(locked) => locked,
            Err(error) => {
                log::line(&format!(
                    "what other processes hold cannot be read ({error}); this one goes on as if alone"
                ));
                return true;
            }
        };
        let result = |usage: &Usage| {
            let others = usage.held_by_others(process, gpu);
            let own = usage.of(process, gpu).map_or(0, |holding| holding.bytes);
            (others, wanted(own, self.free_bytes.saturating_sub(others)))
        };
        let (mut others, mut bytes) = result(&locked.usage);
        // Whether processes are still there is asked only where it makes a difference: it costs much more.
        if bytes.is_none() || others != self.others.bytes {
            locked.drop_ended();
            (others, bytes) = result(&locked.usage);
        }
        let is_granted = bytes.is_some();
        if let Some(bytes) = bytes {
            let start = started(process).filter(|_| locked.usage.of(process, gpu).is_none());
            locked.usage.set(process, start.unwrap_or(0), gpu, bytes);
        }
        let own = locked.usage.of(process, gpu);
        let max_bytes = own.map_or(others, |own| own.max_others_bytes).max(others);
        if (others, max_bytes) != (self.others.bytes, self.others.max_bytes) {
            self.others = Others {
                bytes: others,
                max_bytes,
                largest: largest(locked.usage.others(process, gpu)),
            };
            self.is_noted = false;
        }
        if let Err(error) = locked.write() {
            log::line(&format!(
                "what this process holds cannot be written: {error}"
            ));
        }
        is_granted
    }

    /// Returns what is to be noted of others.
    pub(super) fn note(&mut self) -> Note {
        self.is_noted = true;
        self.notes += 1;
        let processes = self.others.largest.iter().map(|other| OtherProcess {
            pid: other.process,
            bytes: other.bytes,
            command: command(other.process),
        });
        Note::Others {
            device: self.device,
            held_bytes: self.others.bytes,
            max_held_bytes: self.others.max_bytes,
            processes: processes.collect(),
        }
    }
}

/// Returns the processes that hold most, the largest first.
fn largest<'a>(others: impl Iterator<Item = &'a Holding>) -> Vec<Holding> {
    let mut others: Vec<Holding> = others.filter(|other| other.bytes > 0).copied().collect();
    others.sort_by_key(|other| std::cmp::Reverse(other.bytes));
    others.truncate(MAX_PROCESSES_NAMED);
    others
}

/// Returns the command line of a process, with blanks between the words; empty if it cannot be had.
fn command(process: u32) -> String {
    let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&words);
    let line = text.trim_end_matches('\0').replace('\0', " ");
    line.chars().take(MAX_COMMAND_CHARACTERS).collect()
}

impl SharedGpu {
    pub(super) fn new(state: State) -> Self {
        SharedGpu(Arc::new(Mutex::new(state)))
    }

    /// Returns what is to be noted of other processes since they were last seen, if it is something new.
    pub(crate) fn news(&self) -> Option<Note> {
        let mut state = self.state();
        (!state.is_noted && state.notes < MAX_NOTES).then(|| state.note())
    }

    /// Looks what other processes hold now and returns what is to be noted of it, if it is something new.
    pub(crate) fn look(&self) -> Option<Note> {
        let mut state = self.state();
        state.look();
        (!state.is_noted).then(|| state.note())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceMemory for SharedGpu {
    fn allocate(&mut self, alignment: u64, bytes: u64) -> Option<Region> {
        let cost = bytes.checked_next_multiple_of(PAGE_BYTES)?;
        let mut state = self.state();
        if bytes == 0 || !state.reserve(cost) {
            return None;
        }
        let region = state.addresses.allocate(alignment, bytes);
        if region.is_none() {
            state.give_back(cost);
        }
        region
    }

    fn free(&mut self, region: Region) {
        let mut state = self.state();
        state.addresses.free(region);
        state.give_back(region.bytes.next_multiple_of(PAGE_BYTES));
    }

    fn free_bytes(&self) -> u64 {
        let mut state = self.state();
        state.look();
        let (process, gpu) = (std::process::id(), state.gpu);
        let held = Locked::new(&mut state.file).map_or(u64::MAX, |locked| {
            let own = locked.usage.of(process, gpu).map_or(0, |own| own.bytes);
            own.saturating_add(locked.usage.held_by_others(process, gpu))
        });
        state.free_bytes.saturating_sub(held)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::device::sharing::create;

    fn state(file: &Path, gpu: u32, free_bytes: u64) -> State {
        let file = create(file).expect("a file in the temporary folder");
        let mut state = State::new(file, 0, gpu, free_bytes);
        state.begin("t4 1 100").expect("the same GPUs");
        state
    }

    /// Lets another process hold something.
    fn let_hold(state: &mut State, process: u32, bytes: u64) {
        let gpu = state.gpu;
        let mut locked = Locked::new(&mut state.file).expect("the file is there");
        let start = started(process).unwrap_or(1);
        locked.usage.set(process, start, gpu, bytes);
        locked.write().expect("room on the disk");
    }

    #[test]
    fn a_process_gets_what_others_leave_and_the_dead_leave_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut own = state(&folder.path().join("gpus"), 0, 10 * PAGE_BYTES);
        // The process that started this one is there for as long as the test.
        let other = std::os::unix::process::parent_id();
        let_hold(&mut own, other, 4 * PAGE_BYTES);
        assert!(!own.reserve(7 * PAGE_BYTES));
        assert_eq!(own.others.bytes, 4 * PAGE_BYTES);
        assert!(own.reserve(6 * PAGE_BYTES));
        own.give_back(2 * PAGE_BYTES);
        let_hold(&mut own, other, PAGE_BYTES);
        own.look();
        assert_eq!(
            (own.others.bytes, own.others.max_bytes),
            (PAGE_BYTES, 4 * PAGE_BYTES)
        );
        assert!(matches!(
            own.note(),
            Note::Others { held_bytes, .. } if held_bytes == PAGE_BYTES
        ));
        // A process that is gone: its number exists no more.
        let_hold(&mut own, other, 0);
        let_hold(&mut own, u32::MAX, 6 * PAGE_BYTES);
        assert!(own.reserve(6 * PAGE_BYTES));
        assert_eq!(own.others.bytes, 0);
        let shared = SharedGpu::new(own);
        assert_eq!(shared.free_bytes(), 0);
    }

    #[test]
    fn gpus_of_a_machine_have_memory_of_their_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gpus");
        let (mut first, mut second) = (state(&path, 0, PAGE_BYTES), state(&path, 1, PAGE_BYTES));
        assert!(first.reserve(PAGE_BYTES) && second.reserve(PAGE_BYTES));
        assert!(!first.reserve(PAGE_BYTES));
        // As after `exec`: the same process begins anew.
        let mut again = state(&path, 0, PAGE_BYTES);
        assert!(again.reserve(PAGE_BYTES));
        assert!(!second.reserve(PAGE_BYTES));
    }

    #[test]
    fn other_gpus_under_the_same_name_are_refused_while_they_are_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut own = state(&folder.path().join("gpus"), 0, PAGE_BYTES);
        let_hold(&mut own, std::os::unix::process::parent_id(), PAGE_BYTES);
        assert!(own.begin("h100-80g 1 100").is_err());
        let_hold(&mut own, std::os::unix::process::parent_id(), 0);
    }

    #[test]
    fn this_process_is_running() {
        assert!(started(std::process::id()).is_some());
        assert_eq!(started(u32::MAX), None);
    }
}
