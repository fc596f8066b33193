//! Reads the statistics files of JAX processes.
//!
//! They are read, not mapped: truncation is an error then, not a signal.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use vramfit_model::published::{
    self, FILE_SUFFIX, Layout, LiveStats, ReaderContext, StatsHeader, assess,
};

use super::sample::PublishedStats;

/// Attempts to read a file that is being written.
const MAX_ATTEMPTS: usize = 100;
/// The statistics of a process that has exited are shown this long.
const EXITED_SHOWN_MS: u64 = 60_000;
const MAX_BYTES: u64 = 1 << 20;

/// Reads all statistics files of this user, and skips other files.
pub(super) fn read() -> Vec<PublishedStats> {
    let host = HostContext::poll();
    let mut pages: Vec<PublishedStats> =
        folders(host.user).iter().flat_map(|folder| in_folder(folder, &host)).collect();
    pages.sort_by_key(|stats| (stats.header.started_ticks, stats.header.pid, stats.header.client));
    pages
}

/// Returns the directories that processes of this user may use, whatever their environment.
fn folders(user: u32) -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR");
    let mut folders = published::stats_directories(runtime.as_deref(), user);
    folders.push(PathBuf::from(format!("/run/user/{user}/vramfit")));
    folders.dedup();
    if folders.first() == folders.last() {
        folders.pop();
    }
    folders
}

/// What the files are compared with.
struct HostContext {
    user: u32,
    boot_id: String,
    pid_namespace: u64,
}

impl HostContext {
    fn poll() -> Self {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        HostContext {
            user: rustix::process::geteuid().as_raw(),
            boot_id: boot_id.map_or_else(|_| String::new(), |text| text.trim().to_owned()),
            pid_namespace: fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino()),
        }
    }
}

fn in_folder(folder: &Path, host: &HostContext) -> Vec<PublishedStats> {
    // As the writer does, ignore directories and links of other users.
    let trusted = fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == host.user && found.mode() & 0o077 == 0);
    let Some(entries) = trusted.then(|| fs::read_dir(folder).ok()).flatten() else {
        return Vec::new();
    };
    let paths = entries.flatten().map(|entry| entry.path());
    paths
        .filter(|path| path.to_string_lossy().ends_with(FILE_SUFFIX))
        .filter_map(|path| stats(&path, host))
        .collect()
}

fn stats(path: &Path, host: &HostContext) -> Option<PublishedStats> {
    let file = File::open(path).ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() || found.len() > MAX_BYTES {
        return None;
    }
    let (header, live) = contents(&file, found.len() as usize)?;
    let same_namespace = header.pid_namespace == host.pid_namespace;
    let stat = fs::read_to_string(format!("/proc/{}/stat", header.pid)).ok();
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let observed = ReaderContext {
        boot_id: &host.boot_id,
        monotonic_ns: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
        pid_namespace: host.pid_namespace,
        started_ticks: stat.as_deref().and_then(published::started_ticks),
    };
    let liveness = assess(&header, &live, &observed);
    let shown = match liveness {
        published::Liveness::OtherBoot => false,
        published::Liveness::Gone { for_ms } => for_ms < EXITED_SHOWN_MS,
        _ => true,
    };
    if !shown {
        return None;
    }
    let same_process = same_namespace && observed.started_ticks == Some(header.started_ticks);
    let process = same_process.then(|| vramfit_gpu::process(header.pid)).flatten();
    Some(PublishedStats { header, live, liveness, same_namespace, process })
}

/// Reads a consistent copy of a file.
fn contents(file: &File, length: usize) -> Option<(StatsHeader, LiveStats)> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let (header, layout) = Layout::parse(&bytes).ok()?;
    let at = layout.live_offset as u64;
    let sequence = || {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, at).ok()?;
        Some(u64::from_le_bytes(word))
    };
    let mut live = vec![0; layout.live_words() * 8];
    for _ in 0..MAX_ATTEMPTS {
        // A copy between two reads of the same even sequence number is consistent.
        let before = sequence()?;
        file.read_exact_at(&mut live, at).ok()?;
        if before.is_multiple_of(2) && sequence()? == before {
            return Some((header, layout.decode(&live)));
        }
    }
    None // its writer ended in the middle
}
