//! What would need less, with the bytes that it is about.
//!
//! Each rule looks at one thing, says how many bytes it is about, and what is known of the price. What
//! would really be saved only another dry run can tell: the compiler plans anew.

use super::dryrun::section;
use super::{Body, Section};
use crate::analysis::{Attribution, EntryKind, RunSummary};
use crate::bytes::Bytes;
use crate::gpu;
use crate::program::ProgramMemory;
use crate::program::memory::{Buffer, Owner, Undonated};

/// What is less than one in so many of the whole is not worth a word.
const MIN_WORTH_FRACTION: u64 = 20;

/// Activations that are less than one in so many of a program are not what it takes.
const MIN_ACTIVATIONS_FRACTION: u64 = 4;

/// The pieces of advice, those about most bytes first.
pub(super) fn advice(answer: &RunSummary) -> Option<Section> {
    let attribution = answer.attribution.as_ref()?;
    let least = (attribution.total_bytes / MIN_WORTH_FRACTION).max(1);
    let of_program = answer
        .program_memory
        .as_ref()
        .filter(|known| Some(known.program) == attribution.program);
    let mut points: Vec<(u64, String)> = Vec::new();
    if let Some(known) = of_program {
        points.extend(donation(&known.memory));
        points.extend(donation_in_vain(&known.memory));
        points.extend(activations(&known.memory));
        points.extend(precision(&known.memory).filter(|_| has_bfloat16(&answer.header.gpu)));
        points.extend(compiler_limit(&known.memory));
    }
    points.extend(others(attribution));
    points.extend(scattered(answer));
    points.retain(|(bytes, _)| *bytes >= least);
    points.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let points: Vec<_> = points.into_iter().map(|(_, point)| point).collect();
    (!points.is_empty()).then(|| section("what would need less", Body::Text(points)))
}

/// State that is kept beside its successor.
fn donation(memory: &ProgramMemory) -> Option<(u64, String)> {
    let kept = memory.undonated.iter().filter(|one| !one.output.is_empty());
    let (bytes, which) = named(kept)?;
    let point = format!(
        "donate what comes back: {} are held twice during a call, since {which} not donated; \
         `jax.jit(..., donate_argnums=...)` lets the outputs take their place",
        Bytes(bytes),
    );
    Some((bytes, point))
}

/// Arguments that were given away for nothing.
fn donation_in_vain(memory: &ProgramMemory) -> Option<(u64, String)> {
    let lost = memory.undonated.iter().filter(|one| one.output.is_empty());
    let (bytes, which) = named(lost)?;
    let point = format!(
        "return something of the same shape and type, or do not donate: {which} donated in vain ({}), \
         since no output can take the place",
        Bytes(bytes),
    );
    Some((bytes, point))
}

/// Returns the bytes of some arguments, and names the largest.
fn named<'a>(arguments: impl Iterator<Item = &'a Undonated> + Clone) -> Option<(u64, String)> {
    let bytes = arguments.clone().map(|one| one.bytes).sum();
    let largest = arguments.clone().max_by_key(|one| one.bytes)?;
    let which = match arguments.count() - 1 {
        0 => format!("`{}` is", largest.argument),
        more => format!("`{}` and {more} more are", largest.argument),
    };
    Some((bytes, which))
}

/// What the forward part keeps for the backward part.
fn activations(memory: &ProgramMemory) -> Option<(u64, String)> {
    let bytes = memory.bytes_of(Owner::Activations);
    if bytes < memory.occupied_bytes() / MIN_ACTIVATIONS_FRACTION {
        return None;
    }
    let kept = memory
        .buffers
        .iter()
        .filter(|buffer| buffer.owner == Owner::Activations);
    let largest = kept.max_by_key(|buffer| buffer.peak_bytes)?;
    let at = memory
        .user_site(largest.frame)
        .map_or(String::new(), |site| format!(", most of all at {site}"));
    let point = format!(
        "keep less for the backward part: {} are saved activations{at}; `jax.checkpoint` around a layer keeps \
         its inputs only, and computes the rest a second time",
        Bytes(bytes),
    );
    Some((bytes, point))
}

/// Activations in 32 bits where 16 would do.
fn precision(memory: &ProgramMemory) -> Option<(u64, String)> {
    let wide =
        |buffer: &&Buffer| buffer.owner == Owner::Activations && buffer.shape.starts_with("f32[");
    let bytes: u64 = memory
        .buffers
        .iter()
        .filter(wide)
        .map(|buffer| buffer.peak_bytes)
        .sum();
    let point = format!(
        "compute in bfloat16: {} of the saved activations are float32 and would take half of that",
        Bytes(bytes),
    );
    (bytes > 0).then_some((bytes / 2, point))
}

/// Says whether a card multiplies bfloat16 matrices: from compute capability 8.0 (Ampere) on. On older
/// ones XLA refuses to. A card that is not in the catalogue is taken to be a new one.
fn has_bfloat16(card: &str) -> bool {
    let card = gpu::all().iter().find(|known| known.name == card);
    card.is_none_or(|card| card.compute_capability >= (8, 0))
}

/// A program that the compiler could not bring below its limit.
fn compiler_limit(memory: &ProgramMemory) -> Option<(u64, String)> {
    let taken = memory.occupied_bytes();
    let over = taken
        .checked_sub(memory.compiler_limit_bytes)
        .filter(|_| memory.compiler_limit_bytes > 0)?;
    let again = memory.buffers.iter().filter(|buffer| buffer.rematerialized);
    let again: u64 = again.map(|buffer| buffer.peak_bytes).sum();
    let already = match again * MIN_WORTH_FRACTION >= taken {
        true => format!(
            " although {} of it are values computed a second time",
            Bytes(again)
        ),
        false => String::new(),
    };
    let point = format!(
        "the program alone takes {}, which is {} above the limit of {}: XLA found no order and nothing to \
         compute a second time that would bring it below{already}; that is what its warning `Can't reduce \
         memory use below ...` is about",
        Bytes(taken),
        Bytes(over),
        Bytes(memory.compiler_limit_bytes),
    );
    Some((over, point))
}

/// Arrays that the program which decides does not use.
fn others(attribution: &Attribution) -> Option<(u64, String)> {
    let others = attribution
        .parts
        .iter()
        .filter(|part| part.kind == EntryKind::OtherArrays);
    let bytes = others.clone().map(|part| part.bytes).sum();
    // The parts come with the largest first.
    let largest = others.clone().next()?;
    let at = match largest.site.is_empty() {
        true => String::new(),
        false => format!(", {} of it from {}", Bytes(largest.bytes), largest.site),
    };
    let point = format!(
        "let go of arrays that the program does not use: {}{at}",
        Bytes(bytes)
    );
    Some((bytes, point))
}

/// Memory that is free and in pieces.
fn scattered(answer: &RunSummary) -> Option<(u64, String)> {
    let refusal = answer.out_of_memory()?;
    (refusal.fragmented() && !answer.header.preallocate).then(|| {
        let free = refusal.pool.free_bytes.unwrap_or(0);
        let point = format!(
            "let JAX take its pool at the start: {} are free in pieces, which a pool that grows cannot join \
             (`XLA_PYTHON_CLIENT_PREALLOCATE` unset or `true`)",
            Bytes(free),
        );
        (free, point)
    })
}
