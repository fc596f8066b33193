//! What grew in each of the last steps.

use crate::analysis::{LeakSummary, RunSummary};
use crate::bytes::Bytes;
use crate::report::Section;
use crate::report::phrases::{line_or_unknown, more_in_json};

const MAX_SHOWN: usize = 5;

pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    let device = summary.leaks.first()?.device;
    let leaks = summary.leaks.iter();
    let here: Vec<_> = leaks.filter(|leak| leak.device == device).collect();
    let mut points: Vec<_> = here.iter().copied().take(MAX_SHOWN).map(point).collect();
    points.extend(more_in_json(here.len().saturating_sub(MAX_SHOWN)));
    if here.len() < summary.leaks.len() {
        points.push(format!(
            "only device {device} is shown; leaks of other devices are in the JSON output"
        ));
    }
    points.extend(remaining_steps(summary, device));
    Section::list("possible memory leaks: memory that grows in every step", points)
}

fn point(leak: &LeakSummary) -> String {
    let bytes = Bytes(leak.bytes_per_step());
    let line = line_or_unknown(&leak.site);
    let purpose = leak.purpose.label();
    let origin = match &leak.program {
        Some(program) => format!("{purpose} of `{program}`"),
        None => purpose.to_owned(),
    };
    let mean = if leak.bytes.is_multiple_of(leak.steps.max(1)) { "" } else { "on average " };
    let arrays = match leak.arrays {
        0 => "with no more arrays".to_owned(),
        1 => "1 array in total".to_owned(),
        count => format!("{count} arrays in total"),
    };
    let steps = leak.steps;
    format!(
        "grows by {mean}{bytes} per step: {line}, {origin}; in each of the last {steps} steps, {arrays}"
    )
}

/// Says for how many more steps the memory lasts at the same rate.
fn remaining_steps(summary: &RunSummary, device: u32) -> Option<String> {
    let state = summary.devices.get(device as usize)?;
    let leaks = summary.leaks.iter().filter(|leak| leak.device == device);
    let per_step: u64 = leaks.map(|leak| leak.allocated_bytes / leak.steps.max(1)).sum();
    let spare = state.capacity_bytes.checked_sub(state.peak_bytes)?;
    let fits = summary.fits() == Some(true);
    let steps = spare.checked_div(per_step).filter(|_| fits)?;
    Some(format!("at this rate, memory runs out after about {steps} more steps"))
}
