//! The structure of an HDF5 file, as the HDF Group's format specification (versions 1 to 4 of it)
//! describes it: from the superblock to the address of every chunk.
//!
//! Nothing in a file is trusted. Every number is checked before it is used, and all that is read of
//! one structure together is no longer than the file ([`bounded_reader`]), which bounds memory and time and
//! ends every cycle. What elements *are* is known here; decoding them is the business of
//! [`crate::filter`] and [`crate::read`].
//!
//! | file | structure |
//! | --- | --- |
//! | `container`, `unclosed`, `cache_image` | superblock, whether the file was closed, and structures that its extension replaces |
//! | `header`, `dataspace`, `datatype`, `fill`, `layout`, `pipeline`, `attribute` | object headers and their messages |
//! | `group/` | members of groups, in all three forms |
//! | `btree1`, `btree2`, `fractal_heap`, `global_heap` | what those are made of |
//! | `index/` | chunk indexes, in all six forms |
//! | `virtual_map`, `selection` | what virtual datasets are made of |
//! | `object`, `path`, `wildcard`, `tree` | finding an object by its path, several by a pattern, and listing them all |
//! | `sibling` | other files that links and virtual datasets name |

pub(crate) mod attribute;
pub(crate) mod bounded_reader;
pub(crate) mod btree1;
pub(crate) mod btree2;
pub(crate) mod cache_image;
pub(crate) mod checksum;
pub(crate) mod container;
pub(crate) mod cursor;
pub(crate) mod dataspace;
pub(crate) mod datatype;
pub(crate) mod description;
pub(crate) mod fill;
pub(crate) mod fractal_heap;
pub(crate) mod global_heap;
pub(crate) mod group;
pub(crate) mod header;
pub(crate) mod index;
pub(crate) mod layout;
pub(crate) mod object;
pub(crate) mod path;
pub(crate) mod pipeline;
pub(crate) mod selection;
pub(crate) mod sibling;
pub(crate) mod tree;
mod unclosed;
pub(crate) mod virtual_map;
pub(crate) mod wildcard;

pub use container::Container;
pub use datatype::{Axis, Bits, ByteStorage, Datatype, Field, FloatBits, Number, Numbers, Scalar};
pub use index::{Chunk, ChunkTable, Grid};
pub use pipeline::FilterStep;
pub use tree::{Content, DatasetSummary, Node, tree};
