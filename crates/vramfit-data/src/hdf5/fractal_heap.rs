//! Fractal heaps: where dense groups and attributes keep what they are made of.

use std::collections::BTreeMap;

use vramfit_base::{Error, Result};

use super::bounded_reader::BoundedReader;
use super::checksum::checksum;
use super::container::Container;
use super::cursor::Cursor;
use super::datatype::bytes_for;

/// A heap whose header was read.
pub(crate) struct FractalHeap {
    address: u64,
    id_length: usize,
    /// How wide a place in the heap and a length are in an identifier.
    place_width: usize,
    length_width: usize,
    columns: u64,
    first_block: u64,
    largest_direct: u64,
    has_checksums: bool,
    /// The direct blocks: where in the heap each begins, where in the file, and its bytes.
    direct: BTreeMap<u64, (u64, Vec<u8>)>,
}

impl FractalHeap {
    pub(crate) fn read(blocks: &mut BoundedReader<'_>, address: u64) -> Result<FractalHeap> {
        let container = blocks.container;
        let length = 26 + 12 * container.length_width + 3 * container.address_width;
        let bytes = blocks.read(address, length as u64)?;
        let mut cursor = Cursor::new(container, &bytes, address);
        cursor.structure(b"FRHP", 0, "a fractal heap")?;
        let id_length = cursor.u16()?.into();
        let filters = cursor.u16()?;
        if filters != 0 {
            return Err(Error::unsupported_feature(
                "groups with compressed names are not supported",
            )
            .hint("rewrite the file: `h5repack old.h5 new.h5`"));
        }
        let flags = cursor.u8()?;
        let largest_managed = cursor.u32()?;
        cursor.length()?;
        cursor.address()?;
        cursor.length()?;
        cursor.address()?;
        for _ in 0..8 {
            cursor.length()?;
        }
        let columns = cursor.u16()?.into();
        let first_block = cursor.length()?;
        let largest_direct = cursor.length()?;
        let bits = cursor.u16()?;
        cursor.skip(2)?;
        let root = cursor.address()?;
        let root_rows = cursor.u16()?;
        cursor.checksum()?;
        let sane = first_block.is_power_of_two()
            && largest_direct.is_power_of_two()
            && first_block <= largest_direct
            && columns > 0
            && (1..=64).contains(&bits);
        if !sane {
            return Err(cursor.damaged("the dimensions of a heap are inconsistent"));
        }
        let mut heap = FractalHeap {
            address,
            id_length,
            place_width: usize::from(bits).div_ceil(8),
            length_width: bytes_for(largest_direct.min(largest_managed.into())),
            columns,
            first_block,
            largest_direct,
            has_checksums: flags & 2 != 0,
            direct: BTreeMap::new(),
        };
        match root {
            Some(root) if root_rows == 0 => heap.read_direct(blocks, root, 0, first_block)?,
            Some(root) => heap.read_indirect(blocks, root, root_rows.into())?,
            None => {}
        }
        Ok(heap)
    }

    /// Returns an object and where in the file it is.
    pub(crate) fn object(&self, container: &Container, id: &[u8]) -> Result<(u64, Vec<u8>)> {
        let id = id.get(..self.id_length).unwrap_or(id);
        let mut cursor = Cursor::new(container, id, self.address);
        let first = cursor.u8()?;
        match (first >> 4) & 3 {
            0 => {
                let place = cursor.uint(self.place_width)?;
                let length = cursor.uint(self.length_width)? as usize;
                self.managed(container, place, length)
            }
            // It is in the identifier itself.
            2 => {
                let length = usize::from(first & 0xf) + 1;
                Ok((self.address, cursor.take(length)?.to_vec()))
            }
            _ => Err(Error::unsupported_feature(
                "names and attributes larger than a heap block are not supported",
            )),
        }
    }

    fn managed(&self, container: &Container, place: u64, length: usize) -> Result<(u64, Vec<u8>)> {
        let block = self.direct.range(..=place).next_back();
        let found = block.and_then(|(start, (address, bytes))| {
            let at = usize::try_from(place - start).ok()?;
            let object = bytes.get(at..at.checked_add(length)?)?;
            Some((address + at as u64, object.to_vec()))
        });
        found.ok_or_else(|| container.damaged(self.address, "a heap object lies outside its heap"))
    }

    /// Reads the blocks below an indirect one. It has rows of blocks: those of the first two rows are
    /// as large as the first block, those of each later row twice as large as in the row before.
    fn read_indirect(
        &mut self,
        blocks: &mut BoundedReader<'_>,
        root: u64,
        rows: u64,
    ) -> Result<()> {
        let container = blocks.container;
        let mut open = vec![(root, 0, rows)];
        while let Some((address, mut start, rows)) = open.pop() {
            let too_large = || container.damaged(address, "a heap exceeds 2^64 bytes");
            let width = container.address_width as u64;
            let length = rows
                .checked_mul(self.columns * width)
                .and_then(|length| length.checked_add(9 + width + self.place_width as u64))
                .ok_or_else(too_large)?;
            let bytes = blocks.read(address, length)?;
            let mut cursor = Cursor::new(container, &bytes, address);
            cursor.structure(b"FHIB", 0, "an indirect block of a heap")?;
            cursor.skip(container.address_width + self.place_width)?;
            let mut size = self.first_block;
            for row in 0..rows {
                if row > 1 {
                    size = size.checked_mul(2).ok_or_else(too_large)?;
                }
                for _ in 0..self.columns {
                    match cursor.address()? {
                        Some(child) if size <= self.largest_direct => {
                            self.read_direct(blocks, child, start, size)?;
                        }
                        Some(child) => {
                            let rows = (size / self.columns / self.first_block).checked_ilog2();
                            let rows = rows.ok_or_else(too_large)?;
                            open.push((child, start, u64::from(rows) + 1));
                        }
                        None => {}
                    }
                    start = start.checked_add(size).ok_or_else(too_large)?;
                }
            }
            cursor.checksum()?;
        }
        Ok(())
    }

    fn read_direct(
        &mut self,
        blocks: &mut BoundedReader<'_>,
        address: u64,
        start: u64,
        size: u64,
    ) -> Result<()> {
        let container = blocks.container;
        let mut bytes = blocks.read(address, size)?;
        let mut cursor = Cursor::new(container, &bytes, address);
        cursor.structure(b"FHDB", 0, "a direct block of a heap")?;
        cursor.skip(container.address_width + self.place_width)?;
        if self.has_checksums {
            let at = (cursor.offset() - address) as usize;
            let stored = cursor.u32()?;
            // The checksum is that of the block with zeros in its place.
            bytes[at..at + 4].fill(0);
            if checksum(&bytes) != stored {
                return Err(
                    container.damaged(address, "the checksum of a heap block does not match")
                );
            }
        }
        self.direct.insert(start, (address, bytes));
        Ok(())
    }
}
