//! Chunk indexes: six structures of the file, and the one table that is made of each.

mod extensible_array;
mod fixed_array;
mod grid;
mod trees;

use std::ops::Range;

use vramfit_base::Result;

use super::container::Container;
use super::cursor::Cursor;
use super::layout::{Chunked, Index};
pub use grid::Grid;

/// Where a chunk is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Number of the chunk, counted along the last axis first.
    pub index: u64,
    /// Where in the file it begins, in bytes.
    pub address: u64,
    /// How many bytes are stored.
    pub size: u64,
    /// Bit `i` says that filter `i` was not applied to it.
    pub filter_mask: u32,
}

/// The chunks of a dataset that were ever written. The others hold the fill value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkTable {
    /// Sorted by index.
    listed: Vec<Chunk>,
    /// Instead of a list: where the first of them is, where all have one size and lie one after another, counted by
    /// the grid as large as it may become.
    consecutive: Option<(u64, Grid)>,
}

impl ChunkTable {
    /// Returns where a chunk is, or `None` where it was never written.
    pub fn find(&self, index: u64) -> Option<Chunk> {
        if let Some((address, grid)) = &self.consecutive {
            let offset = grid.number_of(index)?.checked_mul(grid.chunk_bytes)?;
            return Some(Chunk {
                index,
                address: address.checked_add(offset)?,
                size: grid.chunk_bytes,
                filter_mask: 0,
            });
        }
        // Where every chunk was written, its index is its place.
        let chunks = &self.listed;
        if let Some(chunk) = usize::try_from(index).ok().and_then(|i| chunks.get(i))
            && chunk.index == index
        {
            return Some(*chunk);
        }
        let place = chunks.binary_search_by_key(&index, |chunk| chunk.index);
        place.ok().and_then(|place| chunks.get(place).copied())
    }

    /// Returns the table of the chunks with some indexes, which count from the first of them.
    pub(crate) fn part(&self, indexes: Range<u64>) -> ChunkTable {
        let found = indexes.clone().filter_map(|index| self.find(index));
        let listed = found.map(|chunk| Chunk { index: chunk.index - indexes.start, ..chunk });
        ChunkTable { listed: listed.collect(), consecutive: None }
    }

    /// Returns how many chunks were written.
    pub fn len(&self) -> u64 {
        (self.consecutive.as_ref()).map_or(self.listed.len() as u64, |(_, grid)| grid.count)
    }

    /// Whether no chunk was ever written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the chunks that were written, by index.
    pub fn iter(&self) -> impl Iterator<Item = Chunk> {
        let indexes = (self.consecutive.as_ref()).map_or(0, |(_, grid)| grid.count);
        let consecutive = (0..indexes).filter_map(|index| self.find(index));
        self.listed.iter().copied().chain(consecutive)
    }

    /// Reads the index of a dataset.
    ///
    /// # Errors
    ///
    /// `invalid-file` when the index is damaged or names bytes outside of the file.
    pub(crate) fn read(
        container: &Container,
        layout: &Chunked,
        grid: Grid,
        has_filters: bool,
    ) -> Result<ChunkTable> {
        let Some(address) = layout.address else {
            return Ok(ChunkTable::default());
        };
        let mut reading = Reading { container, grid, has_filters, chunks: Vec::new() };
        match layout.index {
            Index::BTree1 => trees::read_first(&mut reading, address)?,
            Index::BTree2 => trees::read_second(&mut reading, address)?,
            Index::FixedArray => fixed_array::read(&mut reading, address)?,
            Index::ExtensibleArray => extensible_array::read(&mut reading, address)?,
            Index::Single(filtered) => {
                let (size, filter_mask) = filtered.unwrap_or((reading.grid.chunk_bytes, 0));
                reading.keep(Some(0), address, size, filter_mask)?;
            }
            Index::Implicit => {
                let grid = reading.grid;
                let last = grid.number_of(grid.count.saturating_sub(1));
                let length =
                    last.and_then(|last| last.checked_add(1)?.checked_mul(grid.chunk_bytes));
                let length = length.ok_or_else(|| {
                    container.damaged(address, "the number of chunks is out of range")
                })?;
                if grid.count > 0 {
                    container.source().check(address, length)?;
                }
                return Ok(ChunkTable { listed: Vec::new(), consecutive: Some((address, grid)) });
            }
        }
        let mut listed = reading.chunks;
        listed.sort_by_key(|chunk| chunk.index);
        let mut pairs = listed.windows(2);
        if let Some(pair) = pairs.find(|pair| pair[0].index == pair[1].index) {
            let what = format_args!("chunk {} occurs twice", pair[1].index);
            return Err(container.damaged(pair[1].address, what));
        }
        Ok(ChunkTable { listed, consecutive: None })
    }
}

/// A table on its way.
struct Reading<'a> {
    container: &'a Container,
    grid: Grid,
    has_filters: bool,
    chunks: Vec<Chunk>,
}

impl Reading<'_> {
    /// Keeps a chunk, if the file really has it. One without an index, outside of the shape, is left over from
    /// before the shape shrank.
    fn keep(
        &mut self,
        index: Option<u64>,
        address: u64,
        size: u64,
        filter_mask: u32,
    ) -> Result<()> {
        let Some(index) = index else {
            return Ok(());
        };
        self.container.source().check(address, size)?;
        if !self.has_filters {
            let (used, whole) = (self.grid.used_bytes(index), self.grid.chunk_bytes);
            if !(used..=whole).contains(&size) {
                let what = match used == whole {
                    true => format!("a chunk has {size} bytes, expected {whole}"),
                    false => format!("a chunk has {size} bytes, expected {used} to {whole}"),
                };
                return Err(self.container.damaged(address, what));
            }
        }
        self.chunks.push(Chunk { index, address, size, filter_mask });
        Ok(())
    }

    /// Reads one element of an array of chunks and keeps it as the chunk of that number.
    ///
    /// Without filters an element is an address; with them, address, stored size and filter mask.
    fn element(&mut self, cursor: &mut Cursor<'_>, number: u64, width: usize) -> Result<()> {
        let mut element = Cursor::new(self.container, cursor.take(width)?, cursor.offset());
        let Some(address) = element.address()? else {
            return Ok(());
        };
        let (mut size, mut filter_mask) = (self.grid.chunk_bytes, 0);
        if self.has_filters {
            let width = element.left().saturating_sub(4);
            size = element.uint(width)?;
            filter_mask = element.u32()?;
        }
        self.keep(self.grid.index_of(number), address, size, filter_mask)
    }

    /// Checks the entry size of an array against its kind, and its kind against the dataset.
    fn check_array(&self, cursor: &Cursor<'_>, client: u8, width: usize) -> Result<()> {
        let address = self.container.address_width;
        let fits = match self.has_filters {
            false => width == address,
            true => (address + 5..=address + 12).contains(&width),
        };
        if client == u8::from(self.has_filters) && fits {
            return Ok(());
        }
        Err(cursor.damaged("the entry size of a chunk index does not match the dataset's filters"))
    }
}
