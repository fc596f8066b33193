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
