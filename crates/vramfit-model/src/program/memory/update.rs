//! How an output is computed: of which arguments, value by value, and whether a gradient goes into it.
//!
//! The new state of a training step is made of the old state and of gradients by operations that keep
//! each value at its place: `p - rate * g`. So the way back from an output through such operations,
//! outside of the differentiated function, ends at the arguments that it updates and at what the backward
//! part has made. A product of matrices or a sum ends the way: what comes out of it is another thing.

use std::ops::Range;

use rustc_hash::FxHashSet;

use crate::program::hlo::{HloGraph, HloPosition, WHOLE};
use crate::program::phase::Phase;

/// Most places that are looked at on the way back from one output.
const MAX_VISITED_POSITIONS: usize = 4096;

/// What the way back from an output has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Update {
    /// Whether a value of the backward part goes into it, value by value.
    pub(super) has_gradient: bool,
    /// Numbers of the arguments whose values go into it, value by value, in ascending order.
    pub(super) arguments: Vec<usize>,
    /// Whether the way to them leads through a product that makes a gradient and adds it to something.
    pub(super) has_joined_sum: bool,
}

/// Finds out how an output of the program is computed.
pub(super) fn trace_update(graph: &HloGraph<'_>, output: usize) -> Update {
    let Some(place) = output_position(graph, output) else {
        return Update::default();
    };
    let mut update = Update::default();
    let mut seen: FxHashSet<HloPosition> = [place].into_iter().collect();
    let mut open = vec![place];
    while let Some(place) = open.pop() {
        let before = step_back(graph, place);
        update.has_gradient |= before.is_gradient;
        update.has_joined_sum |= before.is_gradient && !before.places.is_empty();
        update.arguments.extend(before.argument);
        for place in before.places {
            if seen.len() < MAX_VISITED_POSITIONS && seen.insert(place) {
                open.push(place);
            }
        }
    }
    update.arguments.sort_unstable();
    update.arguments.dedup();
    update
}

/// What a place was computed from; nothing where the way back ends.
#[derive(Default)]
struct Sources {
    /// To the backward part.
    is_gradient: bool,
    /// To the argument of that number.
    argument: Option<usize>,
    /// To these places.
    places: Vec<HloPosition>,
}

impl Sources {
    const GRADIENT: Sources = Sources { is_gradient: true, argument: None, places: Vec::new() };

    fn places(places: impl IntoIterator<Item = HloPosition>) -> Self {
        Sources { places: places.into_iter().collect(), ..Sources::default() }
    }
}

fn output_position(graph: &HloGraph<'_>, output: usize) -> Option<HloPosition> {
    let root = graph.entry_root()?;
    let parts = &graph.get(root).shape.as_ref()?.tuple_shapes;
    match (parts.is_empty(), output) {
        (true, 0) => Some((root, WHOLE)),
        (false, _) if output < parts.len() => Some((root, output as i64)),
        _ => None,
    }
}

fn step_back(graph: &HloGraph<'_>, place: HloPosition) -> Sources {
    let (at, part) = place;
    if let Some(before) = pass_back(graph, place) {
        return before;
    }
    let opcode = graph.get(at).opcode.as_str();
    let phase = graph.phase_of_one(at);
    match phase {
        Phase::Forward => return Sources::default(),
        _ if opcode == "custom-call" => return product_with_addend(graph, place, phase),
        Phase::Backward => return Sources::GRADIENT,
        Phase::Outside => {}
    }
    if part != WHOLE {
        return Sources::default();
    }
    let count = graph.get(at).operand_ids.len();
    let operands = |numbers: Range<usize>| -> Vec<HloPosition> {
        let operands = numbers.filter_map(|number| graph.operand(at, number));
        operands.map(|operand| (operand, WHOLE)).collect()
    };
    Sources::places(match opcode {
        // What is computed of all values at once, or read from elsewhere, is another thing.
        "dot" | "convolution" | "reduce" | "reduce-window" | "sort" | "gather"
        | "select-and-scatter" | "map" | "rng" | "fft" | "cholesky" | "triangular-solve" => {
            Vec::new()
        }
        // Values that move, and those that are put beside or into others.
        "bitcast" | "bitcast-convert" | "reshape" | "transpose" | "copy" | "convert"
        | "reverse" | "slice" | "concatenate" | "collective-permute" => operands(0..count),
        "pad" | "dynamic-slice" => operands(0..1),
        "dynamic-update-slice" => operands(0..2),
        "scatter" => [operands(0..1), operands(2..count)].concat(),
        _ => {
            let mut all = operands(0..count);
            all.retain(|&operand| graph.elements(operand) == graph.elements(place));
            all
        }
    })
}

/// A product of matrices that XLA has joined with the addition of a third: the momentum, to which the
/// gradient is added. It has the name of the product or of the addition, and so the phase of either.
fn product_with_addend(graph: &HloGraph<'_>, (at, part): HloPosition, phase: Phase) -> Sources {
    let mut factors = [0, 1].into_iter().filter_map(|number| graph.operand(at, number));
    let is_gradient =
        phase == Phase::Backward || factors.any(|factor| graph.phase(factor) == Phase::Backward);
    let first = (at, if part == WHOLE { WHOLE } else { 0 });
    let addend = graph.operand(at, 2).map(|addend| (addend, WHOLE));
    let addend = addend.filter(|&addend| graph.elements(addend) == graph.elements(first));
    match addend {
        Some(addend) => Sources { is_gradient, ..Sources::places([addend]) },
        None if phase == Phase::Backward => Sources::GRADIENT,
        None => Sources::default(),
    }
}

/// Returns where the way leads through what only passes values on; none for what computes.
fn pass_back(graph: &HloGraph<'_>, (at, part): HloPosition) -> Option<Sources> {
    let instruction = graph.get(at);
    let whole_of = |number: usize| graph.operand(at, number).map(|operand| (operand, WHOLE));
    let part_of = |number: usize| graph.operand(at, number).map(|operand| (operand, part));
    let root_of = |called: usize| graph.root_of(at, called).map(|root| (root, part));
    let before: Option<HloPosition> = match instruction.opcode.as_str() {
        "parameter" => return Some(leave_computation(graph, (at, part))),
        "while" => {
            return Some(match graph.phase_of_one(at) {
                // A loop of the backward part makes gradients in every part that goes round.
                Phase::Backward => Sources::GRADIENT,
                Phase::Forward => Sources::default(),
                Phase::Outside => Sources::places(root_of(0).into_iter().chain(part_of(0))),
            });
        }
        "conditional" => {
            let branches = 0..instruction.called_computation_ids.len();
            return Some(Sources::places(branches.filter_map(root_of)));
        }
        "fusion" | "call" => root_of(0),
        "get-tuple-element" => graph.operand(at, 0).map(|whole| (whole, instruction.tuple_index)),
        "tuple" => usize::try_from(part).ok().and_then(whole_of),
        "optimization-barrier"
        | "add-dependency"
        | "copy-done"
        | "all-reduce-done"
        | "all-gather-done"
        | "async-done" => part_of(0),
        "copy-start" => whole_of(0),
        // One operand for each part.
        "all-reduce" | "all-reduce-start" | "all-gather" | "all-gather-start"
        | "reduce-scatter"
            if graph.phase_of_one(at) == Phase::Outside =>
        {
            whole_of(usize::try_from(part).unwrap_or(0))
        }
        _ => return None,
    };
    Some(Sources::places(before))
}

/// Returns what a parameter stands for: an argument of the program, or operands of what calls its
/// computation; in a loop what the round before has made, too.
fn leave_computation(graph: &HloGraph<'_>, (at, part): HloPosition) -> Sources {
    let Ok(number) = usize::try_from(graph.get(at).parameter_number) else {
        return Sources::default();
    };
    let callers = graph.callers_of_parent(at);
    if callers.is_empty() {
        return Sources { argument: Some(number), ..Sources::default() };
    }
    let mut places = Vec::new();
    for &caller in callers {
        let operand = |number: usize| graph.operand(caller, number).map(|one| (one, part));
        match graph.get(caller).opcode.as_str() {
            "while" => {
                places.extend(operand(0));
                places.extend(graph.root_of(caller, 0).map(|root| (root, part)));
            }
            "conditional" => {
                let mut branches = 0..graph.get(caller).called_computation_ids.len();
                let ours = branches
                    .find(|&branch| graph.parameter(caller, branch, number as i64) == Some(at));
                // Operand 0 chooses.
                places.extend(ours.and_then(|branch| operand(branch + 1)));
            }
            _ => places.extend(operand(number)),
        }
    }
    Sources::places(places)
}
