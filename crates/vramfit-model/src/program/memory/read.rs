//! From XLA's messages to [`ProgramMemory`].

use rustc_hash::{FxHashMap, FxHashSet};

use super::arguments::Arguments;
use super::block::{PlacedRange, divide, live_bytes, peak_time};

use super::counterpart::{donated_in_vain, undonated};
use super::frames::Frames;
use super::liveness::{HeapSchedule, LiveRange, read_schedule};
use super::owner::of_temporary;
use super::users::users_of;
use super::value::{producer_of_output, rank_producer, shape, writes_slices};
use super::{Buffer, Owner, ProgramMemory};
use crate::error::{Error, Result};
use crate::program::collectives::is_collective;
use crate::program::hlo::{HloGraph, HloIndex, HloPosition, WHOLE};
use crate::program::phase;
use crate::program::proto::{
    AssignedProto, BufferAllocationProto, BufferAssignmentProto, HeapSimulatorTrace,
    LogicalBufferProto,
};
use crate::program::{
    BufferAllocation, BufferClass, MemorySpace, OptimizedModule, Program, Shape, workspace,
};

/// What a program's arguments and outputs are called, where JAX says it: pytree paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// One name an argument.
    pub arguments: Vec<String>,
    /// One name an output.
    pub outputs: Vec<String>,
    /// Arguments that were donated although no output has their shape, with their bytes: JAX says so
    /// while it lowers, and drops the mark.
    pub donated_in_vain: Vec<(String, u64)>,
    /// Arguments that gradients are taken of, where the program is a forward pass alone.
    pub differentiated: Vec<usize>,
}

impl ProgramMemory {
    /// Finds out where the memory of a program goes from what XLA dumped of it after its last pass.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] when the bytes are no such dump, or one without a buffer assignment.
    pub fn from_dump(program: &Program, dump: &[u8], names: &Names) -> Result<ProgramMemory> {
        let dumped = OptimizedModule::from_dump(dump)?;
        let assignment = dumped
            .assignment()
            .ok_or_else(|| Error::invalid_file("XLA's dump contains no buffer assignment"))?;
        Ok(ProgramMemory::read(program, &dumped.graph(), assignment, names))
    }

    /// Finds out where the memory of a program goes.
    ///
    /// `graph` and `assignment` are of the module the program was compiled to. Where they lack something, or
    /// contradict themselves, the bytes are still all there, with less said about them.
    pub fn read(
        program: &Program,
        graph: &HloGraph<'_>,
        assignment: &BufferAssignmentProto,
        names: &Names,
    ) -> ProgramMemory {
        let module = graph.module();
        let reader = Reader {
            graph,
            values: assignment.logical_buffers.iter().map(|one| (one.id, one)).collect(),
            frames: Frames::new(module),
            program,
            names,
            arguments: Arguments::default(),
            outputs: outputs_by_allocation(program),
            donors: module
                .buffer_donor
                .iter()
                .flat_map(|donors| &donors.entries)
                .filter_map(|entry| usize::try_from(entry.parameter_number).ok())
                .collect(),
            memory: ProgramMemory::default(),
        };
        reader.read(assignment)
    }
}

struct Reader<'a> {
    graph: &'a HloGraph<'a>,
    values: FxHashMap<i64, &'a LogicalBufferProto>,
    frames: Frames<'a>,
    program: &'a Program,
    names: &'a Names,
    arguments: Arguments,
    /// For each allocation, the first output that lies in it.
    outputs: FxHashMap<usize, usize>,
    /// Arguments that XLA was free to reuse.
    donors: Vec<usize>,
    memory: ProgramMemory,
}

impl<'a> Reader<'a> {
    fn read(mut self, assignment: &'a BufferAssignmentProto) -> ProgramMemory {
        self.arguments = Arguments::classify(self.graph, self.program, self.names);
        self.memory.undonated = undonated(self.program, self.names, &self.arguments);
        let in_vain = donated_in_vain(self.program, &self.donors, self.names);
        self.memory.undonated.extend(in_vain);
        let allocations = assignment.buffer_allocations.iter();
        let mut block: Option<(u32, &BufferAllocationProto)> = None;
        for (number, proto) in allocations.enumerate() {
            let allocation = BufferAllocation::from_proto(proto);
            let number = number as u32;
            if allocation.space == MemorySpace::Host || allocation.bytes == 0 {
                continue;
            }
            match allocation.class {
                BufferClass::ThreadLocal => {}
                BufferClass::Parameter(parameter) => {
                    let buffer = self.argument(parameter, number, &allocation, proto);
                    self.memory.buffers.push(buffer);
                }
                BufferClass::Output | BufferClass::Tuple | BufferClass::Constant => {
                    let buffer = self.fixed(number, &allocation, proto);
                    self.memory.buffers.push(buffer);
                }
                BufferClass::Temporary => {
                    // XLA makes one such block; if there are more, only the largest is divided.
                    let larger = block.is_none_or(|(_, known)| proto.size > known.size);
                    let whole =
                        if larger { block.replace((number, proto)) } else { Some((number, proto)) };
                    if let Some((number, proto)) = whole {
                        let allocation = BufferAllocation::from_proto(proto);
                        let buffer = self.fixed(number, &allocation, proto);
                        self.memory.buffers.push(buffer);
                    }
                }
            }
        }
        if let Some((number, proto)) = block {
            self.block(number, proto, assignment);
        }
        self.memory.frames = self.frames.frames;
        self.memory
    }

    /// Describes the buffer of an argument.
    fn argument(
        &mut self,
        parameter: usize,
        number: u32,
        allocation: &BufferAllocation,
        proto: &BufferAllocationProto,
    ) -> Buffer {
        let made = proto.assigned.iter().find_map(|value| {
            let place = self.place(value)?;
            let instruction = self.graph.get(place.0);
            let is_it = instruction.opcode == "parameter"
                && instruction.parameter_number == parameter as i64
                && self.graph.callers_of_parent(place.0).is_empty();
            is_it.then_some(place)
        });
        let mut path = self.names.arguments.get(parameter).cloned().unwrap_or_default();
        if path.is_empty() {
            path = made.map_or_else(String::new, |place| self.graph.name(place.0).to_owned());
        }
        if path.is_empty() {
            path = format!("argument {parameter}");
        }
        let shape = self.program.parameters.get(parameter);
        let owner = self.arguments.owners.get(parameter).copied();
        Buffer {
            owner: owner.unwrap_or(Owner::Batch),
            path,
            // No program has so many that the number does not fit.
            parameter: u32::try_from(parameter).ok().filter(|&one| one < u32::MAX),
            shape: shape.map_or_else(String::new, Shape::text),
            ..self.whole(number, allocation, made.map(|place| place.0))
        }
    }

    /// Describes a buffer that is there for the whole call and is no argument.
    fn fixed(
        &mut self,
        number: u32,
        allocation: &BufferAllocation,
        proto: &BufferAllocationProto,
    ) -> Buffer {
        let largest = proto.assigned.iter().rev().max_by_key(|value| value.size);
        let place = largest.and_then(|value| self.place(value));
        let output = self.outputs.get(&(number as usize)).copied();
        let made = output
            .and_then(|output| producer_of_output(self.graph, output))
            .or(place.map(|place| place.0));
        let path = output.and_then(|output| self.names.outputs.get(output));
        let mut replaced = self.arguments.counterparts.iter();
        let replaced = replaced.position(|by| by.is_some() && *by == output);
        Buffer {
            replaces: replaced.and_then(|argument| u32::try_from(argument).ok()),
            owner: match allocation.class {
                BufferClass::Constant => Owner::Constants,
                BufferClass::Temporary => Owner::Temporaries,
                _ => Owner::Outputs,
            },
            path: match allocation.class {
                BufferClass::Tuple => "table of outputs".to_owned(),
                BufferClass::Output => match (path, output) {
                    (Some(path), _) if !path.is_empty() => path.clone(),
                    (_, Some(output)) => format!("output {output}"),
                    _ => String::new(),
                },
                _ => String::new(),
            },
            shape: match output.and_then(|output| self.program.outputs.get(output)) {
                Some(shape) => shape.text(),
                None => place.map_or_else(String::new, |place| shape(self.graph, place)),
            },
            ..self.whole(number, allocation, made)
        }
    }

    /// Describes an allocation as one buffer that is there all the time.
    fn whole(
        &mut self,
        number: u32,
        allocation: &BufferAllocation,
        made: Option<HloIndex>,
    ) -> Buffer {
        let mut buffer = Buffer {
            bytes: allocation.bytes,
            peak_bytes: allocation.bytes,
            allocation: number,
            end: u32::MAX,
            ..Buffer::default()
        };
        if let Some(at) = made {
            self.describe(&mut buffer, at);
        }
        buffer
    }

    /// Says which instruction makes a buffer, and where that came from.
    fn describe(&mut self, buffer: &mut Buffer, at: HloIndex) {
        let instruction = self.graph.get(at);
        let operation = self.graph.name(at);
        buffer.instruction.clone_from(&instruction.name);
        if instruction.opcode != "parameter" {
            operation.clone_into(&mut buffer.operation);
            buffer.frame = self.frames.of(self.graph, at);
        }
        buffer.phase = self.graph.phase(at);
        buffer.collective = is_collective(instruction);
        buffer.rematerialized = phase::is_rematerialized(&instruction.name, operation);
    }

    /// Divides the temporary block among its tenants.
    fn block(
        &mut self,
        number: u32,
        proto: &BufferAllocationProto,
        assignment: &BufferAssignmentProto,
    ) {
        let places: FxHashMap<i64, &AssignedProto> =
            proto.assigned.iter().map(|value| (value.logical_buffer_id, value)).collect();
        // Of several heaps, the one that fills this block.
        let heaps = assignment.heap_simulator_traces.iter();
        let here = |trace: &&HeapSimulatorTrace| {
            let events = trace.events.iter();
            let here = events.filter(|event| places.contains_key(&event.buffer_id));
            here.count()
        };
        let HeapSchedule { instructions, live_ranges } =
            heaps.max_by_key(here).map(read_schedule).unwrap_or_default();
        let last = instructions.len().saturating_sub(1) as u32;
        let mut known: FxHashSet<i64> = FxHashSet::default();
        let mut placed = Vec::new();
        for mut live_range in live_ranges {
            known.extend(&live_range.values);
            live_range.values.retain(|value| places.contains_key(value));
            placed.extend(place_range(&places, live_range));
        }
        let others =
            proto.assigned.iter().filter(|value| !known.contains(&value.logical_buffer_id));
        let mut taken: FxHashSet<(u64, u64)> = placed.iter().map(PlacedRange::extent).collect();
        for value in others {
            let live_range =
                LiveRange { values: vec![value.logical_buffer_id], start: 0, end: last };
            // A value at the place of a known live range is part of it.
            let other =
                place_range(&places, live_range).filter(|other| taken.insert(other.extent()));
            placed.extend(other);
        }
        placed.sort_by_key(|one| (one.live_range.start, one.offset));
        let block_bytes = proto.size.max(0) as u64;
        let levels = live_bytes(&placed, instructions.len().max(1));
        let peak_at = peak_time(&levels);
        let own = divide(&placed, peak_at, block_bytes);
        let live: u64 = own.iter().sum();
        for (one, peak_bytes) in placed.into_iter().zip(own) {
            let buffer = self.temporary(number, &one, peak_bytes);
            self.memory.buffers.push(buffer);
        }
        self.memory.instructions = instructions;
        self.memory.peak_at = peak_at;
        self.memory.live_bytes = levels;
        self.memory.temp_bytes = block_bytes;
        self.memory.padding_bytes = block_bytes.saturating_sub(live);
    }

    /// Describes a live range by the value that describes it best.
    fn temporary(&mut self, number: u32, one: &PlacedRange, peak_bytes: u64) -> Buffer {
        let mut buffer = Buffer {
            bytes: one.bytes,
            peak_bytes,
            allocation: number,
            offset: one.offset,
            start: one.live_range.start,
            end: one.live_range.end,
            ..Buffer::default()
        };
        let places: Vec<HloPosition> =
            one.live_range.values.iter().filter_map(|value| self.place_of_value(*value)).collect();
        let Some(&best) = places
            .iter()
            .max_by_key(|place| (rank_producer(self.graph, **place), std::cmp::Reverse(place.0)))
        else {
            return buffer;
        };
        self.describe(&mut buffer, best.0);
        if let Some(name) = workspace::name_of(self.graph.get(best.0), best.1) {
            name.clone_into(&mut buffer.operation);
        }
        buffer.shape = shape(self.graph, best);
        buffer.stacked = places.iter().any(|place| writes_slices(self.graph, place.0));
        let of_model = !self.arguments.has_other_gradients;
        buffer.owner = of_temporary(buffer.phase, users_of(self.graph, &places), of_model);
        buffer
    }

    fn place(&self, value: &AssignedProto) -> Option<HloPosition> {
        self.place_of_value(value.logical_buffer_id)
    }

    fn place_of_value(&self, value: i64) -> Option<HloPosition> {
        let defined = self.values.get(&value)?.defined_at.as_ref()?;
        let at = self.graph.find(defined.instruction_id)?;
        Some((at, defined.shape_index.first().copied().unwrap_or(WHOLE)))
    }
}

/// Returns the first output in each allocation.
fn outputs_by_allocation(program: &Program) -> FxHashMap<usize, usize> {
    let allocations = program.output_allocations.iter().enumerate().rev();
    let known = allocations.filter_map(|(output, at)| Some(((*at)?, output)));
    known.collect()
}

/// Returns the place of a live range in the block: that of its largest value.
fn place_range(
    places: &FxHashMap<i64, &AssignedProto>,
    live_range: LiveRange,
) -> Option<PlacedRange> {
    let largest = live_range
        .values
        .iter()
        .filter_map(|value| places.get(value))
        .max_by_key(|value| value.size)?;
    Some(PlacedRange {
        offset: largest.offset.max(0) as u64,
        bytes: largest.size.max(0) as u64,
        live_range,
    })
}
