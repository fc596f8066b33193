//! The contents of an array: known bytes, bytes that can be computed when they are read, or unknown.
//!
//! Programs on known values (keys, counters, sizes of `nonzero`, constants averaged over a million
//! samples) are evaluated on JAX's CPU backend, but only when a value that depends on them is read: most
//! never are. Of a program that cannot be evaluated as a whole, because it is large or some of its
//! inputs are unknown, the small outputs that depend on little of it still are, each from its slice of
//! the program: the counter in a training step. The rest stays unknown; reading it is counted and
//! reported.

use std::sync::{Arc, Mutex, OnceLock};

use vramfit_model::program::{Program, Shape};

use crate::buffer::fill;
use crate::buffer::host_data::{ComputedArray, HostData};
use crate::buffer::output_values::sliced_outputs;
use crate::compile::compiled::CompiledProgram;
use crate::compile::host_program::HostProgram;
use crate::device::machine;
use crate::hooks::{self, Evaluation, HostInput};
use crate::lock;
use crate::pjrt::status::Status;

/// Above this many bytes of inputs, outputs or temporaries a program is not evaluated.
const MAX_EVALUATED_BYTES: u64 = 32 << 20;
/// Up to this many bytes a program is evaluated however long it is expected to take, within the budget.
const MAX_SMALL_BYTES: u64 = 1 << 20;
/// Above that, it must not be expected to take longer than this on one core: a table of constants is
/// computed, a training step is not. `_module_work.py` estimates the time.
pub(crate) const MAX_LARGE_SECONDS: f64 = 1.0;
/// Maximum number of dependent calls that are not evaluated yet, such as splits of a key in a long loop.
/// At this depth the call is evaluated if it is tiny, otherwise its outputs are unknown; without that, each
/// training step of a small model would be evaluated.
pub(super) const MAX_DEPTH: u32 = 64;
/// Size of keys, counters and the like: evaluating them costs about as much as the call itself.
pub(super) const MAX_TINY_BYTES: u64 = 4 << 10;
/// A predicate on unknown values is evaluated if the program is no longer than this …
const MAX_PREDICATE_CODE_BYTES: usize = 16 << 10;
/// … and its arguments are no larger than this in total.
const MAX_PREDICATE_INPUT_BYTES: u64 = 256 << 20;

/// The contents of an array, row-major, each element in whole bytes.
#[derive(Clone)]
pub(crate) enum Value {
    Known(Arc<HostData>),
    /// An output of a call that can be evaluated when it is needed, with its number.
    Lazy(Arc<LazyCall>, usize),
    /// Not known, but a number that follows from what is assumed: from what another host is taken to have, or from
    /// what unknown arrays read as, since a predicate such as "are all finite" must agree with the numbers
    /// that the program would read.
    Placeholder(Arc<LazyCall>, usize),
    Unknown,
}

/// An argument of a call that is evaluated.
enum CallInput {
    Bytes(Arc<HostData>),
    Computed(Arc<ComputedArray>),
}

impl CallInput {
    fn as_host_input(&self) -> HostInput<'_> {
        match self {
            CallInput::Bytes(data) => HostInput::Bytes(data),
            CallInput::Computed(computed) => HostInput::Array(&*computed.array),
        }
    }
}

/// A call of a small program, evaluated when an output is first needed. Inputs and outputs are those of
/// each device in turn.
pub(crate) struct LazyCall {
    program: Arc<HostProgram>,
    /// The compiled program if it is evaluated as a whole, for its slices if that fails.
    whole: Option<Arc<CompiledProgram>>,
    /// The name of the call for the other hosts, if what it takes those to have is to be recorded when it is evaluated.
    assumption: Option<String>,
    /// Dropped after the evaluation: else a long loop would keep all earlier values alive.
    inputs: Mutex<Vec<Value>>,
    depth: u32,
    outputs: OnceLock<EvalResult>,
}

/// The result of evaluating a call.
pub(super) enum EvalResult {
    Known(Vec<Arc<ComputedArray>>),
    /// Computed from what unknown arrays read as: numbers, but placeholders.
    Assumed(Vec<Arc<ComputedArray>>),
    /// It cannot be evaluated as a whole; some outputs may be.
    Sliced(Vec<Value>),
    /// A user's function that the program calls raised an error.
    Raised(Status),
    Unknown,
}

impl Value {
    /// Returns the bytes, computing them if that is possible.
    pub(crate) fn bytes(&self) -> Option<Arc<HostData>> {
        match self {
            Value::Known(bytes) => Some(Arc::clone(bytes)),
            Value::Lazy(lazy_call, output) => lazy_call.output_bytes(*output),
            Value::Placeholder(..) | Value::Unknown => None,
        }
    }

    /// Returns the number of a placeholder that has one.
    pub(crate) fn placeholder_bytes(&self) -> Option<Arc<HostData>> {
        match self {
            Value::Lazy(lazy_call, output) | Value::Placeholder(lazy_call, output) => {
                lazy_call.assumed_bytes(*output)
            }
            Value::Known(_) | Value::Unknown => None,
        }
    }

    /// Returns the value as an argument of an evaluated call, and whether it is an assumed number.
    fn as_input(&self) -> Option<(CallInput, bool)> {
        match self {
            Value::Known(bytes) => Some((CallInput::Bytes(Arc::clone(bytes)), false)),
            Value::Lazy(lazy_call, output) => lazy_call.output_as_input(*output),
            Value::Placeholder(lazy_call, output) => {
                lazy_call.output_as_input(*output).map(|(input, _)| (input, true))
            }
            Value::Unknown => None,
        }
    }

    pub(super) fn is_unknown(&self) -> bool {
        match self {
            Value::Known(_) => false,
            Value::Lazy(lazy_call, output) => lazy_call.is_unknown(*output),
            Value::Placeholder(..) | Value::Unknown => true,
        }
    }

    /// Returns whether it is an assumed number, as far as that is known before it is evaluated.
    pub(super) fn is_placeholder(&self) -> bool {
        match self {
            Value::Placeholder(lazy_call, output) => lazy_call.may_have_number(*output),
            Value::Lazy(lazy_call, output) => {
                lazy_call.is_unknown(*output) && lazy_call.may_have_number(*output)
            }
            Value::Known(_) | Value::Unknown => false,
        }
    }

    pub(super) fn depth(&self) -> u32 {
        match self {
            Value::Lazy(lazy_call, output) | Value::Placeholder(lazy_call, output) => {
                match lazy_call.outputs.get() {
                    None => lazy_call.depth,
                    Some(EvalResult::Sliced(values)) => values.get(*output).map_or(0, Value::depth),
                    Some(_) => 0,
                }
            }
            Value::Known(_) | Value::Unknown => 0,
        }
    }
}

/// Returns whether a program is small enough to be evaluated at all.
pub(crate) fn is_small(program: &HostProgram) -> bool {
    program.fits(MAX_EVALUATED_BYTES)
}

/// Returns whether a program is so small that it is evaluated however long that is expected to take.
pub(crate) fn is_always_cheap(program: &HostProgram) -> bool {
    program.fits(MAX_SMALL_BYTES)
}

/// Returns whether a program may have small outputs that depend on less than the others do.
pub(crate) fn may_have_slices(program: &Program) -> bool {
    let is_small = |shape: &Shape| shape.host_bytes() <= MAX_SMALL_BYTES;
    program.outputs.len() > 1 && program.outputs.iter().any(is_small)
}

/// Returns whether the results of a program can be kept within the cap on retained values.
fn fits_retention_cap(program: &HostProgram) -> bool {
    let bytes = program.output_bytes();
    let cap = machine::get().map_or(u64::MAX, |machine| machine.header.run.upload_cap_bytes);
    bytes <= MAX_SMALL_BYTES || HostData::retained_bytes().saturating_add(bytes) <= cap
}

/// Returns whether a program only returns booleans, and is short and small enough to be evaluated on
/// placeholders.
pub(crate) fn is_predicate(program: &Program, code: &[u8], devices: usize) -> bool {
    const PRED: &str = "pred";
    !code.is_empty()
        && code.len() <= MAX_PREDICATE_CODE_BYTES
        && program.outputs.iter().all(|shape| shape.element_type.name() == PRED)
        && program.parameters.iter().map(Shape::host_bytes).sum::<u64>()
            <= MAX_PREDICATE_INPUT_BYTES / devices as u64
}

impl LazyCall {
    pub(super) fn new(program: Arc<HostProgram>, inputs: Vec<Value>, depth: u32) -> Arc<Self> {
        Arc::new(LazyCall {
            program,
            whole: None,
            assumption: None,
            inputs: Mutex::new(inputs),
            depth,
            outputs: OnceLock::new(),
        })
    }

    /// Returns a call of a compiled program. `assumption` is the name that it has on all hosts, where some of
    /// their arguments are assumed.
    pub(super) fn whole(
        program: &Arc<CompiledProgram>,
        inputs: Vec<Value>,
        depth: u32,
        assumption: Option<String>,
    ) -> Arc<Self> {
        Arc::new(LazyCall {
            program: Arc::clone(&program.host_program),
            whole: Some(Arc::clone(program)),
            assumption,
            inputs: Mutex::new(inputs),
            depth,
            outputs: OnceLock::new(),
        })
    }

    /// Returns whether an output is known to be unknown, because the call was evaluated.
    fn is_unknown(&self, output: usize) -> bool {
        match self.outputs.get() {
            None | Some(EvalResult::Known(_)) => false,
            Some(EvalResult::Sliced(values)) => values.get(output).is_none_or(Value::is_unknown),
            Some(EvalResult::Assumed(_) | EvalResult::Unknown | EvalResult::Raised(_)) => true,
        }
    }

    /// Returns whether an output is known or assumed, or may turn out to be.
    fn may_have_number(&self, output: usize) -> bool {
        match self.outputs.get() {
            None | Some(EvalResult::Known(_) | EvalResult::Assumed(_)) => true,
            Some(EvalResult::Sliced(values)) => {
                let value = values.get(output);
                value.is_some_and(|value| !value.is_unknown() || value.is_placeholder())
            }
            Some(EvalResult::Unknown | EvalResult::Raised(_)) => false,
        }
    }

    fn output_bytes(&self, output: usize) -> Option<Arc<HostData>> {
        match self.eval_result() {
            EvalResult::Known(outputs) => outputs.get(output)?.bytes(),
            EvalResult::Sliced(values) => values.get(output)?.bytes(),
            EvalResult::Assumed(_) | EvalResult::Unknown | EvalResult::Raised(_) => None,
        }
    }

    /// Returns the bytes of an output of a call that is assumed, or whose result is.
    fn assumed_bytes(&self, output: usize) -> Option<Arc<HostData>> {
        match self.eval_result() {
            EvalResult::Known(outputs) | EvalResult::Assumed(outputs) => {
                outputs.get(output)?.bytes()
            }
            EvalResult::Sliced(values) => {
                let value = values.get(output)?;
                value.bytes().or_else(|| value.placeholder_bytes())
            }
            EvalResult::Unknown | EvalResult::Raised(_) => None,
        }
    }

    fn output_as_input(&self, output: usize) -> Option<(CallInput, bool)> {
        let computed = |outputs: &[Arc<ComputedArray>], is_assumed| {
            Some((CallInput::Computed(Arc::clone(outputs.get(output)?)), is_assumed))
        };
        match self.eval_result() {
            EvalResult::Known(outputs) => computed(outputs, false),
            EvalResult::Assumed(outputs) => computed(outputs, true),
            EvalResult::Sliced(values) => values.get(output)?.as_input(),
            EvalResult::Unknown | EvalResult::Raised(_) => None,
        }
    }

    /// Returns the result, evaluating the call if that was not done yet.
    pub(super) fn eval_result(&self) -> &EvalResult {
        // No lock is held while Python runs: a thread that holds the GIL could be waiting
        // for it. Two threads may then evaluate the same call; the first to finish wins.
        if self.outputs.get().is_none() {
            let eval_result = match self.run() {
                Some((Evaluation::Outputs(outputs), is_assumed)) => {
                    let shapes = self.program.outputs.iter().cycle();
                    let outputs = outputs.into_iter().zip(shapes);
                    let computed =
                        outputs.map(|(array, shape)| ComputedArray::new(array, shape.host_bytes()));
                    match is_assumed {
                        true => EvalResult::Assumed(computed.collect()),
                        false => EvalResult::Known(computed.collect()),
                    }
                }
                Some((Evaluation::Raised(message), _)) => {
                    EvalResult::Raised(Status::internal(message))
                }
                Some((Evaluation::OutOfBudget { .. } | Evaluation::Unsupported, _)) | None => {
                    self.slice()
                }
            };
            if let Some(machine) = machine::get() {
                let is_known = matches!(eval_result, EvalResult::Known(_));
                machine.session().count_evaluation(is_known);
            }
            let _ = self.outputs.set(eval_result);
            // Otherwise dropping a value would recurse through all values that it was computed from.
            lock(&self.inputs).clear();
        }
        self.outputs.get().unwrap_or(&EvalResult::Unknown)
    }

    /// Returns the result of a call that cannot be evaluated as a whole.
    fn slice(&self) -> EvalResult {
        let inputs = lock(&self.inputs).clone();
        match &self.whole {
            Some(whole) if whole.has_slices && !inputs.is_empty() => {
                EvalResult::Sliced(sliced_outputs(whole, &inputs, self.program.devices))
            }
            _ => EvalResult::Unknown,
        }
    }

    /// Returns whether the program may be evaluated with numbers that are assumed.
    fn accepts_assumptions(&self) -> bool {
        let has_side_effects = self.whole.as_ref().is_some_and(|whole| whole.has_side_effects);
        !has_side_effects && (self.program.is_predicate || self.program.fits(MAX_TINY_BYTES))
    }

    /// Evaluates the call as a whole. Also returns whether an argument is an assumed number; a predicate has
    /// unknown ones as the program would read them.
    fn run(&self) -> Option<(Evaluation, bool)> {
        let program = &*self.program;
        let is_predicate = program.is_predicate;
        if !program.can_evaluate() && !is_predicate {
            return None;
        }
        // Before the inputs are computed: they may take long, too, and would not be needed.
        if !is_predicate && !program.is_cheap() {
            program.disable_evaluation();
            return None;
        }
        if !fits_retention_cap(program) {
            return None;
        }
        let fill = machine::get()?.header.run.fill;
        let placeholder = |shape: &Shape| {
            let mut bytes = vec![0; shape.host_bytes() as usize];
            fill::write_fill(fill, shape.element_type.name(), &mut bytes);
            HostData::untracked(bytes)
        };
        // Not locked while they are computed; another thread may finish first.
        let values = lock(&self.inputs).clone();
        if values.len() != program.devices * program.parameters.len() {
            return None;
        }
        let inputs: Vec<(CallInput, bool)> = values
            .iter()
            .zip(program.parameters.iter().cycle())
            .map(|(value, shape)| {
                let read = || (CallInput::Bytes(placeholder(shape)), true);
                value.as_input().or_else(|| is_predicate.then(read))
            })
            .collect::<Option<_>>()?;
        let is_assumed = inputs.iter().any(|(_, is_assumed)| *is_assumed);
        if is_assumed && !self.accepts_assumptions() {
            return None;
        }
        let inputs: Vec<CallInput> = inputs.into_iter().map(|(input, _)| input).collect();
        let inputs: Vec<HostInput<'_>> = inputs.iter().map(CallInput::as_host_input).collect();
        let hooks = hooks::get()?;
        if let Some(call) = &self.assumption {
            hooks.record_assumption(call);
        }
        match program.evaluate(hooks, &inputs) {
            Evaluation::Outputs(outputs)
                if outputs.len() != program.devices * program.outputs.len() =>
            {
                program.disable_evaluation();
                None
            }
            Evaluation::Unsupported => {
                program.disable_evaluation();
                None
            }
            Evaluation::OutOfBudget { reason, spent_ms } => {
                program.disable_evaluation();
                if let Some(machine) = machine::get() {
                    let mut session = machine.session();
                    session.write(|trace| trace.not_computed(&program.name, &reason, spent_ms));
                }
                None
            }
            evaluated => Some((evaluated, is_assumed)),
        }
    }
}
