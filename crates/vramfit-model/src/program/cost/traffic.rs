//! What a kernel reads and writes, and what of the arguments and results of a program certainly is.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{MAX_DEPTH, is_free};
use crate::program::hlo::{HloGraph, arrays};
use crate::program::proto::{HloComputationProto, HloInstructionProto};
use crate::program::shape::{MemorySpace, Shape};

/// Instructions that read all of each operand if all of their result is needed.
const READS_ALL: &[&str] = &[
    "abs",
    "add",
    "and",
    "atan2",
    "bitcast",
    "broadcast",
    "cbrt",
    "ceil",
    "compare",
    "concatenate",
    "convert",
    "copy",
    "cosine",
    "divide",
    "dot",
    "erf",
    "exponential",
    "exponential-minus-one",
    "floor",
    "log",
    "log-plus-one",
    "logistic",
    "maximum",
    "minimum",
    "multiply",
    "negate",
    "not",
    "or",
    "power",
    "reduce",
    "remainder",
    "reshape",
    "reverse",
    "rsqrt",
    "sign",
    "sine",
    "sqrt",
    "subtract",
    "tan",
    "tanh",
    "transpose",
    "tuple",
    "xor",
];

/// What of a value is read or written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Access {
    /// At most the size of the value.
    pub(super) bytes: u64,
    /// Whether it certainly is all of the value.
    pub(super) is_all: bool,
}

impl Access {
    fn all(bytes: u64) -> Self {
        Access { bytes, is_all: true }
    }

    fn part(bytes: u64) -> Self {
        Access { bytes, is_all: false }
    }
}

/// Returns what an instruction reads of each of its operands.
pub(super) fn reads(graph: &HloGraph<'_>, instruction: &HloInstructionProto) -> Vec<Access> {
    reads_within(graph, instruction, MAX_DEPTH)
}

fn reads_within(graph: &HloGraph<'_>, user: &HloInstructionProto, depth: usize) -> Vec<Access> {
    let fused = graph.called(user).next();
    match fused.filter(|_| user.opcode == "fusion" && depth > 0) {
        Some(fused) => fused_reads(graph, fused, user.operand_ids.len(), depth - 1),
        None => {
            let whole = Access::all(result_bytes(user));
            let operands = 0..user.operand_ids.len();
            operands.map(|number| read(graph, user, number, whole)).collect()
        }
    }
}

/// Returns what a fused computation reads of each of its parameters: from the root back, only what
/// each instruction needs of its operands.
fn fused_reads(
    graph: &HloGraph<'_>,
    fused: &HloComputationProto,
    parameters: usize,
    depth: usize,
) -> Vec<Access> {
    let mut needed: FxHashMap<i64, Access> = FxHashMap::default();
    let mut result = vec![Access::default(); parameters];
    if let Some(root) = graph.root_instruction(fused) {
        needed.insert(root.id, Access::all(result_bytes(root)));
    }
    // Operands stand before their users.
    for instruction in fused.instructions.iter().rev() {
        let Some(&access) = needed.get(&instruction.id) else {
            continue;
        };
        if instruction.opcode == "parameter" {
            let number = usize::try_from(instruction.parameter_number).ok();
            if let Some(parameter) = number.and_then(|number| result.get_mut(number)) {
                *parameter = access;
            }
        }
        let nested = (instruction.opcode == "fusion" && access.is_all)
            .then(|| reads_within(graph, instruction, depth));
        for (number, operand) in instruction.operand_ids.iter().enumerate() {
            let access = match &nested {
                Some(nested) => nested[number],
                None => read(graph, instruction, number, access),
            };
            let known = needed.entry(*operand).or_default();
            known.bytes = known.bytes.max(access.bytes);
            known.is_all |= access.is_all;
        }
    }
    result
}

/// Returns what an instruction reads of one operand, where so much of its result is needed.
fn read(graph: &HloGraph<'_>, user: &HloInstructionProto, number: usize, needed: Access) -> Access {
    let bytes = graph.operand_of(user, number).map_or(0, result_bytes);
    let reads_all =
        READS_ALL.contains(&user.opcode.as_str()) || is_matrix_library(&user.custom_call_target);
    match user.opcode.as_str() {
        "slice" | "dynamic-slice" | "gather" if number == 0 => {
            Access::part(needed.bytes.min(bytes))
        }
        // They change it where it lies.
        "dynamic-update-slice" | "scatter" if number == 0 => Access::default(),
        _ if reads_all && needed.is_all => Access::all(bytes),
        _ if reads_all => {
            let share = needed.bytes as f64 / result_bytes(user).max(1) as f64;
            Access::part((bytes as f64 * share.min(1.0)) as u64)
        }
        _ => Access::part(bytes),
    }
}

/// Returns `true` if a custom call is a matrix product or a convolution.
pub(super) fn is_matrix_library(target: &str) -> bool {
    target.starts_with("__cublas$") || target.starts_with("__cudnn$conv")
}

/// Returns what an instruction writes of each of its results.
pub(super) fn writes(graph: &HloGraph<'_>, instruction: &HloInstructionProto) -> Vec<Access> {
    let fused = graph.called(instruction).next();
    let fused = fused.filter(|_| instruction.opcode == "fusion");
    match fused.and_then(|fused| graph.root_instruction(fused)) {
        Some(root) if root.opcode == "tuple" => {
            let parts = graph.operands_of(root);
            parts.map(|part| write(graph, part)).collect()
        }
        Some(root) => vec![write(graph, root)],
        None if arrays(instruction).len() == 1 => vec![write(graph, instruction)],
        None => {
            let is_all = is_matrix_library(&instruction.custom_call_target);
            let access = |shape| Access { bytes: device_bytes(&shape), is_all };
            arrays(instruction).into_iter().map(access).collect()
        }
    }
}

fn write(graph: &HloGraph<'_>, result: &HloInstructionProto) -> Access {
    let made = graph.operand_of(result, 0).filter(|_| result.opcode == "bitcast");
    let result = made.unwrap_or(result);
    let update = match result.opcode.as_str() {
        "dynamic-update-slice" => Some(1),
        "scatter" => Some(2),
        _ => None,
    };
    if let Some(number) = update {
        return Access::part(graph.operand_of(result, number).map_or(0, result_bytes));
    }
    match result.opcode.as_str() {
        "parameter" => Access::default(),
        opcode => Access { bytes: result_bytes(result), is_all: READS_ALL.contains(&opcode) },
    }
}

/// Returns the bytes of arguments and results that an execution certainly reads or writes all of.
pub(super) fn certain_bytes(graph: &HloGraph<'_>, entry: &HloComputationProto) -> u64 {
    let mut read = FxHashSet::default();
    let mut written = FxHashSet::default();
    let mut total = 0u64;
    for instruction in entry.instructions.iter().filter(|it| !is_free(&it.opcode)) {
        let operands = reads(graph, instruction).into_iter().enumerate();
        for (number, _) in operands.filter(|(_, access)| access.is_all) {
            let operand = graph.operand_of(instruction, number);
            let source = operand.map(|operand| source(graph, operand));
            if let Some(source) = source.filter(|it| it.opcode == "parameter")
                && read.insert(source.id)
            {
                total = total.saturating_add(result_bytes(source));
            }
        }
    }
    let Some(root) = graph.root_instruction(entry) else {
        return total;
    };
    let parts = if root.opcode == "tuple" { graph.operands_of(root).collect() } else { vec![root] };
    for part in parts.into_iter().map(|part| source(graph, part)) {
        let (maker, number) = match graph.operand_of(part, 0) {
            Some(maker) if part.opcode == "get-tuple-element" => (maker, part.tuple_index),
            _ => (part, 0),
        };
        let access = writes(graph, maker).get(number.max(0) as usize).copied();
        if let Some(access) = access.filter(|access| access.is_all)
            && !is_free(&maker.opcode)
            && written.insert((maker.id, number))
        {
            total = total.saturating_add(access.bytes);
        }
    }
    total
}

/// Returns the instruction that made what this one only looks at in another shape.
fn source<'a>(
    graph: &HloGraph<'a>,
    mut instruction: &'a HloInstructionProto,
) -> &'a HloInstructionProto {
    // Operands stand before their users, so this ends; a damaged module may bite its tail.
    for _ in 0..graph.len() {
        match graph.operand_of(instruction, 0) {
            Some(operand) if matches!(instruction.opcode.as_str(), "bitcast" | "reshape") => {
                instruction = operand;
            }
            _ => break,
        }
    }
    instruction
}

/// Returns the bytes of an array that lie in the GPU's memory.
fn device_bytes(shape: &Shape) -> u64 {
    match shape.space {
        MemorySpace::Host => 0,
        MemorySpace::Device | MemorySpace::Collective => shape.bytes(),
    }
}

/// Returns the bytes of a result that lie in the GPU's memory.
fn result_bytes(instruction: &HloInstructionProto) -> u64 {
    let arrays = arrays(instruction);
    arrays.iter().map(device_bytes).fold(0, u64::saturating_add)
}
