//! What is kept of files from one run to the next, so that those that have not changed are not opened to begin.
//!
//! Only what a file itself decides is kept: a file with virtual datasets or external links, one that was not closed, one
//! to which a program appends and one that was just written are opened each time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use vramfit_base::{Error, Result};

use super::column::Column;
use super::file_contents::sampled_bytes;
use super::options::LoaderOptions;
use super::segments::Segment;
use super::segments_builder::{FileStructure, SegmentsBuilder};
use super::storage::ColumnStorage;
use crate::digest::digest;
use crate::hdf5::Container;
use crate::source::{FileFingerprint, sample_digest};

/// File systems have times of at least this resolution.
const TIME_RESOLUTION: Duration = Duration::from_secs(2);

/// The version of the format. Files of others are made anew.
const SCHEMA: u32 = 1;

/// The file of an index.
#[derive(Debug, Serialize, Deserialize)]
struct StoredIndex {
    /// What the file is.
    vramfit_file_index: u32,
    /// A hash of what decides how files are read.
    options: u64,
    /// The type of each column in the file, and the shape of its rows.
    columns: Vec<(String, Vec<u64>)>,
    files: BTreeMap<String, StoredFile>,
}

/// A file as it was when it was opened.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredFile {
    length: u64,
    modified_ns: i64,
    inode: u64,
    /// A hash of its content.
    content: u64,
    structure: FileStructure,
    storage: Vec<ColumnStorage>,
    segments: Vec<StoredSegment>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredSegment {
    names: Vec<String>,
    series: Option<u64>,
    lengths: Vec<u64>,
    addresses: Vec<u64>,
}

/// The index of a loader.
#[derive(Debug)]
pub(super) struct FileIndex {
    path: PathBuf,
    options: u64,
    /// How many bytes of each file are hashed.
    sampled_bytes: u64,
    known: Option<StoredIndex>,
    /// What this run found, with the hash of the content of each file of the options, if it is kept.
    found: BTreeMap<String, StoredFile>,
    contents: Vec<Option<u64>>,
    columns: Vec<(String, Vec<u64>)>,
    is_changed: bool,
}

impl FileIndex {
    /// Opens the index that the options name, which need not exist.
    ///
    /// # Errors
    /// `invalid-argument` when the file is something else, or samples are ragged; `io` when it cannot be read.
    pub(super) fn open(options: &LoaderOptions, files: usize) -> Result<Option<FileIndex>> {
        let Some(path) = &options.index else {
            return Ok(None);
        };
        if let Some(bounds) = options.samples.bounds() {
            return Err(Error::invalid_argument(format!(
                "an index is not kept of ragged samples: their {}s are read from every file",
                bounds.noun()
            ))
            .hint("leave `index` out"));
        }
        let own = digest(
            format!(
                "{:?} {:?} {:?} {:?} {} {files}",
                options.columns,
                options.samples.has_series_in_rows(),
                (options.unpack, options.narrow),
                options.float_type,
                env!("CARGO_PKG_VERSION"),
            )
            .as_bytes(),
        );
        let known = match std::fs::read(path) {
            Ok(bytes) => Some(parse(path, &bytes)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(vramfit_base::files::cannot_read(path, error)),
        };
        Ok(Some(FileIndex {
            path: path.clone(),
            options: own,
            sampled_bytes: sampled_bytes(files),
            known: known.flatten().filter(|known| known.options == own),
            found: BTreeMap::new(),
            contents: Vec::new(),
            columns: Vec::new(),
            is_changed: false,
        }))
    }

    /// Adds a file to the columns as it is known, and returns whether it is and has not changed since.
    ///
    /// # Errors
    /// `io` when the working directory is not known.
    pub(super) fn find(
        &mut self,
        number: usize,
        builder: &mut SegmentsBuilder,
        columns: &mut [Column],
    ) -> Result<bool> {
        let (path, print) = builder.file(number);
        let name = name(path)?;
        let known = self.known.as_ref().filter(|known| known.columns == self.columns);
        let known = known.and_then(|known| known.files.get(&name));
        let Some(file) = known.filter(|file| file.is_of(print) && file.is_of_columns(columns))
        else {
            return Ok(false);
        };
        for (column, storage) in columns.iter_mut().zip(&file.storage) {
            column.add_known(*storage);
        }
        let segments = file.segments.iter().map(|segment| segment.to_segment(number));
        builder.add_known(file.structure, segments.collect());
        self.contents.push(Some(file.content));
        self.found.insert(name, file.clone());
        Ok(true)
    }

    /// Adds a file that was opened, before it is ended.
    ///
    /// # Errors
    /// `io` when it cannot be read.
    pub(super) fn add(
        &mut self,
        builder: &SegmentsBuilder,
        columns: &[Column],
        container: &Container,
    ) -> Result<()> {
        let number = self.contents.len();
        if number == 0 {
            let types = columns.iter();
            self.columns = types
                .map(|column| (column.stored_as().to_owned(), column.row_shape().to_vec()))
                .collect();
        }
        let (path, print) = builder.file(number);
        let name = name(path)?;
        let known = self.known.as_ref().and_then(|known| known.files.get(&name));
        self.is_changed |= known.is_none_or(|known| !known.is_of(print));
        let is_kept = container.unclosed().is_none() && builder.is_plain(number);
        if !is_kept || was_just_written(print) {
            self.contents.push(None);
            return Ok(());
        }
        let file = StoredFile {
            length: print.length,
            modified_ns: print.modified_ns as i64,
            inode: print.inode,
            content: sample_digest(path, self.sampled_bytes)?,
            structure: builder.file_structure(),
            storage: columns.iter().map(Column::file_storage).collect(),
            segments: builder.segments_of(number).iter().map(StoredSegment::of).collect(),
        };
        self.contents.push(Some(file.content));
        self.found.insert(name, file);
        Ok(())
    }

    /// Returns the hash of the content of each file of the options, if it is known.
    pub(super) fn contents(&self) -> Vec<Option<u64>> {
        self.contents.clone()
    }

    /// Writes the index, if it is not what its file has.
    ///
    /// # Errors
    /// `io` when it cannot be written.
    pub(super) fn save(self) -> Result<()> {
        let is_same = self.known.as_ref().is_some_and(|known| known.columns == self.columns);
        if is_same && !self.is_changed {
            return Ok(());
        }
        let stored = StoredIndex {
            vramfit_file_index: SCHEMA,
            options: self.options,
            columns: self.columns,
            files: self.found,
        };
        let failed = |error: std::io::Error| {
            Error::io(format!("cannot write the index `{}`", self.path.display())).cause(error)
        };
        // Another process may read or write it at the same time.
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", std::process::id()));
        let temporary = self.path.with_file_name(name);
        let text = serde_json::to_vec(&stored).map_err(std::io::Error::from).map_err(failed)?;
        let written =
            std::fs::write(&temporary, text).and_then(|()| std::fs::rename(&temporary, &self.path));
        written.inspect_err(|_| drop(std::fs::remove_file(&temporary))).map_err(failed)
    }
}

impl StoredFile {
    /// Whether the file has not changed since.
    fn is_of(&self, print: &FileFingerprint) -> bool {
        (self.length, self.modified_ns, self.inode)
            == (print.length, print.modified_ns as i64, print.inode)
    }

    /// Whether it has as many columns everywhere as there are.
    fn is_of_columns(&self, columns: &[Column]) -> bool {
        let count = columns.len();
        self.storage.len() == count
            && !self.segments.is_empty()
            && (self.segments.iter())
                .all(|segment| segment.lengths.len() == count && segment.addresses.len() == count)
    }
}

impl StoredSegment {
    fn of(segment: &Segment) -> StoredSegment {
        StoredSegment {
            names: segment.names.to_vec(),
            series: segment.series,
            lengths: segment.lengths.to_vec(),
            addresses: segment.addresses.iter().flatten().copied().collect(),
        }
    }

    fn to_segment(&self, file: usize) -> Segment {
        Segment {
            file: file as u32,
            names: self.names.clone().into(),
            series: self.series,
            lengths: self.lengths.clone().into(),
            addresses: self.addresses.iter().map(|address| Some(*address)).collect(),
            other_files: Box::default(),
        }
    }
}

/// Whether a file was written to so shortly before that another change could leave its time as it is.
fn was_just_written(print: &FileFingerprint) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    print.modified_ns + TIME_RESOLUTION.as_nanos() as i128 > now.as_nanos() as i128
}

/// Reads an index; `None` where it is of another version.
///
/// # Errors
/// `invalid-argument` when the file is something else, which is not overwritten.
fn parse(path: &Path, bytes: &[u8]) -> Result<Option<StoredIndex>> {
    #[derive(Deserialize)]
    struct Header {
        vramfit_file_index: u32,
    }
    let header: Header = serde_json::from_slice(bytes).map_err(|error| {
        Error::invalid_argument(format!("`{}` is not an index of files", path.display()))
            .cause(error)
            .hint("name a file that does not exist, or delete this one: it is made anew")
    })?;
    if header.vramfit_file_index != SCHEMA {
        return Ok(None);
    }
    Ok(serde_json::from_slice(bytes).ok())
}

/// Returns the name of a file that is the same in every working directory.
fn name(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path).map_err(|error| {
        Error::io(format!("the absolute path of `{}` is not known", path.display())).cause(error)
    })?;
    Ok(absolute.to_string_lossy().into_owned())
}
