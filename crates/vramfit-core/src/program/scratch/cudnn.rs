//! cuDNN's workspaces of convolutions: part of the temporaries once the autotuner has chosen an
//! algorithm on a GPU, of no size before.
//!
//! No formula is documented. Up to JAX 0.9.0 the autotuner takes no algorithm of more than 4096 MiB
//! (`xla_gpu_redzone_scratch_max_megabytes`); later releases have no such limit. The estimate: the
//! matrix that an explicit product works on (a copy of the input for each element of the kernel),
//! and copies of all arrays in another layout and in single precision; 4096 MiB at most.

use super::routine::{Routine, count};
use super::{Estimate, EstimateSource, ScratchPhase};
use crate::program::shape::{ElementType, Shape};

const MAX_WORKSPACE: u128 = 4096 << 20;
const MIN_WORKSPACE: u128 = 16 << 20;
const PREFIX: &str = "__cudnn$conv";
/// Attention and normalization, whose workspace only cuDNN knows.
const OTHERS: &[&str] = &["__cudnn$fmha", "__cudnn$norm"];

pub(super) fn estimate(routine: &Routine<'_>) -> Option<Estimate> {
    let target = routine.target();
    let is_convolution = target.starts_with(PREFIX) || routine.opcode() == "convolution";
    let is_other = OTHERS.iter().any(|other| target.starts_with(other));
    if !(is_convolution || is_other) || planned_workspace(routine) > 0 {
        return None;
    }
    if is_other {
        return Some(Estimate {
            library: "cuDNN",
            routine: routine.named(target),
            source: EstimateSource::Unknown,
            phase: ScratchPhase::Plan,
            ..Estimate::default()
        });
    }
    let window = routine.instruction.window.as_ref();
    let kernel: u128 = window
        .map(|window| window.dimensions.iter().map(|dim| count(dim.size).max(1)).product())
        .unwrap_or(1);
    let arrays = routine.operands.iter().chain(&routine.results);
    let singles: Vec<u128> = arrays.map(|shape| u128::from(shape.elements()) * 4).collect();
    let all: u128 = singles.iter().sum();
    // The filter is one of the arrays; the two others are the input and the output.
    let largest = singles.iter().max().copied().unwrap_or(0);
    let product = largest.saturating_mul(kernel);
    let name = match target.strip_prefix(PREFIX) {
        Some("Forward") | None => "convolution",
        Some("BackwardInput") => "convolution, gradient of the input",
        Some("BackwardFilter") => "convolution, gradient of the filter",
        Some(_) => "convolution with bias and activation",
    };
    Some(Estimate {
        library: "cuDNN",
        routine: routine.named(name),
        low: 0,
        high: product.saturating_add(all).clamp(MIN_WORKSPACE, MAX_WORKSPACE),
        source: EstimateSource::Estimated,
        phase: ScratchPhase::Plan,
    })
}

/// Returns the workspace that is in the plan already, as with autotuning results from a GPU.
fn planned_workspace(routine: &Routine<'_>) -> u64 {
    let is_bytes = |shape: &&Shape| shape.element_type == ElementType::U8 && shape.dims.len() == 1;
    routine.results.iter().filter(is_bytes).map(Shape::bytes).max().unwrap_or(0)
}
