//! What a dataset has at one place of its first axis: of trajectories × time × features, one trajectory.

use std::sync::Arc;

use vramfit_base::{Error, Result};

use super::dataset::{Dataset, Storage};

impl Dataset {
    /// Returns the dataset of the other axes that is at a place of the first one.
    ///
    /// # Errors
    ///
    /// `invalid-argument` when there is no such place; `unsupported-feature` when it is virtual.
    pub(crate) fn at_place(&self, place: u64) -> Result<Dataset> {
        let Some((&places, shape)) =
            self.shape().split_first().filter(|(_, shape)| !shape.is_empty())
        else {
            return Err(self.has_no_place("has fewer than two axes"));
        };
        if place >= places {
            return Err(
                self.has_no_place(&format!("has {places} places on its first axis, not {place}"))
            );
        }
        let bytes = self.bytes() / places;
        let storage = match self.storage() {
            Storage::Compact(content) => {
                let start = (place * bytes) as usize;
                Storage::Compact(content[start..start + bytes as usize].into())
            }
            Storage::Contiguous(address) => {
                Storage::Contiguous(address.map(|address| address + place * bytes))
            }
            Storage::Chunked { grid, table, plain_edges } => {
                let (grid, chunks) = grid.at_place(place);
                let table = Arc::new(table.part(chunks));
                Storage::Chunked { grid, table, plain_edges: *plain_edges }
            }
            Storage::Virtual(_) => {
                return Err(Error::unsupported_feature(format!(
                    "dataset `{}` is virtual, and windows along axis 1 are read from others",
                    self.path()
                ))
                .hint("open the files that it is made of, or copy it into a dataset of its own"));
            }
        };
        let path = format!("{}[{place}]", self.path());
        Ok(self.with_storage(path, shape.to_vec(), storage))
    }

    fn has_no_place(&self, what: &str) -> Error {
        Error::invalid_argument(format!("dataset `{}` {what}", self.path()))
    }
}
