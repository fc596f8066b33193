//! Attention whose scores are in memory, where cuDNN has a kernel that needs none.

use super::{ProgramEdit, SuggestedEdit};
use crate::analysis::RunSummary;
use crate::gpu;
use crate::program::memory::{Buffer, ProgramMemory};
use crate::program::parse_dimensions;
use crate::section::phrases::file_name;

/// What `jax.nn.dot_product_attention` calls the product that makes its scores: batch, heads, and the positions of
/// queries and keys.
const SCORES_PRODUCT: &str = "->BNTS)";

pub(super) fn suggest(summary: &RunSummary) -> Option<SuggestedEdit> {
    let memory = &summary.program_memory.as_ref()?.memory;
    let gpu = gpu::get(&summary.header.gpu().name);
    // cuDNN has kernels from Ampere on.
    if gpu.is_some_and(|gpu| gpu.compute_capability < (8, 0)) {
        return None;
    }
    if !computes_in_16_bits(memory) {
        return None;
    }
    let (bytes, largest) = scores(memory)?;
    let at = memory.user_site(largest.frame);
    let at = at.map_or(String::new(), |site| format!(" at {}", file_name(site)));
    Some(SuggestedEdit {
        bytes,
        change: format!(
            "attention without its scores in memory{at}: `jax.nn.dot_product_attention(..., implementation=\"cudnn\")`"
        ),
        condition: "its results differ by rounding, and it supports fewer shapes",
        edit: ProgramEdit::CudnnAttention,
        site: String::new(),
    })
}

/// Returns `true` if queries and keys may be of 16 bits: cuDNN has no kernel for others. The scores are float32 either way.
fn computes_in_16_bits(memory: &ProgramMemory) -> bool {
    memory.buffers.iter().any(Buffer::holds_16_bit_floats)
}

/// Returns how many bytes at the peak are scores, or of their shape, and the largest of them.
fn scores(memory: &ProgramMemory) -> Option<(u64, &Buffer)> {
    let count_elements =
        |buffer: &Buffer| Some(parse_dimensions(&buffer.shape)?.into_iter().product::<u64>());
    let are_scores = |buffer: &&Buffer| buffer.operation.contains(SCORES_PRODUCT);
    let made = memory.buffers.iter().filter(are_scores);
    let elements = made.filter_map(count_elements).max()?;
    let alike = memory.buffers.iter().filter(|buffer| count_elements(buffer) == Some(elements));
    let bytes = alike.clone().map(|buffer| buffer.peak_bytes).sum();
    let largest = alike.max_by_key(|buffer| buffer.peak_bytes)?;
    (bytes > 0).then_some((bytes, largest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attention_in_16_bits_is_left_to_cudnn() {
        for (shapes, is_narrow) in [
            (&["f32[2,8,64,64]", "f32[2,64,8,32]"][..], false),
            (&["f32[2,8,64,64]", "bf16[2,64,8,32]"], true),
            (&["f32[2,8,64,64]", "f16[2,64,8,32]"], true),
            (&["f32[2,8,64,64]", "f64[2,64,8,32]", "u16[8]"], false),
        ] {
            let buffers = shapes
                .iter()
                .map(|shape| Buffer { shape: (*shape).to_owned(), ..Buffer::default() });
            let memory = ProgramMemory { buffers: buffers.collect(), ..ProgramMemory::default() };
            assert_eq!(computes_in_16_bits(&memory), is_narrow, "{shapes:?}");
        }
    }
}
