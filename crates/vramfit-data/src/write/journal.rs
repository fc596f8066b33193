//! What is known to be on the disk of a file that is being written: the basis for going on after a kill
//! or a power cut.
//!
//! Lines of JSON in a file of their own. The first identifies what is being written; each further one is
//! added after the data it describes was synced. A truncated line is ignored.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use vramfit_base::Result;

use super::options::cannot_write;

/// The version of the journal and of the data it describes. An attempt with another version is restarted.
const SCHEMA: u32 = 1;

#[derive(Serialize, Deserialize)]
struct JournalHeader {
    schema: u32,
    /// Identifies what is written; chosen by the caller and only compared.
    purpose: String,
}

/// What was done since the line before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Pieces that are on the disk, from the first one on.
    pub(super) pieces: u64,
    /// Where the next chunk goes.
    pub(super) end: u64,
    /// Stored bytes of the chunks that came, in the order in which they were written.
    pub(super) chunks: Vec<u32>,
}

/// The journal of an unfinished file.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
}

impl Journal {
    /// Begins a journal, over any other.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn create(path: &Path, purpose: &str) -> Result<Self> {
        let heading = JournalHeader { schema: SCHEMA, purpose: purpose.to_owned() };
        let file = File::create(path).map_err(|error| cannot_write(path, &error))?;
        let mut journal = Journal { file };
        let written = journal.add(&heading);
        written.map_err(|error| cannot_write(path, &error))?;
        Ok(journal)
    }

    /// Opens a journal to resume an attempt, and returns the sum of its entries. `None` when there
    /// is no journal, or one of something else.
    ///
    /// # Errors
    /// `io`.
    pub(super) fn open(path: &Path, purpose: &str) -> Result<Option<(Self, Entry)>> {
        let mut file = match File::options().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(cannot_write(path, &error)),
        };
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(|error| cannot_write(path, &error))?;
        let mut lines = text.split_inclusive(|&byte| byte == b'\n');
        let heading =
            lines.next().and_then(|line| serde_json::from_slice::<JournalHeader>(line).ok());
        if !heading.is_some_and(|is| is.schema == SCHEMA && is.purpose == purpose) {
            return Ok(None);
        }
        let mut done = Entry::default();
        let mut known = text.iter().position(|&byte| byte == b'\n').unwrap_or(0) + 1;
        for line in lines.filter(|line| line.ends_with(b"\n")) {
            let Ok(entry) = serde_json::from_slice::<Entry>(line) else {
                break;
            };
            known += line.len();
            done.pieces = entry.pieces;
            done.end = entry.end;
            done.chunks.extend(entry.chunks);
        }
        file.set_len(known as u64)
            .and_then(|()| std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).map(|_| ()))
            .map_err(|error| cannot_write(path, &error))?;
        Ok(Some((Journal { file }, done)))
    }

    /// Adds a line: the heading, or an [`Entry`] whose pieces the caller has synchronized.
    pub(super) fn add(&mut self, value: &impl Serialize) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut journal = Journal::create(&path, "test").unwrap();
        let entry = |pieces, end, chunks: &[u32]| Entry { pieces, end, chunks: chunks.to_vec() };
        journal.add(&entry(2, 100, &[40, 60])).unwrap();
        journal.add(&entry(3, 130, &[30])).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let heading = whole.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        let first = heading + whole[heading..].iter().position(|&b| b == b'\n').unwrap() + 1;

        for len in 0..=whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            let found = Journal::open(&path, "test").unwrap();
            if len < heading - 1 {
                assert!(found.is_none());
                continue;
            }
            let expected = match len {
                _ if len < first => Entry::default(),
                _ if len < whole.len() => entry(2, 100, &[40, 60]),
                _ => entry(3, 130, &[40, 60, 30]),
            };
            assert_eq!(found.unwrap().1, expected, "{len} bytes");
        }
        assert!(Journal::open(&path, "something else").unwrap().is_none());
        assert!(Journal::open(&folder.path().join("no"), "test").unwrap().is_none());
    }
}
