//! The optimised module as a graph that can be walked both ways.

use rustc_hash::FxHashMap;

use crate::program::wire::{HloComputationProto, HloInstructionProto, HloModuleProto};

/// Position of an instruction in [`ModuleIndex`].
pub(super) type At = u32;

/// A part of what an instruction returns: its position, and the place in its tuple. Tuples inside
/// tuples are told apart by their first two numbers only, which is enough for what XLA's GPU
/// compiler makes.
pub(super) type Place = (At, i64);

/// The whole result, where it is no tuple.
pub(super) const WHOLE: i64 = -1;

/// Instructions by number, and who uses them.
pub(super) struct ModuleIndex<'a> {
    pub(super) instructions: Vec<&'a HloInstructionProto>,
    by_id: FxHashMap<i64, At>,
    computations: FxHashMap<i64, &'a HloComputationProto>,
    /// For each instruction, those that take it as an operand.
    users: Vec<Vec<At>>,
    /// For each computation, the instructions that call it.
    callers: FxHashMap<i64, Vec<At>>,
    /// For each instruction, its computation.
    homes: Vec<i64>,
}

impl<'a> ModuleIndex<'a> {
    pub(super) fn new(module: &'a HloModuleProto) -> Self {
        let mut index = ModuleIndex {
            instructions: Vec::new(),
            by_id: FxHashMap::default(),
            computations: FxHashMap::default(),
            users: Vec::new(),
            callers: FxHashMap::default(),
            homes: Vec::new(),
        };
        for computation in &module.computations {
            index.computations.insert(computation.id, computation);
            for instruction in &computation.instructions {
                let at = index.instructions.len() as At;
                index.instructions.push(instruction);
                index.homes.push(computation.id);
                index.by_id.insert(instruction.id, at);
            }
        }
        index.users = vec![Vec::new(); index.instructions.len()];
        for at in 0..index.instructions.len() {
            let instruction = index.instructions[at];
            for operand in &instruction.operand_ids {
                if let Some(&operand) = index.by_id.get(operand)
                    && index.users[operand as usize].last() != Some(&(at as At))
                {
                    index.users[operand as usize].push(at as At);
                }
            }
            for called in &instruction.called_computation_ids {
                index.callers.entry(*called).or_default().push(at as At);
            }
        }
        index
    }

    pub(super) fn get(&self, at: At) -> &'a HloInstructionProto {
        self.instructions[at as usize]
    }

    pub(super) fn find(&self, id: i64) -> Option<At> {
        self.by_id.get(&id).copied()
    }

    pub(super) fn users(&self, at: At) -> &[At] {
        &self.users[at as usize]
    }

    /// Returns the operand of that number.
    pub(super) fn operand(&self, at: At, number: usize) -> Option<At> {
        self.find(*self.get(at).operand_ids.get(number)?)
    }

    /// Returns the numbers of the operands of `user` that `at` is.
    pub(super) fn operand_numbers(&self, user: At, at: At) -> impl Iterator<Item = usize> + '_ {
        let id = self.get(at).id;
        let operands = self.get(user).operand_ids.iter().enumerate();
        operands
            .filter(move |(_, operand)| **operand == id)
            .map(|(number, _)| number)
    }

    /// Returns the computation that an instruction calls as its `number`-th.
    pub(super) fn callee(&self, at: At, number: usize) -> Option<&'a HloComputationProto> {
        let id = self.get(at).called_computation_ids.get(number)?;
        self.computations.get(id).copied()
    }

    /// Returns the parameter of a computation.
    pub(super) fn parameter(&self, computation: &HloComputationProto, number: i64) -> Option<At> {
        let found = computation
            .instructions
            .iter()
            .find(|one| one.opcode == "parameter" && one.parameter_number == number)?;
        self.find(found.id)
    }

    /// Says whether an instruction is what its computation returns.
    pub(super) fn is_root(&self, at: At) -> bool {
        let home = self.computations.get(&self.homes[at as usize]);
        home.is_some_and(|home| home.root_id == self.get(at).id)
    }

    /// Returns the instructions that call the computation an instruction is in.
    pub(super) fn callers_of_home(&self, at: At) -> &[At] {
        self.callers
            .get(&self.homes[at as usize])
            .map_or(&[], Vec::as_slice)
    }
}
