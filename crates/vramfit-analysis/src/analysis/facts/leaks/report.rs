//! What grew, in words.

use serde::Serialize;

use crate::bytes::Bytes;
use crate::section::Section;
use crate::section::phrases::{line_or_unknown, more_in_json};
use crate::trace::Purpose;

/// Leaks that a report lists.
const MAX_SHOWN: usize = 5;

/// Arrays that grow in number or size from step to step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeakSummary {
    /// On which device.
    pub device: u32,
    /// The bytes asked for in one step: exact where all steps grew alike, else their mean, rounded down.
    pub bytes_per_step: u64,
    /// The line that makes them, or that calls the program which does; empty if not known.
    pub site: String,
    /// The program that makes them; `None` where no program does.
    pub program: Option<String>,
    /// What they are made as.
    pub purpose: Purpose,
    /// The program whose calls are the steps.
    pub step: String,
    /// Whether that is the step of a training, as far as one can know: else it is growth and no leak.
    #[serde(skip)]
    pub is_training: bool,
    /// In every how many steps they grew.
    pub every_steps: u64,
    /// In how many steps in a row they grew so, up to the last.
    pub steps: u64,
    /// By how many arrays in these steps.
    pub arrays: u64,
    /// By how many bytes, as they were asked for, in these steps.
    #[serde(rename = "requested_bytes")]
    pub bytes: u64,
    /// By how much they took more of the pool in these steps, rounding included.
    pub allocated_bytes: u64,
}

impl LeakSummary {
    /// Returns by how many bytes of the pool they grow in a step, on average.
    pub fn allocated_bytes_per_step(&self) -> u64 {
        self.allocated_bytes / (self.steps * self.every_steps).max(1)
    }

    /// Returns the word for what is counted.
    pub fn unit(&self) -> &'static str {
        if self.is_training { "steps" } else { "calls" }
    }

    /// Returns by how much they grow when, as `64.0 MiB more in every step`.
    pub fn describe_growth(&self) -> String {
        let bytes = Bytes(self.bytes / self.steps.max(1));
        match (self.every_steps, self.is_training) {
            (1, true) => format!("{bytes} more in every step"),
            (1, false) => format!("{bytes} more in every call of `{}`", self.step),
            (steps, true) => format!("{bytes} more every {steps} steps"),
            (calls, false) => format!("{bytes} more every {calls} calls of `{}`", self.step),
        }
    }
}

/// Shows what grew. `spare_bytes` returns what a device has to spare, if the run fits.
pub fn section(leaks: &[LeakSummary], spare_bytes: impl Fn(u32) -> Option<u64>) -> Option<Section> {
    let device = leaks.first()?.device;
    let here: Vec<_> = leaks.iter().filter(|leak| leak.device == device).collect();
    let mut points: Vec<_> = here.iter().copied().take(MAX_SHOWN).map(point).collect();
    points.extend(more_in_json(here.len().saturating_sub(MAX_SHOWN)));
    if here.len() < leaks.len() {
        points.push(format!(
            "only device {device} is shown; leaks of other devices are in the JSON output"
        ));
    }
    let per_step: u64 = here.iter().map(|leak| leak.allocated_bytes_per_step()).sum();
    let steps = spare_bytes(device).and_then(|spare| spare.checked_div(per_step));
    let unit = here[0].unit();
    let title = match here[0].is_training {
        true => "possible memory leaks: memory that grows from step to step",
        false => "memory that grows from call to call",
    };
    points.extend(
        steps.map(|steps| format!("at this rate, memory runs out after about {steps} more {unit}")),
    );
    Section::list(title, points)
}

fn point(leak: &LeakSummary) -> String {
    let line = line_or_unknown(&leak.site);
    let purpose = leak.purpose.label();
    let origin = match &leak.program {
        Some(program) => format!("{purpose} of `{program}`"),
        None => purpose.to_owned(),
    };
    let is_mean = !leak.bytes.is_multiple_of(leak.steps.max(1));
    let mean = if is_mean { ", on average" } else { "" };
    let arrays = match leak.arrays {
        0 => "with no more arrays".to_owned(),
        1 => "1 array in total".to_owned(),
        count => format!("{count} arrays in total"),
    };
    let (growth, times) = (leak.describe_growth(), leak.steps);
    format!("{growth}{mean}: {line}, {origin}; {times} times in a row up to the end, {arrays}")
}
