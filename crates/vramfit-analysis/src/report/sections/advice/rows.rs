//! Fewer rows in a call of a program that does not train.
//!
//! That rows do not depend on each other is in no compiled program, so it stands as a condition; where something speaks
//! against it, nothing is said.

use super::computed::at_line;
use crate::bytes::Bytes;
use crate::program::memory::{Buffer, Owner};
use crate::program::{ProgramMemory, parse_dimensions};
use crate::section::Advice;

/// Buffers that are less than one in this many of the largest are not looked at.
const MIN_LARGE_FRACTION: u64 = 20;
/// Fewer rows than these may have the length of another dimension by chance, as heads that of the batch.
const MIN_PAIRED_ROWS: u64 = 512;

/// A part of the rows of an argument in each call, or of one side of what is computed between all pairs of rows.
/// `devices` are those that the arrays may be divided among.
pub(super) fn fewer_rows(memory: &ProgramMemory, program: &str, devices: usize) -> Option<Advice> {
    if memory.is_differentiated() {
        return None;
    }
    let made = || memory.buffers.iter().filter(|buffer| is_made(buffer));
    let largest = made().max_by_key(|buffer| buffer.peak_bytes)?;
    let count = *dimensions(largest).first().filter(|rows| **rows > 1)?;
    let argument = only_argument(memory, count)?;
    if memory.buffers.iter().any(|buffer| occurrences(buffer, count) > 1) {
        return between_pairs(memory, count, argument);
    }
    let has_rows = |buffer: &Buffer| dimensions(buffer).first() == Some(&count);
    let min_bytes = largest.peak_bytes / MIN_LARGE_FRACTION;
    let mut large = made().filter(|buffer| buffer.peak_bytes >= min_bytes.max(1));
    // A result without rows is of all of them together.
    let mut results = memory.buffers.iter().filter(|buffer| is_result(buffer));
    if !large.all(has_rows) || !results.all(has_rows) {
        return None;
    }
    let bytes = made().filter(|buffer| has_rows(buffer)).map(|buffer| buffer.peak_bytes).sum();
    let at = at_line(memory, largest).replace(", the largest at", " at");
    // A program on several devices has the rows of one part, and the user passes those of all.
    let (fewer, as_many) = match devices {
        1 => (format!("fewer than {count} rows"), "as many rows"),
        _ => ("fewer rows".to_owned(), "as many rows as its part on each GPU"),
    };
    Some(Advice {
        bytes,
        text: format!(
            "call `{program}` with {fewer} of `{argument}` at a time, if its rows do not depend on each other: {} have \
             {as_many}, the largest `{}`{at}",
            Bytes(bytes),
            largest.shape,
        ),
    })
}

/// A part of one side, where something is computed between all pairs of rows of an argument.
fn between_pairs(memory: &ProgramMemory, count: u64, argument: &str) -> Option<Advice> {
    let pairs = || {
        let made = memory.buffers.iter().filter(|buffer| is_made(buffer));
        made.filter(|buffer| occurrences(buffer, count) > 1)
    };
    let largest = pairs().max_by_key(|buffer| buffer.peak_bytes)?;
    if count < MIN_PAIRED_ROWS {
        return None;
    }
    let at = at_line(memory, largest).replace(", the largest at", " at");
    Some(Advice {
        bytes: pairs().map(|buffer| buffer.peak_bytes).sum(),
        text: format!(
            "compute some rows of `{}`{at} at a time: it is computed between all pairs of rows of `{argument}`, which a \
             smaller part of `{argument}` would change; `jax.lax.map(..., batch_size=...)` over the rows of one side \
             computes them in parts, each with all rows of the other side",
            largest.shape,
        ),
    })
}

/// Returns the name of the only argument of the function that has so many rows; `None` where several have, where one has
/// as many in another dimension, and where the name is not known.
fn only_argument(memory: &ProgramMemory, count: u64) -> Option<&str> {
    // What the function has captured is an argument, too, of which no rows can be left out.
    let arguments = memory
        .buffers
        .iter()
        .filter(|buffer| buffer.parameter.is_some() || buffer.owner == Owner::Constants);
    let with_count = arguments.filter(|buffer| occurrences(buffer, count) > 0);
    let mut name = None;
    for argument in with_count {
        let end = argument.path.find(['[', '.']).unwrap_or(argument.path.len());
        let own = &argument.path[..end];
        let is_rows = argument.owner == Owner::Batch
            && dimensions(argument).first() == Some(&count)
            && occurrences(argument, count) == 1;
        if !is_rows || own.is_empty() || name.is_some_and(|name| name != own) {
            return None;
        }
        name = Some(own);
    }
    name
}

fn is_made(buffer: &Buffer) -> bool {
    matches!(buffer.owner, Owner::Temporaries | Owner::Outputs)
}

/// Returns `true` for what the function returns: not the table of a tuple.
fn is_result(buffer: &Buffer) -> bool {
    buffer.owner == Owner::Outputs && parse_dimensions(&buffer.shape).is_some()
}

fn dimensions(buffer: &Buffer) -> Vec<u64> {
    parse_dimensions(&buffer.shape).unwrap_or_default()
}

/// Returns how many dimensions of a buffer are so long.
fn occurrences(buffer: &Buffer, length: u64) -> usize {
    dimensions(buffer).into_iter().filter(|one| *one == length).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(owner: Owner, path: &str, shape: &str) -> Buffer {
        let elements: u64 = parse_dimensions(shape).expect("a shape").into_iter().product();
        Buffer {
            owner,
            path: path.to_owned(),
            shape: shape.to_owned(),
            parameter: (owner == Owner::Batch || owner == Owner::Parameters).then_some(0),
            bytes: 4 * elements,
            peak_bytes: 4 * elements,
            ..Buffer::default()
        }
    }

    /// Arguments, temporaries and outputs of a program.
    fn advice(arguments: &[(&str, &str)], made: &[&str], outputs: &[&str]) -> Option<String> {
        let arguments = arguments.iter().map(|(path, shape)| buffer(Owner::Batch, path, shape));
        let made = made.iter().map(|shape| buffer(Owner::Temporaries, "", shape));
        let outputs = outputs.iter().map(|shape| buffer(Owner::Outputs, "result", shape));
        let memory = ProgramMemory {
            buffers: arguments.chain(made).chain(outputs).collect(),
            ..ProgramMemory::default()
        };
        fewer_rows(&memory, "jit_f", 1).map(|advice| advice.text)
    }

    #[test]
    fn rows_of_the_only_argument_may_be_fewer_on_a_condition() {
        let text = advice(&[("x", "f32[700,4]")], &["f32[700,80]"], &["f32[700]"]).expect("rows");
        assert!(
            text.starts_with(
                "call `jit_f` with fewer than 700 rows of `x` at a time, if its rows do not depend on each other: "
            ),
            "{text}"
        );
        // Leaves of one argument are divided together.
        let tree = [("batch['x']", "f32[700,4]"), ("batch['y']", "f32[700]"), ("w", "f32[4,80]")];
        let text = advice(&tree, &["f32[700,80]"], &["f32[700]"]).expect("rows");
        assert!(text.contains("rows of `batch`"), "{text}");
    }

    #[test]
    fn nothing_is_said_where_rows_may_depend_on_each_other() {
        for (what, arguments, made, outputs) in [
            // Kernel regression: weights of all rows of `data` for each query.
            (
                "two arguments",
                &[("data", "f32[700,4]"), ("y", "f32[700]"), ("query", "f32[90,4]")][..],
                &["f32[700,90]"][..],
                &["f32[90]"][..],
            ),
            (
                "senders and receivers of a graph",
                &[("nodes", "f32[50,8]"), ("s", "s32[700]"), ("r", "s32[700]")],
                &["f32[700,80]"],
                &["f32[50,80]"],
            ),
            ("a sum of rows", &[("x", "f32[700,4]")], &["f32[700,80]"], &["f32[80]"]),
            ("one number", &[("x", "f32[700,4]")], &["f32[700,80]"], &["f32[]"]),
            (
                "a result beside the rows",
                &[("x", "f32[700,4]")],
                &["f32[700,80]"],
                &["f32[700]", "f32[80]"],
            ),
            (
                "rows that are columns elsewhere",
                &[("x", "f32[700,4]"), ("a", "f32[9,700]")],
                &["f32[700,80]"],
                &["f32[700]"],
            ),
            (
                "a transposed value",
                &[("x", "f32[700,4]")],
                &["f32[700,80]", "f32[80,700]"],
                &["f32[700]"],
            ),
            ("a square argument", &[("x", "f32[700,700]")], &["f32[700,80]"], &["f32[700]"]),
            ("no argument", &[("seed", "u32[2]")], &["f32[700,80]"], &["f32[700]"]),
        ] {
            assert_eq!(advice(arguments, made, outputs), None, "{what}");
        }
    }

    #[test]
    fn what_is_of_all_pairs_is_computed_for_some_rows_of_one_side() {
        let text = advice(&[("x", "f32[700,4]")], &["f32[700,700]"], &["f32[700]"]).expect("pairs");
        assert!(text.starts_with("compute some rows of `f32[700,700]` at a time"), "{text}");
        assert!(text.contains("`jax.lax.map(..., batch_size=...)`"), "{text}");
        assert!(!text.contains("iB"), "no bytes that were not measured: {text}");
        // Products with square weights are of no pairs.
        let weights = [("x", "f32[700,4]"), ("w", "f32[700,700]")];
        assert_eq!(advice(&weights, &["f32[700,700]"], &["f32[700]"]), None);
        // A batch with as many examples as heads.
        assert_eq!(advice(&[("x", "f32[8,64]")], &["f32[8,8,64,64]"], &["f32[8,64]"]), None);
    }

    #[test]
    fn on_several_gpus_the_rows_of_a_part_are_not_told_for_those_of_the_whole() {
        let buffers = vec![
            buffer(Owner::Batch, "x", "f32[700,4]"),
            buffer(Owner::Outputs, "result", "f32[700,80]"),
        ];
        let memory = ProgramMemory { buffers, ..ProgramMemory::default() };
        let text = fewer_rows(&memory, "jit_f", 4).expect("rows").text;
        assert!(text.starts_with("call `jit_f` with fewer rows of `x` at a time, if"), "{text}");
        assert!(!text.contains("700 rows"), "{text}");
    }
}
