//! The pattern that is written into allocated memory to verify it: a different number in every block.
//!
//! If two addresses were the same memory, the later block's number would be read at the earlier one.

/// Small enough for a GPU of 80 GiB to have more than a thousand blocks.
const BLOCK_BYTES: u64 = 64 << 20;
const WORD_BYTES: u64 = size_of::<u32>() as u64;

/// Allocated memory that does not contain what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Position in all allocated memory.
    pub offset_bytes: u64,
    /// The word that was written.
    pub written: u32,
    /// The word that was read.
    pub read: u32,
}

/// A block and the word that fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) address: u64,
    /// Position in all allocated memory.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) word: u32,
}

impl Block {
    pub(crate) fn word_count(self) -> u64 {
        self.bytes / WORD_BYTES
    }

    /// First, middle and last word.
    pub(crate) fn samples(self) -> [u64; 3] {
        let last = self.word_count() - 1;
        [0, last / 2, last].map(|word| self.address + word * WORD_BYTES)
    }
}

/// Splits allocations, given by address and size, into blocks. A rest smaller than a word is left out.
pub(crate) fn blocks(allocations: &[(u64, u64)]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut before = 0;
    for (address, bytes) in allocations {
        for start in (0..*bytes).step_by(BLOCK_BYTES as usize) {
            let bytes = BLOCK_BYTES.min(bytes - start) / WORD_BYTES * WORD_BYTES;
            if bytes == 0 {
                continue;
            }
            // An odd factor maps different numbers to different words, and none of them to zero, which
            // is what untouched memory reads as.
            let number = blocks.len() as u32 + 1;
            blocks.push(Block {
                address: address + start,
                offset: before + start,
                bytes,
                word: number.wrapping_mul(0x9E37_79B1),
            });
        }
        before += bytes;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_all_allocations_with_different_words() {
        let blocks = blocks(&[(0x1000, BLOCK_BYTES + 10), (0x9000_0000, 3), (0xA000_0000, 8)]);
        let spans: Vec<_> =
            blocks.iter().map(|block| (block.address, block.offset, block.bytes)).collect();
        assert_eq!(
            spans,
            [
                (0x1000, 0, BLOCK_BYTES),
                (0x1000 + BLOCK_BYTES, BLOCK_BYTES, 8),
                (0xA000_0000, BLOCK_BYTES + 13, 8)
            ]
        );
        let words: Vec<_> = blocks.iter().map(|block| block.word).collect();
        assert_eq!(words, [0x9E37_79B1, 0x3C6E_F362, 0xDAA6_6D13]);
        assert_eq!(
            blocks[1].samples(),
            [0x1000 + BLOCK_BYTES, 0x1000 + BLOCK_BYTES, 0x1000 + BLOCK_BYTES + 4]
        );
    }
}
