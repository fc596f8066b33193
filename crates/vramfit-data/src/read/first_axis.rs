//! What a dataset has at one index of its first axis: of trajectories × time × features, one trajectory.

use std::sync::Arc;

use vramfit_base::{Error, Result};

use super::dataset::{Dataset, Storage};

impl Dataset {
    /// Returns the dataset of the other axes that is at an index of the first one.
    ///
    /// # Errors
    ///
    /// `invalid-argument` when there is no such index; `unsupported-feature` when it is virtual.
    pub(crate) fn index_first_axis(&self, index: u64) -> Result<Dataset> {
        let Some((&length, shape)) =
            self.shape().split_first().filter(|(_, shape)| !shape.is_empty())
        else {
            return Err(self.has_no_index("has fewer than two axes"));
        };
        if index >= length {
            return Err(
                self.has_no_index(&format!("has {length} places on its first axis, not {index}"))
            );
        }
        let bytes = self.bytes() / length;
        let storage = match self.storage() {
            Storage::Compact(content) => {
                let start = (index * bytes) as usize;
                Storage::Compact(content[start..start + bytes as usize].into())
            }
            Storage::Contiguous(address) => {
                Storage::Contiguous(address.map(|address| address + index * bytes))
            }
            Storage::Chunked { grid, table, plain_edges } => {
                let (grid, chunks) = grid.index_first_axis(index);
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
        let path = format!("{}[{index}]", self.path());
        Ok(self.with_storage(path, shape.to_vec(), storage))
    }

    fn has_no_index(&self, what: &str) -> Error {
        Error::invalid_argument(format!("dataset `{}` {what}", self.path()))
    }
}
