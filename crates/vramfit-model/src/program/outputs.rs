//! Where the outputs of a program lie, for executables that do not say it.
//!
//! Plugins up to JAX 0.9 serialize XLA's buffer assignment, which knows which allocation each
//! logical buffer lies in and which instruction makes the buffer. From an output of the program,
//! the way back to that instruction leads through all those that pass buffers on unchanged.

use std::collections::HashMap;

use super::hlo::{HloGraph, HloIndex};
use super::proto::BufferAssignmentProto;

/// A part of what an instruction returns: the instruction, and an index into its tuple.
type Place = (HloIndex, Vec<i64>);

/// Finds the allocations of a program's outputs.
pub(crate) struct OutputFinder<'a> {
    graph: &'a HloGraph<'a>,
    /// For each place where a logical buffer begins, by the instruction's id, the buffer.
    buffers: HashMap<(i64, &'a [i64]), i64>,
    /// For each logical buffer, the number of its allocation.
    allocations: HashMap<i64, usize>,
}

impl<'a> OutputFinder<'a> {
    pub(crate) fn new(graph: &'a HloGraph<'a>, assignment: &'a BufferAssignmentProto) -> Self {
        let buffers = assignment.logical_buffers.iter().filter_map(|buffer| {
            let at = buffer.defined_at.as_ref()?;
            Some(((at.instruction_id, at.shape_index.as_slice()), buffer.id))
        });
        let allocations = assignment.buffer_allocations.iter().enumerate();
        let allocations = allocations.flat_map(|(number, one)| {
            one.assigned.iter().map(move |part| (part.logical_buffer_id, number))
        });
        OutputFinder { graph, buffers: buffers.collect(), allocations: allocations.collect() }
    }

    /// Returns the allocation of the output at a shape index of the result.
    pub(crate) fn find(&self, index: &[i64]) -> Option<usize> {
        let mut place: Place = (self.graph.entry_root()?, index.to_vec());
        // A longer way would go round in circles.
        for _ in 0..=self.graph.len() {
            let id = self.graph.get(place.0).id;
            if let Some(buffer) = self.buffers.get(&(id, place.1.as_slice())) {
                return self.allocations.get(buffer).copied();
            }
            place = self.origin(place)?;
        }
        None
    }

    /// Goes back one instruction.
    fn origin(&self, (at, mut index): Place) -> Option<Place> {
        let instruction = self.graph.get(at);
        let operand = |number: usize| self.graph.operand(at, number);
        match instruction.opcode.as_str() {
            "tuple" if !index.is_empty() => {
                let number = usize::try_from(index.remove(0)).ok()?;
                Some((operand(number)?, index))
            }
            "get-tuple-element" => {
                index.insert(0, instruction.tuple_index);
                Some((operand(0)?, index))
            }
            "bitcast" | "optimization-barrier" | "add-dependency" | "while" | "all-reduce-done" => {
                Some((operand(0)?, index))
            }
            // The start returns what is to be, then what was; …
            "copy-done" => {
                index.insert(0, 0);
                Some((operand(0)?, index))
            }
            // … or what was, then what is to be.
            "all-gather-done" | "collective-permute-done" | "async-done" | "async-update" => {
                index.insert(0, 1);
                Some((operand(0)?, index))
            }
            "call" => Some((self.graph.root_of(at, 0)?, index)),
            "async-start" if index.first() == Some(&1) => {
                index.remove(0);
                Some((self.graph.root_of(at, 0)?, index))
            }
            "parameter" => {
                let mut callers = self.graph.callers_of_parent(at).iter();
                let caller = callers.rfind(|&&caller| {
                    matches!(self.graph.get(caller).opcode.as_str(), "call" | "async-start")
                })?;
                let number = usize::try_from(instruction.parameter_number).ok()?;
                Some((self.graph.operand(*caller, number)?, index))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::proto::{
        AssignedProto, BufferAllocationProto, HloComputationProto, HloInstructionProto,
        HloModuleProto, LocationProto, LogicalBufferProto,
    };

    fn instruction(id: i64, opcode: &str, operands: &[i64]) -> HloInstructionProto {
        HloInstructionProto {
            id,
            opcode: opcode.to_owned(),
            operand_ids: operands.to_vec(),
            ..HloInstructionProto::default()
        }
    }

    fn computation(id: i64, instructions: Vec<HloInstructionProto>) -> HloComputationProto {
        HloComputationProto {
            id,
            root_id: instructions.last().map_or(0, |root| root.id),
            instructions,
        }
    }

    /// Each buffer, by where it begins, in an allocation of its own.
    fn assignment(buffers: &[(i64, &[i64])]) -> BufferAssignmentProto {
        let mut assignment = BufferAssignmentProto::default();
        for (number, (id, index)) in (0..).zip(buffers) {
            assignment.logical_buffers.push(LogicalBufferProto {
                id: 100 + number,
                defined_at: Some(LocationProto {
                    instruction_id: *id,
                    shape_index: index.to_vec(),
                }),
                ..LogicalBufferProto::default()
            });
            assignment.buffer_allocations.push(BufferAllocationProto {
                assigned: vec![AssignedProto {
                    logical_buffer_id: 100 + number,
                    ..AssignedProto::default()
                }],
                ..BufferAllocationProto::default()
            });
        }
        assignment
    }

    #[test]
    fn a_copy_to_the_host_lies_where_its_start_begins() {
        let entry = vec![
            instruction(1, "parameter", &[]),
            instruction(2, "copy-start", &[1]),
            instruction(3, "copy-done", &[2]),
        ];
        let module = HloModuleProto {
            entry_computation_id: 7,
            computations: vec![computation(7, entry)],
            ..HloModuleProto::default()
        };
        let assignment = assignment(&[(1, &[]), (2, &[0]), (2, &[2])]);
        let graph = HloGraph::new(&module);
        assert_eq!(OutputFinder::new(&graph, &assignment).find(&[]), Some(1));
    }

    #[test]
    fn outputs_are_followed_into_a_call_and_out_of_it_through_its_parameters() {
        // The callee returns (what it makes, its second parameter).
        let callee = vec![
            instruction(11, "fusion", &[]),
            HloInstructionProto { parameter_number: 1, ..instruction(12, "parameter", &[]) },
            instruction(13, "tuple", &[11, 12]),
        ];
        let entry = vec![
            instruction(1, "parameter", &[]),
            instruction(2, "fusion", &[1]),
            HloInstructionProto {
                called_computation_ids: vec![8],
                ..instruction(3, "call", &[1, 2])
            },
            HloInstructionProto { tuple_index: 1, ..instruction(4, "get-tuple-element", &[3]) },
            instruction(5, "get-tuple-element", &[3]),
            instruction(6, "tuple", &[4, 5]),
        ];
        let module = HloModuleProto {
            entry_computation_id: 7,
            computations: vec![computation(8, callee), computation(7, entry)],
            ..HloModuleProto::default()
        };
        let assignment = assignment(&[(1, &[]), (2, &[]), (11, &[])]);
        let graph = HloGraph::new(&module);
        let finder = OutputFinder::new(&graph, &assignment);
        assert_eq!((finder.find(&[0]), finder.find(&[1])), (Some(1), Some(2)));
        assert_eq!(finder.find(&[2]), None);
    }
}
