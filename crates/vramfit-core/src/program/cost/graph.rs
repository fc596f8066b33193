//! The module by its numbers, and the sizes of what is in it.

use rustc_hash::FxHashMap;

use crate::program::proto::{HloComputationProto, HloInstructionProto, HloModuleProto};
use crate::program::shape::{MemorySpace, Shape};

/// Instructions and computations by number.
pub(super) struct Graph<'a> {
    instructions: FxHashMap<i64, &'a HloInstructionProto>,
    computations: FxHashMap<i64, &'a HloComputationProto>,
}

impl<'a> Graph<'a> {
    pub(super) fn new(module: &'a HloModuleProto) -> Self {
        let computations = module.computations.iter();
        Graph {
            instructions: module.instructions().map(|it| (it.id, it)).collect(),
            computations: computations.map(|it| (it.id, it)).collect(),
        }
    }

    pub(super) fn computation(&self, id: i64) -> Option<&'a HloComputationProto> {
        self.computations.get(&id).copied()
    }

    /// Returns the computations that an instruction calls.
    pub(super) fn called(
        &self,
        instruction: &HloInstructionProto,
    ) -> impl Iterator<Item = &'a HloComputationProto> {
        let ids = instruction.called_computation_ids.iter();
        ids.filter_map(|id| self.computation(*id))
    }

    pub(super) fn operand(
        &self,
        instruction: &HloInstructionProto,
        number: usize,
    ) -> Option<&'a HloInstructionProto> {
        let id = instruction.operand_ids.get(number)?;
        self.instructions.get(id).copied()
    }

    /// Returns the operands of an instruction, without those that are missing.
    pub(super) fn operands(
        &self,
        instruction: &HloInstructionProto,
    ) -> impl Iterator<Item = &'a HloInstructionProto> {
        let ids = instruction.operand_ids.iter();
        ids.filter_map(|id| self.instructions.get(id).copied())
    }

    pub(super) fn root(
        &self,
        computation: &HloComputationProto,
    ) -> Option<&'a HloInstructionProto> {
        self.instructions.get(&computation.root_id).copied()
    }

    /// Returns the instruction that made what this one only looks at in another shape.
    pub(super) fn source(
        &self,
        mut instruction: &'a HloInstructionProto,
    ) -> &'a HloInstructionProto {
        // Operands stand before their users, so this ends; a damaged module may bite its tail.
        for _ in 0..self.instructions.len() {
            match self.operand(instruction, 0) {
                Some(operand) if matches!(instruction.opcode.as_str(), "bitcast" | "reshape") => {
                    instruction = operand;
                }
                _ => break,
            }
        }
        instruction
    }
}

/// Returns the arrays of a result, a tuple taken apart.
pub(super) fn arrays(instruction: &HloInstructionProto) -> Vec<Shape> {
    let shape = instruction.shape.as_ref();
    shape.map(Shape::arrays).unwrap_or_default()
}

/// Returns the bytes of an array that lie in the GPU's memory.
pub(super) fn device_bytes(shape: &Shape) -> u64 {
    match shape.space {
        MemorySpace::Host => 0,
        MemorySpace::Device | MemorySpace::Collective => shape.bytes(),
    }
}

/// Returns the bytes of a result that lie in the GPU's memory.
pub(super) fn result_bytes(instruction: &HloInstructionProto) -> u64 {
    let arrays = arrays(instruction);
    arrays.iter().map(device_bytes).fold(0, u64::saturating_add)
}
