//! Files that are open for writing, or whose writer ended without closing them: what it had not written out is
//! missing in them, and would read as zeros.

use vramfit_base::{Error, ErrorKind, Result};

use crate::source::{Source, Writer};

/// The file consistency flags of the superblock.
///
/// HDF5 1.10 and later set `OPEN_FOR_WRITING` in every version of the superblock when a file is opened for writing
/// (`H5F_open`), and clear it when it is closed. Files of HDF5 1.6 and older keep both lower bits when closed, as those
/// that come with PyTables show; those of 1.8 have none.
const OPEN_FOR_WRITING: u32 = 1;
const VERIFIED: u32 = 2;
/// One program writes and others may read: what they see is consistent at any time.
const SWMR: u32 = 4;

/// Refuses a file that a program has open for writing. One that writes for readers (SWMR) holds no lock.
///
/// # Errors
///
/// `file-not-closed`.
pub(super) fn must_not_be_locked(source: &Source) -> Result<()> {
    let Writer::Process(process) = source.find_writer() else {
        return Ok(());
    };
    let who = match process {
        Some(process) if process == std::process::id() => " in this process".to_owned(),
        Some(process) => format!(" in process {process}"),
        None => String::new(),
    };
    let path = source.path().display();
    Err(Error::new(
        ErrorKind::FileNotClosed,
        format!(
            "`{path}` is open for writing{who}, so data that is not flushed yet would be missing"
        ),
    )
    .hint("close it there first, or let the writer enable SWMR: `file.swmr_mode = True` in h5py"))
}

/// Whether a program appends to a file while others read it, given the flags of its superblock.
pub(super) fn is_swmr(flags: u32) -> bool {
    flags & (OPEN_FOR_WRITING | SWMR) == OPEN_FOR_WRITING | SWMR
}

/// Returns what a reader should know of a file that was not closed, given the version of its superblock and its flags.
///
/// libhdf5 looks at the flag from version 3 of the superblock on, and refuses such files; in older versions it ignores the
/// flag, and complete files with it are in use.
///
/// # Errors
///
/// `file-not-closed` when the version is 3, unless such files are allowed.
pub(super) fn check_closed(
    source: &Source,
    version: u8,
    flags: u32,
    is_allowed: bool,
) -> Result<Option<String>> {
    // Only the old superblocks can be those of libraries that left both bits.
    let known = match version {
        0 | 1 => OPEN_FOR_WRITING | VERIFIED | SWMR,
        _ => OPEN_FOR_WRITING | SWMR,
    };
    if flags & known != OPEN_FOR_WRITING {
        return Ok(None);
    }
    let path = source.path().display();
    let what = match source.find_writer() {
        Writer::Unknown => "is open for writing, or was not closed by the program that wrote it",
        _ => "was not closed by the program that wrote it",
    };
    if is_allowed || version <= 2 {
        return Ok(Some(format!(
            "`{path}` {what}: data that was not flushed is missing and reads as zeros; if it is complete, mark it as \
             closed: `h5clear -s {path}`"
        )));
    }
    Err(Error::new(
        ErrorKind::FileNotClosed,
        format!("`{path}` {what}: data that was not flushed is missing and would read as zeros"),
    )
    .hint(format!(
        "close the writer, or write the file again; if it is complete, mark it as closed: `h5clear -s {path}`"
    ))
    .python_hint("read it with `allow_unclosed=True`"))
}
