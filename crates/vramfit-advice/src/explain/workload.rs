//! What kind of program it is that found no memory, by the names of its operations.

use std::cmp::Reverse;

use super::ListedBuffer;
use super::facts::Facts;
use super::message::Message;
use super::start::names_batch;

/// What a program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    Training,
    /// It has no backward pass.
    Inference,
    Unknown,
}

/// In the names of operations of a backward pass, and of the forward pass that it follows.
const OF_BACKWARD_PASS: [&str; 3] = ["transpose(", "jvp(", "rematted_computation"];
/// In the names of functions that train. The others say that no function does, if no operation says otherwise.
const TRAINS: [&str; 4] = ["train", "grad", "update", "loss"];
const INFERS: [&str; 6] = ["predict", "generate", "infer", "decode", "forward", "sample"];
/// What `jnp` and `jax.random` call the programs of operations outside of `jax.jit`.
const SINGLE_OPERATIONS: [&str; 34] = [
    "_einsum",
    "_identity_fn",
    "_multi_slice",
    "_normal",
    "_pad",
    "_randint",
    "_reduce_sum",
    "_take",
    "_threefry_split",
    "_truncated_normal",
    "_uniform",
    "_where",
    "absolute",
    "add",
    "argsort",
    "broadcast_in_dim",
    "concatenate",
    "convert_element_type",
    "copy",
    "dot",
    "dot_general",
    "dynamic_slice",
    "exp",
    "gather",
    "iota",
    "matmul",
    "multiply",
    "reshape",
    "scatter",
    "sort",
    "subtract",
    "tile",
    "transpose",
    "true_divide",
];

impl Facts<'_> {
    /// Returns what kind of program found no memory.
    pub(super) fn workload(&self) -> Workload {
        let named = |words: &[&str]| {
            let names = self.program_names();
            names.iter().any(|name| words.iter().any(|word| name.contains(word)))
        };
        let mut operations = self.operations().peekable();
        let has_operations = operations.peek().is_some();
        let is_backward = |name: &str| OF_BACKWARD_PASS.iter().any(|part| name.contains(part));
        if operations.any(is_backward) {
            return Workload::Training;
        }
        if self.single_operation().is_some() {
            return Workload::Unknown;
        }
        match (named(&TRAINS), has_operations || named(&INFERS)) {
            (true, false) => Workload::Training,
            (false, true) => Workload::Inference,
            // The list has the largest buffers only, which may all be those of the update.
            (true, true) | (false, false) => Workload::Unknown,
        }
    }

    /// Returns `true` if the program computes on a batch: the log names its size, or the program trains.
    pub(super) fn has_batch(&self) -> bool {
        names_batch(&self.command)
            || self.log.has(|message| matches!(message, Message::Batch))
            || self.workload() == Workload::Training
    }

    /// Returns the operation outside of `jax.jit` that found no memory.
    pub(super) fn single_operation(&self) -> Option<String> {
        let names = self.program_names();
        let name = names.first()?;
        let name = name.strip_prefix("jit_").unwrap_or(name);
        let is_known =
            SINGLE_OPERATIONS.contains(&name) && names.iter().all(|it| it.ends_with(name));
        is_known.then(|| name.to_owned())
    }

    /// Returns `true` if most bytes of the listed buffers are in types of 16 bits or fewer already.
    pub(super) fn is_narrow(&self) -> bool {
        const MAX_LARGEST: usize = 4;
        let mut buffers: Vec<&ListedBuffer> = self.log.buffers.iter().collect();
        buffers.sort_by_key(|buffer| Reverse(buffer.bytes));
        buffers.truncate(MAX_LARGEST);
        let is_narrow = |shape: &str| {
            let kind = shape.trim_start_matches('(').split('[').next().unwrap_or_default();
            ["bf16", "f16", "f8", "s8", "u8", "s4", "u4", "pred"]
                .iter()
                .any(|narrow| kind.starts_with(narrow))
        };
        let sum = |of: &dyn Fn(&&&ListedBuffer) -> bool| -> u64 {
            let chosen = buffers.iter().filter(|buffer| of(buffer));
            chosen.fold(0, |sum, buffer| sum.saturating_add(buffer.bytes))
        };
        let known = sum(&|buffer| !buffer.shape.is_empty());
        known > 0 && sum(&|buffer| is_narrow(&buffer.shape)) > known / 2
    }

    fn operations(&self) -> impl Iterator<Item = &str> {
        let names = self.log.buffers.iter().map(|buffer| buffer.operation.as_str());
        names.filter(|name| !name.is_empty())
    }

    /// Returns the names of the programs that the request and the buffers are of, without `jit`.
    fn program_names(&self) -> Vec<String> {
        let of_request = self.request().and_then(|request| request.program.clone());
        let of_buffers = self.operations().filter_map(|name| {
            let (_, inside) = name.split_once("jit(").or_else(|| name.split_once("pmap("))?;
            Some(inside.split(')').next()?.to_owned())
        });
        of_request.into_iter().chain(of_buffers).map(|name| name.to_ascii_lowercase()).collect()
    }
}
