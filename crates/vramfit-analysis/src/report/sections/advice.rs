//! Ways to reduce memory, with the bytes that each is about.
//!
//! Each rule looks at one thing. What it leaves is no difference of bytes: XLA plans anew when something
//! changes, and another moment may then have the peak. Only another dry run measures it.

mod arrays;
mod chunks;
mod computed;
pub(super) mod operations;
mod rows;

use std::cmp::Reverse;

use super::main_cause::{self, CauseKind};
use super::spare_memory;
use crate::allocator::AllocatorKind;
use crate::analysis::facts::unread_outputs;
use crate::analysis::{Attribution, EntryKind, RunSummary};
use crate::bytes::Bytes;
use crate::program::ScratchPhase;
use crate::program::memory::Owner;
use crate::report::Section;
use crate::section::Advice;
use crate::settings::{MAX_FRACTION, SPILLED_PART, USUAL_UNIFIED_FRACTION};
use crate::trace::Header;

/// What is less than one in this many of the whole is left out.
const MIN_SHOWN_FRACTION: u64 = 20;

/// The suggestions, those about most bytes first.
pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let reductions = summary.attribution.as_ref().map(|it| reductions(summary, it));
    let points = reductions.unwrap_or_default().into_iter().map(|advice| advice.text);
    let fraction = larger_fraction(summary);
    // These take nothing less; the last is slow. What grows fills a larger pool as well, some steps later.
    let grows = main_cause::main_cause(summary).is_some_and(|it| it.kind == CauseKind::Leak);
    let (first, late) = if grows { (None, fraction) } else { (fraction, None) };
    let points = first.into_iter().chain(points).chain(late).chain(host_memory(summary));
    let section = Section::list("ways to reduce memory, not measured", points.collect())?;
    Some(if spare_memory::has_room(summary) { section.into_detail() } else { section })
}

/// What takes less, the most first.
fn reductions(summary: &RunSummary, attribution: &Attribution) -> Vec<Advice> {
    let total_bytes = attribution.total_bytes;
    let min_bytes = (total_bytes / MIN_SHOWN_FRACTION).max(1);
    let program = summary.program_memory.as_ref();
    let program = program.filter(|program| Some(program.program) == attribution.program);
    let name = |index: usize| summary.programs.get(index).map_or("", |it| it.name.as_str());
    let site_of = |index: usize| summary.programs.get(index).map_or("", |it| it.site.as_str());
    let mut found: Vec<Advice> = Vec::new();
    if let Some(program) = program {
        let memory = &program.memory;
        // What came of it stands with the measured changes: also that it is not possible.
        let is_measured = summary.measured_edits.iter().any(|it| it.kinds.contains(&"donate"));
        found.extend(arrays::donation(memory, site_of(program.program)).filter(|_| !is_measured));
        found.extend(arrays::unused_donation(memory));
        found.extend(unread_outputs::advice(&program.unread_outputs));
        found.extend(arrays::replication(&program.replicated));
        let capacity_bytes =
            summary.critical_device().map_or(u64::MAX, |device| device.capacity_bytes);
        let gpu = &summary.header.gpu().name;
        let promotion = computed::promotion(memory, gpu);
        let to = promotion.map_or("", |promotion| promotion.to.as_str());
        found.extend(promotion.and_then(|it| computed::promoted(memory, it)));
        let operation = match name(program.program) {
            operations::SPLITTING_PROGRAM => operations::split_array(memory, summary),
            _ => operations::eager_operation(memory, summary),
        };
        // An operation is no function of the user's.
        let function = name(program.program);
        let function = operation.is_none().then_some(function);
        let site = summary.out_of_memory().map_or("", |failure| failure.context.site.as_str());
        let too_large = |name| operations::outputs_alone(memory, name, site, capacity_bytes);
        match function.and_then(too_large) {
            // Then no other way to compute them helps.
            Some(advice) => found.push(advice),
            None => {
                let activations = EntryKind::Program(Owner::Activations);
                let parts = attribution.parts.iter();
                let saved: Vec<_> = parts.filter(|part| part.kind == activations).collect();
                let line = saved.first().map(|entry| entry.site.as_str());
                let saved_bytes = saved.iter().map(|part| part.bytes).sum();
                found.extend(computed::activations(memory, saved_bytes, line));
                found.extend(computed::gradient_inside(memory, saved_bytes));
                // How the elements are divided among GPUs is not known when they are mapped.
                found.extend(chunks::chunks(memory).filter(|_| summary.header.devices == 1));
                // A program that was to be in 16 bits is told what keeps it from that.
                found.extend(computed::precision(memory, gpu).filter(|_| to != "f32"));
                found.extend(computed::smaller_batch(memory, summary, capacity_bytes));
            }
        }
        let is_double = ["f64", "c128"].contains(&to);
        found.extend(computed::double_precision(memory).filter(|_| !is_double));
        let rows = function.filter(|_| summary.out_of_memory().is_some());
        found.extend(rows.and_then(|name| rows::fewer_rows(memory, name, summary.devices.len())));
        found.extend(operation);
        // Without the program's arguments nobody knows which arrays it uses.
        match arrays::created(attribution, memory, name(program.program), summary) {
            Some(advice) => found.push(advice),
            None => {
                let other_arrays = arrays::other_arrays(attribution);
                found.extend(other_arrays.filter(|_| summary.script_keeps_arrays()));
            }
        }
    }
    found.extend(arrays::update_inside(summary));
    found.extend(fragmentation(summary));
    found.retain(|advice| advice.bytes >= min_bytes);
    found.sort_by_key(|advice| Reverse(advice.bytes));
    let failure = summary.out_of_memory().filter(|failure| failure.fatal.is_none());
    compare_to_shortage(found, failure.map_or(0, |failure| failure.short_bytes()))
}

/// Says beside each that is about less than is missing how much that is. None is left where all together are far from it.
///
/// It does not follow that one is not enough alone: what a program computes of the same kind may not all be known as such.
fn compare_to_shortage(mut found: Vec<Advice>, short_bytes: u64) -> Vec<Advice> {
    /// What brings less than one in so many of the missing bytes is far from enough.
    const FAR_FRACTION: u64 = 2;
    let together = found.iter().fold(0_u64, |sum, advice| sum.saturating_add(advice.bytes));
    if together < short_bytes / FAR_FRACTION {
        return Vec::new();
    }
    for advice in found.iter_mut().filter(|advice| advice.bytes < short_bytes) {
        advice.text += &format!("; {} are missing", Bytes(short_bytes));
    }
    found
}

/// A larger part of the GPU for the pool, where that is enough for the execution that failed.
fn larger_fraction(summary: &RunSummary) -> Option<String> {
    /// What is less was chosen, for other programs on the same GPU.
    const MIN_FRACTION: f64 = 0.5;
    let header = &summary.header;
    let failure = summary.out_of_memory().filter(|failure| failure.fatal.is_none())?;
    let is_possible =
        is_pooled(header) && (MIN_FRACTION..MAX_FRACTION).contains(&header.memory_fraction);
    let pool_bytes = (header.total_memory_bytes() as f64 * MAX_FRACTION) as u64;
    let pool_bytes = pool_bytes.min(header.free_bytes());
    let needed_bytes = failure.needed_bytes();
    (is_possible && !failure.fragmented() && needed_bytes <= pool_bytes).then(|| {
        format!(
            "raise JAX's memory fraction to {MAX_FRACTION} (`vramfit run --fraction {MAX_FRACTION}`): the pool then has \
             {}, and what failed needs {}; anything after that is not included{}",
            Bytes(pool_bytes),
            Bytes(needed_bytes),
            describe_scratch(summary, failure.context.program.as_deref(), pool_bytes - needed_bytes)
        )
    })
}

/// Names the scratch memory that the program may take beyond its figures, where it may be more than a pool has left.
fn describe_scratch(summary: &RunSummary, program: Option<&str>, left_bytes: u64) -> String {
    let needs = summary.scratch.iter().flat_map(|scratch| &scratch.needs);
    let in_pool = needs.filter(|need| {
        Some(need.program.as_str()) == program && need.phase != ScratchPhase::OutsidePool
    });
    let beyond = in_pool.map(|need| (need, need.unaccounted_bytes()));
    let most = beyond.max_by_key(|(_, bytes)| bytes.unwrap_or(u64::MAX));
    match most {
        Some((need, Some(bytes))) if bytes > left_bytes => {
            format!(", nor the up to {} of scratch memory of {}", Bytes(bytes), need.library)
        }
        Some((need, None)) => format!(", nor the scratch memory of {}", need.library),
        _ => String::new(),
    }
}

/// Returns `true` if arrays are in a pool of XLA's own.
fn is_pooled(header: &Header) -> bool {
    header.allocator.parse().is_ok_and(|kind: AllocatorKind| kind == AllocatorKind::Bfc)
}

/// Memory of the host, where the GPU has too little by itself and both together have not.
fn host_memory(summary: &RunSummary) -> Option<String> {
    let header = &summary.header;
    let failure = summary.out_of_memory().filter(|failure| failure.fatal.is_none())?;
    // With a fraction above 1 it is used already.
    let is_used = header.unified_memory && header.memory_fraction > 1.0;
    let is_possible = is_pooled(header) && !is_used && !header.gpu().shares_host_memory;
    let needed_bytes = failure.needed_bytes();
    let host_bytes = needed_bytes.saturating_sub(header.free_bytes());
    // The pool is all of the GPU, and a part of what the host has free.
    let beyond_bytes = needed_bytes.saturating_sub(header.total_memory_bytes());
    let free_bytes = host_bytes.max((beyond_bytes as f64 / SPILLED_PART) as u64);
    let largest_bytes = (header.total_memory_bytes() as f64 * USUAL_UNIFIED_FRACTION) as u64;
    (is_possible && host_bytes > 0 && needed_bytes <= largest_bytes).then(|| {
        let each = if summary.devices.len() > 1 { " for this GPU" } else { "" };
        format!(
            "use host memory as well, slowly (unified memory, `vramfit run --spill`): what failed needs at least {} of \
             it{each}; `vramfit dryrun --spill BYTES` shows what is enough for the run",
            Bytes(free_bytes)
        )
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

    #[test]
    fn what_is_less_than_missing_stands_beside_it_and_what_is_far_from_it_is_left_out() {
        let texts = |bytes: &[u64], short_bytes| {
            let found = bytes.iter().map(|&bytes| Advice { bytes, text: bytes.to_string() });
            let found = compare_to_shortage(found.collect(), short_bytes);
            found.into_iter().map(|advice| advice.text).collect::<Vec<_>>()
        };
        const SHORT: &str = "; 10 B are missing";
        for (bytes, short_bytes, expected) in [
            (&[12, 3][..], 10, vec!["12".to_owned(), format!("3{SHORT}")]),
            (&[6, 3], 10, vec![format!("6{SHORT}"), format!("3{SHORT}")]),
            (&[3, 1], 10, vec![]),
            // Nothing is missing.
            (&[3, 1], 0, vec!["3".to_owned(), "1".to_owned()]),
        ] {
            assert_eq!(texts(bytes, short_bytes), expected, "{bytes:?} {short_bytes}");
        }
    }
}
