//! The memory of a GPU as the driver hands it out: private to this process, or shared with others on this
//! machine, so that they collide as they would on a real GPU.
//!
//! What each process holds of shared GPUs is in a small text file under an advisory lock;
//! [`shared_gpus`] says what is in it. Lines of processes that are gone are dropped when it matters, so
//! a killed process gives its memory back.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vramfit_core::allocator::{CardMemory, DeviceMemory, Region};
use vramfit_core::shared_gpus::{self, Holding, Usage};
use vramfit_core::trace::{Note, OtherProcess, Sharing};

use crate::environment::Environment;
use crate::pjrt::status::{Answer, Code, Status};
use crate::process::started;
use crate::session::log;

/// The driver maps memory in pages of this size.
const PAGE: u64 = 2 << 20;

/// Other processes that a note names; all are counted.
const MAX_PROCESSES_NAMED: usize = 8;
/// Notes of what others hold that a process makes while it runs. Growing pools could make one for each request.
const MAX_NOTES: u32 = 256;
/// Characters of another process's command line that a note keeps.
const MAX_COMMAND_CHARACTERS: usize = 200;

/// Where it is written down what the processes hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Nowhere: each process has the GPUs to itself.
    Private,
    /// In a file of the dry run that has started this process.
    Run(PathBuf),
    /// In a file for all dry runs that name the GPUs alike.
    Named(String),
}

impl Scope {
    /// Returns what a trace says of it.
    pub(crate) fn sharing(&self) -> Sharing {
        match self {
            Scope::Private => Sharing::Private,
            Scope::Run(_) => Sharing::Run,
            Scope::Named(_) => Sharing::Named,
        }
    }

    /// Opens the file; `None` where GPUs are not shared.
    fn open(&self) -> Answer<Option<File>> {
        match self {
            Scope::Private => Ok(None),
            Scope::Run(path) => create(path).map(Some),
            Scope::Named(name) => create(&named(name)?).map(Some),
        }
    }
}

/// The memory of one GPU.
pub(crate) struct GpuMemory {
    /// What an allocator draws on.
    pub(crate) memory: Box<dyn DeviceMemory>,
    /// Who else draws on it, where it is shared.
    pub(crate) shared: Option<SharedGpu>,
}

/// Why the memory of a GPU cannot be used.
pub(crate) enum Refusal {
    /// Other processes have left too little for the CUDA context: what is to be noted of it, and what to say.
    NoContext(Vec<Note>, Status),
    /// Anything else.
    Failed(Status),
}

/// Returns the memory of the GPU that a device is: its total, less what others hold and the CUDA context.
pub(crate) fn device_memory(
    environment: &Environment,
    device: u32,
) -> std::result::Result<GpuMemory, Refusal> {
    let total = environment.gpu.total_memory_bytes;
    let free = total.saturating_sub(environment.taken_bytes);
    let context = environment.context_bytes;
    let Some(file) = environment.scope.open().map_err(Refusal::Failed)? else {
        return Ok(GpuMemory {
            memory: Box::new(CardMemory::new(free.saturating_sub(context))),
            shared: None,
        });
    };
    let mut state = State {
        file,
        device,
        gpu: environment
            .gpus
            .get(device as usize)
            .copied()
            .unwrap_or(device),
        free_bytes: free,
        // Addresses are each process's own; the file decides what is granted.
        addresses: CardMemory::new(u64::MAX / 4),
        others: Others::default(),
        is_noted: true,
        notes: 0,
    };
    state
        .begin(&machine(environment))
        .map_err(Refusal::Failed)?;
    if !state.reserve(context) {
        let left = free.saturating_sub(state.others.bytes);
        let mut notes = vec![state.note()];
        notes.push(Note::NoContext {
            device,
            context_bytes: context,
            free_bytes: left,
        });
        let text = format!(
            "vramfit: no room for the CUDA context, some {context} bytes: other processes hold {} of \
             the {free} bytes of GPU {}; on a real machine JAX would go on without this GPU, or find \
             none",
            state.others.bytes, state.gpu
        );
        return Err(Refusal::NoContext(
            notes,
            Status::new(Code::FailedPrecondition, text),
        ));
    }
    let shared = SharedGpu(Arc::new(Mutex::new(state)));
    Ok(GpuMemory {
        memory: Box::new(shared.clone()),
        shared: Some(shared),
    })
}

/// Returns the numbers of the GPUs that `CUDA_VISIBLE_DEVICES` leaves. UUIDs mean the same GPUs in every process
/// that shares them.
///
/// # Errors
/// When the file of shared GPUs cannot be used.
pub(crate) fn visible_gpus(scope: &Scope, count: u32, list: Option<&str>) -> Answer<Vec<u32>> {
    let mut alone = Usage::default();
    if !list.is_some_and(shared_gpus::has_uuids) {
        return Ok(alone.visible(count, list));
    }
    let Some(mut file) = scope.open()? else {
        return Ok(alone.visible(count, list));
    };
    let mut locked = Locked::new(&mut file).map_err(|error| cannot_use(&error))?;
    locked.drop_ended();
    if matches!(scope, Scope::Named(_)) && locked.usage.holdings.is_empty() {
        // The file is from earlier runs, whose GPUs may have had other names.
        locked.usage.uuids.clear();
    }
    let seen = locked.usage.visible(count, list);
    locked.write().map_err(|error| cannot_use(&error))?;
    Ok(seen)
}

/// Names the GPUs of a machine, which must be the same for all who share them.
fn machine(environment: &Environment) -> String {
    let gpu = &environment.gpu;
    format!(
        "{} {} {}",
        gpu.name, environment.machine_gpus, gpu.total_memory_bytes
    )
}

/// A GPU whose memory several processes draw on.
#[derive(Clone)]
pub(crate) struct SharedGpu(Arc<Mutex<State>>);

struct State {
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

/// Finds the file of GPUs that are shared by name, in a folder of the user's.
fn named(name: &str) -> Answer<PathBuf> {
    let sane = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(sane) {
        return Err(Status::new(
            Code::InvalidArgument,
            format!("vramfit: `{name}` is no name for shared GPUs; use letters, digits and `-_.`"),
        ));
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // SAFETY: takes no argument and cannot fail.
    let user = unsafe { libc::geteuid() };
    let folder = shared_gpus::folder(runtime.as_deref(), &std::env::temp_dir(), user);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(|error| cannot_open(&error))?;
    // In a place where everybody may write, somebody else's folder is not to be trusted.
    let owner = fs::metadata(&folder).map_err(|error| cannot_open(&error))?;
    if owner.uid() != user {
        return Err(Status::new(
            Code::FailedPrecondition,
            format!("vramfit: `{}` belongs to another user", folder.display()),
        ));
    }
    Ok(folder.join(name))
}

fn create(path: &Path) -> Answer<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| cannot_open(&error))
}

fn cannot_open(error: &std::io::Error) -> Status {
    Status::new(
        Code::Unavailable,
        format!("vramfit cannot open the file of shared GPUs: {error}"),
    )
}

/// What is said where a file system has no locks.
fn cannot_use(error: &std::io::Error) -> Status {
    Status::new(
        Code::Unavailable,
        format!(
            "vramfit cannot lock or write the file of shared GPUs: {error}; set `TMPDIR` to a folder on a \
             local disk, or give each process the GPUs to itself (`--private`)"
        ),
    )
}

/// Holds the lock on the file, which is read, changed and written inside.
struct Locked<'a> {
    file: &'a mut File,
    usage: Usage,
}

impl Locked<'_> {
    fn new(file: &mut File) -> std::io::Result<Locked<'_>> {
        // SAFETY: the descriptor is open.
        while unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        let mut text = String::new();
        let read = |file: &mut File, text: &mut String| {
            file.seek(SeekFrom::Start(0))?;
            file.read_to_string(text)
        };
        let result = read(file, &mut text);
        let usage = Usage::parse(&text);
        let locked = Locked { file, usage };
        result.map(|_| locked)
    }

    /// Drops the lines of processes that are gone.
    fn drop_ended(&mut self) {
        self.usage.holdings.retain(is_running);
    }

    fn write(self) -> std::io::Result<()> {
        let text = self.usage.to_text();
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(text.len() as u64)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: the descriptor is open; unlocking cannot fail then.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
    }
}

fn is_running(holding: &Holding) -> bool {
    started(holding.process) == Some(holding.started)
}

impl State {
    /// Begins to use the GPU, which must be the one that others use.
    fn begin(&mut self, machine: &str) -> Answer {
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
    fn reserve(&mut self, bytes: u64) -> bool {
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
    fn note(&mut self) -> Note {
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
        let cost = bytes.checked_next_multiple_of(PAGE)?;
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
        state.give_back(region.bytes.next_multiple_of(PAGE));
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
    use super::*;

    fn state(file: &Path, gpu: u32, free_bytes: u64) -> State {
        let mut state = State {
            file: create(file).expect("a file in the temporary folder"),
            device: 0,
            gpu,
            free_bytes,
            addresses: CardMemory::new(u64::MAX / 4),
            others: Others::default(),
            is_noted: true,
            notes: 0,
        };
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
        let mut own = state(&folder.path().join("gpus"), 0, 10 * PAGE);
        // The process that started this one is there for as long as the test.
        let other = std::os::unix::process::parent_id();
        let_hold(&mut own, other, 4 * PAGE);
        assert!(!own.reserve(7 * PAGE));
        assert_eq!(own.others.bytes, 4 * PAGE);
        assert!(own.reserve(6 * PAGE));
        own.give_back(2 * PAGE);
        let_hold(&mut own, other, PAGE);
        own.look();
        assert_eq!((own.others.bytes, own.others.max_bytes), (PAGE, 4 * PAGE));
        assert!(matches!(
            own.note(),
            Note::Others { held_bytes, .. } if held_bytes == PAGE
        ));
        // A process that is gone: its number exists no more.
        let_hold(&mut own, other, 0);
        let_hold(&mut own, u32::MAX, 6 * PAGE);
        assert!(own.reserve(6 * PAGE));
        assert_eq!(own.others.bytes, 0);
        let shared = SharedGpu(Arc::new(Mutex::new(own)));
        assert_eq!(shared.free_bytes(), 0);
    }

    #[test]
    fn gpus_of_a_machine_have_memory_of_their_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gpus");
        let (mut first, mut second) = (state(&path, 0, PAGE), state(&path, 1, PAGE));
        assert!(first.reserve(PAGE) && second.reserve(PAGE));
        assert!(!first.reserve(PAGE));
        // As after `exec`: the same process begins anew.
        let mut again = state(&path, 0, PAGE);
        assert!(again.reserve(PAGE));
        assert!(!second.reserve(PAGE));
    }

    #[test]
    fn other_gpus_under_the_same_name_are_refused_while_they_are_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut own = state(&folder.path().join("gpus"), 0, PAGE);
        let_hold(&mut own, std::os::unix::process::parent_id(), PAGE);
        assert!(own.begin("h100-80g 1 100").is_err());
        let_hold(&mut own, std::os::unix::process::parent_id(), 0);
    }

    #[test]
    fn this_process_is_running() {
        assert!(started(std::process::id()).is_some());
        assert_eq!(started(u32::MAX), None);
    }
}
