//! Operations outside of `jax.jit`, and results that are too large by themselves.

use crate::analysis::RunSummary;
use crate::bytes::Bytes;
use crate::program::ProgramMemory;
use crate::program::memory::Owner;
use crate::report::phrases::file_name;
use crate::section::Advice;

/// Results that have no room whatever else a program needs. `site` is where it was called.
pub(super) fn outputs_alone(
    memory: &ProgramMemory,
    program: &str,
    site: &str,
    capacity_bytes: u64,
) -> Option<Advice> {
    // What is returned for the backward pass is not for the program to say.
    let outputs = memory.buffers.iter().filter(|buffer| buffer.owner == Owner::Outputs);
    let outputs = outputs.filter(|buffer| !buffer.is_residual());
    let bytes: u64 = outputs.map(|buffer| buffer.peak_bytes).sum();
    let text = match memory.is_eager_operation(site) {
        true => format!("make a smaller array at {}, or a part at a time: it is", file_name(site)),
        false => {
            format!("return less from `{program}`, or a part in each call: its outputs alone are")
        }
    };
    (bytes > capacity_bytes).then(|| Advice {
        // What makes the outputs is smaller with them.
        bytes: bytes.saturating_add(memory.temp_bytes),
        text: format!("{text} {}, more than the pool's {}", Bytes(bytes), Bytes(capacity_bytes)),
    })
}

/// JAX's names of operations whose result XLA stores as a whole: it fuses none of them with what follows.
const UNFUSED_OPERATIONS: [&str; 14] = [
    "all_gather",
    "cholesky",
    "conv_general_dilated",
    "custom_call",
    "dot_general",
    "eigh",
    "fft",
    "geqrf",
    "householder_product",
    "ragged_dot_general",
    "sort",
    "svd",
    "top_k",
    "triangular_solve",
];

/// The program by which JAX divides an array of one GPU among several.
pub(in crate::report::sections) const SPLITTING_PROGRAM: &str = "jit__multi_slice";

/// An array that is made on one GPU and then divided among several.
pub(super) fn split_array(memory: &ProgramMemory, summary: &RunSummary) -> Option<Advice> {
    let site = &summary.out_of_memory()?.context.site;
    let bytes = memory.bytes_of(Owner::Outputs);
    Some(Advice {
        bytes,
        text: format!(
            "make arrays where they are needed, by a function with `jax.jit(..., out_shardings=...)`, or pass NumPy \
             arrays: at {}, JAX divides one of {} among the GPUs, which one GPU has whole, and its parts beside it",
            file_name(site),
            Bytes(bytes)
        ),
    })
}

/// Operations outside of `jax.jit`, each of which returns an array, in one program; a part of the result at a time where
/// that changes nothing.
pub(super) fn eager_operation(memory: &ProgramMemory, summary: &RunSummary) -> Option<Advice> {
    const MIN_ARGUMENT_BYTES: u64 = 1024;
    let site = &summary.out_of_memory()?.context.site;
    // What makes an array of nothing is no step of a computation.
    let computes = memory
        .buffers
        .iter()
        .any(|buffer| buffer.parameter.is_some() && buffer.bytes >= MIN_ARGUMENT_BYTES);
    (computes && memory.is_eager_operation(site)).then(|| {
        let bytes = memory.bytes_of(Owner::Outputs);
        let (at, size) = (file_name(site), Bytes(bytes));
        let text = match find_unfused_operation(memory) {
            Some(operation) => format!(
                "compute a part of the result at {at} at a time, such as some of its rows: it is {size}, and XLA stores \
                 the result of `{operation}` as a whole, in a function with `jax.jit` as well"
            ),
            None => format!(
                "put the computation at {at} into a function with `jax.jit`: outside of it each operation returns an \
                 array, here of {size}, and XLA cannot fuse it with what follows"
            ),
        };
        Advice { bytes, text }
    })
}

/// Returns the operation that makes the largest output, where XLA fuses it with nothing that follows.
fn find_unfused_operation(memory: &ProgramMemory) -> Option<&str> {
    let outputs = memory.buffers.iter().filter(|buffer| buffer.owner == Owner::Outputs);
    let largest = outputs.max_by_key(|buffer| buffer.bytes)?;
    let name = largest.operation.rsplit('/').next()?;
    let is_stored = UNFUSED_OPERATIONS.contains(&name)
        || name.starts_with("scatter")
        || name.starts_with("cum");
    is_stored.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::memory::{Buffer, Frame};

    #[test]
    fn an_array_that_has_no_room_is_made_smaller_where_it_is_made() {
        let text = |frame: Option<u32>| {
            let array = Buffer {
                owner: Owner::Outputs,
                bytes: 8,
                peak_bytes: 8,
                frame,
                ..Buffer::default()
            };
            let frames = ["a.py:1 (f)", "a.py:2 (f)"]
                .map(|site| Frame { site: site.to_owned(), ..Frame::default() });
            let (buffers, frames) = (vec![array], frames.to_vec());
            let memory = ProgramMemory { buffers, frames, ..ProgramMemory::default() };
            assert!(outputs_alone(&memory, "jit_zeros", "a.py:1 (f)", 8).is_none());
            outputs_alone(&memory, "jit_zeros", "a.py:1 (f)", 4).expect("no room").text
        };
        assert!(
            text(Some(0))
                .starts_with("make a smaller array at a.py:1 (f), or a part at a time: it is 8 B")
        );
        assert!(text(Some(1)).starts_with("return less from `jit_zeros`"));
        assert!(text(None).starts_with("return less from `jit_zeros`"));
    }

    #[test]
    fn what_is_kept_for_the_backward_pass_is_no_result_to_return_less_of() {
        let output = |path: &str| Buffer {
            owner: Owner::Outputs,
            bytes: 8,
            peak_bytes: 8,
            path: path.to_owned(),
            ..Buffer::default()
        };
        for (paths, has_room) in
            [(["result", "residuals[0]"], true), (["result[0]", "result[1]"], false)]
        {
            let buffers = paths.map(output).to_vec();
            let memory = ProgramMemory { buffers, ..ProgramMemory::default() };
            let advice = outputs_alone(&memory, "jit_f", "a.py:1 (f)", 8);
            assert_eq!(advice.is_none(), has_room, "{paths:?}");
        }
    }
}
