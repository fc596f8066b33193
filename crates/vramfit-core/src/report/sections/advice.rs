//! Ways to reduce memory, with the bytes that each is about.
//!
//! Each rule looks at one thing. What it leaves is no difference of bytes: XLA plans anew when something
//! changes, and another moment may then have the peak. Only another dry run measures it.

use std::cmp::Reverse;

use crate::allocator::AllocatorKind;
use crate::analysis::facts::unread_outputs;
use crate::analysis::{Attribution, EntryKind, ReplicatedArgument, RunSummary, largest_line};
use crate::bytes::Bytes;
use crate::explain::batch_option;
use crate::gpu;
use crate::program::memory::{Buffer, Owner};
use crate::program::{ProgramMemory, parse_dimensions};
use crate::report::Section;
use crate::report::phrases::{file_name, largest_argument};
use crate::section::Advice;
use crate::settings::{SPILLED_PART, USUAL_UNIFIED_FRACTION};

/// Beyond this many times the batch, other values than those of today's peak decide, and no number is told.
const MAX_EXTRAPOLATION: f64 = 16.0;

/// What is less than one in this many of the whole is left out.
const MIN_SHOWN_FRACTION: u64 = 20;

/// Activations that are less than one in this many of a program are left out.
const MIN_ACTIVATIONS_FRACTION: u64 = 4;

/// The suggestions, those about most bytes first.
pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let reductions = summary.attribution.as_ref().map(|it| reductions(summary, it));
    let points = reductions.unwrap_or_default().into_iter().map(|advice| advice.text);
    // That takes nothing less, and is slow.
    let points = points.chain(host_memory(summary));
    let section = Section::list("ways to reduce memory, not measured", points.collect())?;
    Some(if has_room(summary) { section.into_detail() } else { section })
}

/// Returns `true` if a run fits, and at least half of what the pool can have is left.
pub(super) fn has_room(summary: &RunSummary) -> bool {
    let device = summary.critical_device();
    let is_half = device.is_some_and(|device| device.peak_bytes <= device.capacity_bytes / 2);
    is_half && summary.fits() == Some(true)
}

/// What the memory that is left can be used for, where a program trains.
pub(in crate::report) fn room(summary: &RunSummary) -> Option<Section> {
    if !has_room(summary) || !trains(summary) {
        return None;
    }
    let spare_bytes = summary.spare_bytes(summary.critical_device()?.device)?;
    let larger = larger_batch(summary).map(|batch| format!("room for {batch} (estimated); "));
    let text = format!(
        "with {} to spare, {}`vramfit plan --vary` finds the largest batch that fits, and `vramfit plan --fastest` what \
         is faster with more memory",
        Bytes(spare_bytes),
        larger.unwrap_or_default()
    );
    Section::list("what the rest can be used for", vec![text])
}

/// Returns `true` if the program that decides has a batch and a backward pass.
pub(super) fn trains(summary: &RunSummary) -> bool {
    let owns = |memory: &ProgramMemory, owner| memory.bytes_of(owner) > 0;
    summary.program_memory.as_ref().is_some_and(|program| {
        let memory = &program.memory;
        owns(memory, Owner::Batch) && owns(memory, Owner::Activations)
    })
}

/// Says how large a batch the pool has room for, if activations, temporaries and the batch grow with it and nothing else
/// does.
fn larger_batch(summary: &RunSummary) -> Option<String> {
    let attribution = summary.attribution.as_ref()?;
    let capacity_bytes = summary.critical_device()?.capacity_bytes;
    let grows = |kind| {
        use Owner::{Activations, Batch, Temporaries};
        matches!(kind, EntryKind::Program(Activations | Batch | Temporaries))
    };
    let parts = attribution.parts.iter().filter(|part| grows(part.kind));
    let growing_bytes: u64 = parts.map(|part| part.bytes).sum();
    let other_bytes = attribution.total_bytes.checked_sub(growing_bytes)?;
    let room_bytes = capacity_bytes.checked_sub(other_bytes)?;
    if growing_bytes == 0 {
        return None;
    }
    let factor = room_bytes as f64 / growing_bytes as f64;
    if factor >= MAX_EXTRAPOLATION {
        return Some("a batch many times as large".to_owned());
    }
    Some(match batch_option(&summary.header.command.join(" ")) {
        Some(batch) => {
            let size = round_down((batch.size as f64 * factor) as u64);
            format!("a batch of about {size} instead of {}", batch.size)
        }
        None if factor < 3.0 => {
            format!("about {:.1} times the batch", (factor * 10.0).floor() / 10.0)
        }
        None => format!("about {} times the batch", round_down(factor as u64)),
    })
}

/// Rounds down to two digits.
fn round_down(number: u64) -> u64 {
    let unit = 10_u64.pow(number.max(1).ilog10().saturating_sub(1));
    number / unit * unit
}

/// What takes less, the most first.
fn reductions(summary: &RunSummary, attribution: &Attribution) -> Vec<Advice> {
    let total_bytes = attribution.total_bytes;
    let min_bytes = (total_bytes / MIN_SHOWN_FRACTION).max(1);
    let program = summary.program_memory.as_ref();
    let program = program.filter(|program| Some(program.program) == attribution.program);
    let name = |index: usize| summary.programs.get(index).map_or("", |it| it.name.as_str());
    let mut found: Vec<Advice> = Vec::new();
    if let Some(program) = program {
        let memory = &program.memory;
        let mut measured = summary.measured_edits.iter().filter(|edit| edit.peak_bytes.is_some());
        let donates = measured.any(|edit| edit.kinds.contains(&"donate"));
        found.extend(donation(memory).filter(|_| !donates));
        found.extend(unused_donation(memory));
        found.extend(unread_outputs::advice(&program.unread_outputs));
        found.extend(replication(&program.replicated));
        let capacity_bytes =
            summary.critical_device().map_or(u64::MAX, |device| device.capacity_bytes);
        let operation = one_program(memory, summary);
        // An operation is no function of the user's.
        let function = name(program.program);
        let function = operation.is_none().then_some(function);
        match function.and_then(|name| outputs_alone(memory, name, capacity_bytes)) {
            // Then no other way to compute them helps.
            Some(advice) => found.push(advice),
            None => {
                let saved = EntryKind::Program(Owner::Activations);
                let entry = attribution.parts.iter().find(|entry| entry.kind == saved);
                found.extend(activations(memory, entry.map(|entry| entry.site.as_str())));
                // How the elements are divided among GPUs is not known when they are mapped.
                found.extend(chunks(memory).filter(|_| summary.header.devices == 1));
                found.extend(precision(memory, &summary.header.gpu().name));
                found.extend(smaller_batch(memory, summary, capacity_bytes));
            }
        }
        found.extend(double_precision(memory));
        found.extend(function.and_then(|name| fewer_rows(memory, name, summary)));
        found.extend(operation);
        // Without the program's arguments nobody knows which arrays it uses.
        found.extend(other_arrays(attribution));
    }
    found.extend(update_inside(summary));
    found.extend(fragmentation(summary));
    found.retain(|advice| advice.bytes >= min_bytes);
    found.sort_by_key(|advice| Reverse(advice.bytes));
    found
}

/// Memory of the host, where the GPU has too little by itself and both together have not.
fn host_memory(summary: &RunSummary) -> Option<String> {
    let header = &summary.header;
    let failure = summary.out_of_memory().filter(|failure| failure.fatal.is_none())?;
    let is_pooled =
        header.allocator.parse().is_ok_and(|kind: AllocatorKind| kind == AllocatorKind::Bfc);
    // With a fraction above 1 it is used already.
    let is_used = header.unified_memory && header.memory_fraction > 1.0;
    let is_possible = is_pooled && !is_used && !header.gpu().shares_host_memory;
    let needed_bytes = failure.needed_bytes();
    let host_bytes = needed_bytes.saturating_sub(header.free_bytes());
    // The pool is all of the GPU, and a part of what the host has free.
    let beyond_bytes = needed_bytes.saturating_sub(header.total_memory_bytes());
    let free_bytes = host_bytes.max((beyond_bytes as f64 / SPILLED_PART) as u64);
    let largest_bytes = (header.total_memory_bytes() as f64 * USUAL_UNIFIED_FRACTION) as u64;
    (is_possible && host_bytes > 0 && needed_bytes <= largest_bytes).then(|| {
        let each = if summary.devices.len() > 1 { " for this GPU" } else { "" };
        format!(
            "use host memory as well, slowly (unified memory): `vramfit run --spill` if the host has at least {} \
             free{each}, `vramfit dryrun --spill BYTES` shows what that gives",
            Bytes(free_bytes)
        )
    })
}

/// State that stays allocated next to its successor.
fn donation(memory: &ProgramMemory) -> Option<Advice> {
    let kept = memory.undonated.iter().filter(|one| !one.output.is_empty());
    let (bytes, which) = largest_argument(kept)?;
    Some(Advice {
        bytes,
        text: format!(
            "donate arguments that are returned updated: {} are allocated twice during a call, because \
             {which} not donated; `jax.jit(..., donate_argnums=...)` lets the outputs reuse their memory",
            Bytes(bytes),
        ),
    })
}

/// Donated arguments that no output can reuse.
fn unused_donation(memory: &ProgramMemory) -> Option<Advice> {
    let unused = memory.undonated.iter().filter(|one| one.output.is_empty());
    let (bytes, which) = largest_argument(unused)?;
    Some(Advice {
        bytes,
        text: format!(
            "return something of the same shape and type, or do not donate: {which} donated without \
             effect ({}), because no output can reuse the memory",
            Bytes(bytes),
        ),
    })
}

/// State that several GPUs have whole, and could divide.
fn replication(arguments: &[ReplicatedArgument]) -> Option<Advice> {
    let largest = arguments.first()?;
    let bytes = arguments.iter().map(|argument| argument.bytes).sum();
    let more = match arguments.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(Advice {
        bytes,
        text: format!(
            "shard state that is replicated: {} on each GPU are the same on {} of them (`{}`{more})",
            Bytes(bytes),
            largest.copies,
            largest.path
        ),
    })
}

/// What the forward pass saves for the backward pass.
///
/// `line` is where the largest entry of the breakdown comes from.
fn activations(memory: &ProgramMemory, line: Option<&str>) -> Option<Advice> {
    let bytes = memory.bytes_of(Owner::Activations);
    if bytes < memory.occupied_bytes() / MIN_ACTIVATIONS_FRACTION {
        return None;
    }
    let buffers = memory.buffers.iter();
    let saved = buffers.filter(|buffer| buffer.owner == Owner::Activations);
    let largest = saved.max_by_key(|buffer| buffer.peak_bytes)?;
    let line = line.filter(|line| !line.is_empty());
    let at = line.map_or_else(String::new, |line| format!(", the largest at {}", file_name(line)));
    let remedy = match memory.buffers.iter().any(is_rematerializing) {
        false if is_checkpointed(largest) => {
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

/// Returns `true` if a value is made by a function under `jax.checkpoint`: JAX names the scope.
fn is_checkpointed(buffer: &Buffer) -> bool {
    let mut scopes = buffer.operation.split('/');
    scopes.any(|scope| scope == "checkpoint" || scope.contains("(checkpoint)"))
}

/// Says which line the largest of some buffers comes from, as a part of a sentence; nothing if that is not known.
fn at_line(memory: &ProgramMemory, largest: &Buffer) -> String {
    let site = memory.user_site(largest.frame);
    site.map_or(String::new(), |site| format!(", the largest at {}", file_name(site)))
}

/// What is computed for all elements that `jax.vmap` maps at the same time.
fn chunks(memory: &ProgramMemory) -> Option<Advice> {
    let is_mapped = |buffer: &&Buffer| {
        matches!(buffer.owner, Owner::Activations | Owner::Temporaries)
            && buffer.operation.split('/').any(|scope| scope.starts_with("vmap("))
    };
    let mapped = memory.buffers.iter().filter(is_mapped);
    let bytes = mapped.clone().map(|buffer| buffer.peak_bytes).sum();
    let largest = mapped.max_by_key(|buffer| buffer.peak_bytes)?;
    let at = at_line(memory, largest);
    let mut scopes = largest.operation.split('/');
    let mapping = match scopes.any(|scope| maps_derivatives(scope)) {
        true => "`jax.vmap` maps, by itself or in `jax.jacfwd`, `jax.jacrev` and `jax.hessian`,",
        false => "`jax.vmap` maps",
    };
    Some(Advice {
        bytes,
        text: format!(
            "compute what {mapping} in chunks: {} are for all of its elements{at}; `vramfit plan --try chunk` finds \
             the largest chunks that fit (by hand: `jax.lax.map(..., batch_size=...)`)",
            Bytes(bytes)
        ),
    })
}

/// Returns `true` if what is mapped are derivatives, of the program's `jax.vmap` or of a Jacobian: JAX calls both the same.
fn maps_derivatives(scope: &str) -> bool {
    scope.starts_with("vmap(jvp(") || scope.starts_with("vmap(transpose(")
}

/// Returns `true` if a buffer is computed inside of a `jax.checkpoint` of the program's own. JAX calls what
/// it computes again `rematted_computation`.
fn is_rematerializing(buffer: &Buffer) -> bool {
    let mut scopes = buffer.operation.split('/');
    scopes.any(|scope| scope.contains("rematted_computation"))
}

/// Activations in 32 bits where 16 would do, in the type whose matrices the GPU multiplies.
fn precision(memory: &ProgramMemory, gpu: &str) -> Option<Advice> {
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

/// Returns `true` if a GPU multiplies bfloat16 matrices: from compute capability 8.0 (Ampere) on. On older
/// ones XLA refuses to. A GPU that is not in the catalog is assumed to be a new one.
fn supports_bfloat16(name: &str) -> bool {
    let gpu = gpu::all().iter().find(|gpu| gpu.name == name);
    gpu.is_none_or(|gpu| gpu.compute_capability >= (8, 0))
}

/// Double precision, which JAX only uses where it was asked for.
fn double_precision(memory: &ProgramMemory) -> Option<Advice> {
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

/// Results that have no room whatever else a program needs.
fn outputs_alone(memory: &ProgramMemory, program: &str, capacity_bytes: u64) -> Option<Advice> {
    let bytes = memory.bytes_of(Owner::Outputs);
    (bytes > capacity_bytes).then(|| Advice {
        bytes,
        text: format!(
            "return less from `{program}`, or a part in each call: its outputs alone are {}, more than the pool's {}",
            Bytes(bytes),
            Bytes(capacity_bytes)
        ),
    })
}

/// Operations outside of `jax.jit`, each of which returns an array, in one program.
fn one_program(memory: &ProgramMemory, summary: &RunSummary) -> Option<Advice> {
    const MIN_ARGUMENT_BYTES: u64 = 1024;
    let site = &summary.out_of_memory()?.context.site;
    // What makes an array of nothing is no step of a computation.
    let computes = memory
        .buffers
        .iter()
        .any(|buffer| buffer.parameter.is_some() && buffer.bytes >= MIN_ARGUMENT_BYTES);
    (computes && memory.is_eager_operation(site)).then(|| {
        let bytes = memory.bytes_of(Owner::Outputs);
        Advice {
            bytes,
            text: format!(
                "put the computation at {} into a function with `jax.jit`: outside of it each operation returns an \
                 array, here of {}, and XLA cannot fuse it with what follows",
                file_name(site),
                Bytes(bytes)
            ),
        }
    })
}

/// A part of the rows of an argument in each call, where a program that does not train has a value with as many.
fn fewer_rows(memory: &ProgramMemory, program: &str, summary: &RunSummary) -> Option<Advice> {
    summary.out_of_memory()?;
    if memory.is_differentiated() {
        return None;
    }
    let made = |buffer: &&Buffer| matches!(buffer.owner, Owner::Temporaries | Owner::Outputs);
    let largest = memory.buffers.iter().filter(made).max_by_key(|buffer| buffer.peak_bytes)?;
    let rows = |buffer: &Buffer| {
        let rows = parse_dimensions(&buffer.shape)?.first().copied();
        rows.filter(|rows| *rows > 1)
    };
    let count = rows(largest)?;
    let mut arguments = memory.buffers.iter();
    let argument = arguments.find(|buffer| {
        buffer.owner == Owner::Batch && !buffer.path.is_empty() && rows(buffer) == Some(count)
    })?;
    let with_rows = |buffer: &&Buffer| made(buffer) && rows(buffer) == Some(count);
    let bytes = memory.buffers.iter().filter(with_rows).map(|buffer| buffer.peak_bytes).sum();
    let at = at_line(memory, largest);
    Some(Advice {
        bytes,
        text: format!(
            "call `{program}` with fewer than {count} rows of `{}` at a time: {} have as many rows, the largest \
             `{}`{}",
            argument.path,
            Bytes(bytes),
            largest.shape,
            at.replace(", the largest at", " at")
        ),
    })
}

/// A part of the batch, where the temporaries of a program do not fit that trains a model.
fn smaller_batch(
    memory: &ProgramMemory,
    summary: &RunSummary,
    capacity_bytes: u64,
) -> Option<Advice> {
    summary.out_of_memory()?;
    let has_batch = memory.bytes_of(Owner::Batch) > 0 && memory.bytes_of(Owner::Activations) > 0;
    let other_bytes = memory.occupied_bytes().saturating_sub(memory.temp_bytes);
    (has_batch && other_bytes < capacity_bytes).then(|| Advice {
        bytes: memory.temp_bytes,
        text: format!(
            "a smaller batch: the temporaries are {}; `vramfit plan --vary` finds the largest batch that \
             fits",
            Bytes(memory.temp_bytes)
        ),
    })
}

/// One program for gradient and update, which needs no arrays of gradients.
fn update_inside(summary: &RunSummary) -> Option<Advice> {
    let bytes = summary.gradient_array_bytes()?;
    Some(Advice {
        bytes,
        text: format!(
            "do the update in the `jit` that computes the gradients, and donate what it replaces \
             (`donate_argnums`): {} are gradients that are arrays only because the update runs outside of it",
            Bytes(bytes)
        ),
    })
}

/// Arrays that the critical program does not use, and nothing after it in this run.
fn other_arrays(attribution: &Attribution) -> Option<Advice> {
    let entries = attribution.parts.iter();
    let others = entries.filter(|entry| entry.kind == EntryKind::OtherArrays && !entry.read_later);
    let bytes = others.clone().map(|entry| entry.bytes).sum();
    let (site, line_bytes) = largest_line(others)?;
    let (line, is_all) = (file_name(site), line_bytes == bytes);
    let at = match (line, is_all) {
        ("", _) => String::new(),
        (line, true) => format!(", from {line}"),
        (line, false) => format!(", {} of it from {line}", Bytes(line_bytes)),
    };
    Some(Advice {
        bytes,
        text: match attribution.reads_are_known {
            true => format!(
                "free arrays before the peak: in this run, nothing after it reads {}{at}",
                Bytes(bytes)
            ),
            false if is_all && !line.is_empty() => {
                format!("drop what {line} keeps: {}", Bytes(bytes))
            }
            false => format!("drop arrays that the script keeps: {}{at}", Bytes(bytes)),
        },
    })
}

/// Free memory in blocks that are too small.
fn fragmentation(summary: &RunSummary) -> Option<Advice> {
    let failure = summary.out_of_memory()?;
    (failure.fragmented() && !summary.header.preallocate).then(|| {
        let free = failure.free_bytes().unwrap_or(0);
        let text = format!(
            "let JAX preallocate its pool: {} are free but fragmented, and a pool that grows cannot merge \
             them (leave `XLA_PYTHON_CLIENT_PREALLOCATE` unset, or set it to `true`)",
            Bytes(free),
        );
        Advice {
            bytes: free,
                text,
        }
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
        let text =
            |operations: &[&str]| activations(&memory(operations), None).expect("all of it").text;
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
    fn what_is_mapped_may_be_computed_in_chunks() {
        let mapped =
            memory(&["jit(f)/vmap(jit(g))/sin", "jit(f)/vmap()/exp", "jit(f)/vmapped/add"]);
        let advice = chunks(&mapped).expect("two of them");
        assert_eq!(advice.bytes, 8192);
        assert!(advice.text.contains("`vramfit plan --try chunk`"), "{}", advice.text);
        assert!(chunks(&memory(&["jit(f)/tanh"])).is_none());
    }

    #[test]
    fn the_type_is_one_that_the_gpu_multiplies() {
        let text = |gpu| precision(&memory(&["a"]), gpu).expect("wide").text;
        assert!(text("h100-80g").starts_with("compute in bfloat16: 4.0 KiB"));
        assert!(text("t4").starts_with("compute in float16: 4.0 KiB"));
    }
}
