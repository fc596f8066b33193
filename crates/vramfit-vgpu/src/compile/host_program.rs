//! A program as it is evaluated on JAX's CPU backend: a compiled program as a whole, or the part of it
//! that computes some of its outputs.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use vramfit_model::program::{Program, Shape};

use crate::buffer::value;
use crate::hooks::{self, Evaluation, Hooks, HostInput, ProgramDescription, ProgramSlice};

/// Numbers for programs: addresses are reused, numbers are not.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);

/// Returns a number that no program has yet.
pub(crate) fn new_number() -> u32 {
    NEXT_NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// A program that may be evaluated on the CPU.
#[derive(Debug)]
pub(crate) struct HostProgram {
    pub(crate) number: u32,
    /// The name of the compiled program.
    pub(crate) name: String,
    /// StableHLO.
    pub(crate) code: Vec<u8>,
    /// The compile options JAX gave.
    pub(crate) options: Vec<u8>,
    /// On how many devices it must be evaluated: 1 if all devices compute the same.
    pub(crate) devices: usize,
    /// One device's arguments.
    pub(crate) parameters: Vec<Shape>,
    /// One device's outputs.
    pub(crate) outputs: Vec<Shape>,
    shardings: Shardings,
    /// Bytes of arrays that are neither arguments nor outputs.
    temp_bytes: u64,
    /// Whether all outputs are booleans about its arguments.
    pub(crate) is_predicate: bool,
    evaluation: EvaluationState,
}

/// What is known so far about evaluating a program.
#[derive(Debug, Default)]
struct EvaluationState {
    /// Whether one execution is fast enough to be evaluated although its arrays are large.
    is_cheap: OnceLock<bool>,
    is_possible: AtomicBool,
    /// Whether Python knows how to run it.
    is_described: AtomicBool,
}

/// How the arguments and the outputs of a program lie over its devices, each as XLA's serialized `OpSharding`.
/// Empty where that is not known.
#[derive(Debug, Default)]
struct Shardings {
    parameters: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
}

/// The part of a program that computes some of its outputs, on one device or on all together.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) program: Arc<HostProgram>,
    /// Which outputs of the program it returns.
    pub(crate) outputs: Vec<usize>,
    /// Which arguments of the program it takes.
    pub(crate) parameters: Vec<usize>,
}

impl HostProgram {
    /// Returns a compiled program as a whole.
    pub(crate) fn whole(
        number: u32,
        program: &Program,
        code: Vec<u8>,
        options: Vec<u8>,
        computes_values: bool,
    ) -> Arc<Self> {
        let shardings = Shardings {
            parameters: program.parameter_shardings.clone(),
            outputs: program.output_shardings.clone(),
        };
        let devices = evaluated_devices(program);
        let host_program = HostProgram {
            number,
            name: program.name.clone(),
            devices,
            parameters: program.parameters.clone(),
            outputs: program.outputs.clone(),
            shardings,
            // The smallest product may be given a workspace of megabytes.
            temp_bytes: program.sizes.temp_bytes.saturating_sub(program.workspace_bytes),
            is_predicate: value::is_predicate(program, &code, devices),
            evaluation: EvaluationState::default(),
            code,
            options,
        };
        host_program.enable_evaluation(computes_values)
    }

    /// Returns the slices of a program: of its small outputs that one device can compute alone, else all
    /// together. Outputs that are in none cannot be computed, or not apart from large arrays.
    pub(crate) fn slices(&self, program: &Program) -> Vec<Slice> {
        let Some(hooks) = hooks::get() else {
            return Vec::new();
        };
        let found = hooks.slice_outputs(
            &self.code,
            &self.options,
            &local(program, program.parameters.len(), &program.parameter_shardings),
            &local(program, program.outputs.len(), &program.output_shardings),
        );
        found.into_iter().filter_map(|slice| self.to_slice(program, slice)).collect()
    }

    /// Returns the slice of a program on one device that calls its functions of Python, if none of them needs a large
    /// array.
    pub(crate) fn calling_slice(&self, program: &Program) -> Option<Slice> {
        let found = hooks::get()?.slice_calls(
            self.number,
            &self.code,
            &self.options,
            &local(program, program.parameters.len(), &program.parameter_shardings),
        );
        self.to_slice(program, found?)
    }

    fn to_slice(&self, program: &Program, slice: ProgramSlice) -> Option<Slice> {
        let (devices, shardings) = if slice.options.is_empty() {
            (1, Shardings::default())
        } else {
            let of = |all: &[Vec<u8>], places| select(all, places).unwrap_or_default();
            let shardings = Shardings {
                parameters: of(&program.parameter_shardings, &slice.parameters),
                outputs: of(&program.output_shardings, &slice.outputs),
            };
            (program.options.devices.len(), shardings)
        };
        let host_program = HostProgram {
            number: new_number(),
            name: self.name.clone(),
            code: slice.code,
            options: slice.options,
            devices,
            parameters: select(&self.parameters, &slice.parameters)?,
            outputs: select(&self.outputs, &slice.outputs)?,
            shardings,
            temp_bytes: slice.largest_array_bytes,
            is_predicate: false,
            evaluation: EvaluationState::default(),
        };
        Some(Slice {
            program: host_program.enable_evaluation(true),
            outputs: slice.outputs,
            parameters: slice.parameters,
        })
    }

    fn enable_evaluation(self, computes_values: bool) -> Arc<Self> {
        let is_enabled = computes_values && !self.code.is_empty() && value::is_small(&self);
        self.evaluation.is_possible.store(is_enabled, Ordering::Relaxed);
        Arc::new(self)
    }

    /// Returns whether its arguments, its outputs, and the arrays between them take no more than `limit`
    /// bytes each on each device.
    pub(crate) fn fits(&self, limit: u64) -> bool {
        let bytes = |shapes: &[Shape]| shapes.iter().map(Shape::host_bytes).sum::<u64>();
        let limit = limit / self.devices as u64;
        bytes(&self.parameters) <= limit
            && bytes(&self.outputs) <= limit
            && self.temp_bytes <= limit
    }

    /// Returns the bytes of the outputs on all devices.
    pub(crate) fn output_bytes(&self) -> u64 {
        self.outputs.iter().map(Shape::host_bytes).sum::<u64>() * self.devices as u64
    }

    /// Returns whether the program may still be evaluated.
    pub(crate) fn can_evaluate(&self) -> bool {
        self.evaluation.is_possible.load(Ordering::Relaxed)
    }

    /// Marks the program as one that cannot be evaluated.
    pub(crate) fn disable_evaluation(&self) {
        self.evaluation.is_possible.store(false, Ordering::Relaxed);
    }

    /// Returns whether one execution is cheap enough for the size of its arrays; determined once.
    pub(crate) fn is_cheap(&self) -> bool {
        if let Some(is_cheap) = self.evaluation.is_cheap.get() {
            return *is_cheap;
        }
        // Not inside `get_or_init`: a thread that holds the GIL could be waiting for it.
        let is_cheap = value::is_always_cheap(self)
            || hooks::get()
                .and_then(|hooks| hooks.estimate_seconds(self.number, &self.code))
                .is_some_and(|seconds| seconds <= value::MAX_LARGE_SECONDS);
        *self.evaluation.is_cheap.get_or_init(|| is_cheap)
    }

    /// Evaluates the program; the first time, it is described to Python before.
    pub(crate) fn evaluate(&self, hooks: &dyn Hooks, inputs: &[HostInput<'_>]) -> Evaluation {
        if !self.evaluation.is_described.load(Ordering::Acquire) {
            hooks.describe(
                self.number,
                &ProgramDescription {
                    code: &self.code,
                    options: &self.options,
                    devices: self.devices,
                    parameter_shardings: &self.shardings.parameters,
                    output_shardings: &self.shardings.outputs,
                    input_shapes: named_shapes(&self.parameters),
                    output_shapes: named_shapes(&self.outputs),
                },
            );
            self.evaluation.is_described.store(true, Ordering::Release);
        }
        hooks.evaluate(self.number, inputs)
    }
}

/// Returns the element type names and dimensions of arrays.
fn named_shapes(shapes: &[Shape]) -> Vec<(&'static str, &[i64])> {
    let named = shapes.iter().map(|shape| (shape.element_type.name(), shape.dims.as_slice()));
    named.collect()
}

/// One run on one device gives every device's values if all arguments and results are replicated.
fn evaluated_devices(program: &Program) -> usize {
    let are_all_replicated = |count, shardings: &[Vec<u8>]| {
        shardings.len() == count && shardings.iter().all(|sharding| is_replicated(sharding))
    };
    let options = &program.options;
    if options.replicas == 1
        && are_all_replicated(program.parameters.len(), &program.parameter_shardings)
        && are_all_replicated(program.outputs.len(), &program.output_shardings)
    {
        1
    } else {
        options.devices.len()
    }
}

/// Returns the items at those places; `None` if there are none at one of them.
fn select<T: Clone>(items: &[T], places: &[usize]) -> Option<Vec<T>> {
    places.iter().map(|at| items.get(*at).cloned()).collect()
}

/// Returns of each of `count` arrays whether one device has all of it that its computation sees: a
/// replica has its own arrays in full, a partition those that are not sharded.
fn local(program: &Program, count: usize, shardings: &[Vec<u8>]) -> Vec<bool> {
    if program.options.partitions == 1 {
        return vec![true; count];
    }
    let is_known = shardings.len() == count;
    (0..count).map(|at| is_known && is_replicated(&shardings[at])).collect()
}

/// A serialized `OpSharding` of type REPLICATED, the zero value, has no fields.
fn is_replicated(sharding: &[u8]) -> bool {
    sharding.is_empty()
}
