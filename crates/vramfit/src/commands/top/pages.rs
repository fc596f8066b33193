//! Reading the pages that JAX processes publish.
//!
//! They are read, not mapped: a page that is cut while it is read is an error here, and not a signal.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use vramfit_core::published::{self, Header, Layout, Live, Observed, SUFFIX, judge};

use super::moment::Page;

/// How often a page is read again that is written at the same moment.
const ATTEMPTS: usize = 100;
/// A page that nobody writes any more is shown for so long.
const SHOWN_MS: u64 = 60_000;
const MAX_BYTES: u64 = 1 << 20;

/// Reads all pages of this user. What is no page, or belongs to somebody else, is passed over.
pub(super) fn read() -> Vec<Page> {
    let here = Here::look();
    let mut pages: Vec<Page> = folders(here.user)
        .iter()
        .flat_map(|folder| in_folder(folder, &here))
        .collect();
    pages.sort_by_key(|page| {
        (
            page.header.started_ticks,
            page.header.pid,
            page.header.client,
        )
    });
    pages
}

/// The folders that this user's processes may have chosen, whatever environment they ran in.
fn folders(user: u32) -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR");
    let mut folders = published::folders(runtime.as_deref(), user);
    folders.push(PathBuf::from(format!("/run/user/{user}/vramfit")));
    folders.dedup();
    if folders.first() == folders.last() {
        folders.pop();
    }
    folders
}

/// What is true of this process, and of this moment.
struct Here {
    user: u32,
    boot_id: String,
    pid_namespace: u64,
}

impl Here {
    fn look() -> Self {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        Here {
            user: rustix::process::geteuid().as_raw(),
            boot_id: boot_id.map_or_else(|_| String::new(), |text| text.trim().to_owned()),
            pid_namespace: fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino()),
        }
    }
}

fn in_folder(folder: &Path, here: &Here) -> Vec<Page> {
    // As the writer: a folder or a link that another user put there is not ours.
    let trusted = fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == here.user && found.mode() & 0o077 == 0);
    let Some(entries) = trusted.then(|| fs::read_dir(folder).ok()).flatten() else {
        return Vec::new();
    };
    let paths = entries.flatten().map(|entry| entry.path());
    paths
        .filter(|path| path.to_string_lossy().ends_with(SUFFIX))
        .filter_map(|path| page(&path, here))
        .collect()
}

fn page(path: &Path, here: &Here) -> Option<Page> {
    let file = File::open(path).ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() || found.len() > MAX_BYTES {
        return None;
    }
    let (header, live) = contents(&file, found.len() as usize)?;
    let same_namespace = header.pid_namespace == here.pid_namespace;
    let stat = fs::read_to_string(format!("/proc/{}/stat", header.pid)).ok();
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let observed = Observed {
        boot_id: &here.boot_id,
        monotonic_ns: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
        pid_namespace: here.pid_namespace,
        started_ticks: stat.as_deref().and_then(published::started_ticks),
    };
    let liveness = judge(&header, &live, &observed);
    let shown = match liveness {
        published::Liveness::OtherBoot => false,
        published::Liveness::Gone { for_ms } => for_ms < SHOWN_MS,
        _ => true,
    };
    if !shown {
        return None;
    }
    let same_process = same_namespace && observed.started_ticks == Some(header.started_ticks);
    let process = same_process
        .then(|| vramfit_gpu::process(header.pid))
        .flatten();
    Some(Page {
        header,
        live,
        liveness,
        same_namespace,
        process,
    })
}

/// Reads a page as it was at one moment.
fn contents(file: &File, length: usize) -> Option<(Header, Live)> {
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
    for _ in 0..ATTEMPTS {
        // Three calls of the kernel, in this order: what lies between two equal even numbers is whole.
        let before = sequence()?;
        file.read_exact_at(&mut live, at).ok()?;
        if before.is_multiple_of(2) && sequence()? == before {
            return Some((header, layout.decode(&live)));
        }
    }
    None // its writer ended in the middle
}
