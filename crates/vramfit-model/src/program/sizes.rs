//! The sizes of a compiled program.

use serde::{Deserialize, Serialize};

/// The sizes of one compiled program on one device, in XLA's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProgramSizes {
    /// Bytes of the entry parameters.
    pub argument_bytes: u64,
    /// Bytes of what may live after the call, aliased parameters included.
    pub output_bytes: u64,
    /// Bytes that are both argument and output (donated and reused).
    pub alias_bytes: u64,
    /// Bytes of the temporary block.
    pub temp_bytes: u64,
    /// Bytes of constants.
    pub constant_bytes: u64,
    /// Bytes of machine code (cubin), outside the pool.
    pub code_bytes: u64,
}

impl ProgramSizes {
    /// Returns what an execution needs on a device: arguments, outputs that are not arguments
    /// reused, temporaries and constants.
    pub fn needed_bytes(&self) -> u64 {
        // Sums of figures from a file may overflow; the largest number is the honest answer then.
        self.argument_bytes
            .saturating_add(self.output_bytes.saturating_sub(self.alias_bytes))
            .saturating_add(self.temp_bytes)
            .saturating_add(self.constant_bytes)
    }

    /// Returns `true` if a call takes at least 1 % of a pool of `limit_bytes`: whether it matters how
    /// such a program is compiled.
    pub fn is_large(&self, limit_bytes: u64) -> bool {
        // Constants lie outside the pool.
        let in_pool = self.needed_bytes().saturating_sub(self.constant_bytes);
        in_pool > 0 && in_pool >= limit_bytes / 100
    }
}
