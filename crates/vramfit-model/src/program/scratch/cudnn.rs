//! cuDNN's workspaces of convolutions and attention: part of the temporaries of a program that was
//! compiled on a GPU, of no size before.
//!
//! Convolutions: no formula is documented. Up to JAX 0.9.0 the autotuner takes no algorithm of more than 4096 MiB
//! (`xla_gpu_redzone_scratch_max_megabytes`); later releases have no such limit. The estimate: the
//! matrix that an explicit product works on (a copy of the input for each element of the kernel),
//! and copies of all arrays in another layout and in single precision; 4096 MiB at most. What the
//! autotuner chose on an H200 was less, at most 1.1 times the copies in single precision.
//!
//! Attention with softmax: cuDNN 9.19 on an H200 took this, to the byte, in nine shapes of `bf16` and
//! `f16` (`fixtures/gpu/`). The backward pass adds up the gradient of the queries in single precision,
//! has one number for each query and head, and where several heads share keys and values the
//! gradients of those for every head.

use super::routine::{Routine, count};
use super::{Estimate, EstimateSource, ScratchPhase};
use crate::program::shape::{ElementType, Shape};

const MAX_WORKSPACE: u128 = 4096 << 20;
const MIN_WORKSPACE: u128 = 16 << 20;
const PREFIX: &str = "__cudnn$conv";
const ATTENTION: &str = "__cudnn$fmhaSoftmax";
/// What attention takes in any case, and all that the forward pass does.
const ATTENTION_BASE: u128 = 256;
/// Attention with more in it, and normalization: only cuDNN knows their workspace.
const OTHERS: &[&str] = &["__cudnn$fmha", "__cudnn$norm"];

pub(super) fn estimate(routine: &Routine<'_>) -> Option<Estimate> {
    let target = routine.target();
    let is_convolution = target.starts_with(PREFIX) || routine.opcode() == "convolution";
    let is_other = OTHERS.iter().any(|other| target.starts_with(other));
    if !(is_convolution || is_other) || planned_workspace(routine) > 0 {
        return None;
    }
    if let Some(workspace) = attention_workspace(routine) {
        return Some(Estimate {
            library: "cuDNN",
            routine: routine.named(match target == ATTENTION {
                true => "attention",
                false => "attention, gradient",
            }),
            low: 0,
            high: workspace,
            source: EstimateSource::Published,
            phase: ScratchPhase::Plan,
        });
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

/// Returns the workspace of attention with softmax and nothing else, in either direction.
fn attention_workspace(routine: &Routine<'_>) -> Option<u128> {
    match routine.target().strip_prefix(ATTENTION)? {
        "" => return Some(ATTENTION_BASE),
        "Backward" => {}
        _ => return None,
    }
    let [queries, keys, ..] = routine.results.as_slice() else {
        return None;
    };
    let [.., size] = queries.dims.as_slice() else {
        return None;
    };
    let elements = u128::from(queries.elements());
    // Batch, sequence and heads, the last two in either order.
    let dims = queries.dims.iter().zip(&keys.dims);
    let shared_by = dims.map(|(&of_queries, &of_keys)| count(of_queries) / count(of_keys).max(1));
    let of_every_head = match shared_by.max().unwrap_or(1) {
        0 | 1 => 0,
        heads => 2 * u128::from(keys.bytes()).saturating_mul(heads),
    };
    let sums = elements.saturating_add(elements / count(*size).max(1)).saturating_mul(4);
    Some(sums.saturating_add(of_every_head).saturating_add(ATTENTION_BASE))
}

/// Returns the workspace that is in the plan already, as with autotuning results from a GPU.
fn planned_workspace(routine: &Routine<'_>) -> u64 {
    let is_bytes = |shape: &&Shape| shape.element_type == ElementType::U8 && shape.dims.len() == 1;
    routine.results.iter().filter(is_bytes).map(Shape::bytes).max().unwrap_or(0)
}
