//! The bytes that are compared.

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::analysis::RunSummary;

/// The bytes of a run that are compared, each of the GPU where they are the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// The most in use at once.
    pub peak_bytes: u64,
    /// What is in use between two steps; 0 where nothing was executed.
    pub steady_state_bytes: u64,
    /// The temporaries of the step; 0 where nothing was executed.
    pub temp_bytes: u64,
}

impl Figures {
    /// Returns those of a run.
    pub fn of(summary: &RunSummary) -> Self {
        let largest = |bytes: &dyn Fn(usize) -> u64| (0..summary.devices.len()).map(bytes).max();
        let devices = &summary.devices;
        Figures {
            peak_bytes: largest(&|at| devices[at].peak_bytes).unwrap_or(0),
            steady_state_bytes: largest(&|at| devices[at].steady_state_bytes).unwrap_or(0),
            temp_bytes: summary.step().map_or(0, |step| step.sizes.temp_bytes),
        }
    }

    /// Returns a digest of the programs that were executed: of their names, sizes and numbers of devices.
    pub fn programs_digest(summary: &RunSummary) -> String {
        let executed = summary.programs.iter().filter(|program| program.calls > 0);
        let mut texts: Vec<String> = executed
            .map(|program| format!("{} {} {:?}", program.name, program.devices, program.sizes))
            .collect();
        texts.sort();
        short_digest(&texts.join("\n"))
    }

    /// Returns each with its name.
    pub fn named(&self) -> [(&'static str, u64); 3] {
        [
            ("peak", self.peak_bytes),
            ("steady state", self.steady_state_bytes),
            ("temporaries of the step", self.temp_bytes),
        ]
    }
}

/// Characters of a digest in the lock file.
pub(super) const CHECKSUM_CHARS: usize = 8;

/// Returns the first digits of the SHA-256 of a text.
pub(super) fn short_digest(text: &str) -> String {
    let digest = Sha256::digest(text);
    let hex = digest.iter().map(|byte| format!("{byte:02x}"));
    hex.take(CHECKSUM_CHARS / 2).collect()
}
