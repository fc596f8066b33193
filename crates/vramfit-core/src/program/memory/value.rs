//! What the instructions say of a value: its shape, how much of it a loop writes at once, and which of
//! several makers tells most.

use super::index::{At, ModuleIndex, Place, WHOLE};
use crate::program::Shape;

/// Says how much an instruction tells about a value: what computes says more than what passes on.
pub(super) fn tells(index: &ModuleIndex<'_>, place: Place) -> u32 {
    let computes = match index.get(place.0).opcode.as_str() {
        "parameter" | "while" | "tuple" | "get-tuple-element" | "call" | "conditional" => 0,
        "copy" | "broadcast" | "bitcast" | "constant" | "iota" => 1,
        _ => 2,
    };
    let named = !index.name(place.0).is_empty();
    4 * u32::from(writes_slices(index, place.0)) + 2 * u32::from(named && computes > 0) + computes
}

/// Says whether an instruction writes a slice of what it returns.
pub(super) fn writes_slices(index: &ModuleIndex<'_>, at: At) -> bool {
    let writes = |at: At| index.get(at).opcode == "dynamic-update-slice";
    match index.get(at).opcode.as_str() {
        "fusion" => index.fused_root(at).is_some_and(writes),
        _ => writes(at),
    }
}

/// Returns the shape of a value as text.
pub(super) fn shape(index: &ModuleIndex<'_>, place: Place) -> String {
    let whole = index.get(place.0).shape.as_ref();
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
