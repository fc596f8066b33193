//! What is kept of files from one run to the next, so that those that have not changed are not opened to begin.
//!
//! Only what a file itself decides is kept: a file with virtual datasets, one in which a path leads through an external
//! link, one that was not closed, one to which a program appends and one that was just written are opened each time.
//! When rows of a file are first read, it is compared with what the index says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use vramfit_base::{Error, Result};

use super::column::Column;
use super::file_contents::sampled_bytes;
use super::index_file::{self, FileEntry, FileSet};
use super::options::LoaderOptions;
use super::segments_builder::SegmentsBuilder;
use crate::digest::digest;
use crate::hdf5::object::ObjectFinder;
use crate::source::{FileFingerprint, FileIdentity, sample_digest};

/// File systems have times of at least this resolution.
const TIME_RESOLUTION: Duration = Duration::from_secs(2);
/// Files of a set that this run does not read are kept up to this many for each one that it does, and some.
const MAX_OTHERS: usize = 4;
const MIN_OTHERS: usize = 10_000;

/// The index of a loader.
#[derive(Debug)]
pub(super) struct FileIndex {
    path: PathBuf,
    options: u64,
    /// How many bytes of each file are hashed.
    sampled_bytes: u64,
    /// What the file has, but the set of this loader, once it is known which that is.
    sets: Vec<FileSet>,
    known: FileSet,
    /// What this run found.
    found: BTreeMap<String, FileEntry>,
    /// The hash of the content of each file of the options, if it is kept.
    contents: Vec<Option<u64>>,
    /// Files that are known, and not as they are.
    changed: Vec<String>,
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
                "an index is not kept where samples or series have bounds: the {}s are read from every file",
                bounds.noun()
            ))
            .hint("leave `index` out"));
        }
        let how = format!(
            "{:?} {:?} {:?} {:?} {}",
            options.columns,
            options.samples.has_series_in_rows(),
            (options.unpack, options.narrow),
            options.float_type,
            env!("CARGO_PKG_VERSION"),
        );
        Ok(Some(FileIndex {
            path: path.clone(),
            options: digest(how.as_bytes()),
            sampled_bytes: sampled_bytes(files),
            sets: index_file::read(path)?,
            known: FileSet::default(),
            found: BTreeMap::new(),
            contents: Vec::new(),
            changed: Vec::new(),
        }))
    }

    /// Adds a file to the columns as it is known, and returns whether it is and has not changed since.
    ///
    /// # Errors
    /// `io` when it cannot be asked for.
    pub(super) fn find(
        &mut self,
        number: usize,
        builder: &mut SegmentsBuilder,
        columns: &mut [Column],
    ) -> Result<bool> {
        let (path, print) = builder.file(number);
        let name = name(path)?;
        let Some(file) = self.known.files.get(&name) else {
            return Ok(false);
        };
        let is_same = file.identity.is_of(print) && file.identity == FileIdentity::of(path)?;
        if !is_same || !file.is_of_columns(columns.len()) {
            return Ok(false);
        }
        for (column, storage) in columns.iter_mut().zip(&file.storage) {
            column.add_known(*storage);
        }
        builder.add_known(file.structure, file.segments(number));
        let is_sampled_so = file.sampled_bytes == self.sampled_bytes;
        self.contents.push(is_sampled_so.then_some(file.content));
        self.found.insert(name, file.clone());
        Ok(true)
    }

    /// Adds a file that was opened, before it is ended. `pattern` is the path whose wildcards say which groups there are.
    ///
    /// # Errors
    /// `io` when it cannot be read.
    pub(super) fn add(
        &mut self,
        builder: &SegmentsBuilder,
        columns: &[Column],
        finder: &ObjectFinder,
        pattern: Option<&str>,
    ) -> Result<()> {
        let number = self.contents.len();
        if number == 0 {
            self.choose_set(columns, pattern);
        }
        let (path, print) = builder.file(number);
        let name = name(path)?;
        let is_own = finder.container().unclosed().is_none()
            && !finder.has_left_file()
            && builder.is_plain(number);
        let identity = FileIdentity::of(path)?;
        if !is_own || was_just_written(print) || !identity.is_of(print) {
            self.contents.push(None);
            self.changed.push(name);
            return Ok(());
        }
        let content = sample_digest(path, self.sampled_bytes)?;
        let storage = columns.iter().map(Column::file_storage).collect();
        let file = FileEntry::new(
            identity,
            (content, self.sampled_bytes),
            builder.file_structure(),
            storage,
            builder.segments_of(number),
        );
        self.contents.push(Some(content));
        self.found.insert(name, file);
        Ok(())
    }

    /// Takes the set of files that were read as this loader reads them.
    fn choose_set(&mut self, columns: &[Column], pattern: Option<&str>) {
        let first: Vec<_> = columns.iter().map(Column::decided_by_first).collect();
        let first = format!("{pattern:?} {first:?}");
        let is_own = |set: &FileSet| set.options == self.options && set.first == first;
        self.known = match self.sets.iter().position(is_own) {
            Some(place) => self.sets.remove(place),
            None => FileSet { options: self.options, first, ..FileSet::default() },
        };
    }

    /// Returns the hash of the content of each file of the options, if it is known.
    pub(super) fn contents(&self) -> Vec<Option<u64>> {
        self.contents.clone()
    }

    /// Writes the index, if it is not what its file has.
    ///
    /// # Errors
    /// `io` when there is no such file, and it cannot be written.
    pub(super) fn save(mut self) -> Result<()> {
        let mut files = self.known.files.clone();
        self.changed.iter().for_each(|name| drop(files.remove(name)));
        if files.len() > MIN_OTHERS + MAX_OTHERS * self.found.len() {
            files.clear();
        }
        files.extend(self.found);
        if files == self.known.files {
            return Ok(());
        }
        self.sets.push(FileSet { files, ..self.known });
        index_file::write(&self.path, &self.sets)
    }
}

/// Whether a file was written to so shortly before that another change could leave its time as it is.
fn was_just_written(print: &FileFingerprint) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    print.modified_ns + TIME_RESOLUTION.as_nanos() as i128 > now.as_nanos() as i128
}

/// Returns the name of a file that is the same in every working directory.
fn name(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path).map_err(|error| {
        Error::io(format!("the absolute path of `{}` is not known", path.display())).cause(error)
    })?;
    Ok(absolute.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use serde_json::Value;
    use vramfit_base::{Bytes, ErrorKind};

    use super::*;
    use crate::load::columns::Columns;
    use crate::load::segments::TouchedFiles;
    use crate::write::{Content, Dataset, Number, Storage, WriteOptions, WriteTask, write};

    /// Writes three files of eight rows, older than the resolution of times, whose rows say which they are.
    fn write_files(folder: &Path) -> Vec<PathBuf> {
        let write_file = |number: u64| {
            let path = folder.join(format!("{number}.h5"));
            let dataset = |name| Dataset::new(name, Number::I64, vec![8], Storage::Contiguous);
            let content =
                Content { datasets: vec![dataset("x"), dataset("y")], ..Content::default() };
            let source = |rows: Range<u64>, out: &mut [Vec<u8>]| {
                for row in rows {
                    out[0].extend((100 * number + row).to_le_bytes());
                    out[1].extend((100 * number + row + 50).to_le_bytes());
                }
                Ok(())
            };
            let options = WriteOptions { force: true, resume: false, sync_every: Bytes(1 << 20) };
            let (purpose, threads, expected) = ("a test", 1, Bytes(0));
            let task = WriteTask { path: &path, content, purpose, options, threads, expected };
            write(task, &source, &mut |_| ()).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30)).unwrap();
            path
        };
        (0..3).map(write_file).collect()
    }

    /// Opens the files and reads all rows of `x`.
    fn read(files: &[PathBuf], index: Option<&Path>) -> Result<Vec<u64>> {
        let options = LoaderOptions {
            files: files.to_vec(),
            index: index.map(Path::to_owned),
            ..LoaderOptions::new("", ["x", "y"])
        };
        let columns = Columns::open(&options)?;
        let mut bytes = vec![0; 8 * columns.len() as usize];
        let rows = std::iter::once(0..columns.len()).collect();
        columns.read(0, &rows, &mut bytes, &mut TouchedFiles::new())?;
        Ok(bytes.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect())
    }

    /// Changes what the index says of the second file, as nobody does who cannot compute the hash.
    fn edit(index: &Path, change: impl FnOnce(&mut Value)) {
        let text = std::fs::read_to_string(index).unwrap();
        let (_, sets) = text.split_once('\n').unwrap();
        let mut sets: Value = serde_json::from_str(sets).unwrap();
        let files = sets[0]["files"].as_object_mut().unwrap();
        let name = files.keys().find(|name| name.ends_with("1.h5")).unwrap().clone();
        change(&mut files[&name]);
        let sets = sets.to_string();
        let hash = digest(sets.as_bytes());
        let header = format!("{{\"vramfit_file_index\":1,\"digest\":{hash}}}");
        std::fs::write(index, format!("{header}\n{sets}")).unwrap();
    }

    #[test]
    fn what_an_index_says_is_compared_with_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let files = write_files(folder.path());
        let index = folder.path().join("index");
        let expected = read(&files, None).unwrap();
        assert_eq!(expected.len(), 24);
        assert_eq!(read(&files, Some(&index)).unwrap(), expected);
        let good = std::fs::read(&index).unwrap();
        let changes: [fn(&mut Value); 5] = [
            |file| file["segments"][0]["lengths"] = [7, 7].into(),
            |file| file["segments"][0]["lengths"] = [9, 9].into(),
            |file| file["segments"][0]["addresses"].as_array_mut().unwrap().swap(0, 1),
            |file| file["segments"][0]["addresses"] = [1_u64 << 40, 1 << 40].into(),
            |file| file["segments"][0]["addresses"] = [0, 0].into(),
        ];
        for change in changes {
            std::fs::write(&index, &good).unwrap();
            edit(&index, change);
            let error = read(&files, Some(&index)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::FileChanged, "{error:?}");
        }
    }

    #[test]
    fn numbers_that_cannot_be_are_no_index() {
        let folder = tempfile::tempdir().unwrap();
        let files = write_files(folder.path());
        let index = folder.path().join("index");
        let expected = read(&files, Some(&index)).unwrap();
        let good = std::fs::read(&index).unwrap();
        let changes: [fn(&mut Value); 8] = [
            |file| file["segments"][0]["lengths"] = [u64::MAX, u64::MAX].into(),
            |file| file["segments"][0]["lengths"] = [8].into(),
            |file| file["segments"][0]["addresses"] = Value::Null,
            |file| file["segments"] = Value::Array(Vec::new()),
            |file| file["structure"]["chunks"] = u64::MAX.into(),
            |file| file["storage"][0]["stored_bytes"] = u64::MAX.into(),
            |file| file["storage"][1]["row_scratch"] = u64::MAX.into(),
            |file| file["identity"]["changed_ns"] = 0.into(),
        ];
        for change in changes {
            std::fs::write(&index, &good).unwrap();
            edit(&index, change);
            assert_eq!(read(&files, Some(&index)).unwrap(), expected);
            assert_eq!(std::fs::read(&index).unwrap(), good, "it is made anew");
        }
        // Damage is noticed by the hash.
        for place in [0, good.len() / 2, good.len() - 1] {
            let mut damaged = good.clone();
            damaged[place] ^= 1;
            std::fs::write(&index, &damaged).unwrap();
            match read(&files, Some(&index)) {
                Ok(found) => assert_eq!(found, expected),
                Err(error) => assert_eq!((error.kind(), place), (ErrorKind::InvalidArgument, 0)),
            }
        }
    }
}
