//! A file in the address space of the process, and when that is safe enough to be done.

use std::fs::File;

use memmap2::Mmap;
use rustix::fs::{FlockOperation, flock, fstatfs};
use vramfit_base::meminfo::available_bytes;

/// File systems whose files other machines can truncate, by the magic numbers of `statfs(2)`:
/// NFS, SMB (three), FUSE, Lustre, Ceph, 9p, AFS, GPFS, BeeGFS.
const REMOTE: [u64; 11] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x6573_5546,
    0x0bd0_0bd0,
    0x00c3_6400,
    0x0102_1997,
    0x5346_414f,
    0x4750_4653,
    0x1983_0326,
];

/// A mapped file. Its lock is kept as long as it lives.
#[derive(Debug)]
pub(super) struct Mapping {
    map: Mmap,
    // Closing it would give the lock back.
    _file: File,
}

impl Mapping {
    /// Maps a file, or gives it back where [`Access::MapIfSafe`](super::Access) says not to.
    pub(super) fn if_safe(file: File, length: u64) -> Result<Mapping, File> {
        let small = available_memory().is_some_and(|available| length <= available / 2);
        let is_locked = || flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
        if length == 0 || !small || !is_local(&file) || !is_locked() {
            return Err(file);
        }
        #[allow(unsafe_code, reason = "there is no safe way to map a file")]
        // SAFETY: the bytes must not change while they are borrowed. The shared lock keeps every HDF5
        // program from writing to them; `Access::MapIfSafe`, which the caller asked for, says what
        // happens when something else does.
        match unsafe { Mmap::map(&file) } {
            Ok(map) if map.len() as u64 >= length => Ok(Mapping { map, _file: file }),
            _ => Err(file),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.map
    }
}

fn is_local(file: &File) -> bool {
    let Ok(system) = fstatfs(file) else {
        return false;
    };
    // The field's type differs between architectures; the numbers fit into 32 bits.
    let magic = system.f_type as u64 & 0xffff_ffff;
    !REMOTE.contains(&magic)
}

/// What the kernel says could be used without swapping, in bytes.
fn available_memory() -> Option<u64> {
    available_bytes(&std::fs::read_to_string("/proc/meminfo").ok()?)
}
