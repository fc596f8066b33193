//! The part of an execution on one device: its arguments, allocations and outputs.
//!
//! The order is that of XLA's `gpu_executable.cc` of mid-2026 (the older versions have the same):
//! every output and the temporary block are allocated in the order of XLA's
//! buffer allocations; an output that aliases an argument takes the argument's memory when it is
//! donated, else it gets a copy; while the kernels are queued, library routines allocate and free
//! their scratch memory, one after the other; then the temporary block is freed,
//! then the table of output pointers. Constants are globals of the loaded module and are not allocated
//! from the pool. When an allocation fails, what the same call allocated before is leaked, because
//! XLA has released its ownership by then. That is simulated, too.

use std::sync::Arc;

use vramfit_model::program::{BufferClass, CUFFT_PLAN_ERROR, Program, ScratchNeed};
use vramfit_model::trace::Purpose;

use crate::buffer::device_buffer::{self, Buffer, Storage};
use crate::buffer::origin::Origin;
use crate::buffer::value::Value;
use crate::compile::compiled::{CompiledProgram, memory_kind_of};
use crate::compile::loaded_executable::{self, LoadedExecutable};
use crate::device::virtual_device::Device;
use crate::execute::program_history::StepArgument;
use crate::lock;
use crate::pjrt::abi::Buffer as RawBuffer;
use crate::pjrt::abi::executable::LoadedExecutableExecuteArgs;
use crate::pjrt::pointers;
use crate::pjrt::status::{PjrtResult, Status, StatusCode};
use crate::session::machine_session::{AllocationRequest, Block, Session};

/// The part of an execution on one device.
pub(crate) struct DeviceCall<'a> {
    compiled: &'a Arc<CompiledProgram>,
    loaded: &'a LoadedExecutable,
    index: usize,
    device: &'static Device,
    arguments: Vec<&'a Buffer>,
    storages: Vec<Arc<Storage>>,
    /// For each output, the argument whose memory it takes.
    donors: Vec<Option<usize>>,
    /// Outputs that alias an argument which is not donated: they get a copy.
    copied_outputs: Vec<usize>,
}

/// What a call allocated, by slot of the program and by output.
#[derive(Default)]
pub(crate) struct AllocatedBlocks {
    slots: Vec<(u32, Arc<Block>)>,
    copied_outputs: Vec<(usize, Arc<Block>)>,
}

impl<'a> DeviceCall<'a> {
    pub(crate) unsafe fn new(
        loaded: &'a LoadedExecutable,
        args: &LoadedExecutableExecuteArgs,
        row: usize,
        index: usize,
        device: &'static Device,
        non_donatable: &[i64],
    ) -> PjrtResult<Self> {
        let program = &loaded.compiled.program;
        let raw: &[*mut RawBuffer] = match args.num_args {
            0 => &[],
            count => pointers::list(args.argument_lists.add(row).read(), count),
        };
        if raw.len() != program.parameters.len() {
            return Err(Status::invalid_argument(format!(
                "Execution supplied {} buffers but compiled program expected {} buffers",
                raw.len(),
                program.parameters.len()
            )));
        }
        let arguments: Vec<&Buffer> =
            raw.iter().map(|&buffer| device_buffer::from_raw(buffer)).collect::<PjrtResult<_>>()?;
        check_argument_sizes(program, &arguments)?;
        let storages = arguments.iter().map(|b| b.storage()).collect::<PjrtResult<Vec<_>>>()?;
        let mut donors = vec![None; program.outputs.len()];
        let mut copied_outputs = Vec::new();
        for alias in &program.aliases {
            if !non_donatable.contains(&(alias.parameter as i64)) {
                donors[alias.output] = Some(alias.parameter);
            } else if alias.must {
                return Err(Status::invalid_argument(format!(
                    "An input was configured to be must-alias at compile time but not \
                         donated at runtime: allocation {}",
                    alias.parameter
                )));
            } else {
                copied_outputs.push(alias.output);
            }
        }
        let call = DeviceCall {
            compiled: &loaded.compiled,
            loaded,
            index,
            device,
            arguments,
            storages,
            donors,
            copied_outputs,
        };
        call.check_donations(raw)?;
        Ok(call)
    }

    /// Fails where a buffer is donated twice, or donated and used otherwise.
    fn check_donations(&self, raw: &[*mut RawBuffer]) -> PjrtResult {
        for (at, &donor) in self.donors.iter().enumerate() {
            let Some(donor) = donor else { continue };
            let is_used_twice = raw
                .iter()
                .enumerate()
                .any(|(other, &buffer)| other != donor && buffer == raw[donor]);
            if is_used_twice {
                return Err(Status::invalid_argument(format!(
                    "Attempt to donate the same buffer twice in Execute() (flattened \
                         argument {donor}, replica {}, partition {}). Toy example for this bug: \
                         `f(donate(a), donate(a))`. (output {at})",
                    self.index / self.compiled.program.options.partitions,
                    self.index % self.compiled.program.options.partitions,
                )));
            }
        }
        Ok(())
    }

    /// Returns the number of its device in this process.
    pub(crate) fn ordinal(&self) -> u32 {
        self.loaded.ordinals[self.index]
    }

    /// Records the allocations of the arguments, by which memory at a peak is attributed to them.
    pub(crate) fn record_arguments(&self, session: &mut Session) {
        for (parameter, storage) in self.storages.iter().enumerate() {
            if let Some(block) = &storage.block {
                session.record_argument(parameter, block);
            }
        }
    }

    /// Marks the arguments that outputs of the call replace, so that who reads them later is noticed.
    pub(crate) fn mark_replaced_arguments(&self) {
        for &parameter in &self.compiled.diagnostics.replaced_arguments {
            let storage = self.storages.get(parameter as usize);
            if let Some(block) = storage.and_then(|storage| storage.block.as_ref()) {
                block.mark_replaced(self.compiled.number, parameter);
            }
        }
    }

    /// Returns the arguments for the search for the training step.
    pub(crate) fn step_arguments(&self) -> Vec<StepArgument> {
        let arguments = self.arguments.iter().zip(&self.storages);
        let arguments = arguments.map(|(buffer, storage)| StepArgument {
            origin: storage.origin,
            bytes: buffer.shape.bytes(),
            float: buffer.shape.element_type.is_float(),
        });
        arguments.collect()
    }

    /// Allocates in XLA's order, and frees what the call does not return.
    pub(crate) fn allocate(&self, session: &mut Session) -> PjrtResult<AllocatedBlocks> {
        self.load_constants(session);
        let mut slots = Vec::with_capacity(self.compiled.allocation_steps.len());
        let mut transient_blocks = Vec::new();
        for step in &self.compiled.allocation_steps {
            let request = AllocationRequest {
                space: step.space,
                slot: step.slot,
                ..AllocationRequest::new(self.ordinal(), step.bytes, step.purpose)
            };
            let block = match session.allocate(&request) {
                Ok(block) => block,
                Err(error) => {
                    // Leaked, as in XLA; see above.
                    std::mem::forget(slots);
                    std::mem::forget(transient_blocks);
                    return Err(self.with_program_context(error));
                }
            };
            if step.purpose == Purpose::Output {
                slots.push((step.slot, Arc::new(block)));
            } else {
                transient_blocks.push((step.purpose, block));
            }
        }
        let mut copied_outputs = Vec::with_capacity(self.copied_outputs.len());
        for &output in &self.copied_outputs {
            let bytes = self.compiled.output_shapes[output].bytes();
            let request = AllocationRequest::new(self.ordinal(), bytes, Purpose::Copy);
            match session.allocate(&request) {
                Ok(block) => copied_outputs.push((output, Arc::new(block))),
                Err(error) => {
                    std::mem::forget((slots, transient_blocks, copied_outputs));
                    return Err(self.with_program_context(error));
                }
            }
        }
        if let Err(error) = self.allocate_scratch(session) {
            std::mem::forget((slots, transient_blocks, copied_outputs));
            return Err(self.with_program_context(error));
        }
        // The temporary block is freed at the end of the launch, the table of pointers after it.
        let (tables, temporaries): (Vec<_>, Vec<_>) =
            transient_blocks.into_iter().partition(|(purpose, _)| *purpose == Purpose::Tuple);
        for (_, block) in temporaries.into_iter().chain(tables) {
            session.release(block);
        }
        Ok(AllocatedBlocks { slots, copied_outputs })
    }

    /// Allocates and frees the scratch memory of each library routine, as the routines do, one after the
    /// other.
    fn allocate_scratch(&self, session: &mut Session) -> PjrtResult {
        for step in &self.compiled.scratch {
            let request = AllocationRequest {
                slot: step.need,
                ..AllocationRequest::new(self.ordinal(), step.bytes, Purpose::Scratch)
            };
            match session.allocate(&request) {
                Ok(block) => session.release(block),
                Err(error) => {
                    let need = &self.compiled.program.scratch[step.need as usize];
                    return Err(scratch_error(need, &error));
                }
            }
        }
        Ok(())
    }

    /// Loads the module on first use, with its constants.
    fn load_constants(&self, session: &mut Session) {
        let mut constants_loaded = lock(&self.loaded.constants_loaded);
        if !std::mem::replace(&mut constants_loaded[self.index], true) {
            // So that the trace has the first call of each program, however the process ends.
            session.flush_at_end();
            let bytes = loaded_executable::non_pool_bytes(&self.compiled.program.sizes);
            if bytes > 0 {
                session.add_non_pool_bytes(self.ordinal(), bytes as i64);
            }
        }
    }

    /// Adds to an error which program ran out of memory. XLA's text comes first, since programs match on it.
    fn with_program_context(&self, error: Status) -> Status {
        // XLA reports a missing work area of cuFFT as an internal error.
        let is_cufft_error = error.message().contains(CUFFT_PLAN_ERROR);
        if !error.is_out_of_memory() && !is_cufft_error {
            return error;
        }
        let sizes = &self.compiled.program.sizes;
        Status::with_code(
            error.code(),
            format!(
                "{}\nvramfit: in `{}` on device {} of {}; the program takes arguments {} B, \
                 outputs {} B (aliased {} B), temporaries {} B",
                error.message(),
                self.compiled.program.name,
                self.device.id,
                self.loaded.devices.len(),
                sizes.argument_bytes,
                sizes.output_bytes,
                sizes.alias_bytes,
                sizes.temp_bytes,
            ),
        )
    }

    /// Returns the values of the arguments.
    pub(crate) fn values(&self) -> Vec<Value> {
        self.storages.iter().map(|s| s.value.clone()).collect()
    }

    /// Makes the output buffers, and deletes the donated arguments. `lineage` is that of [`Origin`].
    pub(crate) fn finish(
        &self,
        blocks: &AllocatedBlocks,
        values: Vec<Value>,
        lineage: u64,
    ) -> PjrtResult<Vec<Buffer>> {
        let program = &self.compiled.program;
        let mut outputs = Vec::with_capacity(values.len());
        for (output, value) in values.into_iter().enumerate() {
            let shape = &self.compiled.output_shapes[output];
            let memory = self.device.memory(memory_kind_of(shape))?;
            let origin = Origin::from_program(self.compiled.number, lineage);
            let storage = if let Some(donor) = self.donors[output] {
                self.storages[donor].with_value(value, origin)
            } else if let Some((_, block)) =
                blocks.copied_outputs.iter().find(|(o, _)| *o == output)
            {
                Storage::with_origin(Some(Arc::clone(block)), value, origin)
            } else {
                self.output_storage(program, output, blocks, (value, origin))
            };
            outputs.push(Buffer::new(Arc::clone(shape), memory, storage));
        }
        for donor in self.donors.iter().flatten() {
            self.arguments[*donor].delete();
        }
        Ok(outputs)
    }

    /// Returns the storage of an output that takes no donated argument's memory: its own, or that of an
    /// argument which is returned as it is.
    fn output_storage(
        &self,
        program: &Program,
        output: usize,
        blocks: &AllocatedBlocks,
        (value, origin): (Value, Origin),
    ) -> Arc<Storage> {
        let slot = program.output_allocations[output];
        let block =
            slot.and_then(|slot| blocks.slots.iter().find(|(number, _)| *number as usize == slot));
        if let Some((_, block)) = block {
            return Storage::with_origin(Some(Arc::clone(block)), value, origin);
        }
        match slot.and_then(|slot| program.allocations.get(slot)).map(|a| a.class) {
            Some(BufferClass::Parameter(number)) if number < self.storages.len() => {
                let argument = &self.storages[number];
                argument.with_value(value, argument.origin)
            }
            // No bytes, host memory, or a constant of the module.
            _ => Storage::with_origin(None, value, origin),
        }
    }
}

/// Returns the error of XLA or JAX when scratch memory cannot be allocated: a failed check in XLA's FFT
/// thunk, `RESOURCE_EXHAUSTED` in JAX's handlers (`jaxlib/ffi_helpers.h`).
fn scratch_error(need: &ScratchNeed, error: &Status) -> Status {
    if !error.is_out_of_memory() {
        return Status::with_code(error.code(), error.message().to_owned());
    }
    let at = match need.site.as_str() {
        "" => String::new(),
        site => format!(", at {site}"),
    };
    let what = format!(
        "{}\nvramfit: scratch memory of {} for {}{at}",
        error.message(),
        need.library,
        need.routine
    );
    if need.library == "cuFFT" {
        let check = "RET_CHECK failure (xla/backends/gpu/runtime/fft_thunk.cc) fft_plan != nullptr";
        return Status::new(StatusCode::Internal, format!("{check} {CUFFT_PLAN_ERROR}\n{what}"));
    }
    let name = need.routine.split(' ').next().unwrap_or_default();
    let message = format!("Unable to allocate workspace for {name}\n{what}");
    Status::new(StatusCode::ResourceExhausted, message)
}

fn check_argument_sizes(program: &Program, arguments: &[&Buffer]) -> PjrtResult {
    for (number, (shape, argument)) in program.parameters.iter().zip(arguments).enumerate() {
        if shape.bytes() != argument.shape.bytes() {
            return Err(Status::invalid_argument(format!(
                "Executable({}) expected parameter {number} of size {} but got buffer with \
                     incompatible size {}",
                program.name,
                shape.bytes(),
                argument.shape.bytes()
            )));
        }
    }
    Ok(())
}
