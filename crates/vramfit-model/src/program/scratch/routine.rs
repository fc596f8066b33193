//! One instruction as a library routine: its operands and results as arrays.

use crate::program::hlo::{HloGraph, arrays};
use crate::program::proto::{HloComputationProto, HloInstructionProto};
use crate::program::shape::Shape;

/// An instruction that may call a library, with the shapes it works on.
pub(super) struct Routine<'a> {
    pub(super) instruction: &'a HloInstructionProto,
    /// What a fusion consists of.
    pub(super) fused: Option<&'a HloComputationProto>,
    pub(super) operands: Vec<Shape>,
    /// Results, a tuple taken apart.
    pub(super) results: Vec<Shape>,
}

/// A batch of matrices: the last two dimensions, and the product of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Matrices {
    pub(super) batch: u128,
    pub(super) rows: u128,
    pub(super) columns: u128,
    /// Bytes of an element.
    pub(super) element: u128,
}

impl<'a> Routine<'a> {
    pub(super) fn new(graph: &HloGraph<'a>, instruction: &'a HloInstructionProto) -> Self {
        let called = graph.called(instruction).next();
        Routine {
            instruction,
            fused: called.filter(|_| instruction.opcode == "fusion"),
            operands: graph.operands_of(instruction).flat_map(arrays).collect(),
            results: arrays(instruction),
        }
    }

    pub(super) fn opcode(&self) -> &str {
        &self.instruction.opcode
    }

    /// The name of a custom call; empty for other instructions.
    pub(super) fn target(&self) -> &str {
        &self.instruction.custom_call_target
    }

    /// Returns the matrix product that Triton or cuDNN makes a kernel of, with what is fused into it. An executable
    /// does not say which of them, from JAX 0.9 on.
    pub(super) fn fused_product(&self) -> Option<&'a HloInstructionProto> {
        let fused = self.fused.filter(|_| self.instruction.fusion_kind == "kCustom")?;
        let mut instructions = fused.instructions.iter();
        instructions.find(|it| it.opcode == "dot")
    }

    /// Returns `true` for a fusion with a reduction, which JAX 0.11 and later also tries with Triton.
    pub(super) fn is_tuned_reduction(&self) -> bool {
        // Releases that choose between emitters say so in the configuration of a fusion.
        const CHOICE: &[u8] = b"\"native_emitter_backend_config\"";
        // Triton's emitter has no tiles for these.
        const WITHOUT_TILES: [&str; 8] = [
            "concatenate",
            "dynamic-slice",
            "dynamic-update-slice",
            "gather",
            "pad",
            "reduce-window",
            "scatter",
            "slice",
        ];
        let is_native = matches!(self.instruction.fusion_kind.as_str(), "kLoop" | "kInput");
        let Some(fused) = self.fused.filter(|_| is_native) else {
            return false;
        };
        let has = |opcode: &str| fused.instructions.iter().any(|it| it.opcode == opcode);
        let mut config = self.instruction.backend_config.windows(CHOICE.len());
        config.any(|part| part == CHOICE)
            && has("reduce")
            && !WITHOUT_TILES.iter().any(|opcode| has(opcode))
    }

    pub(super) fn operand_bytes(&self) -> u128 {
        sum_bytes(&self.operands)
    }

    pub(super) fn result_bytes(&self) -> u128 {
        sum_bytes(&self.results)
    }

    /// Returns a name with the first operand, such as `eigh f64[512,512]`.
    pub(super) fn named(&self, name: &str) -> String {
        match self.operands.first() {
            Some(shape) => format!("{name} {}", shape.text()),
            None => name.to_owned(),
        }
    }

    /// Returns the matrices of the first operand.
    pub(super) fn matrices(&self) -> Option<Matrices> {
        let shape = self.operands.first()?;
        let [batch @ .., rows, columns] = shape.dims.as_slice() else {
            return None;
        };
        Some(Matrices {
            batch: batch
                .iter()
                .fold(1, |product: u128, &dim| product.saturating_mul(count(dim)))
                .min(MAX_BATCH),
            rows: count(*rows),
            columns: count(*columns),
            element: u128::from(shape.element_type.bytes()),
        })
    }
}

fn sum_bytes(shapes: &[Shape]) -> u128 {
    shapes.iter().map(|shape| u128::from(shape.bytes())).sum()
}

/// More matrices than any memory holds; keeps products within 128 bits.
const MAX_BATCH: u128 = 1 << 60;

/// A dimension as a number of things. Dimensions of a file may be anything; the limit keeps products
/// of a few of them within 128 bits.
pub(super) fn count(dim: i64) -> u128 {
    const MAX_DIMENSION: i64 = 1 << 40;
    dim.clamp(0, MAX_DIMENSION) as u128
}
