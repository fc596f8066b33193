//! Rows that the caller computes one piece after the other, as a model does its predictions.

use std::path::Path;

use vramfit_base::{Bytes, Error, Result};

use super::content::{Content, Storage};
use super::options::WriteOptions;
use super::pipeline::EncodedChunk;
use super::writer::{Writer, piece};

/// More than what a file has beside its rows: names, attributes, a page for each dataset.
const METADATA_BYTES: u64 = 1 << 20;

/// Writes pieces of rows in their order; an attempt that was killed is resumed at a piece.
#[derive(Debug)]
pub struct RowWriter {
    writer: Writer,
    row_bytes: Vec<u64>,
    names: Vec<String>,
    rows: u64,
    piece_rows: u64,
}

impl RowWriter {
    /// Begins a file, or resumes one that was written for the same `purpose`.
    ///
    /// All datasets have the same number of rows, and contiguous storage. Each piece has `piece_rows` rows, the
    /// last one what is left.
    ///
    /// # Errors
    /// `invalid-argument` for content that cannot be written; `io` when the file exists or cannot be written.
    pub fn open(
        path: &Path,
        content: Content,
        piece_rows: u64,
        purpose: &str,
        options: WriteOptions,
    ) -> Result<RowWriter> {
        content.check()?;
        let rows = content.datasets.first().map_or(0, |dataset| dataset.rows());
        for dataset in &content.datasets {
            assert_eq!(dataset.storage, Storage::Contiguous, "{}", dataset.path);
            assert_eq!(dataset.rows(), rows, "{}", dataset.path);
        }
        let row_bytes = content.datasets.iter().map(|dataset| dataset.row_bytes()).collect();
        let names = content.datasets.iter().map(|dataset| dataset.path.clone()).collect();
        let data_bytes: u64 = content.datasets.iter().map(|dataset| dataset.bytes()).sum();
        let expected = Bytes(data_bytes + METADATA_BYTES);
        let piece_rows = piece_rows.max(1);
        let writer = Writer::open(path, content, piece_rows, purpose, options, expected)?;
        Ok(RowWriter { writer, row_bytes, names, rows, piece_rows })
    }

    /// Returns how many rows are written, those of an earlier attempt included.
    pub fn rows_done(&self) -> u64 {
        (self.writer.pieces() * self.piece_rows).min(self.rows)
    }

    /// Adds the next piece: the bytes of its rows, for each dataset in its order.
    ///
    /// # Errors
    /// `invalid-argument` for a piece of another size; `io` when the disk fails.
    pub fn add(&mut self, parts: &[&[u8]]) -> Result<()> {
        let piece = piece(self.writer.pieces(), self.piece_rows, self.rows);
        let count = piece.end - piece.start;
        assert_eq!(parts.len(), self.row_bytes.len(), "one part for each dataset");
        for ((part, row_bytes), name) in parts.iter().zip(&self.row_bytes).zip(&self.names) {
            if count == 0 || part.len() as u64 != count * row_bytes {
                return Err(Error::invalid_argument(format!(
                    "{} bytes for `{name}`, but the next {count} rows of it have {}",
                    part.len(),
                    count * row_bytes
                )));
            }
        }
        let stored: Vec<EncodedChunk> = parts
            .iter()
            .map(|part| EncodedChunk { bytes: part.to_vec(), chunks: Vec::new() })
            .collect();
        self.writer.add(piece.start, &stored)
    }

    /// Completes the file, which appears at its path. Returns its size.
    ///
    /// # Errors
    /// `invalid-argument` when rows are missing; `io` when the disk fails.
    pub fn finish(self) -> Result<Bytes> {
        let done = self.rows_done();
        if done < self.rows {
            return Err(Error::invalid_argument(format!(
                "{done} of {} rows are written",
                self.rows
            )));
        }
        self.writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::{Dataset, Number};

    /// Writes rows of numbers, up to `stop` pieces; returns the file where it is complete.
    fn write(path: &Path, stop: usize) -> Option<Vec<u8>> {
        let content = Content {
            datasets: vec![
                Dataset::new("a", Number::F32, vec![25, 2], Storage::Contiguous),
                Dataset::new("b/c", Number::I32, vec![25], Storage::Contiguous),
            ],
            attributes: Vec::new(),
        };
        let options =
            WriteOptions { resume: true, sync_every: Bytes(1), ..WriteOptions::default() };
        let mut writer = RowWriter::open(path, content, 10, "test", options).unwrap();
        for _ in 0..stop {
            let (start, done) = (writer.rows_done(), writer.rows_done() == 25);
            if done {
                break;
            }
            let rows = start..(start + 10).min(25);
            let floats: Vec<u8> =
                rows.clone().flat_map(|row| [(row as f32).to_le_bytes(); 2].concat()).collect();
            let numbers: Vec<u8> = rows.flat_map(|row| (row as i32).to_le_bytes()).collect();
            assert!(writer.add(&[&floats, &numbers[4..]]).is_err());
            writer.add(&[&floats, &numbers]).unwrap();
        }
        if writer.rows_done() < 25 {
            return None;
        }
        writer.finish().unwrap();
        Some(std::fs::read(path).unwrap())
    }

    #[test]
    fn an_attempt_that_stopped_anywhere_is_resumed_to_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let whole = write(&folder.path().join("whole.h5"), 9).unwrap();
        for stop in 0..3 {
            let path = folder.path().join(format!("{stop}.h5"));
            assert_eq!(write(&path, stop), None);
            assert!(!path.exists());
            assert_eq!(write(&path, 9).unwrap(), whole, "stopped after {stop} pieces");
        }
    }
}
