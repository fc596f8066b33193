//! The metadata cache image: structures that were in the library's cache when the file was closed. They are kept
//! together in one block, and what is at their own addresses is old or was never written.

use vramfit_base::Result;

use super::bounded_reader::BoundedReader;
use super::container::Container;
use super::cursor::Cursor;
use super::header::{Header, kind};

/// Structures that are to be read instead of what the file has at their addresses.
#[derive(Debug)]
pub(crate) struct CacheImage {
    /// Sorted by address, counted from the first byte of the file.
    entries: Vec<(u64, Vec<u8>)>,
}

impl CacheImage {
    /// Reads the image of a file, if it has one, given where the superblock's extension is.
    ///
    /// # Errors
    ///
    /// `invalid-file` when it is damaged.
    pub(crate) fn read(container: &Container, extension: u64) -> Result<Option<CacheImage>> {
        let header = Header::read(container, extension)?;
        let Some(message) = header.find(kind::CACHE_IMAGE) else {
            return Ok(None);
        };
        let mut cursor = header.cursor(message);
        cursor.version(&[0], "a metadata cache image message")?;
        let Some(address) = cursor.address()? else {
            return Ok(None);
        };
        let length = cursor.length()?;
        let bytes = BoundedReader::new(container).read(address, length)?;
        let mut cursor = Cursor::new(container, &bytes, address);
        cursor.structure(b"MDCI", 0, "a metadata cache image")?;
        cursor.skip(1)?;
        cursor.length()?;
        let count = cursor.u32()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(read_entry(&mut cursor)?);
        }
        cursor.checksum()?;
        entries.sort_by_key(|(address, _)| *address);
        Ok(Some(CacheImage { entries }))
    }

    /// Replaces those of `bytes`, which were read at `address`, that the image has.
    pub(crate) fn overlay(&self, address: u64, bytes: &mut [u8]) {
        let end = address.saturating_add(bytes.len() as u64);
        let behind = |(start, held): &(u64, Vec<u8>)| start.saturating_add(held.len() as u64);
        let first = self.entries.partition_point(|entry| behind(entry) <= address);
        for entry in &self.entries[first..] {
            let (start, held) = (entry.0.max(address), &entry.1);
            if start >= end {
                break;
            }
            let stop = behind(entry).min(end);
            let from = (start - entry.0) as usize..(stop - entry.0) as usize;
            let to = (start - address) as usize..(stop - address) as usize;
            bytes[to].copy_from_slice(&held[from]);
        }
    }
}

/// Reads one structure and where it belongs.
fn read_entry(cursor: &mut Cursor<'_>) -> Result<(u64, Vec<u8>)> {
    // Kind, flags, ring and age; how many others it depends on, and are dirty.
    cursor.skip(4 + 2 + 2)?;
    let parents = cursor.u16()?;
    // Its place among those that were used last.
    cursor.skip(4)?;
    let address = cursor.known_address("a structure of the metadata cache")?;
    let length = cursor.length()?;
    for _ in 0..parents {
        cursor.address()?;
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    Ok((address, cursor.take(length)?.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_replaced_where_the_image_has_them() {
        let image = CacheImage { entries: vec![(10, vec![1; 4]), (20, vec![2; 2])] };
        let read = |address: u64, length: usize| {
            let mut bytes = vec![0; length];
            image.overlay(address, &mut bytes);
            bytes
        };
        assert_eq!(read(0, 10), [0; 10]);
        assert_eq!(read(8, 4), [0, 0, 1, 1]);
        assert_eq!(read(12, 4), [1, 1, 0, 0]);
        assert_eq!(read(11, 2), [1, 1]);
        assert_eq!(read(13, 9), [1, 0, 0, 0, 0, 0, 0, 2, 2]);
        assert_eq!(read(22, 3), [0; 3]);
    }
}
