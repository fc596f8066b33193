//! From XLA's messages to [`ProgramMemory`].

use rustc_hash::FxHashMap;

use super::block::{Placed, divide, fullest, live_bytes};
use super::frames::Frames;
use super::index::{At, ModuleIndex, Place, WHOLE};
use super::liveness::{Course, Tenancy, course};
use super::owner::{Argument, of_argument, of_temporary};
use super::phase::{self, Phase, Users};
use super::{Buffer, Owner, ProgramMemory, Undonated};
use crate::program::wire::{
    AssignedProto, BufferAllocationProto, BufferAssignmentProto, HloModuleProto, LogicalBufferProto,
};
use crate::program::{BufferAllocation, BufferClass, MemorySpace, Program, Shape};

/// What a program's arguments and outputs are called, where JAX says it: pytree paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// One name an argument.
    pub arguments: Vec<String>,
    /// One name an output.
    pub outputs: Vec<String>,
}

impl ProgramMemory {
    /// Finds out where the memory of a program goes.
    ///
    /// `module` and `assignment` are those the program was compiled to. Where they lack something, or
    /// contradict themselves, the bytes are still all there, with less said about them.
    pub fn read(
        program: &Program,
        module: &HloModuleProto,
        assignment: &BufferAssignmentProto,
        names: &Names,
    ) -> ProgramMemory {
        let reader = Reader {
            index: ModuleIndex::new(module),
            values: assignment
                .logical_buffers
                .iter()
                .map(|one| (one.id, one))
                .collect(),
            frames: Frames::new(module),
            program,
            names,
            counterparts: Vec::new(),
            memory: ProgramMemory::default(),
        };
        reader.read(assignment)
    }
}

struct Reader<'a> {
    index: ModuleIndex<'a>,
    values: FxHashMap<i64, &'a LogicalBufferProto>,
    frames: Frames<'a>,
    program: &'a Program,
    names: &'a Names,
    /// For each argument, the output that replaces it.
    counterparts: Vec<Option<usize>>,
    memory: ProgramMemory,
}

impl<'a> Reader<'a> {
    fn read(mut self, assignment: &'a BufferAssignmentProto) -> ProgramMemory {
        self.memory.compiler_limit_bytes = self.program.options.device_memory_bytes;
        self.counterparts = self.counterparts(assignment);
        self.undonated();
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
                    let whole = if larger {
                        block.replace((number, proto))
                    } else {
                        Some((number, proto))
                    };
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
            let instruction = self.index.get(place.0);
            let is_it = instruction.opcode == "parameter"
                && instruction.parameter_number == parameter as i64
                && self.index.callers_of_home(place.0).is_empty();
            is_it.then_some(place)
        });
        let mut path = self
            .names
            .arguments
            .get(parameter)
            .cloned()
            .unwrap_or_default();
        if path.is_empty() {
            path = made.map_or_else(String::new, |place| {
                phase::name_of(&self.index, place.0).to_owned()
            });
        }
        if path.is_empty() {
            path = format!("argument {parameter}");
        }
        let shape = self.program.parameters.get(parameter);
        let users = made.map_or(Users::default(), |place| {
            phase::users_of(&self.index, &[place])
        });
        let owner = of_argument(Argument {
            path: &path,
            returned: users.returned || self.is_returned(parameter),
            is_float: shape.is_some_and(|shape| shape.element_type.is_float()),
            users,
        });
        Buffer {
            owner,
            path,
            parameter: Some(parameter as u32),
            shape: shape.map_or_else(String::new, Shape::text),
            ..self.whole(number, allocation, made.map(|place| place.0))
        }
    }

    /// Says whether an argument comes back: its memory as an output, or an output of its path.
    fn is_returned(&self, parameter: usize) -> bool {
        self.program
            .aliases
            .iter()
            .any(|alias| alias.parameter == parameter)
            || self
                .counterparts
                .get(parameter)
                .is_some_and(Option::is_some)
    }

    /// Finds for each argument the output that replaces it: one of the same path and shape that is not a
    /// gradient. Each output replaces one argument.
    fn counterparts(&self, assignment: &BufferAssignmentProto) -> Vec<Option<usize>> {
        let gradients: Vec<bool> = self
            .program
            .output_allocations
            .iter()
            .map(|at| at.and_then(|at| self.maker(assignment.buffer_allocations.get(at)?)))
            .map(|at| {
                at.is_some_and(|at| {
                    phase::of_name(phase::name_of(&self.index, at)) == Phase::Backward
                })
            })
            .collect();
        let mut free: Vec<bool> = gradients.iter().map(|gradient| !gradient).collect();
        let outputs: Vec<(&Shape, &str)> = self
            .program
            .outputs
            .iter()
            .zip(self.names.outputs.iter().map(|name| tail(name)))
            .collect();
        let arguments = self.program.parameters.iter().zip(&self.names.arguments);
        let counterpart = |(shape, name): (&Shape, &String)| {
            let path = tail(name);
            let found = outputs
                .iter()
                .enumerate()
                .position(|(number, (other, output))| {
                    free.get(number) == Some(&true)
                        && !path.is_empty()
                        && output.ends_with(path)
                        && (&other.dims, other.element_type) == (&shape.dims, shape.element_type)
                })?;
            free[found] = false;
            Some(found)
        };
        let mut counterparts: Vec<_> = arguments.map(counterpart).collect();
        counterparts.resize(self.program.parameters.len(), None);
        counterparts
    }

    /// Returns the instruction that makes the largest value of an allocation, the last of equals.
    fn maker(&self, allocation: &BufferAllocationProto) -> Option<At> {
        let largest = allocation.assigned.iter().max_by_key(|value| value.size)?;
        Some(self.place(largest)?.0)
    }

    /// Finds the arguments that are kept beside the outputs that replace them.
    fn undonated(&mut self) {
        let aliases = &self.program.aliases;
        for (parameter, output) in self.counterparts.iter().enumerate() {
            let Some(output) = *output else { continue };
            let reused = aliases
                .iter()
                .any(|alias| alias.parameter == parameter || alias.output == output);
            let shape = &self.program.outputs[output];
            if !reused && shape.space != MemorySpace::Host && shape.bytes() > 0 {
                self.memory.undonated.push(Undonated {
                    argument: self.names.arguments[parameter].clone(),
                    output: self.names.outputs[output].clone(),
                    bytes: shape.bytes(),
                });
            }
        }
    }

    /// Describes a buffer that is there for the whole call and is no argument.
    fn fixed(
        &mut self,
        number: u32,
        allocation: &BufferAllocation,
        proto: &BufferAllocationProto,
    ) -> Buffer {
        // The last value of that size is what is returned in it.
        let largest = proto.assigned.iter().rev().max_by_key(|value| value.size);
        let place = largest.and_then(|value| self.place(value));
        let output = self
            .program
            .output_allocations
            .iter()
            .position(|at| *at == Some(number as usize));
        let path = output.and_then(|output| self.names.outputs.get(output));
        Buffer {
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
            shape: place.map_or_else(String::new, |place| self.shape(place)),
            ..self.whole(number, allocation, place.map(|place| place.0))
        }
    }

    /// Describes an allocation as one buffer that is there all the time.
    fn whole(&mut self, number: u32, allocation: &BufferAllocation, made: Option<At>) -> Buffer {
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
    fn describe(&mut self, buffer: &mut Buffer, at: At) {
        let instruction = self.index.get(at);
        let operation = phase::name_of(&self.index, at);
        buffer.instruction.clone_from(&instruction.name);
        if instruction.opcode != "parameter" {
            operation.clone_into(&mut buffer.operation);
            buffer.frame = self.frames.of(&self.index, at);
        }
        buffer.phase = phase::of_name(operation);
        buffer.rematerialized = phase::is_rematerialized(&instruction.name, operation);
    }

    /// Divides the temporary block among its tenants.
    fn block(
        &mut self,
        number: u32,
        proto: &BufferAllocationProto,
        assignment: &BufferAssignmentProto,
    ) {
        let places: FxHashMap<i64, &AssignedProto> = proto
            .assigned
            .iter()
            .map(|value| (value.logical_buffer_id, value))
            .collect();
        // Of several heaps, the one that fills this block.
        let heaps = assignment.heap_simulator_traces.iter();
        let here = |trace: &&_| -> usize {
            let trace: &crate::program::wire::HeapSimulatorTrace = trace;
            trace
                .events
                .iter()
                .filter(|event| places.contains_key(&event.buffer_id))
                .count()
        };
        let Course { moments, tenancies } = heaps.max_by_key(here).map(course).unwrap_or_default();
        let last = moments.len().saturating_sub(1) as u32;
        let mut known: FxHashMap<i64, ()> = FxHashMap::default();
        let mut placed = Vec::new();
        for mut tenancy in tenancies {
            known.extend(tenancy.values.iter().map(|value| (*value, ())));
            tenancy.values.retain(|value| places.contains_key(value));
            placed.extend(place_of(&places, tenancy));
        }
        let others = proto
            .assigned
            .iter()
            .filter(|value| !known.contains_key(&value.logical_buffer_id));
        for value in others {
            let tenancy = Tenancy {
                values: vec![value.logical_buffer_id],
                start: 0,
                end: last,
            };
            // What shares its place with a tenant that is known is part of that one.
            let offset = value.offset.max(0) as u64;
            let is_part = placed
                .iter()
                .any(|one: &Placed| one.offset == offset && one.bytes == value.size.max(0) as u64);
            if !is_part {
                placed.extend(place_of(&places, tenancy));
            }
        }
        placed.sort_by_key(|one| (one.tenancy.start, one.offset));
        let block_bytes = proto.size.max(0) as u64;
        let levels = live_bytes(&placed, moments.len().max(1));
        let peak_at = fullest(&levels);
        let own = divide(&placed, peak_at, block_bytes);
        let live: u64 = own.iter().sum();
        for (one, peak_bytes) in placed.into_iter().zip(own) {
            let buffer = self.tenant(number, &one, peak_bytes);
            self.memory.buffers.push(buffer);
        }
        self.memory.moments = moments;
        self.memory.peak_at = peak_at;
        self.memory.live_bytes = levels;
        self.memory.temp_bytes = block_bytes;
        self.memory.padding_bytes = block_bytes.saturating_sub(live);
    }

    /// Describes a tenancy by the most telling of its values.
    fn tenant(&mut self, number: u32, one: &Placed, peak_bytes: u64) -> Buffer {
        let mut buffer = Buffer {
            bytes: one.bytes,
            peak_bytes,
            allocation: number,
            offset: one.offset,
            start: one.tenancy.start,
            end: one.tenancy.end,
            ..Buffer::default()
        };
        let places: Vec<Place> = one
            .tenancy
            .values
            .iter()
            .filter_map(|value| self.place_of_value(*value))
            .collect();
        let Some(&telling) = places
            .iter()
            .max_by_key(|place| (self.tells(**place), std::cmp::Reverse(place.0)))
        else {
            return buffer;
        };
        self.describe(&mut buffer, telling.0);
        buffer.shape = self.shape(telling);
        buffer.stacked = places.iter().any(|place| self.writes_slices(place.0));
        buffer.owner = of_temporary(buffer.phase, phase::users_of(&self.index, &places));
        buffer
    }

    /// Says how much an instruction tells about a value: what computes says more than what passes on.
    fn tells(&self, place: Place) -> u32 {
        let instruction = self.index.get(place.0);
        let computes = match instruction.opcode.as_str() {
            "parameter" | "while" | "tuple" | "get-tuple-element" | "call" | "conditional" => 0,
            "copy" | "broadcast" | "bitcast" | "constant" | "iota" => 1,
            _ => 2,
        };
        let named = !phase::name_of(&self.index, place.0).is_empty();
        4 * u32::from(self.writes_slices(place.0)) + 2 * u32::from(named && computes > 0) + computes
    }

    /// Says whether an instruction writes a slice of what it returns.
    fn writes_slices(&self, at: At) -> bool {
        let instruction = self.index.get(at);
        match instruction.opcode.as_str() {
            "dynamic-update-slice" => true,
            "fusion" => self.index.callee(at, 0).is_some_and(|fused| {
                let root = fused
                    .instructions
                    .iter()
                    .find(|one| one.id == fused.root_id);
                root.is_some_and(|root| root.opcode == "dynamic-update-slice")
            }),
            _ => false,
        }
    }

    fn place(&self, value: &AssignedProto) -> Option<Place> {
        self.place_of_value(value.logical_buffer_id)
    }

    fn place_of_value(&self, value: i64) -> Option<Place> {
        let defined = self.values.get(&value)?.defined_at.as_ref()?;
        let at = self.index.find(defined.instruction_id)?;
        Some((at, defined.shape_index.first().copied().unwrap_or(WHOLE)))
    }

    /// Returns the shape of a value as text.
    fn shape(&self, place: Place) -> String {
        let Some(mut shape) = self.index.get(place.0).shape.as_ref() else {
            return String::new();
        };
        if place.1 != WHOLE {
            match usize::try_from(place.1)
                .ok()
                .and_then(|at| shape.tuple_shapes.get(at))
            {
                Some(part) => shape = part,
                None => return String::new(),
            }
        }
        match shape.tuple_shapes.is_empty() {
            true => Shape::from_proto(shape).text(),
            false => "table of pointers".to_owned(),
        }
    }
}

/// Returns the place of a tenancy in the block: that of its largest value.
fn place_of(places: &FxHashMap<i64, &AssignedProto>, tenancy: Tenancy) -> Option<Placed> {
    let largest = tenancy
        .values
        .iter()
        .filter_map(|value| places.get(value))
        .max_by_key(|value| value.size)?;
    Some(Placed {
        offset: largest.offset.max(0) as u64,
        bytes: largest.size.max(0) as u64,
        tenancy,
    })
}

/// Returns a pytree path without its first name, which differs between arguments and outputs:
/// `state['params']['w']` and `result[0]['params']['w']` both end in `['params']['w']`.
fn tail(path: &str) -> &str {
    path.find(['[', '.']).map_or("", |at| &path[at..])
}
