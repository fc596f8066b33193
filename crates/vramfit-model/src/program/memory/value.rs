//! What the instructions say of a value: its shape, how much of it a loop writes at once, what really
//! makes an output, and which of several makers tells most.

use crate::program::Shape;
use crate::program::hlo::{HloGraph, HloIndex, HloPosition, WHOLE};

/// Most instructions that pass an output on after it was made.
const MAX_FORWARDING_STEPS: usize = 64;

/// Returns the instruction that makes an output of the program. Several values lie in an output's
/// memory one after the other, a gradient before the parameter that it changes; only the way back
/// from the result tells which of them comes out.
pub(super) fn producer_of_output(graph: &HloGraph<'_>, output: usize) -> Option<HloIndex> {
    let root = graph.entry_root()?;
    let is_tuple = graph.get(root).shape.as_ref()?.tuple_shapes.len() > output;
    let mut at = match is_tuple {
        true => part(graph, root, output)?,
        false => root,
    };
    for _ in 0..MAX_FORWARDING_STEPS {
        let instruction = graph.get(at);
        let passes_on =
            matches!(instruction.opcode.as_str(), "bitcast" | "copy" | "copy-start" | "copy-done");
        let before = match usize::try_from(instruction.tuple_index) {
            Ok(number) if instruction.opcode == "get-tuple-element" => {
                part(graph, graph.operand(at, 0)?, number)?
            }
            _ if passes_on && graph.name(at).is_empty() => graph.operand(at, 0)?,
            _ => return Some(at),
        };
        // An argument that is returned is copied: the copy makes the output.
        if graph.get(before).opcode == "parameter" {
            return Some(at);
        }
        at = before;
    }
    Some(at)
}

/// Returns what makes a part of what an instruction returns; itself where it cannot be taken apart.
fn part(graph: &HloGraph<'_>, at: HloIndex, number: usize) -> Option<HloIndex> {
    match graph.get(at).opcode.as_str() {
        "tuple" => graph.operand(at, number),
        "fusion" => {
            let root = graph.root_of(at, 0)?;
            let inside = (graph.get(root).opcode == "tuple").then(|| graph.operand(root, number));
            let named = inside.flatten().filter(|&one| !graph.name(one).is_empty());
            Some(named.unwrap_or(at))
        }
        _ => Some(at),
    }
}

/// Ranks how well an instruction describes a value: computing ranks above passing on.
pub(super) fn rank_producer(graph: &HloGraph<'_>, place: HloPosition) -> u32 {
    let computes = match graph.get(place.0).opcode.as_str() {
        "parameter" | "while" | "tuple" | "get-tuple-element" | "call" | "conditional" => 0,
        "copy" | "broadcast" | "bitcast" | "constant" | "iota" => 1,
        _ => 2,
    };
    let named = !graph.name(place.0).is_empty();
    4 * u32::from(writes_slices(graph, place.0)) + 2 * u32::from(named && computes > 0) + computes
}

/// Returns `true` if an instruction writes a slice of what it returns.
pub(super) fn writes_slices(graph: &HloGraph<'_>, at: HloIndex) -> bool {
    let writes = |at: HloIndex| graph.get(at).opcode == "dynamic-update-slice";
    match graph.get(at).opcode.as_str() {
        "fusion" => graph.root_of(at, 0).is_some_and(writes),
        _ => writes(at),
    }
}

/// Returns the shape of a value as text.
pub(super) fn shape(graph: &HloGraph<'_>, place: HloPosition) -> String {
    let whole = graph.get(place.0).shape.as_ref();
    let shape = match (usize::try_from(place.1), place.1) {
        (_, WHOLE) => whole,
        (Ok(number), _) => whole.and_then(|whole| whole.tuple_shapes.get(number)),
        _ => None,
    };
    match shape {
        None => String::new(),
        Some(shape) if shape.tuple_shapes.is_empty() => Shape::from_proto(shape).text(),
        Some(_) => "table of pointers".to_owned(),
    }
}
