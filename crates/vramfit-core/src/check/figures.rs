//! The bytes that are compared.

use serde::Serialize;

use crate::analysis::RunSummary;

/// The bytes of a run that are compared, each of the GPU where they are the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// The most in use at once.
    pub peak_bytes: u64,
    /// What is in use between two steps; 0 where nothing was executed.
    pub held_bytes: u64,
    /// The temporaries of the step; 0 where nothing was executed.
    pub temporary_bytes: u64,
}

impl Figures {
    /// Returns those of a run.
    pub fn of(summary: &RunSummary) -> Self {
        let largest = |bytes: &dyn Fn(usize) -> u64| (0..summary.devices.len()).map(bytes).max();
        let devices = &summary.devices;
        Figures {
            peak_bytes: largest(&|at| devices[at].peak_bytes).unwrap_or(0),
            held_bytes: largest(&|at| devices[at].steady_state_bytes).unwrap_or(0),
            temporary_bytes: summary.step().map_or(0, |step| step.sizes.temp_bytes),
        }
    }

    /// Returns each with its name.
    pub fn named(&self) -> [(&'static str, u64); 3] {
        [
            ("peak", self.peak_bytes),
            ("held between steps", self.held_bytes),
            ("temporaries of the step", self.temporary_bytes),
        ]
    }
}
