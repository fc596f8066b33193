//! Arrays that a line creates one after the other: weights, or the moments of an optimizer. They are a set, and no growth.

use super::LeakCandidate;
use crate::analysis::arrays::NO_PROGRAM;
use crate::analysis::programs::Programs;
use crate::bytes::Bytes;
use crate::section::phrases::file_name;
use crate::trace::TextId;

/// Programs of JAX's own that make an array of a shape, a value or a key: `jnp.zeros`, `jax.random.normal`. A function of
/// the user's that is given as little may compute results.
const CREATING: [&str; 8] = [
    "jit_broadcast_in_dim",
    "jit_iota",
    "jit__bernoulli",
    "jit__normal",
    "jit__normal_real",
    "jit__randint",
    "jit__truncated_normal",
    "jit__uniform",
];
/// Those by which the initializers of JAX scale what was created.
const SCALING: [&str; 3] = ["jit_multiply", "jit_sqrt", "jit_true_divide"];
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
    /// Returns `true` if they are created one after the other: by programs that make an array of next to nothing, and scale
    /// it; in most of the steps nothing else was computed in between.
    pub(super) fn is_created(&self, programs: &Programs, text: &dyn Fn(TextId) -> String) -> bool {
        let is_one_of =
            |entry: usize, names: &[&str]| names.contains(&&*text(programs.name(entry)));
        let creates = |entry: usize| {
            programs.sizes(entry).argument_bytes <= MAX_HELPER_BYTES && is_one_of(entry, &CREATING)
        };
        let scales = |entry: usize| is_one_of(entry, &SCALING);
        let is_frequent = |entry: usize| {
            programs.calls_since(entry, self.began_at).saturating_mul(2) >= self.steps
        };
        let is_in_between = |entry: usize| {
            programs.sizes(entry).needed_bytes() > MAX_HELPER_BYTES
                && is_frequent(entry)
                && !creates(entry)
                && !scales(entry)
        };
        let all = || 0..programs.len();
        let is_made_so = |entry: usize| {
            // What is scaled was created for that.
            creates(entry)
                || scales(entry) && all().any(|other| creates(other) && is_frequent(other))
        };
        self.entry != NO_PROGRAM && is_made_so(self.entry as usize) && !all().any(is_in_between)
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
        }
    }
}
