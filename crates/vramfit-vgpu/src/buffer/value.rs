//! The contents of an array: known bytes, bytes that can be computed when they are read, or unknown.
//!
//! Programs on known values (keys, counters, sizes of `nonzero`, constants averaged over a million
//! samples) are evaluated on JAX's CPU backend, but only when a value that depends on them is read: most
//! never are. What is large, or takes long to compute, stays unknown; reading it is counted and
//! reported.

use std::sync::{Arc, Mutex, OnceLock};

use vramfit_core::program::{Program, Shape};
use vramfit_core::trace::Event;

use crate::buffer::host_data::{ComputedArray, HostData};
use crate::compile::compiled::CompiledProgram;
use crate::device::machine;
use crate::hooks::{self, Evaluation, HostInput};
use crate::lock;
use crate::pjrt::status::{PjrtResult, Status};

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
const MAX_DEPTH: u32 = 64;
/// Size of keys, counters and the like: evaluating them costs about as much as the call itself.
const MAX_TINY_BYTES: u64 = 4 << 10;
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
    /// Not known, but a boolean that follows from what unknown arrays read as: a predicate such as
    /// "are all finite" must agree with the numbers that the program would read.
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
    program: Arc<CompiledProgram>,
    /// Dropped after the evaluation: else a long loop would keep all earlier values alive.
    inputs: Mutex<Vec<Value>>,
    depth: u32,
    outputs: OnceLock<EvalResult>,
}

/// The result of evaluating a call.
enum EvalResult {
    Known(Vec<Arc<ComputedArray>>),
    /// A user's function that the program calls raised an error.
    Raised(Status),
    Unknown,
}

impl Value {
    /// Returns the bytes, computing them if that is possible.
    pub(crate) fn bytes(&self) -> Option<Arc<HostData>> {
        match self {
            Value::Known(bytes) => Some(Arc::clone(bytes)),
            Value::Lazy(lazy_call, output) => lazy_call.output(*output)?.bytes(),
            Value::Placeholder(..) | Value::Unknown => None,
        }
    }

    /// Returns the result of a predicate on unknown values if those read as zeros.
    pub(crate) fn placeholder_bytes(&self) -> Option<Arc<HostData>> {
        match self {
            Value::Placeholder(lazy_call, output) => lazy_call.output(*output)?.bytes(),
            _ => None,
        }
    }

    /// Returns the value as an argument of an evaluated call; with `use_placeholders` also the results of
    /// predicates on unknown values.
    fn as_input(&self, use_placeholders: bool) -> Option<CallInput> {
        match self {
            Value::Known(bytes) => Some(CallInput::Bytes(Arc::clone(bytes))),
            Value::Placeholder(..) if !use_placeholders => None,
            Value::Lazy(lazy_call, output) | Value::Placeholder(lazy_call, output) => {
                lazy_call.output(*output).cloned().map(CallInput::Computed)
            }
            Value::Unknown => None,
        }
    }

    fn is_unknown(&self) -> bool {
        match self {
            Value::Known(_) => false,
            Value::Lazy(lazy_call, _) => lazy_call.is_unknown(),
            Value::Placeholder(..) | Value::Unknown => true,
        }
    }

    fn depth(&self) -> u32 {
        match self {
            Value::Lazy(lazy_call, _) | Value::Placeholder(lazy_call, _)
                if lazy_call.outputs.get().is_none() =>
            {
                lazy_call.depth
            }
            _ => 0,
        }
    }
}

/// Returns whether a program is small enough to be evaluated on so many devices at all.
pub(crate) fn is_small(program: &Program, devices: usize) -> bool {
    fits_with_temporaries(program, MAX_EVALUATED_BYTES / devices as u64)
}

/// Returns whether a program is so small that it is evaluated however long that is expected to take.
pub(crate) fn is_always_cheap(program: &Program, devices: usize) -> bool {
    fits_with_temporaries(program, MAX_SMALL_BYTES / devices as u64)
}

fn fits_with_temporaries(program: &Program, limit: u64) -> bool {
    // The smallest product may be given a workspace of megabytes.
    let temp_bytes = program
        .sizes
        .temp_bytes
        .saturating_sub(program.workspace_bytes);
    fits(program, limit) && temp_bytes <= limit
}

fn fits(program: &Program, limit: u64) -> bool {
    let bytes = |shapes: &[Shape]| shapes.iter().map(Shape::host_bytes).sum::<u64>();
    bytes(&program.parameters) <= limit && bytes(&program.outputs) <= limit
}

/// Returns whether the results of a program can be kept within the cap on retained values.
fn fits_retention_cap(program: &Program, devices: usize) -> bool {
    let bytes = program.outputs.iter().map(Shape::host_bytes).sum::<u64>() * devices as u64;
    let cap = machine::get().map_or(u64::MAX, |machine| machine.environment.upload_cap_bytes);
    bytes <= MAX_SMALL_BYTES || HostData::retained_bytes().saturating_add(bytes) <= cap
}

/// Returns the values of the outputs of a call on each of its devices, from the values of the
/// inputs there. Fails when a user's function that it calls fails, as on a GPU.
pub(crate) fn outputs_per_device(
    program: &Arc<CompiledProgram>,
    mut inputs: Vec<Vec<Value>>,
) -> PjrtResult<Vec<Vec<Value>>> {
    let rows = inputs.len();
    let count = program.program.outputs.len();
    if rows == 0 {
        // All devices of the call are those of other processes.
        return Ok(Vec::new());
    }
    Ok(if program.evaluated_devices == 1 {
        let outputs = flat_outputs(program, inputs.swap_remove(0))?;
        vec![outputs; rows]
    } else if program.evaluated_devices == rows {
        let outputs = flat_outputs(program, inputs.concat())?;
        (0..rows)
            .map(|row| outputs[row * count..(row + 1) * count].to_vec())
            .collect()
    } else {
        // Other processes have the rest of the devices, and call back for those.
        run_callbacks(program, rows);
        vec![vec![Value::Unknown; count]; rows]
    })
}

/// Returns the values of the outputs, lazy if all inputs are known, else unknown; both lists
/// device by device.
fn flat_outputs(program: &Arc<CompiledProgram>, inputs: Vec<Value>) -> PjrtResult<Vec<Value>> {
    let count = program.evaluated_devices * program.program.outputs.len();
    let all_devices = program.program.options.devices.len();
    if inputs.iter().any(Value::is_unknown) {
        run_callbacks(program, all_devices);
        return Ok(placeholder_outputs(program, inputs));
    }
    let unknown_outputs = || {
        run_callbacks(program, all_devices);
        Ok(vec![Value::Unknown; count])
    };
    let depth = 1 + inputs.iter().map(Value::depth).max().unwrap_or(0);
    let is_too_deep = depth >= MAX_DEPTH
        && !fits(
            &program.program,
            MAX_TINY_BYTES / program.evaluated_devices as u64,
        );
    if !program.can_evaluate() || (is_too_deep && !program.has_side_effects) {
        return unknown_outputs();
    }
    let lazy_call = LazyCall::new(program, inputs, depth);
    if depth >= MAX_DEPTH || program.has_side_effects {
        match lazy_call.eval_result() {
            EvalResult::Known(_) => {}
            EvalResult::Raised(error) => return Err(error.clone()),
            EvalResult::Unknown => return unknown_outputs(),
        }
    }
    Ok((0..count)
        .map(|output| Value::Lazy(Arc::clone(&lazy_call), output))
        .collect())
}

/// Returns the values of a call with unknown arguments: unknown, except for predicates.
fn placeholder_outputs(program: &Arc<CompiledProgram>, inputs: Vec<Value>) -> Vec<Value> {
    let count = program.evaluated_devices * program.program.outputs.len();
    if !program.is_predicate {
        return vec![Value::Unknown; count];
    }
    let depth = 1 + inputs.iter().map(Value::depth).max().unwrap_or(0);
    if depth >= MAX_DEPTH {
        return vec![Value::Unknown; count];
    }
    let lazy_call = LazyCall::new(program, inputs, depth);
    (0..count)
        .map(|output| Value::Placeholder(Arc::clone(&lazy_call), output))
        .collect()
}

/// Calls the Python callbacks of a program in an execution whose values are not computed, for so many devices: a
/// script may wait for their effects. The outcome of each is recorded.
fn run_callbacks(program: &Arc<CompiledProgram>, devices: usize) {
    let (Some(hooks), Some(machine)) = (hooks::get(), machine::get()) else {
        return;
    };
    if !program.has_side_effects || program.code.is_empty() {
        return;
    }
    let done = hooks.run_callbacks(program.number, &program.code, devices);
    let mut session = machine.session();
    for call in done {
        let (site, error) = (session.intern(&call.site), session.intern(&call.error));
        if call.calls > 0 {
            session.record(&Event::Callback {
                site,
                calls: call.calls,
                errors: call.errors,
                error,
            });
        }
        if let Some((calls, reason)) = call.skipped {
            session.record(&Event::CallbackSkipped {
                site,
                calls,
                reason,
            });
        }
    }
}

/// Returns whether a program only returns booleans, and is short and small enough to be evaluated on zeros.
pub(crate) fn is_predicate(program: &Program, code: &[u8], devices: usize) -> bool {
    const PRED: &str = "pred";
    !code.is_empty()
        && code.len() <= MAX_PREDICATE_CODE_BYTES
        && program
            .outputs
            .iter()
            .all(|shape| shape.element_type.name() == PRED)
        && program
            .parameters
            .iter()
            .map(Shape::host_bytes)
            .sum::<u64>()
            <= MAX_PREDICATE_INPUT_BYTES / devices as u64
}

impl LazyCall {
    fn new(program: &Arc<CompiledProgram>, inputs: Vec<Value>, depth: u32) -> Arc<Self> {
        Arc::new(LazyCall {
            program: Arc::clone(program),
            inputs: Mutex::new(inputs),
            depth,
            outputs: OnceLock::new(),
        })
    }

    /// Returns whether it was evaluated without a result.
    fn is_unknown(&self) -> bool {
        matches!(
            self.outputs.get(),
            Some(EvalResult::Unknown | EvalResult::Raised(_))
        )
    }

    fn output(&self, number: usize) -> Option<&Arc<ComputedArray>> {
        match self.eval_result() {
            EvalResult::Known(outputs) => outputs.get(number),
            EvalResult::Unknown | EvalResult::Raised(_) => None,
        }
    }

    /// Returns the result, evaluating the call if that was not done yet.
    fn eval_result(&self) -> &EvalResult {
        // No lock is held while Python runs: a thread that holds the GIL could be waiting
        // for it. Two threads may then evaluate the same call; the first to finish wins.
        if self.outputs.get().is_none() {
            let eval_result = match self.run() {
                Some(Evaluation::Outputs(outputs)) => {
                    let shapes = self.program.program.outputs.iter().cycle();
                    let outputs = outputs.into_iter().zip(shapes);
                    let computed =
                        outputs.map(|(array, shape)| ComputedArray::new(array, shape.host_bytes()));
                    EvalResult::Known(computed.collect())
                }
                Some(Evaluation::Raised(message)) => EvalResult::Raised(Status::internal(message)),
                Some(Evaluation::OutOfBudget { .. } | Evaluation::Unsupported) | None => {
                    EvalResult::Unknown
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

    fn run(&self) -> Option<Evaluation> {
        let program = &self.program.program;
        let is_predicate = self.program.is_predicate;
        if !self.program.can_evaluate() && !is_predicate {
            return None;
        }
        // Before the inputs are computed: they may take long, too, and would not be needed.
        if !is_predicate && !self.program.is_cheap() {
            self.program.disable_evaluation();
            return None;
        }
        if !fits_retention_cap(program, self.program.evaluated_devices) {
            return None;
        }
        let zeros = |shape: &Shape| HostData::untracked(vec![0; shape.host_bytes() as usize]);
        // Not locked while they are computed; another thread may finish first.
        let values = lock(&self.inputs).clone();
        if values.len() != self.program.evaluated_devices * program.parameters.len() {
            return None;
        }
        let inputs: Vec<CallInput> = values
            .iter()
            .zip(program.parameters.iter().cycle())
            .map(|(value, shape)| {
                let zeros = || CallInput::Bytes(zeros(shape));
                let known = value.as_input(is_predicate);
                known.or_else(|| is_predicate.then(zeros))
            })
            .collect::<Option<_>>()?;
        let inputs: Vec<HostInput<'_>> = inputs.iter().map(CallInput::as_host_input).collect();
        match self.program.evaluate(hooks::get()?, &inputs) {
            Evaluation::Outputs(outputs)
                if outputs.len() != self.program.evaluated_devices * program.outputs.len() =>
            {
                self.program.disable_evaluation();
                None
            }
            Evaluation::Unsupported => {
                self.program.disable_evaluation();
                None
            }
            Evaluation::OutOfBudget { reason, spent_ms } => {
                self.program.disable_evaluation();
                if let Some(machine) = machine::get() {
                    let mut session = machine.session();
                    session.write(|trace| trace.not_computed(&program.name, &reason, spent_ms));
                }
                None
            }
            evaluated => Some(evaluated),
        }
    }
}
