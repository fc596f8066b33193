//! The functions of the Python process that the plugin calls. The extension module sets them; without
//! them everything works, but values stay unknown and call sites have no names.

use std::any::Any;
use std::fmt::Debug;
use std::sync::OnceLock;

use vramfit_model::program::memory::Names;
use vramfit_model::trace::CallbackSkip;

/// A small program and how it is evaluated on JAX's CPU backend.
#[derive(Debug)]
pub struct ProgramDescription<'a> {
    /// The program as JAX passed it to the plugin.
    pub code: &'a [u8],
    /// The options JAX compiled it with.
    pub options: &'a [u8],
    /// On how many devices it must be evaluated; 1 where all devices compute the same.
    pub devices: usize,
    /// How the arguments are sharded over the devices, as serialized `OpSharding`; empty if not known.
    pub parameter_shardings: &'a [Vec<u8>],
    /// The same of the outputs.
    pub output_shardings: &'a [Vec<u8>],
    /// Element type names and dimensions of one device's inputs.
    pub input_shapes: Vec<(&'static str, &'a [i64])>,
    /// Element type names and dimensions of one device's outputs.
    pub output_shapes: Vec<(&'static str, &'a [i64])>,
}

/// A result that stays with Python, which computed it, until it is read.
pub trait HostArray: Any + Debug + Send + Sync {
    /// Returns its bytes, row-major; `None` if they are no longer available.
    fn read(&self) -> Option<Vec<u8>>;
}

/// An argument of a program that is evaluated.
#[derive(Clone, Copy, Debug)]
pub enum HostInput<'a> {
    /// Bytes, row-major.
    Bytes(&'a [u8]),
    /// A result of another program.
    Array(&'a dyn HostArray),
}

/// The result of evaluating a small program.
#[derive(Debug)]
pub enum Evaluation {
    /// The outputs of each device in turn.
    Outputs(Vec<Box<dyn HostArray>>),
    /// A user's function that it calls raised an error; XLA's message.
    Raised(String),
    /// The program has used up its budget, or all programs together have used up theirs.
    OutOfBudget {
        /// `program_budget` or `run_budget`.
        reason: String,
        /// The time that executions of the program have taken.
        spent_ms: u64,
    },
    /// It cannot be run on the CPU.
    Unsupported,
}

/// What a value is read for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadUse {
    /// To be shown or stored, as far as that can be told.
    #[default]
    Value,
    /// JAX makes a shape of it.
    Shape,
    /// It decides what the program does next.
    Decision,
    /// It becomes a constant of a program whose function has captured the array.
    Constant,
}

/// Where and what for a program reads a value.
#[derive(Clone, Debug, Default)]
pub struct ReadSite {
    /// The user's line, empty if not known.
    pub line: String,
    /// What for.
    pub purpose: ReadUse,
    /// The source of the expression that reads, empty if not known.
    pub expression: String,
}

/// A program that computes some of another program's outputs.
#[derive(Clone, Debug)]
pub struct ProgramSlice {
    /// Which outputs of the program it returns.
    pub outputs: Vec<usize>,
    /// Which arguments of the program it takes.
    pub parameters: Vec<usize>,
    /// The size of the largest array in it.
    pub largest_array_bytes: u64,
    /// StableHLO.
    pub code: Vec<u8>,
    /// The options it is compiled with if all devices of the program run it together; empty if each one can run
    /// it alone.
    pub options: Vec<u8>,
}

/// An argument or a result of a program, as the program declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredValue {
    /// Kind of memory, such as `pinned_host`; empty where the program says none.
    pub memory_kind: String,
    /// XLA's name of the element type, such as `bf16`.
    pub element_type: String,
    /// Dimensions, outermost first.
    pub dims: Vec<i64>,
}

/// What a program takes and returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInterface {
    /// The arguments.
    pub parameters: Vec<DeclaredValue>,
    /// The results.
    pub outputs: Vec<DeclaredValue>,
}

/// The outcome of one Python callback of a program, in one execution whose values are not computed.
#[derive(Clone, Debug)]
pub struct CallbackOutcome {
    /// The user's line that put the call into the program, empty if not known.
    pub site: String,
    /// How often the function was called with placeholder values.
    pub calls: u64,
    /// How many of these calls raised an error.
    pub errors: u64,
    /// The last of these errors, empty without any.
    pub error: String,
    /// How often it was not called, and why.
    pub skipped: Option<(u64, CallbackSkip)>,
    /// The parameter of the function by which it decides what the program does next, if there is one.
    pub deciding_parameter: Option<String>,
    /// Bytes of its arguments.
    pub argument_bytes: u64,
}

/// Arguments of a call that devices of several hosts execute.
#[derive(Clone, Debug)]
pub struct InputsByHost {
    /// Of each host in turn, as it has published them; `None` where it does not know them.
    pub bytes: Vec<Option<Vec<u8>>>,
    /// The name of the call, if those of a host that was not run before are taken to be those of another one.
    pub assumption: Option<String>,
}

/// The Python side.
pub trait Hooks: Send + Sync {
    /// Registers how to evaluate the program of that number, unique in this process.
    fn describe(&self, program: u32, description: &ProgramDescription<'_>);

    /// Evaluates a program that was described. The inputs are those of each device in turn.
    fn evaluate(&self, program: u32, inputs: &[HostInput<'_>]) -> Evaluation;

    /// Publishes the arguments of the next call of a program on this host's devices, `None` if they are unknown, and
    /// returns those of `hosts`. `None` if this process is not one of the hosts of a dry run.
    fn exchange_inputs(
        &self,
        program: &str,
        own: Option<&[u8]>,
        hosts: &[u32],
    ) -> Option<InputsByHost>;

    /// Records that the result of a call depends on arguments of other hosts that were assumed.
    fn record_assumption(&self, call: &str);

    /// Returns the parts of a program that compute small outputs alone. `options` are those JAX compiled it with;
    /// `local_parameters` and `local_outputs` say of each argument and output whether one device has all of it.
    fn slice_outputs(
        &self,
        code: &[u8],
        options: &[u8],
        local_parameters: &[bool],
        local_outputs: &[bool],
    ) -> Vec<ProgramSlice>;

    /// Returns the part of a program that calls functions of Python, and nothing else; `None` if there are none, or one is
    /// called with a large array. Arguments as for [`Hooks::slice_outputs`].
    fn slice_calls(
        &self,
        program: u32,
        code: &[u8],
        options: &[u8],
        local_parameters: &[bool],
    ) -> Option<ProgramSlice>;

    /// Returns how many seconds one execution of a program is expected to take on the CPU, with a few passes of each
    /// loop whose length depends on values. `None` if it cannot be estimated.
    fn estimate_seconds(&self, program: u32, code: &[u8]) -> Option<f64>;

    /// Runs the Python callbacks of a program with placeholder values, as one execution would.
    fn run_callbacks(&self, program: u32, code: &[u8], devices: usize) -> Vec<CallbackOutcome>;

    /// Runs XLA's cost model on a module, a serialized `HloModuleProto`. Returns names and values, such
    /// as `flops`; `None` if it fails.
    fn cost_analysis(&self, module: &[u8]) -> Option<Vec<(String, f32)>>;

    /// Returns the names of the arguments and outputs of a program, from the program as JAX passed it in.
    /// `None` if it has none.
    fn value_names(&self, code: &[u8]) -> Option<Names>;

    /// Returns the arguments and results of a program, from the program as JAX passed it in.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn program_interface(&self, code: &[u8]) -> Result<ProgramInterface, String>;

    /// Reports that a program was compiled, in the thread that compiles it.
    fn on_compiled(&self, program: u32);

    /// Returns the name of a source file for display: the number of a notebook's cell. `None` if
    /// Python cannot be called.
    fn display_name(&self, file: &str) -> Option<String>;

    /// Returns the user's line that is being executed, as `file:line (function)`.
    fn call_site(&self) -> Option<String>;

    /// Returns where and what for the program reads a value.
    fn read_site(&self) -> Option<ReadSite>;

    /// Requests that the program exits, cleanly and soon. Called once.
    fn request_exit(&self);

    /// Reports that the main thread has executed a step after [`Hooks::request_exit`]. May end the process.
    fn extra_step(&self);
}

static HOOKS: OnceLock<Box<dyn Hooks>> = OnceLock::new();

/// Installs the Python side. Only the first call counts.
pub fn set(hooks: Box<dyn Hooks>) {
    let _ = HOOKS.set(hooks);
}

pub(crate) fn get() -> Option<&'static dyn Hooks> {
    HOOKS.get().map(Box::as_ref)
}
