//! Arrays: state that is not donated or on several GPUs, gradients outside of `jit`, and what a script keeps.

use crate::analysis::{Attribution, EntryKind, ReplicatedArgument, RunSummary, largest_line};
use crate::bytes::Bytes;
use crate::planning::JitForm;
use crate::program::ProgramMemory;
use crate::program::memory::Owner;
use crate::report::phrases::{file_name, largest_argument};
use crate::section::Advice;

/// State that stays allocated next to its successor, of a program that the line `site` calls.
pub(super) fn donation(memory: &ProgramMemory, site: &str) -> Option<Advice> {
    let kept = memory.undonated.iter().filter(|one| !one.is_donated());
    let (bytes, which) = largest_argument(kept)?;
    let form = JitForm::of(memory, site);
    let condition = match form {
        JitForm::Equinox => ", where the program uses none of its arguments after the call",
        JitForm::Jax | JitForm::Nnx => "",
    };
    Some(Advice {
        bytes,
        text: format!(
            "donate arguments that are returned updated: {} are allocated twice during a call, because \
             {which} not donated; `{}` lets the outputs reuse their memory{condition}",
            Bytes(bytes),
            form.donating_call(&[]),
        ),
    })
}

/// Donated arguments that no output can reuse.
pub(super) fn unused_donation(memory: &ProgramMemory) -> Option<Advice> {
    let unused = memory.undonated.iter().filter(|one| one.is_donated());
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
pub(super) fn replication(arguments: &[ReplicatedArgument]) -> Option<Advice> {
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

/// One program for gradient and update, which needs no arrays of gradients.
pub(super) fn update_inside(summary: &RunSummary) -> Option<Advice> {
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

/// The largest part of the arrays in fewer bytes, where a line creates them one after the other: weights or the moments of
/// an optimizer, which the program needs. `memory` is that of `program`, which may be what creates them.
pub(super) fn created(
    attribution: &Attribution,
    memory: &ProgramMemory,
    program: &str,
    summary: &RunSummary,
) -> Option<Advice> {
    let others = attribution.parts.iter().filter(|entry| entry.kind == EntryKind::OtherArrays);
    let (site, created_bytes) = largest_line(others)?;
    let created = summary.created_at(site)?;
    let mut outputs = memory.buffers.iter().filter(|buffer| buffer.owner == Owner::Outputs);
    let is_wide =
        created.program == program && outputs.any(|buffer| buffer.shape.starts_with("f32["));
    let (line, all) = (file_name(&created.site), Bytes(created_bytes));
    let (bytes, narrower) = match is_wide {
        true => (
            created_bytes / 2,
            format!(
                "keep what {line} creates in 16 bits (a `dtype` of parameters, or of an optimizer's moments), in {} \
                 instead of {all}; or ",
                Bytes(created_bytes / 2)
            ),
        ),
        false => (created_bytes, String::new()),
    };
    Some(Advice {
        bytes,
        text: format!(
            "{narrower}divide what {line} creates among GPUs (`jax.jit(..., out_shardings=...)` around what creates it)"
        ),
    })
}

/// Arrays that the critical program does not use, and nothing after it in this run.
pub(super) fn other_arrays(attribution: &Attribution) -> Option<Advice> {
    let entries = attribution.parts.iter();
    let others = entries.filter(|entry| entry.kind == EntryKind::OtherArrays && !entry.read_later);
    let all_bytes: u64 = others.clone().map(|entry| entry.bytes).sum();
    let (site, line_bytes) = largest_line(others)?;
    // A scalar beside them changes neither what is said nor what helps.
    let is_all = all_bytes - line_bytes <= all_bytes / 100;
    let line = file_name(site);
    let bytes = if is_all { line_bytes } else { all_bytes };
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
