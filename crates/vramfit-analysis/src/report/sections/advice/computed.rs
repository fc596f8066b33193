//! What a program computes: activations, temporaries and outputs that could be fewer, smaller or later.

use crate::analysis::RunSummary;
use crate::bytes::Bytes;
use crate::explain::batch_option;
use crate::gpu;
use crate::program::ProgramMemory;
use crate::program::memory::{Buffer, Owner, Promotion};
use crate::report::phrases::file_name;
use crate::report::sections::next_command;
use crate::section::Advice;

/// Activations that are less than one in this many of a program are left out.
const MIN_ACTIVATIONS_FRACTION: u64 = 4;

/// What the forward pass saves for the backward pass: so many bytes, the largest entry of the breakdown from `line`.
pub(super) fn activations(
    memory: &ProgramMemory,
    bytes: u64,
    line: Option<&str>,
) -> Option<Advice> {
    if bytes == 0 || bytes < memory.occupied_bytes() / MIN_ACTIVATIONS_FRACTION {
        return None;
    }
    let buffers = memory.buffers.iter();
    let saved = buffers.filter(|buffer| buffer.owner == Owner::Activations);
    let largest = saved.max_by_key(|buffer| buffer.peak_bytes);
    let line = line.filter(|line| !line.is_empty());
    let at = line.map_or_else(String::new, |line| format!(", the largest at {}", file_name(line)));
    let remedy = match memory.buffers.iter().any(is_rematerializing) {
        false if largest.is_some_and(is_checkpointed) => {
            "it is inside a `jax.checkpoint` that recomputes nothing, as its `policy` keeps all; with \
             `policy=None` it saves only the inputs; `vramfit plan` measures others"
        }
        true => {
            "the program rematerializes already, and keeps these; `vramfit plan` measures other policies, \
             and values in host memory"
        }
        false => {
            "around a layer it saves only the inputs, and recomputes the rest; \
             `vramfit plan` measures where"
        }
    };
    Some(Advice {
        bytes,
        text: format!(
            "rematerialize more (`jax.checkpoint`): {} are saved activations{at}; {remedy}",
            Bytes(bytes),
        ),
    })
}

/// One program for both passes, where the forward pass is a program of its own that returns what it saves.
pub(super) fn gradient_inside(memory: &ProgramMemory, saved_bytes: u64) -> Option<Advice> {
    let bytes = saved_bytes.saturating_sub(memory.bytes_of(Owner::Activations));
    (bytes > 0).then(|| Advice {
        bytes,
        text: format!(
            "take the gradient inside of `jax.jit`, as in `jax.jit(jax.grad(f))`: {} are saved activations that one \
             program returns and another takes, since the gradient is taken outside; in one program XLA saves fewer, and \
             reuses the memory of each after its last use",
            Bytes(bytes)
        ),
    })
}

/// Returns `true` if a value is made by a function under `jax.checkpoint`: JAX names the scope.
fn is_checkpointed(buffer: &Buffer) -> bool {
    let mut scopes = buffer.operation.split('/');
    scopes.any(|scope| scope == "checkpoint" || scope.contains("(checkpoint)"))
}

/// Says which line the largest of some buffers comes from, as a part of a sentence; nothing if that is not known.
pub(super) fn at_line(memory: &ProgramMemory, largest: &Buffer) -> String {
    let site = memory.user_site(largest.frame);
    site.map_or(String::new(), |site| format!(", the largest at {}", file_name(site)))
}

/// Returns `true` if a buffer is computed inside of a `jax.checkpoint` of the program's own. JAX calls what
/// it computes again `rematted_computation`.
fn is_rematerializing(buffer: &Buffer) -> bool {
    let mut scopes = buffer.operation.split('/');
    scopes.any(|scope| scope.contains("rematted_computation"))
}

/// JAX's names of operations that compute in no type of 16 bits.
const WIDE_OPERATIONS: [&str; 12] = [
    "cholesky",
    "eig",
    "eigh",
    "fft",
    "geqrf",
    "householder_product",
    "lu",
    "qr",
    "schur",
    "svd",
    "triangular_solve",
    "tridiagonal",
];

/// Activations in 32 bits where 16 would do, in the type whose matrices the GPU multiplies.
pub(super) fn precision(memory: &ProgramMemory, gpu: &str) -> Option<Advice> {
    // Their own steps are named by `jit(cholesky)` or `jvp(cholesky)`.
    fn scopes(buffer: &Buffer) -> impl Iterator<Item = &str> {
        buffer.operation.split(['/', '(', ')'])
    }
    if memory.buffers.iter().flat_map(scopes).any(|name| WIDE_OPERATIONS.contains(&name)) {
        return None;
    }
    // What is float32 there is so on purpose, as sums and the scores of attention.
    if is_in_16_bits(memory) {
        return None;
    }
    let is_wide =
        |buffer: &&Buffer| buffer.owner == Owner::Activations && buffer.shape.starts_with("f32[");
    let wide = memory.buffers.iter().filter(is_wide);
    let bytes: u64 = wide.map(|buffer| buffer.peak_bytes).sum();
    let (dtype, note) = match supports_bfloat16(gpu) {
        true => ("bfloat16", ""),
        false => (
            "float16",
            " (XLA refuses matrix products in bfloat16 on this GPU, and float16 needs loss scaling)",
        ),
    };
    let text = format!(
        "compute in {dtype}: {} of the saved activations are float32, and would take half as much{note}",
        Bytes(bytes),
    );
    (bytes > 0).then_some(Advice { bytes: bytes / 2, text })
}

/// Returns `true` if a program computes in 16 bits: where nearly all of its floating-point arguments are of 16 bits, or
/// most of the values that it saves.
fn is_in_16_bits(memory: &ProgramMemory) -> bool {
    /// Scales and statistics in float32 are less of the arguments.
    const MAX_WIDE_FRACTION: u64 = 100;
    let is_narrow = |buffer: &&Buffer| buffer.holds_16_bit_floats();
    let is_wide = |buffer: &&Buffer| buffer.shape.starts_with("f32[");
    let arguments = || memory.buffers.iter().filter(|buffer| buffer.parameter.is_some());
    let narrow_bytes: u64 = arguments().filter(is_narrow).map(|buffer| buffer.bytes).sum();
    let wide_bytes: u64 = arguments().filter(is_wide).map(|buffer| buffer.bytes).sum();
    let saved = || memory.buffers.iter().filter(|buffer| buffer.owner == Owner::Activations);
    wide_bytes < narrow_bytes / MAX_WIDE_FRACTION
        || saved().filter(is_narrow).count() > saved().filter(is_wide).count()
}

/// Returns `true` if a GPU multiplies bfloat16 matrices: from compute capability 8.0 (Ampere) on. On older
/// ones XLA refuses to. A GPU that is not in the catalog is assumed to be a new one.
fn supports_bfloat16(name: &str) -> bool {
    gpu::get(name).is_none_or(|gpu| gpu.compute_capability >= (8, 0))
}

/// Returns the promotion to a wider type that costs most, where the GPU computes in the narrower one.
pub(super) fn promotion<'a>(memory: &'a ProgramMemory, gpu: &str) -> Option<&'a Promotion> {
    let promotion = memory.promotion.as_ref()?;
    (promotion.from != "bf16" || supports_bfloat16(gpu)).then_some(promotion)
}

/// Values of a wider type than the program was written in, because of one operand.
pub(super) fn promoted(memory: &ProgramMemory, promotion: &Promotion) -> Option<Advice> {
    let site = memory.user_site(Some(promotion.frame))?;
    let [from, to] = [&promotion.from, &promotion.to].map(|name| dtype_name(name));
    let operand = match promotion.operand.as_str() {
        "" => "another operand",
        operand => operand,
    };
    let bytes = promotion.excess_bytes();
    Some(Advice {
        bytes,
        text: format!(
            "stay in {from}: {} promotes {from} to {to}, because {operand} is {to}; {} at the peak are {to} that is \
             computed from it, {} more than in {from} (cast the operand: `.astype(jnp.{from})`)",
            file_name(site),
            Bytes(promotion.bytes),
            Bytes(bytes)
        ),
    })
}

/// Returns what JAX calls a type of floating-point numbers.
fn dtype_name(name: &str) -> &str {
    match name {
        "bf16" => "bfloat16",
        "f16" => "float16",
        "f32" => "float32",
        "f64" => "float64",
        "c64" => "complex64",
        "c128" => "complex128",
        other => other,
    }
}

/// Double precision, which JAX only uses where it was asked for.
pub(super) fn double_precision(memory: &ProgramMemory) -> Option<Advice> {
    let is_double =
        |buffer: &&Buffer| ["f64[", "c128["].iter().any(|start| buffer.shape.starts_with(start));
    let double = memory.buffers.iter().filter(is_double);
    let bytes: u64 = double.clone().map(|buffer| buffer.peak_bytes).sum();
    let at = at_line(memory, double.max_by_key(|buffer| buffer.peak_bytes)?);
    Some(Advice {
        bytes: bytes / 2,
        text: format!(
            "compute in single precision where that is accurate enough: {} are float64 or complex128{at}, and would take \
             half as much (`jax_enable_x64`, or a `dtype` in the program)",
            Bytes(bytes)
        ),
    })
}

/// A part of the batch, where the temporaries of a program do not fit that trains a model.
pub(super) fn smaller_batch(
    memory: &ProgramMemory,
    summary: &RunSummary,
    capacity_bytes: u64,
) -> Option<Advice> {
    summary.out_of_memory()?;
    // What a Jacobian of one vector is taken of has no rows that could be fewer.
    let is_batch = |buffer: &Buffer| buffer.owner == Owner::Batch && buffer.shape.contains(',');
    let has_batch = memory.bytes_of(Owner::Batch) > 0
        && memory.bytes_of(Owner::Activations) > 0
        && (memory.bytes_of(Owner::Parameters) > 0 || memory.buffers.iter().any(is_batch));
    let other_bytes = memory.occupied_bytes().saturating_sub(memory.temp_bytes);
    let search = || {
        let command: Vec<&str> = next_command::words(&summary.header).collect();
        match batch_option(&command.join(" ")) {
            Some(option) => option.search_command(&next_command::gpu_options(&summary.header)),
            None => "vramfit plan --vary".to_owned(),
        }
    };
    (has_batch && other_bytes < capacity_bytes).then(|| Advice {
        bytes: memory.temp_bytes,
        text: format!(
            "a smaller batch: the temporaries are {}; `{}` finds the largest batch that fits",
            Bytes(memory.temp_bytes),
            search()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(operation: &str) -> Buffer {
        Buffer {
            owner: Owner::Activations,
            bytes: 4096,
            peak_bytes: 4096,
            shape: "f32[32,32]".to_owned(),
            operation: operation.to_owned(),
            ..Buffer::default()
        }
    }

    fn memory(operations: &[&str]) -> ProgramMemory {
        ProgramMemory {
            buffers: operations.iter().map(|name| saved(name)).collect(),
            ..ProgramMemory::default()
        }
    }

    #[test]
    fn a_program_that_rematerializes_is_not_advised_to() {
        let text = |operations: &[&str]| {
            activations(&memory(operations), 4096, None).expect("all of it").text
        };
        let plain = text(&["jit(step)/jvp()/dot_general"]);
        assert!(
            plain.contains("(`jax.checkpoint`): 4.0 KiB are saved activations; around a layer"),
            "{plain}"
        );
        let inner = "jit(step)/transpose(jvp())/checkpoint/rematted_computation/tanh";
        let rematerializing = text(&["jit(step)/jvp()/dot_general", inner]);
        assert!(rematerializing.contains("rematerializes already"), "{rematerializing}");
        assert!(!rematerializing.contains("around a layer"), "{rematerializing}");
        // That one of it recomputes says that others may be what a policy keeps, or inputs.
        let kept = "jit(step)/jvp()/checkpoint/tanh";
        assert!(text(&[kept, inner]).contains("rematerializes already"));
        let nothing = text(&[kept]);
        assert!(nothing.contains("recomputes nothing, as its `policy` keeps all"), "{nothing}");
    }

    #[test]
    fn the_type_is_one_that_the_gpu_multiplies() {
        let text = |gpu| precision(&memory(&["a"]), gpu).expect("wide").text;
        assert!(text("h100-80g").starts_with("compute in bfloat16: 4.0 KiB"));
        assert!(text("t4").starts_with("compute in float16: 4.0 KiB"));
    }

    #[test]
    fn a_program_in_16_bits_is_not_to_be_put_in_them() {
        let of_shape = |shape: &str, buffer: Buffer| Buffer { shape: shape.to_owned(), ..buffer };
        let argument = |shape, bytes| {
            let buffer =
                Buffer { owner: Owner::Parameters, parameter: Some(0), bytes, ..Buffer::default() };
            of_shape(shape, buffer)
        };
        let saved = |shape| of_shape(shape, saved("jit(f)/jvp()/exp"));
        for (buffers, is_advised) in [
            (vec![saved("f32[32,32]")], true),
            (vec![saved("f32[32,32]"), argument("f32[64]", 256)], true),
            (vec![saved("f32[32,32]"), argument("bf16[64]", 128)], false),
            (vec![saved("f32[32,32]"), argument("f16[64]", 128), argument("s32[64]", 256)], false),
            // A scale beside the weights.
            (vec![saved("f32[32,32]"), argument("bf16[512]", 1024), argument("f32[]", 4)], false),
            (vec![saved("f32[32,32]"), argument("bf16[64]", 128), argument("f32[64]", 256)], true),
            // Weights in 32 bits that are cast where they are used.
            (
                vec![
                    saved("f32[32,32]"),
                    saved("bf16[8]"),
                    saved("bf16[8]"),
                    argument("f32[8]", 32),
                ],
                false,
            ),
        ] {
            let shapes: Vec<_> = buffers.iter().map(|buffer| buffer.shape.clone()).collect();
            let memory = ProgramMemory { buffers, ..ProgramMemory::default() };
            assert_eq!(precision(&memory, "h100-80g").is_some(), is_advised, "{shapes:?}");
        }
    }

    #[test]
    fn what_computes_in_no_narrower_type_is_not_to_be_computed_in_one() {
        for (operation, is_advised) in [
            ("jit(nll)/jvp(jit(cholesky))/select_n", false),
            ("jit(nll)/jvp()/cholesky", false),
            ("jit(f)/transpose(jvp())/triangular_solve", false),
            ("jit(f)/fft", false),
            ("jit(f)/fft_size", true),
        ] {
            let advice = precision(&memory(&["jit(f)/jvp()/tanh", operation]), "h100-80g");
            assert_eq!(advice.is_some(), is_advised, "{operation}");
        }
    }

    #[test]
    fn what_another_program_saves_may_be_saved_inside_of_one() {
        let inside = memory(&["jit(f)/jvp()/tanh"]);
        assert!(gradient_inside(&inside, 4096).is_none());
        let advice = gradient_inside(&inside, 3 * 4096).expect("two thirds are elsewhere");
        assert_eq!(advice.bytes, 8192);
        assert!(advice.text.contains("`jax.jit(jax.grad(f))`: 8.0 KiB"), "{}", advice.text);
    }
}
