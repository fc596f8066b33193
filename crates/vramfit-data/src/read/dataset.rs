//! One dataset of a file: what it is, and where its bytes are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vramfit_base::{Error, Result};

use super::virtual_source::{self, VirtualSource};
use crate::filter::Pipeline;
use crate::hdf5::dataspace::checked_product;
use crate::hdf5::description::Description;
use crate::hdf5::header::Header;
use crate::hdf5::layout::Layout;
use crate::hdf5::object::ObjectFinder;
use crate::hdf5::{ChunkTable, Container, Datatype, Grid, virtual_map};
use crate::source::{Access, Source};

/// A chunk that is decoded needs this much memory, twice; larger ones are refused.
pub const MAX_CHUNK_BYTES: u64 = 1 << 30;

/// A dataset whose structure was read. It can be shared between threads.
#[derive(Clone, Debug)]
pub struct Dataset {
    container: Container,
    path: String,
    /// Where its header is.
    address: u64,
    shape: Vec<u64>,
    datatype: Datatype,
    filters: Pipeline,
    fill: Option<Vec<u8>>,
    storage: Storage,
    missing: Vec<PathBuf>,
}

/// Where the elements are.
#[derive(Clone, Debug)]
pub enum Storage {
    /// In the header; small datasets only.
    Compact(Arc<[u8]>),
    /// In one piece that begins at this byte, or nowhere because nothing was ever written.
    Contiguous(Option<u64>),
    /// In chunks.
    Chunked {
        /// How the shape is cut.
        grid: Grid,
        /// Where the chunks are.
        table: Arc<ChunkTable>,
        /// Whether chunks that reach beyond the edge are stored without filters.
        plain_edges: bool,
    },
    /// In other datasets; elements that are in none of them hold the fill value.
    Virtual(Arc<[VirtualSource]>),
}

impl Dataset {
    /// Opens a dataset of a file, to be read with `pread`.
    ///
    /// # Errors
    ///
    /// As [`Dataset::open_in`], and `io` when the file cannot be read.
    pub fn open(file: &Path, path: &str) -> Result<Dataset> {
        let source = Source::open(file, Access::Read)?;
        Dataset::open_in(&Container::open(Arc::new(source))?, path)
    }

    /// Opens a dataset of a file that is open.
    ///
    /// # Errors
    ///
    /// `invalid-argument` when there is no such dataset; `unsupported-feature` when it is stored in a
    /// way that is not read here; `invalid-file` when the file is damaged.
    pub fn open_in(container: &Container, path: &str) -> Result<Dataset> {
        Dataset::find(&mut ObjectFinder::new(container), path)
    }

    /// Opens a dataset, or a dataset and a field of its records: `points`, or `points[x]`. A dataset whose own
    /// name ends so comes first.
    ///
    /// # Errors
    ///
    /// As [`Dataset::open_in`].
    pub fn open_named(container: &Container, name: &str) -> Result<(Dataset, Option<String>)> {
        Dataset::find_named(&mut ObjectFinder::new(container), name)
    }

    /// Opens one of many datasets of a file.
    ///
    /// # Errors
    ///
    /// As [`Dataset::open_in`].
    pub(crate) fn find(finder: &mut ObjectFinder, path: &str) -> Result<Dataset> {
        Dataset::open_any(finder, path, false)
    }

    /// Opens one of many datasets of a file, as [`Dataset::open_named`] does.
    ///
    /// # Errors
    ///
    /// As [`Dataset::open_in`].
    pub(crate) fn find_named(
        finder: &mut ObjectFinder,
        name: &str,
    ) -> Result<(Dataset, Option<String>)> {
        let mut is_there = |path: &str| finder.find(path).is_ok();
        let Some(inner) = name.strip_suffix(']').filter(|_| !is_there(name)) else {
            return Dataset::find(finder, name).map(|dataset| (dataset, None));
        };
        // Names of fields and of datasets may have brackets in them.
        let mut places = inner.match_indices('[').map(|(place, _)| place);
        let place = places.find(|&place| is_there(&inner[..place]));
        match place.or_else(|| inner.rfind('[')) {
            Some(place) => {
                let dataset = Dataset::find(finder, &inner[..place])?;
                Ok((dataset, Some(inner[place + 1..].to_owned())))
            }
            None => Dataset::find(finder, name).map(|dataset| (dataset, None)),
        }
    }

    /// Opens the dataset whose header is at an address of a file, as it was found by `path` before.
    ///
    /// # Errors
    ///
    /// As [`Dataset::open_in`].
    pub(crate) fn open_at(container: &Container, address: u64, path: &str) -> Result<Dataset> {
        let open = || {
            let header = Header::read(container, address)?;
            let description = Description::read(container.clone(), header)?;
            Dataset::from_description(description, path, address, false)
        };
        open().map_err(|error| of_dataset(path, &error))
    }

    /// Opens a dataset that a virtual one is made of, which must not be virtual itself.
    pub(super) fn open_source(finder: &mut ObjectFinder, path: &str) -> Result<Dataset> {
        Dataset::open_any(finder, path, true)
    }

    fn open_any(finder: &mut ObjectFinder, path: &str, is_source: bool) -> Result<Dataset> {
        let (found, header) = finder.find(path)?;
        if !Description::is_present(&header) {
            return Err(Error::invalid_argument(format!("`{path}` is not a dataset"))
                .hint("name a dataset in it, such as `group/data`"));
        }
        let open = || {
            let address = header.address();
            let description = Description::read(found, header)?;
            Dataset::from_description(description, path, address, is_source)
        };
        open().map_err(|error| of_dataset(path, &error))
    }

    fn from_description(
        description: Description,
        path: &str,
        address: u64,
        is_source: bool,
    ) -> Result<Dataset> {
        let Description { container, space, datatype, layout, filters, fill } = description;
        if space.is_null {
            return Err(Error::invalid_argument("it has no values, not even a shape")
                .hint("it was made of `h5py.Empty` or a null dataspace: choose another dataset"));
        }
        let (mut shape, mut missing) = (space.shape, Vec::new());
        let size = datatype.size();
        let bytes = checked_bytes(&shape, size)?;
        let (filters, storage) = match layout {
            Layout::Compact(content) => {
                if (content.len() as u64) < bytes {
                    return Err(
                        container.damaged(0, "compact data is shorter than the shape requires")
                    );
                }
                (Pipeline::default(), Storage::Compact(content.into()))
            }
            Layout::Contiguous(address) => {
                if let Some(address) = address {
                    container.source().check(address, bytes)?;
                }
                (Pipeline::default(), Storage::Contiguous(address))
            }
            Layout::Chunked(chunked) => {
                if chunked.chunk.len() != shape.len() || chunked.element != size as u64 {
                    return Err(container
                        .damaged(0, "the chunk size does not match the shape and datatype"));
                }
                let grid = Grid::new(&shape, &space.max_shape, &chunked.chunk, chunked.element);
                let grid = grid.ok_or_else(|| {
                    Error::unsupported_feature("more than 2^64 chunks are not supported")
                })?;
                if grid.chunk_bytes > MAX_CHUNK_BYTES {
                    return Err(Error::unsupported_feature(format!(
                        "chunks of {} bytes exceed the limit of {MAX_CHUNK_BYTES} bytes",
                        grid.chunk_bytes
                    ))
                    .hint("rewrite it with smaller chunks: `h5repack -l /x:CHUNK=1024x64 old.h5 new.h5`"));
                }
                let pipeline = Pipeline::new(&filters, size)?;
                let filtered = !filters.is_empty();
                let table = ChunkTable::read(&container, &chunked, grid.clone(), filtered)?;
                let storage = Storage::Chunked {
                    grid,
                    table: Arc::new(table),
                    plain_edges: chunked.plain_edges,
                };
                (pipeline, storage)
            }
            Layout::Virtual { .. } if is_source => {
                return Err(Error::unsupported_feature(
                    "virtual datasets with virtual sources are not supported",
                ));
            }
            Layout::Virtual { collection, object } => {
                let mappings = virtual_map::read(&container, collection, object)?;
                let has_fill = fill.is_some();
                let parts =
                    virtual_source::open(&container, &shape, &datatype, has_fill, &mappings)?;
                (shape, missing) = (parts.shape, parts.missing);
                checked_bytes(&shape, size)?;
                (Pipeline::default(), Storage::Virtual(parts.sources.into()))
            }
        };
        let path = path.to_owned();
        Ok(Dataset { container, path, address, shape, fill, datatype, filters, storage, missing })
    }

    /// Returns a dataset of these elements of it.
    pub(super) fn with_storage(&self, path: String, shape: Vec<u64>, storage: Storage) -> Dataset {
        let missing = Vec::new();
        Dataset { path, shape, storage, missing, ..self.clone() }
    }

    /// Returns the dataset with the sources of a virtual one placed for rows on the last axis.
    pub(super) fn on_last_axis(self) -> Result<Dataset> {
        match &self.storage {
            Storage::Virtual(sources) => {
                let sources = virtual_source::place_last_axis(sources, &self.shape)?;
                Ok(Dataset { storage: Storage::Virtual(sources.into()), ..self })
            }
            _ => Ok(self),
        }
    }

    /// Returns the file that it is in, which an external link may have changed.
    pub fn container(&self) -> &Container {
        &self.container
    }

    /// Returns the path that it was opened by.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns where its header is in that file.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Returns the length of each axis; none for a single value.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the datatype.
    pub fn datatype(&self) -> &Datatype {
        &self.datatype
    }

    /// Returns what was done to the chunks before they were stored.
    pub fn filters(&self) -> &Pipeline {
        &self.filters
    }

    /// Returns the bytes of an element that was never written, or `None` where they are zeros.
    pub fn fill(&self) -> Option<&[u8]> {
        self.fill.as_deref()
    }

    /// Returns where the elements are.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Returns the files that miss sources of a virtual dataset, whose elements hold the fill value.
    pub fn missing_sources(&self) -> &[PathBuf] {
        &self.missing
    }

    /// Returns the size of all elements in bytes, as they would lie in memory.
    pub fn bytes(&self) -> u64 {
        // The product was checked when it was opened.
        self.shape.iter().product::<u64>() * self.datatype.size() as u64
    }

    /// Returns how many chunks are stored, in all datasets that a virtual one is made of.
    pub fn chunk_count(&self) -> u64 {
        match &self.storage {
            Storage::Chunked { table, .. } => table.len(),
            Storage::Virtual(pieces) => {
                pieces.iter().map(|piece| piece.dataset.chunk_count()).sum()
            }
            Storage::Compact(_) | Storage::Contiguous(_) => 0,
        }
    }

    /// Returns how many bytes of the file hold elements.
    pub fn stored_bytes(&self) -> u64 {
        match &self.storage {
            Storage::Compact(content) => content.len() as u64,
            Storage::Contiguous(None) => 0,
            Storage::Virtual(pieces) => {
                pieces.iter().map(|piece| piece.dataset.stored_bytes()).sum()
            }
            Storage::Contiguous(Some(_)) => self.bytes(),
            Storage::Chunked { table, .. } => table.iter().map(|chunk| chunk.size).sum(),
        }
    }
}

/// Returns the size of all elements in bytes.
fn checked_bytes(shape: &[u64], element: usize) -> Result<u64> {
    let bytes = checked_product(1, shape).and_then(|count| count.checked_mul(element as u64));
    bytes
        .filter(|&bytes| bytes <= i64::MAX as u64)
        .ok_or_else(|| Error::unsupported_feature("more than 2^63 bytes are not supported"))
}

/// Puts the dataset's name in front of an error, where it does not say which file is damaged.
pub(crate) fn of_dataset(path: &str, error: &Error) -> Error {
    error.clone().context(format_args!("dataset `{path}`"))
}
