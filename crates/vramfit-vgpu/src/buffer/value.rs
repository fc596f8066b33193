//! What an array holds: bytes that are known, bytes that can be computed when somebody asks, or
//! nothing that a dry run could know.
//!
//! Programs on known values (keys, counters, sizes of `nonzero`, constants averaged over a million
//! samples) are run for real on JAX's CPU backend, but only when a value they lead to is read: most
//! never are. What is large, or takes long to compute, stays unknown; reading it is counted and
//! reported.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use vramfit_core::program::{Program, Shape};
use vramfit_core::trace::Event;

use crate::buffer::host_data::{Computed, Data};
use crate::compile::compiled::Compiled;
use crate::device::machine;
use crate::hooks::{self, Evaluated, HostInput};
use crate::pjrt::status::{Answer, Status};

/// Above this many bytes of inputs, outputs or temporaries a program is not run.
const MAX_COMPUTED_BYTES: u64 = 32 << 20;
/// Up to this many bytes a program is run however long it is expected to take, within the budget.
const MAX_SMALL_BYTES: u64 = 1 << 20;
/// Above that, it must not be expected to take longer than this on one core: a table of constants is
/// computed, a training step is not. The estimate is `_modules.py`'s.
pub(crate) const MAX_LARGE_SECONDS: f64 = 1.0;
/// A chain of values that nobody has read (a key split in every step of a long loop) does not
/// grow beyond this: then it is computed if it is tiny, and given up otherwise. Giving up matters
/// for small models, whose every training step would else be done in earnest.
const LONGEST_CHAIN: u32 = 64;
/// Keys, counters and the like: computing them costs about as much as the call itself.
const TINY: u64 = 4 << 10;
/// A check on unknown values is run if the program is no longer than this …
const LONGEST_CHECK: usize = 16 << 10;
/// … and its arguments are no larger than this.
const LARGEST_CHECKED: u64 = 256 << 20;

/// The contents of an array, row-major, each element in whole bytes.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// Known.
    Known(Arc<Data>),
    /// The output of that number of a program that can be run when needed.
    Pending(Arc<Deferred>, usize),
    /// Not known, but a yes or no that follows from what unknown arrays read as: a check such as
    /// "are all finite" must agree with the numbers a program would see if it looked itself.
    Assumed(Arc<Deferred>, usize),
    /// Not known.
    Unknown,
}

/// An argument of a call that is run.
enum Input {
    Bytes(Arc<Data>),
    Computed(Arc<Computed>),
}

impl Input {
    fn lend(&self) -> HostInput<'_> {
        match self {
            Input::Bytes(data) => HostInput::Bytes(data),
            Input::Computed(computed) => HostInput::Array(&*computed.array),
        }
    }
}

/// A call of a small program that has not been needed yet. Inputs and outputs are those of each
/// device in turn.
#[derive(Debug)]
pub(crate) struct Deferred {
    program: Arc<Compiled>,
    /// Until they are not needed any more: a long loop would keep all of its past alive.
    inputs: Mutex<Vec<Value>>,
    chain: u32,
    outputs: OnceLock<Outcome>,
}

/// What became of a call when it was run.
#[derive(Debug)]
enum Outcome {
    Known(Vec<Arc<Computed>>),
    /// A function of the user's that the program calls raised an error.
    Raised(Status),
    Unknown,
}

impl Value {
    /// Returns the bytes, computing them if that is possible.
    pub(crate) fn bytes(&self) -> Option<Arc<Data>> {
        match self {
            Value::Known(bytes) => Some(Arc::clone(bytes)),
            Value::Pending(deferred, output) => deferred.output(*output)?.bytes(),
            Value::Assumed(..) | Value::Unknown => None,
        }
    }

    /// Returns what a check on unknown values comes to if those read as zeros.
    pub(crate) fn assumed_bytes(&self) -> Option<Arc<Data>> {
        match self {
            Value::Assumed(deferred, output) => deferred.output(*output)?.bytes(),
            _ => None,
        }
    }

    /// Returns the value for a call that is run, `assuming` what checks come to or not.
    fn input(&self, assuming: bool) -> Option<Input> {
        match self {
            Value::Known(bytes) => Some(Input::Bytes(Arc::clone(bytes))),
            Value::Assumed(..) if !assuming => None,
            Value::Pending(deferred, output) | Value::Assumed(deferred, output) => {
                deferred.output(*output).cloned().map(Input::Computed)
            }
            Value::Unknown => None,
        }
    }

    fn is_unknown(&self) -> bool {
        match self {
            Value::Known(_) => false,
            Value::Pending(deferred, _) => deferred.is_unknown(),
            Value::Assumed(..) | Value::Unknown => true,
        }
    }

    fn chain(&self) -> u32 {
        match self {
            Value::Pending(deferred, _) | Value::Assumed(deferred, _)
                if deferred.outputs.get().is_none() =>
            {
                deferred.chain
            }
            _ => 0,
        }
    }
}

/// Says whether a program is small enough to be run on the CPU at all, on so many devices.
pub(crate) fn is_small(program: &Program, copies: usize) -> bool {
    is_within_all(program, MAX_COMPUTED_BYTES / copies as u64)
}

/// Says whether a program is so small that it is run however long that is expected to take.
pub(crate) fn is_tiny_enough(program: &Program, copies: usize) -> bool {
    is_within_all(program, MAX_SMALL_BYTES / copies as u64)
}

fn is_within_all(program: &Program, limit: u64) -> bool {
    // The smallest product may be given a workspace of megabytes.
    let temp_bytes = program
        .sizes
        .temp_bytes
        .saturating_sub(program.workspace_bytes);
    is_within(program, limit) && temp_bytes <= limit
}

fn is_within(program: &Program, limit: u64) -> bool {
    let bytes = |shapes: &[Shape]| shapes.iter().map(Shape::host_bytes).sum::<u64>();
    bytes(&program.parameters) <= limit && bytes(&program.outputs) <= limit
}

/// Says whether large results can be kept beside the values that are kept already.
fn has_room_for(program: &Program, copies: usize) -> bool {
    let bytes = program.outputs.iter().map(Shape::host_bytes).sum::<u64>() * copies as u64;
    let cap = machine::get().map_or(u64::MAX, |machine| machine.environment.upload_cap_bytes);
    bytes <= MAX_SMALL_BYTES || Data::kept().saturating_add(bytes) <= cap
}

/// Returns the values of the outputs of a call on each of its devices, from the values of the
/// inputs there. Fails when a function of the user's that it calls does, as on a card.
pub(crate) fn outputs_of(
    program: &Arc<Compiled>,
    mut inputs: Vec<Vec<Value>>,
) -> Answer<Vec<Vec<Value>>> {
    let rows = inputs.len();
    let count = program.program.outputs.len();
    Ok(if program.evaluated_devices == 1 {
        let outputs = flat_outputs_of(program, inputs.swap_remove(0))?;
        vec![outputs; rows]
    } else if program.evaluated_devices == rows {
        let outputs = flat_outputs_of(program, inputs.concat())?;
        (0..rows)
            .map(|row| outputs[row * count..(row + 1) * count].to_vec())
            .collect()
    } else {
        // Other processes have the rest of the devices.
        vec![vec![Value::Unknown; count]; rows]
    })
}

/// Returns the values of the outputs, pending if all inputs are known, else unknown; both lists
/// device by device.
fn flat_outputs_of(program: &Arc<Compiled>, inputs: Vec<Value>) -> Answer<Vec<Value>> {
    let count = program.evaluated_devices * program.program.outputs.len();
    if inputs.iter().any(Value::is_unknown) {
        call_back(program);
        return Ok(assumed_outputs_of(program, inputs));
    }
    let chain = 1 + inputs.iter().map(Value::chain).max().unwrap_or(0);
    let too_long = chain >= LONGEST_CHAIN
        && !is_within(&program.program, TINY / program.evaluated_devices as u64);
    if !program.can_evaluate() || (too_long && !program.has_side_effects()) {
        call_back(program);
        return Ok(vec![Value::Unknown; count]);
    }
    let deferred = Deferred::new(program, inputs, chain);
    if chain >= LONGEST_CHAIN || program.has_side_effects() {
        match deferred.outcome() {
            Outcome::Known(_) => {}
            Outcome::Raised(error) => return Err(error.clone()),
            Outcome::Unknown => {
                call_back(program);
                return Ok(vec![Value::Unknown; count]);
            }
        }
    }
    Ok((0..count)
        .map(|output| Value::Pending(Arc::clone(&deferred), output))
        .collect())
}

/// Returns the values of a call with unknown arguments: unknown, but for checks.
fn assumed_outputs_of(program: &Arc<Compiled>, inputs: Vec<Value>) -> Vec<Value> {
    let count = program.evaluated_devices * program.program.outputs.len();
    if !program.is_predicate() {
        return vec![Value::Unknown; count];
    }
    let chain = 1 + inputs.iter().map(Value::chain).max().unwrap_or(0);
    if chain >= LONGEST_CHAIN {
        return vec![Value::Unknown; count];
    }
    let deferred = Deferred::new(program, inputs, chain);
    (0..count)
        .map(|output| Value::Assumed(Arc::clone(&deferred), output))
        .collect()
}

/// Calls the Python functions that a program calls, in an execution whose values are not computed: a
/// script may wait for what they do. What became of each is noted.
fn call_back(program: &Arc<Compiled>) {
    let (Some(hooks), Some(machine)) = (hooks::get(), machine::get()) else {
        return;
    };
    if !program.has_side_effects() || program.code.is_empty() {
        return;
    }
    let devices = program.program.options.devices.len();
    let done = hooks.call_back(program.number, &program.code, devices);
    let mut session = machine.session();
    for call in done {
        let (site, error) = (session.text(&call.site), session.text(&call.error));
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

/// Says whether a program info yes or no about arrays, and is short enough to be asked.
pub(crate) fn is_predicate(program: &Program, code: &[u8], copies: usize) -> bool {
    const PRED: &str = "pred";
    !code.is_empty()
        && code.len() <= LONGEST_CHECK
        && program
            .outputs
            .iter()
            .all(|shape| shape.element_type.name() == PRED)
        && program
            .parameters
            .iter()
            .map(Shape::host_bytes)
            .sum::<u64>()
            <= LARGEST_CHECKED / copies as u64
}

impl Deferred {
    fn new(program: &Arc<Compiled>, inputs: Vec<Value>, chain: u32) -> Arc<Self> {
        Arc::new(Deferred {
            program: Arc::clone(program),
            inputs: Mutex::new(inputs),
            chain,
            outputs: OnceLock::new(),
        })
    }

    /// Returns whether it was run and nothing was learnt.
    fn is_unknown(&self) -> bool {
        matches!(
            self.outputs.get(),
            Some(Outcome::Unknown | Outcome::Raised(_))
        )
    }

    fn output(&self, number: usize) -> Option<&Arc<Computed>> {
        match self.outcome() {
            Outcome::Known(outputs) => outputs.get(number),
            Outcome::Unknown | Outcome::Raised(_) => None,
        }
    }

    /// Runs the call if that has not been done.
    fn outcome(&self) -> &Outcome {
        // No lock is held while Python runs: a thread that has the interpreter could be waiting
        // for it. Two threads may then compute the same thing; the first to finish wins.
        if self.outputs.get().is_none() {
            let outcome = match self.run() {
                Some(Evaluated::Outputs(outputs)) => {
                    let shapes = self.program.program.outputs.iter().cycle();
                    let outputs = outputs.into_iter().zip(shapes);
                    let computed =
                        outputs.map(|(array, shape)| Computed::new(array, shape.host_bytes()));
                    Outcome::Known(computed.collect())
                }
                Some(Evaluated::Raised(message)) => Outcome::Raised(Status::internal(message)),
                Some(Evaluated::OutOfBudget { .. } | Evaluated::Impossible) | None => {
                    Outcome::Unknown
                }
            };
            if let Some(machine) = machine::get() {
                let is_known = matches!(outcome, Outcome::Known(_));
                machine.session().count_evaluation(is_known);
            }
            let _ = self.outputs.set(outcome);
            // Each value would be dropped by the one that is made of it, as deep as the loop is long.
            self.lock_inputs().clear();
        }
        self.outputs.get().unwrap_or(&Outcome::Unknown)
    }

    fn lock_inputs(&self) -> MutexGuard<'_, Vec<Value>> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) -> Option<Evaluated> {
        let program = &self.program.program;
        let is_predicate = self.program.is_predicate();
        if !self.program.can_evaluate() && !is_predicate {
            return None;
        }
        // Before the inputs are computed: they may take long, too, and would be for nothing.
        if !is_predicate && !self.program.is_cheap() {
            self.program.disable_evaluation();
            return None;
        }
        if !has_room_for(program, self.program.evaluated_devices) {
            return None;
        }
        let zeros = |shape: &Shape| Data::uncounted(vec![0; shape.host_bytes() as usize]);
        // Not locked while they are computed; another thread may have been done before.
        let values = self.lock_inputs().clone();
        if values.len() != self.program.evaluated_devices * program.parameters.len() {
            return None;
        }
        let inputs: Vec<Input> = values
            .iter()
            .zip(program.parameters.iter().cycle())
            .map(|(value, shape)| {
                let zeros = || Input::Bytes(zeros(shape));
                let known = value.input(is_predicate);
                known.or_else(|| is_predicate.then(zeros))
            })
            .collect::<Option<_>>()?;
        let inputs: Vec<HostInput<'_>> = inputs.iter().map(Input::lend).collect();
        match self.program.evaluate(hooks::get()?, &inputs) {
            Evaluated::Outputs(outputs)
                if outputs.len() != self.program.evaluated_devices * program.outputs.len() =>
            {
                self.program.disable_evaluation();
                None
            }
            Evaluated::Impossible => {
                self.program.disable_evaluation();
                None
            }
            Evaluated::OutOfBudget { reason, spent_ms } => {
                self.program.disable_evaluation();
                if let Some(machine) = machine::get() {
                    let mut session = machine.session();
                    session.record_not_computed(&program.name, &reason, spent_ms);
                }
                None
            }
            evaluated => Some(evaluated),
        }
    }
}
