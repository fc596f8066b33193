//! What the plugin asks of the Python process it lives in. Set by the extension module; without
//! them everything works but values stay unknown and call sites unnamed.

use std::any::Any;
use std::fmt::Debug;
use std::sync::OnceLock;

use vramfit_core::program::memory::Names;
use vramfit_core::trace::CallbackSkip;

/// How a small program is run for real, on JAX's CPU backend.
#[derive(Debug)]
pub struct ProgramDescription<'a> {
    /// The program as JAX handed it to the plugin.
    pub code: &'a [u8],
    /// The options JAX compiled it with.
    pub options: &'a [u8],
    /// On how many devices it must be run; 1 where all devices do the same.
    pub devices: usize,
    /// How the outputs lie over the devices, as serialised `OpSharding`; empty when not told.
    pub output_shardings: &'a [Vec<u8>],
    /// Element type names and dimensions of one device's inputs.
    pub input_shapes: Vec<(&'static str, &'a [i64])>,
    /// Element type names and dimensions of one device's outputs.
    pub output_shapes: Vec<(&'static str, &'a [i64])>,
}

/// A result that stays where Python computed it until somebody reads it.
pub trait HostArray: Any + Debug + Send + Sync {
    /// Returns its bytes, row-major; `None` when they cannot be had any more.
    fn read(&self) -> Option<Vec<u8>>;
}

/// An argument of a program that is run for real.
#[derive(Clone, Copy, Debug)]
pub enum HostInput<'a> {
    /// Bytes, row-major.
    Bytes(&'a [u8]),
    /// A result of another program.
    Array(&'a dyn HostArray),
}

/// What became of running a small program.
#[derive(Debug)]
pub enum Evaluated {
    /// The outputs of each device in turn.
    Outputs(Vec<Box<dyn HostArray>>),
    /// A function of the user's that it calls raised an error, in the words of XLA.
    Raised(String),
    /// It has used up what it may compute, or all programs together have.
    OutOfBudget {
        /// `program_budget` or `run_budget`.
        reason: String,
        /// What executions of the program have taken.
        spent_ms: u64,
    },
    /// It cannot be run on the CPU.
    Impossible,
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
pub struct Interface {
    /// The arguments.
    pub parameters: Vec<DeclaredValue>,
    /// The results.
    pub outputs: Vec<DeclaredValue>,
}

/// What became of one place of a program that calls a Python function, in one execution whose values
/// are not computed.
#[derive(Clone, Debug)]
pub struct HostCall {
    /// The user's line that put the call into the program, empty if not known.
    pub site: String,
    /// How often the function was called with made-up values.
    pub calls: u64,
    /// How many of these calls raised an error.
    pub errors: u64,
    /// The last of these errors, empty without any.
    pub error: String,
    /// How often it was not called, and why.
    pub skipped: Option<(u64, CallbackSkip)>,
}

/// The Python side.
pub trait Hooks: Send + Sync {
    /// Remembers how to run the program of that number, unique in this process.
    fn describe(&self, program: u32, description: &ProgramDescription<'_>);

    /// Runs a program that was described. The inputs are those of each device in turn.
    fn evaluate(&self, program: u32, inputs: &[HostInput<'_>]) -> Evaluated;

    /// Returns how many seconds one execution of a program is expected to take on the CPU; infinite
    /// where that depends on values. `None` when it cannot be told.
    fn estimate(&self, program: u32, code: &[u8]) -> Option<f64>;

    /// Calls the Python functions that a program calls, with made-up values, as one execution would.
    fn call_back(&self, program: u32, code: &[u8], devices: usize) -> Vec<HostCall>;

    /// Asks XLA's cost model about a module, a serialised `HloModuleProto`: names and figures, such
    /// as `flops`. `None` when it cannot tell.
    fn costs(&self, module: &[u8]) -> Option<Vec<(String, f32)>>;

    /// Returns what the arguments and outputs of a program are called, from the program as JAX handed it
    /// over. `None` when it does not say.
    fn names(&self, code: &[u8]) -> Option<Names>;

    /// Returns what a program takes and returns, from the program as JAX handed it over.
    ///
    /// # Errors
    /// Why it cannot be read, as a text for people.
    fn interface(&self, code: &[u8]) -> Result<Interface, String>;

    /// Notes that a program was compiled, in the thread that compiles it.
    fn compiled(&self, program: u32);

    /// Returns what a person calls a source file: a cell of a notebook by its number. `None` when
    /// Python cannot be asked.
    fn file_name(&self, file: &str) -> Option<String>;

    /// Returns the user's line that is being run, as `file:line (function)`.
    fn site(&self) -> Option<String>;

    /// Returns the user's line that reads a value, empty if not known, and whether JAX reads it to
    /// make a shape of it.
    fn reader(&self) -> Option<(String, bool)>;

    /// Asks the program to end, cleanly and soon. Called once.
    fn stop(&self);

    /// Notes that the main thread has executed a step after [`Hooks::stop`]. May end the process.
    fn further_step(&self);
}

static HOOKS: OnceLock<Box<dyn Hooks>> = OnceLock::new();

/// Installs the Python side. Only the first call counts.
pub fn set(hooks: Box<dyn Hooks>) {
    let _ = HOOKS.set(hooks);
}

pub(crate) fn get() -> Option<&'static dyn Hooks> {
    HOOKS.get().map(Box::as_ref)
}
