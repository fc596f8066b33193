//! Arrays that a line creates one after the other: weights, or the moments of an optimizer. They are a set, and no growth.

use super::LeakCandidate;
use crate::analysis::arrays::NO_PROGRAM;
use crate::analysis::programs::Programs;
use crate::bytes::Bytes;
use crate::section::phrases::file_name;
use crate::trace::TextId;

/// Programs of JAX's own that make an array of a shape, a value or a key: `jnp.zeros`, `jax.random.normal`. A function of
/// the user's that is given as little may compute results.
const CREATING: [&str; 14] = [
    "jit_broadcast_in_dim",
    "jit_iota",
    "jit_full",
    "jit_zeros",
    "jit_ones",
    "jit_eye",
    "jit__eye",
    "jit__normal",
    "jit__normal_real",
    "jit__uniform",
    "jit__truncated_normal",
    "jit_normal",
    "jit_uniform",
    "jit_truncated_normal",
];
/// What keys, their splits and scalars take at most: such programs are part of the creation.
const MAX_HELPER_BYTES: u64 = 4096;

/// Arrays that a line creates one after the other, without other programs in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatedArrays {
    /// On which device.
    pub device: u32,
    /// The line.
    pub site: String,
    /// The program that creates each of them.
    pub program: String,
    /// How many there are.
    pub arrays: u64,
    /// How many bytes, as they were asked for.
    pub bytes: u64,
}

impl CreatedArrays {
    /// Describes so many of them: "46 arrays of 256.0 MiB, created one after the other at x.py:5".
    pub fn describe(&self, arrays: u64, bytes: u64) -> String {
        let size = match bytes.is_multiple_of(arrays.max(1)) {
            true => format!(" of {}", Bytes(bytes / arrays.max(1))),
            false => String::new(),
        };
        format!("{arrays} arrays{size}, created one after the other at {}", file_name(&self.site))
    }
}

impl LeakCandidate {
    /// Returns `true` if they are created one after the other: by a program that makes an array of next to nothing, and
    /// in most of the steps nothing else was computed in between.
    pub(super) fn is_created(&self, programs: &Programs, text: &dyn Fn(TextId) -> String) -> bool {
        let creates = |entry: usize| {
            let sizes = programs.sizes(entry);
            sizes.argument_bytes <= MAX_HELPER_BYTES
                && CREATING.contains(&&*text(programs.name(entry)))
        };
        let is_in_between = |entry: usize| {
            programs.sizes(entry).needed_bytes() > MAX_HELPER_BYTES
                && programs.calls_since(entry, self.began_at).saturating_mul(2) >= self.steps
                && !creates(entry)
        };
        self.entry != NO_PROGRAM
            && creates(self.entry as usize)
            && !(0..programs.len()).any(is_in_between)
    }

    pub(super) fn created(
        &self,
        programs: &Programs,
        text: &dyn Fn(TextId) -> String,
    ) -> CreatedArrays {
        CreatedArrays {
            device: self.device,
            site: text(self.site),
            program: text(programs.name(self.entry as usize)),
            arrays: self.live.count,
            bytes: self.live.bytes,
        }
    }
}
