//! A compiled program, with what is derived from it once, in the forms that the C API needs.

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use memchr::memmem;
use vramfit_model::allocator::PoolSpace;
use vramfit_model::program::memory::Pass;
use vramfit_model::program::{
    BufferClass, MemorySpace, Program, ProgramSizes, ProgramTime, ScratchPhase, Shape,
};
use vramfit_model::trace::Purpose;

use crate::buffer::value;
use crate::compile::host_program::{self, HostProgram, Slice};
use crate::compile::stderr_capture::Warning;
use crate::device::machine;
use crate::device::memory::MemoryKind;
use crate::hooks;
use crate::pjrt::abi::client::{NamedUnion, NamedValue};
use crate::pjrt::cuda_plugin::zeroed_struct;

/// Executions of a program whose arguments are recorded even if they reach no peak.
const MAX_RECORDED_EXECUTIONS: u32 = 3;

/// A compiled program and everything JAX may ask about it.
pub(crate) struct CompiledProgram {
    pub(crate) number: u32,
    pub(crate) program: Program,
    /// The executable as the CUDA plugin serialized it.
    pub(crate) serialized: Vec<u8>,
    /// Which compile attempt succeeded; empty for the first.
    pub(crate) compile_attempt: String,
    pub(crate) diagnostics: CompileDiagnostics,
    /// What one execution allocates, in order.
    pub(crate) allocation_steps: Vec<AllocationStep>,
    /// Scratch memory that an execution takes for library routines, each freed before the next.
    pub(crate) scratch: Vec<ScratchStep>,
    /// Shapes of the outputs, shared by their buffers.
    pub(crate) output_shapes: Vec<Arc<Shape>>,
    pub(crate) info: ExecutableInfo,
    /// The program as it is evaluated on the CPU, with the StableHLO and the options that JAX passed in.
    pub(crate) host_program: Arc<HostProgram>,
    slices: OnceLock<Vec<Slice>>,
    /// Whether it computes values at all, and there are outputs of which some may be computed alone.
    pub(crate) has_slices: bool,
    calling_slice: OnceLock<Option<Slice>>,
    /// Whether it computes values at all, and calls functions of Python on its only device.
    may_have_calling_slice: bool,
    /// Its sizes without Triton GEMM, once that was measured.
    pub(crate) variant: OnceLock<Option<ProgramSizes>>,
    costs: OnceLock<Option<CostAnalysis>>,
    /// Executions whose arguments were recorded even if they reached no peak.
    recorded_executions: AtomicU32,
    /// Whether it calls back into Python, so that it must run when it is called.
    pub(crate) has_side_effects: bool,
    /// Whether it has a backward pass, so whether it computes gradients.
    pub(crate) has_backward: bool,
}

/// What the compiler's output says of a program beside how to run it.
#[derive(Debug)]
pub(crate) struct CompileDiagnostics {
    /// What occupies its memory, encoded for the trace; empty if not known.
    pub(crate) memory: Vec<u8>,
    /// Indices of the arguments that an output replaces and that are not donated.
    pub(crate) replaced_arguments: Vec<u32>,
    /// Which pass of a differentiated function it is, where each is a program of its own.
    pub(crate) pass: Option<Pass>,
    /// How long an execution takes, if that is known.
    pub(crate) time: Option<ProgramTime>,
    /// The compiler's warnings about memory.
    pub(crate) warnings: Vec<Warning>,
}

/// One allocation of an execution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocationStep {
    pub(crate) slot: u32,
    pub(crate) bytes: u64,
    pub(crate) purpose: Purpose,
    pub(crate) space: PoolSpace,
}

/// Scratch memory of one library routine in an execution: the minimum that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScratchStep {
    /// Index of the need in [`Program::scratch`].
    pub(crate) need: u32,
    pub(crate) bytes: u64,
}

/// Lists in the C API's form; they live as long as the program.
#[derive(Debug, Default)]
pub(crate) struct ExecutableInfo {
    pub(crate) output_types: Vec<c_int>,
    pub(crate) output_dims: Vec<i64>,
    pub(crate) output_dim_counts: Vec<usize>,
    pub(crate) output_kinds: CachedStrings,
    pub(crate) parameter_kinds: CachedStrings,
    pub(crate) parameter_shardings: CachedStrings,
    pub(crate) output_shardings: CachedStrings,
    pub(crate) fingerprint: String,
}

/// The result of XLA's cost model for a program, in the C API's form.
pub(crate) struct CostAnalysis {
    pub(crate) values: Vec<NamedValue>,
    /// Backs the names in `values`.
    _names: Vec<String>,
}

// SAFETY: the pointers lead into `_names`, which is never changed.
unsafe impl Send for CostAnalysis {}
// SAFETY: as above.
unsafe impl Sync for CostAnalysis {}

impl CostAnalysis {
    fn new(costs: Vec<(String, f32)>) -> Self {
        const FLOAT: c_int = 3;
        let value = |(name, cost): &(String, f32)| {
            let mut value: NamedValue = zeroed_struct();
            value.name = name.as_ptr().cast();
            value.name_size = name.len();
            value.r#type = FLOAT;
            value.value = NamedUnion { float: *cost };
            value.value_size = 1;
            value
        };
        CostAnalysis {
            values: costs.iter().map(value).collect(),
            _names: costs.into_iter().map(|(name, _)| name).collect(),
        }
    }
}

/// A list of strings as pointers and sizes.
#[derive(Debug, Default)]
pub(crate) struct CachedStrings {
    pub(crate) pointers: Vec<*const c_char>,
    pub(crate) sizes: Vec<usize>,
    /// Backs the pointers; `Vec<u8>` moves without moving its bytes.
    _bytes: Vec<Vec<u8>>,
}

// SAFETY: the pointers lead into `_bytes`, which is never changed.
unsafe impl Send for CachedStrings {}
// SAFETY: as above.
unsafe impl Sync for CachedStrings {}

impl CachedStrings {
    fn new(bytes: Vec<Vec<u8>>) -> Self {
        CachedStrings {
            pointers: bytes.iter().map(|text| text.as_ptr().cast()).collect(),
            sizes: bytes.iter().map(Vec::len).collect(),
            _bytes: bytes,
        }
    }
}

impl CompiledProgram {
    pub(crate) fn new(
        program: Program,
        code: Vec<u8>,
        serialized: Vec<u8>,
        options: Vec<u8>,
        compile_attempt: String,
        diagnostics: CompileDiagnostics,
    ) -> Arc<Self> {
        let computes = machine::get().is_none_or(|machine| machine.header.run.values);
        let number = host_program::new_number();
        let has_side_effects = memmem::find(&code, b"callback").is_some();
        Arc::new(CompiledProgram {
            number,
            allocation_steps: allocation_steps(&program),
            scratch: scratch_steps(&program),
            output_shapes: program.outputs.iter().cloned().map(Arc::new).collect(),
            info: ExecutableInfo::new(&program),
            variant: OnceLock::new(),
            costs: OnceLock::new(),
            slices: OnceLock::new(),
            has_slices: computes && !code.is_empty() && value::may_have_slices(&program),
            calling_slice: OnceLock::new(),
            may_have_calling_slice: computes
                && has_side_effects
                && program.options.devices.len() == 1,
            recorded_executions: AtomicU32::new(0),
            has_side_effects,
            // JAX writes it around the names of operations that carry gradients back.
            has_backward: memmem::find(&code, b"transpose(").is_some()
                || diagnostics.pass == Some(Pass::Backward),
            host_program: HostProgram::whole(number, &program, code, options, computes),
            program,
            serialized,
            compile_attempt,
            diagnostics,
        })
    }

    /// Returns the result of XLA's cost model, computed once.
    pub(crate) fn costs(&self) -> Option<&CostAnalysis> {
        let ask = || {
            let module = self.program.module_proto().ok()?;
            Some(CostAnalysis::new(hooks::get()?.cost_analysis(&module)?))
        };
        self.costs.get_or_init(ask).as_ref()
    }

    /// Returns what computes some of the outputs alone; determined once.
    pub(crate) fn slices(&self) -> &[Slice] {
        // Not inside `get_or_init`: a thread that holds the GIL could be waiting for it.
        if self.slices.get().is_none() {
            let _ = self.slices.set(self.host_program.slices(&self.program));
        }
        self.slices.get().map_or(&[], Vec::as_slice)
    }

    /// Returns what calls its functions of Python alone; determined once.
    pub(crate) fn calling_slice(&self) -> Option<&Slice> {
        if !self.may_have_calling_slice {
            return None;
        }
        // Not inside `get_or_init`: a thread that holds the GIL could be waiting for it.
        if self.calling_slice.get().is_none() {
            let _ = self.calling_slice.set(self.host_program.calling_slice(&self.program));
        }
        self.calling_slice.get()?.as_ref()
    }

    /// Returns `true` if the arguments of this execution tell what arrays are: it is one of the first of a program that
    /// computes gradients, or updates arguments. From the second on its arguments come from the update.
    pub(crate) fn records_arguments(&self) -> bool {
        let updates =
            !(self.program.aliases.is_empty() && self.diagnostics.replaced_arguments.is_empty());
        (self.has_backward || self.diagnostics.pass.is_some() || updates)
            && self.recorded_executions.fetch_add(1, Ordering::Relaxed) < MAX_RECORDED_EXECUTIONS
    }
}

fn allocation_steps(program: &Program) -> Vec<AllocationStep> {
    let allocated = program.allocations.iter().enumerate().filter_map(|(slot, allocation)| {
        let purpose = match allocation.class {
            BufferClass::ThreadLocal | BufferClass::Parameter(_) | BufferClass::Constant => None,
            BufferClass::Tuple => Some(Purpose::Tuple),
            BufferClass::Output => Some(Purpose::Output),
            BufferClass::Temporary => Some(Purpose::Temporary),
        }?;
        let space = match allocation.space {
            MemorySpace::Device => PoolSpace::Default,
            MemorySpace::Collective => PoolSpace::Collective,
            MemorySpace::Host => return None,
        };
        (allocation.bytes > 0).then_some(AllocationStep {
            slot: slot as u32,
            bytes: allocation.bytes,
            purpose,
            space,
        })
    });
    allocated.collect()
}

/// Returns the scratch memory that an execution takes, in the order of the module. Each is freed
/// before the next is taken and leaves the pool as it was, so one that is no larger than an earlier
/// one changes nothing and is left out.
fn scratch_steps(program: &Program) -> Vec<ScratchStep> {
    let mut largest = 0;
    let needs = (0..).zip(&program.scratch);
    let steps = needs.filter_map(|(number, need)| {
        let bytes = need.low_bytes;
        if need.phase != ScratchPhase::Execution || bytes <= largest {
            return None;
        }
        largest = bytes;
        Some(ScratchStep { need: number, bytes })
    });
    steps.collect()
}

/// Returns the kind of memory a shape lies in.
pub(crate) fn memory_kind_of(shape: &Shape) -> MemoryKind {
    match shape.space {
        MemorySpace::Host => MemoryKind::PinnedHost,
        MemorySpace::Device | MemorySpace::Collective => MemoryKind::Device,
    }
}

impl ExecutableInfo {
    fn new(program: &Program) -> Self {
        let kinds = |shapes: &[Shape]| {
            CachedStrings::new(
                shapes.iter().map(|s| memory_kind_of(s).name().as_bytes().to_vec()).collect(),
            )
        };
        ExecutableInfo {
            output_types: program.outputs.iter().map(|s| s.element_type.pjrt()).collect(),
            output_dims: program.outputs.iter().flat_map(|s| s.dims.iter().copied()).collect(),
            output_dim_counts: program.outputs.iter().map(|s| s.dims.len()).collect(),
            output_kinds: kinds(&program.outputs),
            parameter_kinds: kinds(&program.parameters),
            parameter_shardings: CachedStrings::new(program.parameter_shardings.clone()),
            output_shardings: CachedStrings::new(program.output_shardings.clone()),
            fingerprint: format!("{:016x}", program.fingerprint),
        }
    }
}
