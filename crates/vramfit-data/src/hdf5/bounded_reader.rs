//! Pieces of the file's structure, read with a limit that every honest file keeps.

use vramfit_base::Result;

use super::container::Container;

/// Reads the pieces of one structure (a header with its continuations, a tree, a heap).
///
/// The pieces of an honest structure do not overlap, so together they are no longer than the file.
/// That one rule bounds memory and time, and ends every cycle, without a list of what was visited.
pub(crate) struct BoundedReader<'a> {
    pub(crate) container: &'a Container,
    left: u64,
}

impl<'a> BoundedReader<'a> {
    pub(crate) fn new(container: &'a Container) -> BoundedReader<'a> {
        BoundedReader { container, left: container.source().length() }
    }

    /// Reads one piece.
    ///
    /// # Errors
    ///
    /// `invalid-file` when the file ends before it does, or the structure is longer than the file.
    pub(crate) fn read(&mut self, address: u64, length: u64) -> Result<Vec<u8>> {
        let source = self.container.source();
        source.check(address, length)?;
        // An empty piece would be free, and a cycle of them without an end.
        match self.left.checked_sub(length.max(1)) {
            Some(left) => self.left = left,
            None => {
                return Err(source
                    .damaged(address, "a structure is longer than the file: it contains a cycle"));
            }
        }
        let mut bytes = vec![0; length as usize];
        self.container.read_structure(address, &mut bytes)?;
        Ok(bytes)
    }
}
