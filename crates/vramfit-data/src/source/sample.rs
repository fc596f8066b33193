//! What tells whether two files have the same content, without reading a large one whole.

use std::path::Path;

use vramfit_base::Result;

use super::{Access, Source};
use crate::digest::digest;
use crate::splitmix::MixKey;

/// How much of a file is read unless there are many: a shorter file is read whole.
pub const MAX_SAMPLED_BYTES: u64 = 16 << 20;
/// Read at once. Of a longer file, 256 such blocks are read, the first and the last among them.
const BLOCK_BYTES: u64 = 64 << 10;

/// Returns a number that stands for the content of a file: all of it up to `max_bytes`, else evenly spread blocks of as
/// many bytes.
///
/// # Errors
///
/// `io` when the file cannot be read.
pub fn sample_digest(path: &Path, max_bytes: u64) -> Result<u64> {
    let source = Source::open(path, Access::Read)?;
    let length = source.length();
    let block_bytes = BLOCK_BYTES.min(max_bytes.max(1));
    let blocks = length.min(max_bytes).div_ceil(block_bytes);
    let mut all = length;
    let mut bytes = Vec::new();
    for block in 0..blocks {
        let start = match length <= max_bytes {
            true => block * block_bytes,
            false => spread(block, (blocks - 1).max(1), length - block_bytes),
        };
        bytes.resize(block_bytes.min(length - start) as usize, 0);
        source.read_at(start, &mut bytes)?;
        all = MixKey::new(&[all, digest(&bytes)]).at(0);
    }
    Ok(all)
}

/// Returns where one of evenly spread blocks begins: the first at 0, the last at `end`.
fn spread(block: u64, last: u64, end: u64) -> u64 {
    (u128::from(block) * u128::from(end) / u128::from(last)) as u64
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    fn digest_of(length: u64, written: Option<u64>) -> u64 {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = File::options().write(true).open(file.path()).unwrap();
        open.set_len(length).unwrap();
        if let Some(offset) = written {
            open.write_all_at(&[1], offset).unwrap();
        }
        sample_digest(file.path(), MAX_SAMPLED_BYTES).unwrap()
    }

    #[test]
    fn every_byte_of_a_small_file_counts() {
        for length in [1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES - 1] {
            let whole = digest_of(length, None);
            for at in [0, length / 2, length - 1] {
                assert_ne!(digest_of(length, Some(at)), whole, "{at} of {length}");
            }
        }
        assert_ne!(digest_of(0, None), digest_of(1, None));
    }

    #[test]
    fn both_ends_of_a_large_file_count_and_what_lies_between_blocks_does_not() {
        let length = 4 * MAX_SAMPLED_BYTES + 5;
        let whole = digest_of(length, None);
        for at in [0, BLOCK_BYTES - 1, length - BLOCK_BYTES, length - 1] {
            assert_ne!(digest_of(length, Some(at)), whole, "{at}");
        }
        assert_eq!(digest_of(length, Some(BLOCK_BYTES)), whole);
    }
}
