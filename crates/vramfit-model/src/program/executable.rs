//! From the serialized executable of a CUDA plugin to what the virtual GPU must know of it.

use prost::Message;

use super::collectives::{DeviceGroups, device_groups};
use super::container;
use super::fingerprint::fingerprint;
use super::hlo::HloGraph;
use super::options::CompileOptions;
use super::outputs::OutputFinder;
use super::proto::{
    BufferAllocationProto, BufferAssignmentProto, ExecutableAndOptionsProto, Field, Fields,
    GpuExecutableProto, HloModuleProto, HloModuleProtoWithConfig, OpShardingProto,
    ProgramShapeProto, SerializedHloModule,
};
use super::scratch::{self, ScratchNeed};
use super::shape::{ElementType, MemorySpace, Shape};
use super::sizes::ProgramSizes;
use super::workspace;
use crate::error::{Error, Result};

/// What one compiled program needs and promises, on each of its devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// XLA's name of the module, such as `jit_train_step`.
    pub name: String,
    /// A hash of what the optimized module computes, wherever that is written; stable within one release of JAX.
    pub fingerprint: u64,
    /// Shapes of the entry parameters.
    pub parameters: Vec<Shape>,
    /// Shapes of the outputs, a tuple result taken apart.
    pub outputs: Vec<Shape>,
    /// Serialized `OpSharding` of each parameter, empty when the module has none.
    pub parameter_shardings: Vec<Vec<u8>>,
    /// Serialized `OpSharding` of each output, empty when the module has none.
    pub output_shardings: Vec<Vec<u8>>,
    /// The different ways in which its devices are grouped to exchange data; empty where they exchange none.
    pub device_groups: Vec<DeviceGroups>,
    /// Which outputs reuse the memory of which parameters.
    pub aliases: Vec<Alias>,
    /// XLA's buffer allocations, in index order: that is the order an execution allocates in.
    pub allocations: Vec<BufferAllocation>,
    /// For each output, the index of the allocation it lies in, if it is known.
    pub output_allocations: Vec<Option<usize>>,
    /// Replicas, partitions and devices.
    pub options: CompileOptions,
    /// Sizes by class, in the GPU's memory.
    pub sizes: ProgramSizes,
    /// Sizes by class, in pinned host memory.
    pub host_sizes: ProgramSizes,
    /// Bytes of the temporaries that are scratch of a library's routine, such as cuBLAS.
    pub workspace_bytes: u64,
    /// Scratch memory of library routines that is in no plan.
    pub scratch: Vec<ScratchNeed>,
    /// The optimized module with its configuration, as `PJRT_Executable_OptimizedProgram` gives it.
    pub module: Vec<u8>,
}

/// An output that reuses a parameter's memory when the caller donates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    /// Index of the output.
    pub output: usize,
    /// Index of the parameter.
    pub parameter: usize,
    /// True when a call without donation is an error; otherwise it gets a copy.
    pub must: bool,
}

/// One buffer allocation of XLA's assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferAllocation {
    /// Its size in bytes.
    pub bytes: u64,
    /// What it is for.
    pub class: BufferClass,
    /// Where it lies.
    pub space: MemorySpace,
}

/// What a buffer allocation is for, in the order XLA's run time asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferClass {
    /// Scratch of one kernel; never allocated.
    ThreadLocal,
    /// An argument of the call, with its number.
    Parameter(usize),
    /// Part of the loaded module, outside the pool.
    Constant,
    /// The table of pointers of a multi-output result; freed right after the call.
    Tuple,
    /// May live after the call.
    Output,
    /// The temporary block; freed right after the call.
    Temporary,
}

impl Program {
    /// Returns the ids of the devices in each group of a collective.
    pub fn device_ids(&self, groups: &DeviceGroups) -> Vec<Vec<i64>> {
        let id = |number: &u32| self.options.devices.get(*number as usize).copied();
        let ids = groups.iter().map(|group| group.iter().filter_map(id).collect());
        ids.collect()
    }

    /// Reads what `PJRT_Executable_Serialize` of the CUDA plugin wrote, together with the options
    /// the program was compiled with.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] when the bytes are of no known form.
    pub fn parse(serialized: &[u8], options: &[u8]) -> Result<Self> {
        let inner = executable_and_options(serialized)?.serialized_executable;
        let executable: GpuExecutableProto = decode_contained(&inner, None)?;
        let with_config: HloModuleProtoWithConfig = decode(&executable.hlo_module_with_config)?;
        let module = with_config.hlo_module.unwrap_or_default();
        // The entry layout of the configuration carries memory spaces; the module's own shape
        // loses them in some releases.
        let shape = with_config
            .config
            .and_then(|config| config.entry_computation_layout)
            .or_else(|| executable.program_shape.clone())
            .or_else(|| module.host_program_shape.clone())
            .unwrap_or_default();

        let mut program = Program {
            name: module.name.clone(),
            fingerprint: fingerprint(
                &decode::<SerializedHloModule>(&executable.hlo_module_with_config)?.hlo_module,
            ),
            options: CompileOptions::parse(options)?,
            ..Program::default()
        };
        let graph = HloGraph::new(&module);
        let is_tuple = program.set_shapes(&shape);
        program.set_shardings(&module);
        program.device_groups = device_groups(&module, program.options.devices.len());
        program.set_aliases(&module, is_tuple);
        let allocations = match (&executable.buffer_allocations, &executable.buffer_assignment) {
            (Some(list), _) => &list.values,
            (None, Some(assignment)) => &assignment.buffer_allocations,
            (None, None) => {
                return Err(Error::invalid_file(format!(
                    "the executable of `{}` has no buffer allocations",
                    program.name
                )));
            }
        };
        program.allocations = allocations.iter().map(BufferAllocation::from_proto).collect();
        program.output_allocations = vec![None; program.outputs.len()];
        if executable.output_info_map.is_empty() {
            if let Some(assignment) = &executable.buffer_assignment {
                program.find_outputs(&graph, assignment, is_tuple)?;
            }
        } else {
            for entry in &executable.output_info_map {
                let index = entry.shape_index.as_ref().map_or(&[][..], |index| &index.indexes);
                let (Some(output), Some(info)) =
                    (program.output_of(index, is_tuple), &entry.output_info)
                else {
                    continue;
                };
                program.output_allocations[output] = usize::try_from(info.allocation_index).ok();
            }
        }
        program.take_spaces_from_allocations();
        program.sizes = program.sum_sizes(allocations, false);
        program.sizes.code_bytes = executable.binary.len() as u64
            + executable.thunks.iter().map(|thunk| code_bytes(thunk, 0)).sum::<u64>();
        program.host_sizes = program.sum_sizes(allocations, true);
        program.workspace_bytes = workspace::largest(&module);
        program.scratch = scratch::needs(&graph);
        program.module = executable.hlo_module_with_config;
        Ok(program)
    }

    /// Returns the module alone, as XLA serializes it.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] when the program was not made by [`Program::parse`].
    pub fn module_proto(&self) -> Result<Vec<u8>> {
        Ok(decode::<SerializedHloModule>(&self.module)?.hlo_module)
    }

    /// Sets parameter and output shapes; returns true when the result is a tuple.
    fn set_shapes(&mut self, shape: &ProgramShapeProto) -> bool {
        self.parameters = shape.parameters.iter().map(Shape::from_proto).collect();
        match &shape.result {
            Some(result) if result.element_type == ElementType::TUPLE.0 => {
                self.outputs = result.tuple_shapes.iter().map(Shape::from_proto).collect();
                true
            }
            Some(result) => {
                self.outputs = vec![Shape::from_proto(result)];
                false
            }
            None => false,
        }
    }

    fn set_shardings(&mut self, module: &HloModuleProto) {
        self.parameter_shardings.clone_from(&module.spmd_parameters_shardings);
        let Some(output) = &module.spmd_output_sharding else {
            return;
        };
        let tuple = OpShardingProto::decode(output.as_slice()).unwrap_or_default();
        self.output_shardings = if tuple.tuple_shardings.len() == self.outputs.len() {
            tuple.tuple_shardings
        } else {
            vec![output.clone(); self.outputs.len()]
        };
    }

    fn set_aliases(&mut self, module: &HloModuleProto, is_tuple: bool) {
        const MUST_ALIAS: i32 = 2;
        let entries = module.input_output_alias.iter().flat_map(|alias| &alias.entries);
        self.aliases = entries
            .filter_map(|entry| {
                Some(Alias {
                    output: self.output_of(&entry.output_shape_index, is_tuple)?,
                    parameter: usize::try_from(entry.parameter_number).ok()?,
                    must: entry.kind == MUST_ALIAS,
                })
            })
            .filter(|alias| alias.parameter < self.parameters.len())
            .collect();
    }

    /// Returns the number of the output at a shape index, `None` for the tuple itself.
    fn output_of(&self, index: &[i64], is_tuple: bool) -> Option<usize> {
        let output = match (index, is_tuple) {
            ([], false) => 0,
            ([one], true) => usize::try_from(*one).ok()?,
            _ => return None,
        };
        (output < self.outputs.len()).then_some(output)
    }

    /// Finds the allocation of each output in the legacy form, which does not tell it.
    fn find_outputs(
        &mut self,
        graph: &HloGraph<'_>,
        assignment: &BufferAssignmentProto,
        is_tuple: bool,
    ) -> Result<()> {
        let finder = OutputFinder::new(graph, assignment);
        for (output, shape) in self.outputs.iter().enumerate() {
            let index = [output as i64];
            let found = finder.find(if is_tuple { &index } else { &[] });
            if found.is_none() && shape.bytes() > 0 {
                // Going on would mean to lose the output's bytes.
                return Err(Error::invalid_file(format!(
                    "cannot tell which allocation output {output} of `{}` lies in",
                    self.name
                )));
            }
            self.output_allocations[output] = found;
        }
        Ok(())
    }

    /// Takes the memory space of outputs from their allocations where the layout does not say it
    /// (JAX 0.6 and 0.8 lose it in the entry layout).
    fn take_spaces_from_allocations(&mut self) {
        for (output, allocation) in self.outputs.iter_mut().zip(&self.output_allocations) {
            let space = allocation.and_then(|index| self.allocations.get(index)).map(|a| a.space);
            if output.space == MemorySpace::Device && space == Some(MemorySpace::Host) {
                output.space = MemorySpace::Host;
            }
        }
    }

    /// Sums one kind of memory by class, with the formulas of XLA's own `CompiledMemoryStats`.
    fn sum_sizes(&self, allocations: &[BufferAllocationProto], host: bool) -> ProgramSizes {
        let sum = |keep: &dyn Fn(&BufferAllocationProto, BufferClass) -> bool| {
            allocations
                .iter()
                .zip(&self.allocations)
                .filter(|(proto, own)| {
                    (own.space == MemorySpace::Host) == host && keep(proto, own.class)
                })
                .map(|(_, own)| own.bytes)
                .sum()
        };
        ProgramSizes {
            argument_bytes: sum(&|proto, _| proto.is_entry_computation_parameter),
            output_bytes: sum(&|proto, _| proto.maybe_live_out),
            alias_bytes: sum(&|p, _| p.maybe_live_out && p.is_entry_computation_parameter),
            temp_bytes: sum(&|_, class| class == BufferClass::Temporary),
            constant_bytes: sum(&|_, class| class == BufferClass::Constant),
            code_bytes: 0,
        }
    }
}

impl BufferAllocation {
    pub(super) fn from_proto(proto: &BufferAllocationProto) -> Self {
        let class = if proto.is_thread_local {
            BufferClass::ThreadLocal
        } else if proto.is_entry_computation_parameter {
            BufferClass::Parameter(proto.parameter_number.max(0) as usize)
        } else if proto.is_constant {
            BufferClass::Constant
        } else if proto.maybe_live_out && proto.is_tuple {
            BufferClass::Tuple
        } else if proto.maybe_live_out {
            BufferClass::Output
        } else {
            BufferClass::Temporary
        };
        BufferAllocation {
            bytes: proto.size.max(0) as u64,
            class,
            space: MemorySpace::from(proto.color),
        }
    }
}

/// Reads what `PJRT_Executable_Serialize` of the CUDA plugin wrote: the executable, still
/// serialized, and the options it was compiled with.
///
/// # Errors
/// [`crate::ErrorKind::InvalidFile`] when the bytes are of no known form.
pub fn executable_and_options(serialized: &[u8]) -> Result<ExecutableAndOptionsProto> {
    const SERIALIZED_EXECUTABLE: u32 = 1;
    decode_contained(serialized, Some(SERIALIZED_EXECUTABLE))
}

/// Decodes a message that may lie in a container, with the record of one field put back.
fn decode_contained<T: Message + Default>(bytes: &[u8], field: Option<u32>) -> Result<T> {
    match container::is_executable_container(bytes) {
        true => decode(&container::message_bytes(bytes, field)?),
        false => decode(bytes),
    }
}

fn decode<T: Message + Default>(bytes: &[u8]) -> Result<T> {
    T::decode(bytes)
        .map_err(|error| Error::invalid_file("cannot read the serialized executable").cause(error))
}

/// Sums the machine code (ELF files) inside a message whose fields are not known here.
///
/// Newer releases keep a cubin with each kernel, somewhere inside its thunk.
fn code_bytes(message: &[u8], depth: u32) -> u64 {
    const MAX_DEPTH: u32 = 8;
    if depth == MAX_DEPTH {
        return 0;
    }
    let nested = Fields::of(message).filter(|field| field.is_length_delimited);
    let bytes = nested.map(|Field { content, .. }| match content.starts_with(b"\x7fELF") {
        true => content.len() as u64,
        false => code_bytes(content, depth + 1),
    });
    bytes.sum()
}
