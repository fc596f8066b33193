//! Ways to reduce memory, with the bytes that each is about.
//!
//! Each rule looks at one thing, and says how many bytes it concerns and what it costs. How much would
//! really be saved only another dry run shows, since XLA then plans differently.

use std::cmp::Reverse;

use crate::analysis::{Attribution, EntryKind, RunSummary};
use crate::bytes::Bytes;
use crate::gpu;
use crate::program::ProgramMemory;
use crate::program::memory::{Buffer, Owner, Undonated};
use crate::report::Section;

/// What is less than one in so many of the whole is left out.
const MIN_SHOWN_FRACTION: u64 = 20;

/// Activations that are less than one in so many of a program are left out.
const MIN_ACTIVATIONS_FRACTION: u64 = 4;

/// The suggestions, those about most bytes first.
pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let attribution = summary.attribution.as_ref()?;
    let min_bytes = (attribution.total_bytes / MIN_SHOWN_FRACTION).max(1);
    let program = summary.program_memory.as_ref();
    let program = program.filter(|program| Some(program.program) == attribution.program);
    let mut points: Vec<(u64, String)> = Vec::new();
    if let Some(program) = program {
        let memory = &program.memory;
        points.extend(donation(memory));
        points.extend(unused_donation(memory));
        points.extend(activations(memory));
        points.extend(precision(memory, &summary.header.gpu));
        points.extend(compiler_limit(memory));
        // Without the program's arguments nobody knows which arrays it uses.
        points.extend(other_arrays(attribution));
    }
    points.extend(fragmentation(summary));
    points.retain(|(bytes, _)| *bytes >= min_bytes);
    points.sort_by_key(|(bytes, _)| Reverse(*bytes));
    let points = points.into_iter().map(|(_, point)| point).collect();
    Section::list("ways to reduce memory", points)
}

/// State that stays allocated next to its successor.
fn donation(memory: &ProgramMemory) -> Option<(u64, String)> {
    let kept = memory.undonated.iter().filter(|one| !one.output.is_empty());
    let (bytes, which) = largest_argument(kept)?;
    let point = format!(
        "donate arguments that are returned updated: {} are allocated twice during a call, because \
         {which} not donated; `jax.jit(..., donate_argnums=...)` lets the outputs reuse their memory",
        Bytes(bytes),
    );
    Some((bytes, point))
}

/// Donated arguments that no output can reuse.
fn unused_donation(memory: &ProgramMemory) -> Option<(u64, String)> {
    let unused = memory.undonated.iter().filter(|one| one.output.is_empty());
    let (bytes, which) = largest_argument(unused)?;
    let point = format!(
        "return something of the same shape and type, or do not donate: {which} donated without effect \
         ({}), because no output can reuse the memory",
        Bytes(bytes),
    );
    Some((bytes, point))
}

/// Returns the bytes of some arguments, and names the largest.
fn largest_argument<'a>(
    arguments: impl Iterator<Item = &'a Undonated> + Clone,
) -> Option<(u64, String)> {
    let bytes = arguments.clone().map(|one| one.bytes).sum();
    let largest = arguments.clone().max_by_key(|one| one.bytes)?;
    let which = match arguments.count() - 1 {
        0 => format!("`{}` is", largest.argument),
        more => format!("`{}` and {more} more are", largest.argument),
    };
    Some((bytes, which))
}

/// What the forward pass saves for the backward pass.
fn activations(memory: &ProgramMemory) -> Option<(u64, String)> {
    let bytes = memory.bytes_of(Owner::Activations);
    if bytes < memory.occupied_bytes() / MIN_ACTIVATIONS_FRACTION {
        return None;
    }
    let buffers = memory.buffers.iter();
    let saved = buffers.filter(|buffer| buffer.owner == Owner::Activations);
    let largest = saved.max_by_key(|buffer| buffer.peak_bytes)?;
    let at = memory
        .user_site(largest.frame)
        .map_or(String::new(), |site| format!(", the largest at {site}"));
    let remedy = match memory.buffers.iter().any(is_rematerializing) {
        true => {
            "the program rematerializes already, and these are what it still keeps; `vramfit plan` \
             measures other policies, and values in memory of the host"
        }
        false => {
            "`jax.checkpoint` around a layer saves only its inputs, and recomputes the rest; \
             `vramfit plan` measures where"
        }
    };
    let point = format!(
        "save less for the backward pass: {} are saved activations{at}; {remedy}",
        Bytes(bytes),
    );
    Some((bytes, point))
}

/// Says whether a buffer is computed inside of a `jax.checkpoint` of the program's own. JAX calls what
/// it computes again `rematted_computation`.
fn is_rematerializing(buffer: &Buffer) -> bool {
    let mut scopes = buffer.operation.split('/');
    scopes.any(|scope| scope.contains("rematted_computation"))
}

/// Activations in 32 bits where 16 would do, in the type whose matrices the GPU multiplies.
fn precision(memory: &ProgramMemory, gpu: &str) -> Option<(u64, String)> {
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
    let point = format!(
        "compute in {dtype}: {} of the saved activations are float32, and would take half as much{note}",
        Bytes(bytes),
    );
    (bytes > 0).then_some((bytes / 2, point))
}

/// Says whether a GPU multiplies bfloat16 matrices: from compute capability 8.0 (Ampere) on. On older
/// ones XLA refuses to. A GPU that is not in the catalogue is assumed to be a new one.
fn supports_bfloat16(name: &str) -> bool {
    let gpu = gpu::all().iter().find(|gpu| gpu.name == name);
    gpu.is_none_or(|gpu| gpu.compute_capability >= (8, 0))
}

/// A program that the compiler could not bring below its limit.
fn compiler_limit(memory: &ProgramMemory) -> Option<(u64, String)> {
    let needed = memory.occupied_bytes();
    let over = needed
        .checked_sub(memory.compiler_limit_bytes)
        .filter(|_| memory.compiler_limit_bytes > 0)?;
    let recomputed = memory.buffers.iter().filter(|buffer| buffer.rematerialized);
    let recomputed: u64 = recomputed.map(|buffer| buffer.peak_bytes).sum();
    let already = if recomputed * MIN_SHOWN_FRACTION >= needed {
        format!(
            ", although {} of it are recomputed values",
            Bytes(recomputed)
        )
    } else {
        String::new()
    };
    let point = format!(
        "make the program smaller: alone, it needs {}, which is {} above the compiler's limit of {}; \
         neither scheduling nor rematerialization brings it below{already} (the warning `Can't reduce \
         memory use below ...`)",
        Bytes(needed),
        Bytes(over),
        Bytes(memory.compiler_limit_bytes),
    );
    Some((over, point))
}

/// Arrays that the critical program does not use.
fn other_arrays(attribution: &Attribution) -> Option<(u64, String)> {
    let entries = attribution.parts.iter();
    let others = entries.filter(|entry| entry.kind == EntryKind::OtherArrays);
    let bytes = others.clone().map(|entry| entry.bytes).sum();
    // The largest comes first.
    let largest = others.clone().next()?;
    let at = if largest.site.is_empty() {
        String::new()
    } else {
        format!(", {} of it from {}", Bytes(largest.bytes), largest.site)
    };
    let point = format!(
        "free arrays that the program does not use: {}{at}",
        Bytes(bytes)
    );
    Some((bytes, point))
}

/// Free memory in blocks that are too small.
fn fragmentation(summary: &RunSummary) -> Option<(u64, String)> {
    let failure = summary.out_of_memory()?;
    (failure.fragmented() && !summary.header.preallocate).then(|| {
        let free = failure.pool.free_bytes.unwrap_or(0);
        let point = format!(
            "let JAX preallocate its pool: {} are free but fragmented, and a pool that grows cannot merge \
             them (leave `XLA_PYTHON_CLIENT_PREALLOCATE` unset, or set it to `true`)",
            Bytes(free),
        );
        (free, point)
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
    fn a_program_that_rematerializes_is_not_told_to() {
        let text = |operations: &[&str]| activations(&memory(operations)).expect("all of it").1;
        let plain = text(&["jit(step)/jvp()/dot_general"]);
        assert!(plain.contains("`jax.checkpoint` around a layer"), "{plain}");
        let inner = "jit(step)/transpose(jvp())/checkpoint/rematted_computation/tanh";
        let rematerializing = text(&["jit(step)/jvp()/dot_general", inner]);
        assert!(
            rematerializing.contains("rematerializes already"),
            "{rematerializing}"
        );
        assert!(
            !rematerializing.contains("around a layer"),
            "{rematerializing}"
        );
    }

    #[test]
    fn the_type_is_one_that_the_gpu_multiplies() {
        let text = |gpu| precision(&memory(&["a"]), gpu).expect("wide").1;
        assert!(text("h100-80g").starts_with("compute in bfloat16: 4.0 KiB"));
        assert!(text("t4").starts_with("compute in float16: 4.0 KiB"));
    }
}
