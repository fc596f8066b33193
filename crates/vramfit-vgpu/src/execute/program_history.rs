//! What the step detector knows of one program: its calls, and which of its arguments it returned before.

use vramfit_model::run_config::{STEADY_CALLS, StepLimit};

use crate::buffer::origin::Origin;

/// Calls that count as one step where the returned state may be accumulated gradients, which are rarely
/// accumulated over more calls.
const MIXED_CALLS_PER_STEP: u64 = 30;
/// Calls that count as one step of a small program without a backward pass.
const SMALL_CALLS_PER_STEP: u64 = 100;
const MAX_SMALL_BYTES: u64 = 1 << 20;
/// Bytes that may be live without being returned by a program without a backward pass: scalars, keys,
/// and a loss of each call (the allocator's smallest chunk). Hardly any network has so few parameters.
const MAX_RESIDUAL_BYTES: u64 = 16 << 10;
const RESIDUAL_BYTES_PER_CALL: u64 = 256;

/// A program that is about to be executed, as its first device sees it.
#[derive(Debug)]
pub(crate) struct Execution<'a> {
    pub(crate) program: u32,
    pub(crate) name: &'a str,
    /// What it needs in all: arguments, outputs, temporaries.
    pub(crate) needed_bytes: u64,
    /// Whether it has a backward pass.
    pub(crate) backward: bool,
    pub(crate) arguments: &'a [StepArgument],
}

/// One argument of an execution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepArgument {
    pub(crate) origin: Origin,
    pub(crate) bytes: u64,
    /// Whether it holds floating-point numbers: any program may return keys and counters.
    pub(crate) float: bool,
}

/// The calls of one program.
#[derive(Debug, Default)]
pub(super) struct ProgramHistory {
    pub(super) calls: u64,
    /// How many programs were known when it was called last.
    pub(super) known_programs: usize,
    /// The call that was the first since the last new program.
    pub(super) first_steady_call: u64,
    /// Its bit in [`Origin::lineage`]; none without a backward pass.
    pub(super) lineage_bit: u64,
    /// The arguments of its last call.
    pub(super) last_arguments: Vec<u64>,
    /// Calls to which state returned.
    pub(super) returned_calls: u64,
    /// Calls to which state returned while arguments of the same sizes, more than half as many bytes, stayed
    /// unchanged.
    pub(super) mixed_calls: u64,
    pub(super) is_noted: bool,
}

/// Which of a program's arguments were returned by it, and which stayed unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StateFlow {
    pub(super) returned_bytes: u64,
    pub(super) unchanged_bytes: u64,
    /// Of the unchanged bytes, those of arrays that are as large as a returned one.
    pub(super) unchanged_same_size_bytes: u64,
}

impl ProgramHistory {
    /// Returns which arguments of a call were returned before, and which are the same as in the last call.
    pub(super) fn state_flow(&self, execution: &Execution<'_>) -> StateFlow {
        let mut flow = StateFlow::default();
        if self.last_arguments.len() != execution.arguments.len() {
            return flow;
        }
        let mut sizes = Vec::new();
        for (argument, last) in execution.arguments.iter().zip(&self.last_arguments) {
            let is_returned = match execution.backward {
                true => argument.float && argument.origin.lineage & self.lineage_bit != 0,
                false => argument.origin.producer == Some(execution.program),
            };
            if argument.origin.id == *last {
                flow.unchanged_bytes += argument.bytes;
            } else if is_returned {
                flow.returned_bytes += argument.bytes;
                sizes.push(argument.bytes);
            }
        }
        sizes.sort_unstable();
        let arguments = execution.arguments.iter().zip(&self.last_arguments);
        let unchanged_same_size = arguments
            .filter(|(argument, last)| argument.origin.id == **last)
            .map(|(argument, _)| argument.bytes)
            .filter(|bytes| sizes.binary_search(bytes).is_ok());
        flow.unchanged_same_size_bytes = unchanged_same_size.sum();
        flow
    }

    /// Returns `true` if this call of the step is the last that was asked for. A program that was named is the step whether its
    /// results return or not.
    pub(super) fn has_reached(
        &self,
        limit: StepLimit,
        is_named: bool,
        execution: &Execution<'_>,
    ) -> bool {
        match limit {
            StepLimit::Calls(calls) if is_named => self.calls >= calls,
            StepLimit::Calls(steps) => self.has_enough_calls(steps, execution),
            StepLimit::Steady => {
                self.calls - self.first_steady_call >= STEADY_CALLS
                    && (is_named || self.has_enough_calls(0, execution))
            }
        }
    }

    /// Returns whether it was called often enough for `steps` steps. One call does not show that its
    /// results return, so at least two are needed.
    pub(super) fn has_enough_calls(&self, steps: u64, execution: &Execution<'_>) -> bool {
        let steps = steps.max(2);
        let calls_per_step = match execution.backward || execution.needed_bytes >= MAX_SMALL_BYTES {
            true => 1,
            false => SMALL_CALLS_PER_STEP,
        };
        let mixed = calls_per_step.max(MIXED_CALLS_PER_STEP);
        // Nothing can have returned to the first call.
        let all = self.returned_calls + self.mixed_calls + 1;
        self.returned_calls + 1 >= steps.saturating_mul(calls_per_step)
            || all >= steps.saturating_mul(mixed)
    }
}

impl StateFlow {
    /// Returns whether all live memory passes through the program, except for scalars.
    pub(super) fn covers_live_memory(
        &self,
        execution: &Execution<'_>,
        calls: u64,
        in_use_bytes: u64,
    ) -> bool {
        let allocated_bytes = |bytes: u64| bytes.next_multiple_of(256);
        let argument_bytes = execution.arguments.iter().map(|one| allocated_bytes(one.bytes));
        let residual_bytes = in_use_bytes.saturating_sub(argument_bytes.sum());
        let allowed = MAX_RESIDUAL_BYTES + RESIDUAL_BYTES_PER_CALL * calls;
        self.unchanged_bytes <= MAX_RESIDUAL_BYTES && residual_bytes <= allowed
    }
}
