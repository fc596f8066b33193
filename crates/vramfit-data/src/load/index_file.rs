//! The file of an index: a line that says what it is, and one with what is known of files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use vramfit_base::{Error, Result};

use super::segments::Segment;
use super::segments_builder::FileStructure;
use super::storage::ColumnStorage;
use crate::digest::digest;
use crate::source::FileIdentity;

/// The version of the format. Files of others are made anew.
const SCHEMA: u32 = 1;
/// Loaders with other columns have sets of their own, of which so many are kept.
const MAX_SETS: usize = 8;
/// No dataset has more rows, and no loader more segments, than an index says.
const MAX_NUMBER: u64 = 1 << 40;

#[derive(Debug, Serialize, Deserialize)]
struct IndexHeader {
    vramfit_file_index: u32,
    /// A hash of the second line.
    digest: u64,
}

/// What is known of files that were read in one way.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct FileSet {
    /// What decides how files are read: a hash of the options, and what the first file decides.
    pub(super) options: u64,
    pub(super) first: String,
    /// By their absolute paths.
    pub(super) files: BTreeMap<String, FileEntry>,
}

/// A file as it was when it was opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct FileEntry {
    pub(super) identity: FileIdentity,
    /// A hash of its content, of which so many bytes at most were read.
    pub(super) content: u64,
    pub(super) sampled_bytes: u64,
    pub(super) structure: FileStructure,
    /// How its datasets are stored, for each column.
    pub(super) storage: Vec<ColumnStorage>,
    segments: Vec<SegmentEntry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SegmentEntry {
    names: Vec<String>,
    series: Option<u64>,
    lengths: Vec<u64>,
    addresses: Vec<u64>,
}

impl FileEntry {
    /// Makes the entry of a file with its segments, whose datasets are all in it.
    pub(super) fn new(
        identity: FileIdentity,
        (content, sampled_bytes): (u64, u64),
        structure: FileStructure,
        storage: Vec<ColumnStorage>,
        segments: &[Segment],
    ) -> FileEntry {
        let segments = segments.iter().map(|segment| SegmentEntry {
            names: segment.names.to_vec(),
            series: segment.series,
            lengths: segment.lengths.to_vec(),
            addresses: segment.addresses.iter().flatten().copied().collect(),
        });
        let segments = segments.collect();
        FileEntry { identity, content, sampled_bytes, structure, storage, segments }
    }

    /// Whether it has so many columns everywhere, and numbers that can be.
    pub(super) fn is_of_columns(&self, count: usize) -> bool {
        let is_possible = |segment: &SegmentEntry| {
            segment.lengths.len() == count
                && segment.addresses.len() == count
                && segment.lengths.iter().all(|length| *length <= MAX_NUMBER)
        };
        self.storage.len() == count
            && self.storage.iter().all(ColumnStorage::is_possible)
            && self.structure.is_possible()
            && (1..=MAX_NUMBER).contains(&(self.segments.len() as u64))
            && self.segments.iter().all(is_possible)
    }

    /// Returns the segments of the file with a number.
    pub(super) fn segments(&self, file: usize) -> Vec<Segment> {
        let segments = self.segments.iter().map(|segment| Segment {
            file: file as u32,
            names: segment.names.clone().into(),
            series: segment.series,
            lengths: segment.lengths.clone().into(),
            addresses: segment.addresses.iter().map(|address| Some(*address)).collect(),
            other_files: Box::default(),
            is_unverified: true,
        });
        segments.collect()
    }
}

/// Reads the sets of an index; none where there is no file, or it is damaged or of another version.
///
/// # Errors
/// `invalid-argument` when the file is something else, which is not overwritten; `io` when it cannot be read.
pub(super) fn read(path: &Path) -> Result<Vec<FileSet>> {
    let not_an_index = || {
        let path = path.display();
        Error::invalid_argument(format!("`{path}` is not an index of files, and is left as it is"))
            .hint("name a file that does not exist")
    };
    let read = match std::fs::metadata(path) {
        // Reading a pipe waits for its writer, and a device would be replaced.
        Ok(metadata) if !metadata.is_file() => return Err(not_an_index()),
        Ok(_) => std::fs::read(path),
        Err(error) => Err(error),
    };
    let bytes = match read {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(vramfit_base::files::cannot_read(path, error)),
    };
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (first, rest) = bytes.split_at(end);
    // A list could be read as a header, too.
    let header = serde_json::from_slice::<IndexHeader>(first).ok();
    let header = header.filter(|_| first.starts_with(b"{")).ok_or_else(not_an_index)?;
    let rest = rest.get(1..).unwrap_or_default();
    if header.vramfit_file_index != SCHEMA || header.digest != digest(rest) {
        return Ok(Vec::new());
    }
    Ok(serde_json::from_slice(rest).unwrap_or_default())
}

/// Writes the sets of an index, of which the last one is the latest.
///
/// # Errors
/// `io` when there is no such file, and it cannot be written; where there is one, it stays as it is.
pub(super) fn write(path: &Path, sets: &[FileSet]) -> Result<()> {
    let sets = &sets[sets.len().saturating_sub(MAX_SETS)..];
    let Err(error) = replace(&follow_link(path), sets) else {
        return Ok(());
    };
    // Somebody else made it, who may write there.
    if path.exists() {
        return Ok(());
    }
    Err(Error::io(format!("cannot write the index `{}`", path.display())).cause(error))
}

/// Returns the file that a link leads to, which need not exist.
fn follow_link(path: &Path) -> PathBuf {
    let linked = || {
        let target = path.read_link().ok()?;
        Some(path.parent()?.join(target))
    };
    path.canonicalize().ok().or_else(linked).unwrap_or_else(|| path.to_owned())
}

fn replace(path: &Path, sets: &[FileSet]) -> std::io::Result<()> {
    let sets = serde_json::to_vec(sets)?;
    let header = IndexHeader { vramfit_file_index: SCHEMA, digest: digest(&sets) };
    let header = serde_json::to_vec(&header)?;
    let (mut file, temporary) = create_beside(path)?;
    if let Ok(metadata) = path.metadata() {
        file.set_permissions(metadata.permissions())?;
    }
    let written = [&header[..], b"\n", &sets]
        .iter()
        .try_for_each(|part| file.write_all(part))
        .and_then(|()| std::fs::rename(&temporary, path));
    written.inspect_err(|_| drop(std::fs::remove_file(&temporary)))
}

/// Creates a file in the same directory, which no other thread, process or host has.
fn create_beside(path: &Path) -> std::io::Result<(File, PathBuf)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}-{}-{count}", std::process::id(), now.as_nanos()));
    let temporary = path.with_file_name(name);
    Ok((File::create_new(&temporary)?, temporary))
}
