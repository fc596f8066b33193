//! Virtual datasets: which of their elements are those of which other dataset.

use vramfit_base::{Error, Result};

use super::container::Container;
use super::global_heap::GlobalHeap;
use super::selection::{self, AxisSelection};
use crate::hdf5::cursor::Cursor;

/// The name of the file is that of an earlier mapping, which a number says, and likewise that of the dataset; or it is
/// the file of the virtual dataset, and not written.
const SHARED_FILE: u8 = 1;
const SHARED_DATASET: u8 = 2;
const SAME_FILE: u8 = 4;

/// One dataset that a virtual one is made of, or several whose names have a number in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The file it is in; `.` for the same.
    pub(crate) file: SourceName,
    /// Its path in that file.
    pub(crate) dataset: SourceName,
    /// What is taken of it along each axis, or all of it.
    pub(crate) source: Option<Vec<AxisSelection>>,
    /// Where that is put, likewise; in the same order, the last axis first.
    pub(crate) target: Option<Vec<AxisSelection>>,
}

/// The name of a file or a dataset; `%b` in it stands for the number of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceName(String);

impl SourceName {
    /// Whether it has the number of a block in it.
    pub(crate) fn is_numbered(&self) -> bool {
        self.fill(0) != self.fill(1)
    }

    /// Returns the name for a block.
    pub(crate) fn fill(&self, block: u64) -> String {
        let mut name = String::new();
        let mut rest = self.0.as_str();
        while let Some(place) = rest.find('%') {
            name += &rest[..place];
            let behind = &rest[place + 1..];
            rest = match behind.chars().next() {
                Some('b') => {
                    name += &block.to_string();
                    &behind[1..]
                }
                Some('%') => {
                    name.push('%');
                    &behind[1..]
                }
                _ => {
                    name.push('%');
                    behind
                }
            };
        }
        name + rest
    }
}

/// Reads the map, which is an object of a global heap.
pub(crate) fn read(container: &Container, collection: u64, object: u32) -> Result<Vec<Mapping>> {
    let mut heap = GlobalHeap::new(container);
    let (address, bytes) = heap.object(collection, object)?;
    let mut cursor = Cursor::new(container, bytes, address);
    let version = cursor.u8()?;
    if version > 1 {
        return Err(unsupported("the version of its mapping is not supported"));
    }
    let count = cursor.length()?;
    let mut mappings: Vec<Mapping> = Vec::new();
    for _ in 0..count {
        let flags = if version == 0 { 0 } else { cursor.u8()? };
        if flags & !(SHARED_FILE | SHARED_DATASET | SAME_FILE) != 0 {
            return Err(unsupported("the flags of its mapping are not supported"));
        }
        let mut name = |shared: u8, of: fn(&Mapping) -> &SourceName| {
            if flags & shared == 0 {
                return cursor.terminated_text().map(SourceName);
            }
            let number = usize::try_from(cursor.length()?).unwrap_or(usize::MAX);
            let earlier = mappings.get(number).map(|mapping| of(mapping).clone());
            earlier.ok_or_else(|| cursor.damaged("a name is that of a mapping that does not exist"))
        };
        let file = match flags & SAME_FILE {
            0 => name(SHARED_FILE, |mapping| &mapping.file)?,
            _ => SourceName(".".to_owned()),
        };
        let dataset = name(SHARED_DATASET, |mapping| &mapping.dataset)?;
        mappings.push(Mapping {
            file,
            dataset,
            source: selection::read(&mut cursor)?,
            target: selection::read(&mut cursor)?,
        });
    }
    cursor.checksum()?;
    Ok(mappings)
}

/// Returns an error about a virtual dataset.
pub(crate) fn unsupported(why: &str) -> Error {
    Error::unsupported_feature(format!("this virtual dataset is not supported: {why}"))
        .hint("read its sources, or copy it into an ordinary dataset")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_number_of_a_block() {
        let fill = |name: &str| SourceName(name.to_owned()).fill(12);
        assert_eq!(fill("part-%b.h5"), "part-12.h5");
        assert_eq!(fill("%b/%b%%b%x%"), "12/12%b%x%");
        assert!(SourceName("%%%b".to_owned()).is_numbered());
        assert!(!SourceName("%%b".to_owned()).is_numbered());
    }
}
