//! How an output is computed: of which arguments, value by value, and whether a gradient goes into it.
//!
//! The new state of a training step is made of the old state and of gradients by operations that keep
//! each value at its place: `p - rate * g`. So the way back from an output through such operations,
//! outside of the differentiated function, ends at the arguments that it updates and at what the backward
//! part has made. A product of matrices or a sum ends the way: what comes out of it is another thing.

use std::ops::Range;

use rustc_hash::FxHashSet;

use super::index::{ModuleIndex, Place, WHOLE};
use super::phase::Phase;

/// Most places that are looked at on the way back from one output.
const MAX_PLACES: usize = 4096;

/// What the way back from an output has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Update {
    /// Whether a value of the backward part goes into it, value by value.
    pub(super) has_gradient: bool,
    /// Numbers of the arguments whose values go into it, value by value, in ascending order.
    pub(super) arguments: Vec<usize>,
}

/// Finds out how an output of the program is computed.
pub(super) fn trace_update(index: &ModuleIndex<'_>, output: usize) -> Update {
    let Some(place) = output_place(index, output) else {
        return Update::default();
    };
    let mut update = Update::default();
    let mut seen: FxHashSet<Place> = [place].into_iter().collect();
    let mut open = vec![place];
    while let Some(place) = open.pop() {
        let before = step_back(index, place);
        update.has_gradient |= before.is_gradient;
        update.arguments.extend(before.argument);
        for place in before.places {
            if seen.len() < MAX_PLACES && seen.insert(place) {
                open.push(place);
            }
        }
    }
    update.arguments.sort_unstable();
    update.arguments.dedup();
    update
}

/// Where the way back from a place leads; nowhere where another thing begins.
#[derive(Default)]
struct Before {
    /// To the backward part.
    is_gradient: bool,
    /// To the argument of that number.
    argument: Option<usize>,
    /// To these places.
    places: Vec<Place>,
}

impl Before {
    const GRADIENT: Before = Before {
        is_gradient: true,
        argument: None,
        places: Vec::new(),
    };

    fn places(places: impl IntoIterator<Item = Place>) -> Self {
        Before {
            places: places.into_iter().collect(),
            ..Before::default()
        }
    }
}

fn output_place(index: &ModuleIndex<'_>, output: usize) -> Option<Place> {
    let root = index.entry_root()?;
    let parts = &index.get(root).shape.as_ref()?.tuple_shapes;
    match (parts.is_empty(), output) {
        (true, 0) => Some((root, WHOLE)),
        (false, _) if output < parts.len() => Some((root, output as i64)),
        _ => None,
    }
}

fn step_back(index: &ModuleIndex<'_>, place: Place) -> Before {
    let (at, part) = place;
    if let Some(before) = pass_back(index, place) {
        return before;
    }
    match index.phase_of_one(at) {
        Phase::Backward => return Before::GRADIENT,
        Phase::Forward => return Before::default(),
        Phase::Outside => {}
    }
    let opcode = index.get(at).opcode.as_str();
    if opcode == "custom-call" {
        return product_with_addend(index, place);
    }
    if part != WHOLE {
        return Before::default();
    }
    let count = index.get(at).operand_ids.len();
    let operands = |numbers: Range<usize>| -> Vec<Place> {
        let operands = numbers.filter_map(|number| index.operand(at, number));
        operands.map(|operand| (operand, WHOLE)).collect()
    };
    Before::places(match opcode {
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
            all.retain(|&operand| index.elements(operand) == index.elements(place));
            all
        }
    })
}

/// A product of matrices that XLA has joined with the addition of a third: the momentum, to which the
/// gradient is added.
fn product_with_addend(index: &ModuleIndex<'_>, (at, part): Place) -> Before {
    let factors = [0, 1]
        .into_iter()
        .filter_map(|number| index.operand(at, number));
    let is_gradient = factors
        .map(|factor| index.phase(factor))
        .any(|phase| phase == Phase::Backward);
    let first = (at, if part == WHOLE { WHOLE } else { 0 });
    let addend = index.operand(at, 2).map(|addend| (addend, WHOLE));
    let addend = addend.filter(|&addend| index.elements(addend) == index.elements(first));
    match addend {
        Some(addend) => Before {
            is_gradient,
            ..Before::places([addend])
        },
        None => Before::default(),
    }
}

/// Returns where the way leads through what only passes values on; none for what computes.
fn pass_back(index: &ModuleIndex<'_>, (at, part): Place) -> Option<Before> {
    let instruction = index.get(at);
    let whole_of = |number: usize| index.operand(at, number).map(|operand| (operand, WHOLE));
    let part_of = |number: usize| index.operand(at, number).map(|operand| (operand, part));
    let root_of = |called: usize| index.root_of(at, called).map(|root| (root, part));
    let before: Option<Place> = match instruction.opcode.as_str() {
        "parameter" => return Some(leave_computation(index, (at, part))),
        "while" => {
            return Some(match index.phase_of_one(at) {
                // A loop of the backward part makes gradients in every part that goes round.
                Phase::Backward => Before::GRADIENT,
                Phase::Forward => Before::default(),
                Phase::Outside => Before::places(root_of(0).into_iter().chain(part_of(0))),
            });
        }
        "conditional" => {
            let branches = 0..instruction.called_computation_ids.len();
            return Some(Before::places(branches.filter_map(root_of)));
        }
        "fusion" | "call" => root_of(0),
        "get-tuple-element" => index
            .operand(at, 0)
            .map(|whole| (whole, instruction.tuple_index)),
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
            if index.phase_of_one(at) == Phase::Outside =>
        {
            whole_of(usize::try_from(part).unwrap_or(0))
        }
        _ => return None,
    };
    Some(Before::places(before))
}

/// Returns what a parameter stands for: an argument of the program, or operands of what calls its
/// computation; in a loop what the round before has made, too.
fn leave_computation(index: &ModuleIndex<'_>, (at, part): Place) -> Before {
    let Ok(number) = usize::try_from(index.get(at).parameter_number) else {
        return Before::default();
    };
    let callers = index.callers_of_home(at);
    if callers.is_empty() {
        return Before {
            argument: Some(number),
            ..Before::default()
        };
    }
    let mut places = Vec::new();
    for &caller in callers {
        let operand = |number: usize| index.operand(caller, number).map(|one| (one, part));
        match index.get(caller).opcode.as_str() {
            "while" => {
                places.extend(operand(0));
                places.extend(index.root_of(caller, 0).map(|root| (root, part)));
            }
            "conditional" => {
                let mut branches = 0..index.get(caller).called_computation_ids.len();
                let ours = branches
                    .find(|&branch| index.parameter(caller, branch, number as i64) == Some(at));
                // Operand 0 chooses.
                places.extend(ours.and_then(|branch| operand(branch + 1)));
            }
            _ => places.extend(operand(number)),
        }
    }
    Before::places(places)
}
