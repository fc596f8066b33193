//! What is written into held memory to prove that it is there: another number in every block.
//!
//! Were two addresses the same memory, the later block's number would be read at the earlier one.

/// Bytes that share a number. Small enough for a card of 80 GiB to have more than a thousand.
const BLOCK: u64 = 64 << 20;
const WORD: u64 = size_of::<u32>() as u64;

/// Held memory that did not keep what was written into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Where, in bytes from the start of all that is held.
    pub offset_bytes: u64,
    /// What was written.
    pub written: u32,
    /// What was read.
    pub read: u32,
}

/// A block, with the number that it is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) address: u64,
    /// Bytes from the start of all that is held.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) word: u32,
}

impl Block {
    pub(crate) fn words(self) -> u64 {
        self.bytes / WORD
    }

    /// First, middle and last word.
    pub(crate) fn samples(self) -> [u64; 3] {
        let last = self.words() - 1;
        [0, last / 2, last].map(|word| self.address + word * WORD)
    }
}

/// Divides pieces of memory, given by address and size, into blocks. What is smaller than a number
/// at the end of a piece is left out.
pub(crate) fn blocks(pieces: &[(u64, u64)]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut before = 0;
    for (address, bytes) in pieces {
        for start in (0..*bytes).step_by(BLOCK as usize) {
            let bytes = BLOCK.min(bytes - start) / WORD * WORD;
            if bytes == 0 {
                continue;
            }
            // An odd factor takes different numbers to different numbers, and none of them to zero,
            // which is what untouched memory reads as.
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
    fn blocks_cover_all_pieces_with_different_numbers() {
        let blocks = blocks(&[(0x1000, BLOCK + 10), (0x9000_0000, 3), (0xA000_0000, 8)]);
        let told: Vec<_> = blocks
            .iter()
            .map(|block| (block.address, block.offset, block.bytes))
            .collect();
        assert_eq!(
            told,
            [
                (0x1000, 0, BLOCK),
                (0x1000 + BLOCK, BLOCK, 8),
                (0xA000_0000, BLOCK + 13, 8)
            ]
        );
        let words: Vec<_> = blocks.iter().map(|block| block.word).collect();
        assert_eq!(words, [0x9E37_79B1, 0x3C6E_F362, 0xDAA6_6D13]);
        assert_eq!(
            blocks[1].samples(),
            [0x1000 + BLOCK, 0x1000 + BLOCK, 0x1000 + BLOCK + 4]
        );
    }
}
