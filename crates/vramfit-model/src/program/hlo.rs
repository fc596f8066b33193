//! The optimized module as a graph that can be walked both ways: operands, users, callers.
//!
//! Memory, run time, outputs and scratch are found out from it. Everything that is asked more than once is found out
//! here, in one pass over the module: a program has tens of thousands of buffers, and each of them asks about its
//! neighbors.

use rustc_hash::FxHashMap;

use super::phase::{self, Phase};
use super::proto::{HloComputationProto, HloInstructionProto, HloModuleProto, OpMetadata};
use super::shape::Shape;

/// Position of an instruction in [`HloGraph`].
pub(super) type HloIndex = u32;

/// A part of what an instruction returns: its position, and the place in its tuple. Tuples inside
/// tuples are told apart by their first two numbers only, which is enough for what XLA's GPU
/// compiler makes.
pub(super) type HloPosition = (HloIndex, i64);

/// The whole result, where it is no tuple.
pub(super) const WHOLE: i64 = -1;

/// Instructions by number, and who uses them.
#[derive(Debug)]
pub struct HloGraph<'a> {
    module: &'a HloModuleProto,
    instructions: Vec<&'a HloInstructionProto>,
    by_id: FxHashMap<i64, HloIndex>,
    computations: FxHashMap<i64, Computation<'a>>,
    /// For each instruction, those that take it as an operand, and as which.
    users: Vec<Vec<(HloIndex, u32)>>,
    /// For each instruction, those that take a part of its tuple, by the number of the part.
    readers: Vec<Vec<(i64, HloIndex)>>,
    /// For each computation, the instructions that call it.
    callers: FxHashMap<i64, Vec<HloIndex>>,
    /// For each instruction, its computation.
    homes: Vec<i64>,
    /// For each instruction, the name of the operation it stands for, and what that says.
    names: Vec<(&'a str, Phase)>,
}

/// What is asked of a computation.
#[derive(Debug)]
struct Computation<'a> {
    proto: &'a HloComputationProto,
    root: Option<HloIndex>,
    parameters: FxHashMap<i64, HloIndex>,
    /// The name of an operation, and what says where one came from: those of the root, else of the
    /// last instruction that has them.
    name: &'a str,
    origin: Option<&'a OpMetadata>,
}

impl<'a> HloGraph<'a> {
    /// Makes the graph of a module. What a damaged module lacks is missing in it.
    pub fn new(module: &'a HloModuleProto) -> Self {
        let mut graph = HloGraph {
            module,
            instructions: Vec::new(),
            by_id: FxHashMap::default(),
            computations: FxHashMap::default(),
            users: Vec::new(),
            readers: Vec::new(),
            callers: FxHashMap::default(),
            homes: Vec::new(),
            names: Vec::new(),
        };
        for computation in &module.computations {
            for instruction in &computation.instructions {
                let at = graph.instructions.len() as HloIndex;
                graph.instructions.push(instruction);
                graph.homes.push(computation.id);
                graph.by_id.insert(instruction.id, at);
            }
        }
        for computation in &module.computations {
            let known = graph.computation(computation);
            graph.computations.insert(computation.id, known);
        }
        graph.connect();
        graph.names = (0..graph.instructions.len())
            .map(|at| {
                let name = graph.name_of(at as HloIndex);
                (name, phase::of_name(name))
            })
            .collect();
        graph
    }

    fn computation(&self, computation: &'a HloComputationProto) -> Computation<'a> {
        let mut known = Computation {
            proto: computation,
            root: None,
            parameters: FxHashMap::default(),
            name: "",
            origin: None,
        };
        for instruction in &computation.instructions {
            let Some(at) = self.find(instruction.id) else {
                continue;
            };
            let is_root = instruction.id == computation.root_id;
            if is_root {
                known.root = Some(at);
            }
            if instruction.opcode == "parameter" {
                let number = instruction.parameter_number;
                known.parameters.entry(number).or_insert(at);
            }
        }
        let root = known.root.map(|at| self.get(at));
        let rest = computation.instructions.iter().rev();
        for instruction in root.into_iter().chain(rest) {
            let Some(metadata) = &instruction.metadata else {
                continue;
            };
            if known.name.is_empty() {
                known.name = &metadata.op_name;
            }
            if known.origin.is_none() && has_source(metadata) {
                known.origin = Some(metadata);
            }
        }
        known
    }

    /// Notes who uses what, and who calls what.
    fn connect(&mut self) {
        self.users = vec![Vec::new(); self.instructions.len()];
        self.readers = vec![Vec::new(); self.instructions.len()];
        for at in 0..self.instructions.len() {
            let instruction = self.instructions[at];
            for (number, operand) in instruction.operand_ids.iter().enumerate() {
                let Some(&operand) = self.by_id.get(operand) else {
                    continue;
                };
                let operand = operand as usize;
                if instruction.opcode == "get-tuple-element" {
                    self.readers[operand].push((instruction.tuple_index, at as HloIndex));
                } else {
                    self.users[operand].push((at as HloIndex, number as u32));
                }
            }
            for called in &instruction.called_computation_ids {
                self.callers.entry(*called).or_default().push(at as HloIndex);
            }
        }
        self.readers.iter_mut().for_each(|readers| readers.sort());
    }

    fn name_of(&self, at: HloIndex) -> &'a str {
        let instruction = self.get(at);
        let own = instruction.metadata.as_ref();
        let own = own.map_or("", |metadata| metadata.op_name.as_str());
        match own.is_empty() && instruction.opcode == "fusion" {
            true => self.callee(at, 0).map_or("", |fused| fused.name),
            false => own,
        }
    }

    /// Returns the module that it is the graph of.
    pub(super) fn module(&self) -> &'a HloModuleProto {
        self.module
    }

    /// Returns the computation that the program begins with.
    pub(super) fn entry(&self) -> Option<&'a HloComputationProto> {
        self.computations.get(&self.module.entry_computation_id).map(|entry| entry.proto)
    }

    /// Returns the computations that an instruction calls.
    pub(super) fn called(
        &self,
        instruction: &HloInstructionProto,
    ) -> impl Iterator<Item = &'a HloComputationProto> {
        let ids = instruction.called_computation_ids.iter();
        ids.filter_map(|id| self.computations.get(id)).map(|called| called.proto)
    }

    /// Returns the instruction that makes what a computation returns.
    pub(super) fn root_instruction(
        &self,
        computation: &HloComputationProto,
    ) -> Option<&'a HloInstructionProto> {
        self.find(computation.root_id).map(|at| self.get(at))
    }

    /// Returns an operand of an instruction.
    pub(super) fn operand_of(
        &self,
        instruction: &HloInstructionProto,
        number: usize,
    ) -> Option<&'a HloInstructionProto> {
        let id = instruction.operand_ids.get(number)?;
        self.find(*id).map(|at| self.get(at))
    }

    /// Returns the operands of an instruction, without those that are missing.
    pub(super) fn operands_of(
        &self,
        instruction: &HloInstructionProto,
    ) -> impl Iterator<Item = &'a HloInstructionProto> {
        let ids = instruction.operand_ids.iter();
        ids.filter_map(|id| self.find(*id)).map(|at| self.get(at))
    }

    /// Returns how many instructions the module has.
    pub(super) fn len(&self) -> usize {
        self.instructions.len()
    }

    pub(super) fn get(&self, at: HloIndex) -> &'a HloInstructionProto {
        self.instructions[at as usize]
    }

    pub(super) fn find(&self, id: i64) -> Option<HloIndex> {
        self.by_id.get(&id).copied()
    }

    /// Returns the name of the operation an instruction stands for: its own, or else that of what is
    /// fused into it. Empty when neither has one.
    pub(super) fn name(&self, at: HloIndex) -> &'a str {
        self.names[at as usize].0
    }

    /// Returns what that name says of the part of a differentiated program it belongs to.
    pub(super) fn phase(&self, at: HloIndex) -> Phase {
        self.names[at as usize].1
    }

    /// Returns what says where an instruction came from: its own, or that of what is fused into it.
    pub(super) fn op_metadata(&self, at: HloIndex) -> Option<&'a OpMetadata> {
        let own = self.get(at).metadata.as_ref();
        own.filter(|metadata| has_source(metadata)).or_else(|| {
            let fused = self.get(at).opcode == "fusion";
            self.callee(at, 0).filter(|_| fused)?.origin
        })
    }

    /// Returns who uses an instruction, and as which operand; those that take a part of its tuple are
    /// not among them.
    pub(super) fn users(&self, at: HloIndex) -> &[(HloIndex, u32)] {
        &self.users[at as usize]
    }

    /// Returns those that take the part of its tuple that has this number.
    pub(super) fn readers(&self, at: HloIndex, number: i64) -> impl Iterator<Item = HloIndex> {
        let all = &self.readers[at as usize];
        let first = all.partition_point(|taker| taker.0 < number);
        let of_number = all[first..].iter().take_while(move |one| one.0 == number);
        of_number.map(|(_, reader)| *reader)
    }

    /// Returns the instructions next to one: what it is made of, then what is made of it.
    pub(super) fn neighbors(&self, at: HloIndex, most: usize) -> impl Iterator<Item = HloIndex> {
        let operands = self.get(at).operand_ids.iter().take(most);
        let operands = operands.filter_map(|&operand| self.find(operand));
        let users = self.users(at).iter().take(most).map(|(user, _)| *user);
        let readers = self.readers[at as usize].iter().take(most);
        operands.chain(users).chain(readers.map(|(_, reader)| *reader))
    }

    pub(super) fn operand(&self, at: HloIndex, number: usize) -> Option<HloIndex> {
        self.find(*self.get(at).operand_ids.get(number)?)
    }

    /// Returns the instruction that makes what the program returns.
    pub(super) fn entry_root(&self) -> Option<HloIndex> {
        self.computations.get(&self.module.entry_computation_id)?.root
    }

    /// Returns the argument of the program that has this number.
    pub(super) fn entry_parameter(&self, number: i64) -> Option<HloIndex> {
        let entry = self.computations.get(&self.module.entry_computation_id)?;
        entry.parameters.get(&number).copied()
    }

    /// Returns the parameter of the computation that an instruction calls as its `called`-th.
    pub(super) fn parameter(&self, at: HloIndex, called: usize, number: i64) -> Option<HloIndex> {
        self.callee(at, called)?.parameters.get(&number).copied()
    }

    /// Returns the instruction that makes what the computation returns that an instruction calls as its
    /// `called`-th.
    pub(super) fn root_of(&self, at: HloIndex, called: usize) -> Option<HloIndex> {
        self.callee(at, called)?.root
    }

    /// Returns what an instruction's own name says of the part of a differentiated program it belongs to.
    pub(super) fn phase_of_one(&self, at: HloIndex) -> Phase {
        let own = self.get(at).metadata.as_ref();
        own.map_or(Phase::Outside, |metadata| phase::of_name(&metadata.op_name))
    }

    /// Returns `true` if each round of a loop returns a part of what goes round as it was.
    pub(super) fn is_unchanged_by(&self, at: HloIndex, part: i64) -> bool {
        let returned = || {
            let root = self.root_of(at, 0)?;
            let passed = self.operand(root, usize::try_from(part).ok()?)?;
            let taken = self.get(passed);
            let is_it = taken.opcode == "get-tuple-element" && taken.tuple_index == part;
            let from = self.operand(passed, 0).filter(|_| is_it)?;
            Some(self.get(from).opcode == "parameter")
        };
        returned() == Some(true)
    }

    /// Returns how many numbers are at a place; `None` where it is a tuple.
    pub(super) fn elements(&self, (at, part): HloPosition) -> Option<i64> {
        let whole = self.get(at).shape.as_ref()?;
        let shape = match usize::try_from(part) {
            Ok(number) => whole.tuple_shapes.get(number)?,
            Err(_) => whole,
        };
        let product = |sum: i64, size: &i64| sum.saturating_mul(*size);
        shape.tuple_shapes.is_empty().then(|| shape.dimensions.iter().fold(1, product))
    }

    fn callee(&self, at: HloIndex, number: usize) -> Option<&Computation<'a>> {
        let id = self.get(at).called_computation_ids.get(number)?;
        self.computations.get(id)
    }

    /// Returns `true` if an instruction is what its computation returns.
    pub(super) fn is_root(&self, at: HloIndex) -> bool {
        let home = self.computations.get(&self.homes[at as usize]);
        home.is_some_and(|home| home.root == Some(at))
    }

    /// Returns the instructions that call the computation an instruction is in.
    pub(super) fn callers_of_parent(&self, at: HloIndex) -> &[HloIndex] {
        self.callers.get(&self.homes[at as usize]).map_or(&[], Vec::as_slice)
    }
}

/// Whether the metadata name the line of Python that an instruction came from.
fn has_source(metadata: &OpMetadata) -> bool {
    metadata.stack_frame_id > 0 || !metadata.source_file.is_empty()
}

/// Returns the arrays of an instruction's result, a tuple taken apart.
pub(super) fn arrays(instruction: &HloInstructionProto) -> Vec<Shape> {
    instruction.shape.as_ref().map(Shape::arrays).unwrap_or_default()
}
