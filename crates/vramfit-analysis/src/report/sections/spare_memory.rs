//! What the memory that a run leaves can be used for.

use crate::analysis::{AttributionEntry, EntryKind, RunSummary};
use crate::bytes::Bytes;
use crate::explain::batch_option;
use crate::program::memory::Owner;
use crate::program::{ProgramMemory, parse_dimensions};
use crate::report::Section;

/// Beyond this many times the batch, other values than those of today's peak decide, and no number is told.
const MAX_EXTRAPOLATION: f64 = 16.0;
/// How much of the batch that would fill the pool is told: allocations of other sizes leave other gaps between them.
const SAFETY_FACTOR: f64 = 0.9;

/// Returns `true` if a run fits, and at least half of what the pool can have is left.
pub(super) fn has_room(summary: &RunSummary) -> bool {
    let device = summary.critical_device();
    let is_half = device.is_some_and(|device| device.peak_bytes <= device.capacity_bytes / 2);
    is_half && summary.fits() == Some(true)
}

/// What the memory that is left can be used for, where a program trains.
pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
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

/// Says how large a batch the pool has room for, if all but the model and its optimizer grow with it: also results that
/// the script keeps from step to step, and outputs beyond the new state.
fn larger_batch(summary: &RunSummary) -> Option<String> {
    let attribution = summary.attribution.as_ref()?;
    if grows_quadratically(&attribution.parts) {
        return None;
    }
    let capacity_bytes = summary.critical_device()?.capacity_bytes;
    let bytes_of = |owners: &[Owner]| -> u64 {
        let is_one = |kind| matches!(kind, EntryKind::Program(owner) if owners.contains(&owner));
        attribution.parts.iter().filter(|part| is_one(part.kind)).map(|part| part.bytes).sum()
    };
    let state_bytes = bytes_of(&[Owner::Parameters, Owner::OptimizerState, Owner::OtherState]);
    // Without donation the new state is among the outputs.
    let new_state_bytes = bytes_of(&[Owner::Outputs]).min(state_bytes);
    let fixed_bytes =
        state_bytes + new_state_bytes + bytes_of(&[Owner::Gradients, Owner::Constants]);
    let growing_bytes = attribution.total_bytes.checked_sub(fixed_bytes)?;
    let room_bytes = capacity_bytes.checked_sub(fixed_bytes + scratch_bytes(summary))?;
    if growing_bytes == 0 {
        return None;
    }
    let factor = SAFETY_FACTOR * room_bytes as f64 / growing_bytes as f64;
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

/// Returns what libraries may take at most beyond the peak, on the device that decides.
fn scratch_bytes(summary: &RunSummary) -> u64 {
    let highest_bytes = || {
        let device = summary.critical_device()?;
        let highest_bytes = summary.scratch.as_ref()?.peak_bytes.get(device.device as usize)?;
        Some(highest_bytes.saturating_sub(device.peak_bytes))
    };
    highest_bytes().unwrap_or(0)
}

/// Returns `true` if some buffer has two axes as long as the batch has rows, as distances between all of them: it grows
/// with the square of the batch.
fn grows_quadratically(parts: &[AttributionEntry]) -> bool {
    let batch = parts.iter().filter(|part| part.kind == EntryKind::Program(Owner::Batch));
    let rows: Vec<u64> = batch
        .filter_map(|part| parse_dimensions(&part.shape)?.first().copied())
        .filter(|rows| *rows > 1)
        .collect();
    let is_weight = |part: &AttributionEntry| {
        use Owner::{Gradients, OptimizerState, Parameters};
        matches!(part.kind, EntryKind::Program(Parameters | OptimizerState | Gradients))
    };
    let others = parts.iter().filter(|part| !is_weight(part));
    others.filter_map(|part| parse_dimensions(&part.shape)).any(|dimensions| {
        rows.iter().any(|rows| dimensions.iter().filter(|length| *length == rows).count() > 1)
    })
}

/// Rounds down to two digits.
fn round_down(number: u64) -> u64 {
    let unit = 10_u64.pow(number.max(1).ilog10().saturating_sub(1));
    number / unit * unit
}
