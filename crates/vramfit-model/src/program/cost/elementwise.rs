//! What functions of elements take: exponentials, `tanh`, `sin` and their like, which a GPU computes in many
//! instructions.
//!
//! XLA's model prices them several times too high: a kernel that computes a `tanh` of each element takes no longer
//! than reading and writing it.

use super::MAX_DEPTH;
use super::rates::Rates;
use crate::program::hlo::{HloGraph, arrays};
use crate::program::proto::HloInstructionProto;
use crate::program::shape::Shape;

/// Elements that a multiprocessor computes in a cycle, of 32-bit floats; 16-bit floats are computed as such. Measured
/// on an H100 by `scripts/record/gpu_programs/rates.py` (`fixtures/gpu/`), divided by 132 multiprocessors at 1.98 GHz.
const ELEMENTS_PER_CYCLE: &[(&str, f64)] = &[
    ("atan2", 2.2),
    ("cbrt", 6.1),
    ("cosine", 3.4),
    ("erf", 4.7),
    ("exponential", 12.4),
    ("exponential-minus-one", 3.9),
    ("log", 4.4),
    ("log-plus-one", 4.2),
    ("logistic", 6.4),
    ("power", 2.4),
    ("rsqrt", 14.4),
    ("sine", 3.8),
    ("sqrt", 14.4),
    ("tan", 3.7),
    ("tanh", 5.0),
];

/// Returns the microseconds that the functions in a kernel take; `None` where it has none, or one of an element type
/// whose rate is not known.
pub(super) fn functions_us(
    graph: &HloGraph<'_>,
    rates: Rates<'_>,
    instruction: &HloInstructionProto,
) -> Option<f64> {
    let mut us = 0.0;
    add(graph, rates, instruction, MAX_DEPTH, &mut us)?;
    (us > 0.0).then_some(us)
}

fn add(
    graph: &HloGraph<'_>,
    rates: Rates<'_>,
    instruction: &HloInstructionProto,
    depth: usize,
    us: &mut f64,
) -> Option<()> {
    if instruction.opcode == "fusion" {
        let depth = depth.checked_sub(1)?;
        let mut fused = graph.called(instruction).flat_map(|it| &it.instructions);
        return fused.try_for_each(|it| add(graph, rates, it, depth, us));
    }
    let opcode = instruction.opcode.as_str();
    let known = ELEMENTS_PER_CYCLE.iter().find(|(name, _)| *name == opcode);
    let Some((_, per_cycle)) = known else {
        return Some(());
    };
    let shapes = arrays(instruction);
    let is_priced = |shape: &Shape| matches!(shape.element_type.name(), "f32" | "bf16" | "f16");
    if !shapes.iter().all(is_priced) {
        return None;
    }
    let elements: u64 = shapes.iter().map(Shape::elements).sum();
    *us += elements as f64 / rates.elementwise_per_us(opcode, *per_cycle);
    Some(())
}
