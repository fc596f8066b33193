//! Whether files have the content that a run started with.

use std::sync::OnceLock;

use vramfit_base::{Error, Result};

use super::file_index::FileIndex;
use super::segments::Segments;
use crate::digest::digest;
use crate::order::FileDigests;
use crate::source::{MAX_SAMPLED_BYTES, sample_digest};
use crate::splitmix::MixKey;

/// Hashes of the content of files, which are computed when they are first needed.
#[derive(Debug)]
pub(super) struct FileContents {
    /// How many files the options name.
    main_files: usize,
    /// The hashes of those that an index knows.
    known: Vec<Option<u64>>,
    hashes: OnceLock<Option<Hashes>>,
}

#[derive(Debug)]
struct Hashes {
    all: u64,
    digests: Option<FileDigests>,
}

impl FileContents {
    /// The options name so many files; the others are those of virtual datasets.
    pub(super) fn new(main_files: usize, index: Option<&FileIndex>) -> FileContents {
        let known = index.map_or_else(Vec::new, FileIndex::contents);
        FileContents { main_files, known, hashes: OnceLock::new() }
    }

    /// Returns how many files the options name.
    pub(super) fn main_files(&self) -> usize {
        self.main_files
    }

    /// Returns a hash of the content of all files; none when they cannot be read or have changed.
    pub(super) fn hash(&self, segments: &Segments) -> Option<u64> {
        Some(self.hashes(segments)?.all)
    }

    /// Returns what tells which of several files has another content or name.
    pub(super) fn digests(&self, segments: &Segments) -> Option<&FileDigests> {
        self.hashes(segments)?.digests.as_ref()
    }

    /// Returns how much of the files is compared, if that is not all of them.
    pub(super) fn sampled(&self, segments: &Segments) -> Option<u64> {
        let each = sampled_bytes(self.main_files);
        let is_sampled = segments.files().any(|(_, file)| file.length > each);
        is_sampled.then_some(MAX_SAMPLED_BYTES)
    }

    /// Adds to an error about changed files which of them differ from those of a state.
    pub(super) fn name_changed(
        &self,
        segments: &Segments,
        were: Option<&FileDigests>,
        error: Error,
    ) -> Error {
        let now = self.digests(segments);
        let name = |number: usize| {
            let file = segments.files().nth(number);
            file.map(|(path, _)| path.display().to_string()).unwrap_or_default()
        };
        let which = match (were, now) {
            (None, None) => return error,
            (None, Some(now)) => {
                format!(
                    "the state is of one file, or of an earlier version, and there are {} now",
                    now.count()
                )
            }
            (Some(were), None) => format!("there were {} files, and there is 1 now", were.count()),
            (Some(were), Some(now)) if were.count() != now.count() => {
                format!("there were {} files, and there are {} now", were.count(), now.count())
            }
            (Some(were), Some(now)) => match were.first_difference(now) {
                None => return error,
                Some(files) if files.len() == 1 => {
                    format!("the first that differs is `{}`", name(files.start))
                }
                Some(files) => format!(
                    "the first that differs is one of `{}` to `{}`",
                    name(files.start),
                    name(files.end - 1)
                ),
            },
        };
        let hint = error.hint_text().unwrap_or_default().to_owned();
        Error::new(error.kind(), format!("{}; {which}", error.message())).hint(hint)
    }

    fn hashes(&self, segments: &Segments) -> Option<&Hashes> {
        let compute = || {
            let each = sampled_bytes(self.main_files);
            let contents = segments.files().enumerate();
            let contents = contents.map(|(number, (path, _))| {
                match self.known.get(number).copied().flatten() {
                    Some(known) => Ok(known),
                    None => sample_digest(path, each),
                }
            });
            let contents: Vec<u64> = contents.collect::<Result<_>>().ok()?;
            // Of a file that grows it is the content of the fingerprint only as long as it has not.
            segments.is_unchanged().then_some(())?;
            let named = segments.files().zip(&contents).map(|((path, _), content)| {
                let name = digest(path.file_name().unwrap_or_default().as_encoded_bytes());
                MixKey::new(&[name, *content]).at(0)
            });
            let digests = FileDigests::new(&named.collect::<Vec<_>>());
            Some(Hashes { all: MixKey::new(&contents).at(0), digests })
        };
        self.hashes.get_or_init(compute).as_ref()
    }
}

/// Returns how many bytes of each file are hashed at most, where the options name so many.
pub(super) fn sampled_bytes(main_files: usize) -> u64 {
    // The files of a virtual dataset are looked at as closely as always.
    MAX_SAMPLED_BYTES / main_files.max(1) as u64
}
