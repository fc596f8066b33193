//! What XLA's autotuner takes from the pool while it compiles a program on a GPU: for one kernel after
//! the other its inputs and the output with a red zone on both sides of each, and a reference to
//! compare the output with (`xla/backends/gpu/autotuner/gpu_profiler.cc`;
//! `xla_gpu_redzone_padding_bytes`, 8 MiB).
//!
//! A fused product is tried with cuBLAS, too, which has a workspace, and before all is fused that is
//! fused in the end: on an H100 an operand like the result was still part of it. With both the estimate
//! is what that GPU took, to the byte (`fixtures/gpu/`, `train_mlp`).
//!
//! JAX 0.11 also tries Triton for fusions with a reduction: on an H200 one took what is estimated, to
//! the byte (`chunked_vmap`), and of seven programs no other fusion was tried.

use super::routine::Routine;
use super::{Estimate, EstimateSource, ScratchPhase};

const RED_ZONES: u128 = 2 * (8 << 20);
/// Of cuBLAS on Hopper and later; 4 MiB on other GPUs.
const WORKSPACE: u128 = 32 << 20;
const CALLS: &[&str] = &["__cublas$", "__cudnn$"];

pub(super) fn estimate(routine: &Routine<'_>) -> Option<Estimate> {
    let is_call = CALLS.iter().any(|prefix| routine.target().starts_with(prefix));
    let is_product = routine.fused_product().is_some();
    if !is_call && !is_product && !routine.is_tuned_reduction() {
        return None;
    }
    let zones = RED_ZONES * (routine.operands.len() + 1) as u128;
    let kernel = routine.operand_bytes() + zones + 2 * routine.result_bytes();
    let more = match is_product {
        true => routine.result_bytes() + RED_ZONES + WORKSPACE,
        // The workspace is a result of the call.
        false => 0,
    };
    Some(Estimate {
        library: "XLA's autotuner",
        routine: routine.named("inputs and outputs of a kernel,"),
        low: 0,
        high: kernel + more,
        source: EstimateSource::Published,
        phase: ScratchPhase::Compilation,
    })
}
