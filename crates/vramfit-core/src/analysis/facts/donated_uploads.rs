//! Donated arguments that were made from host memory. JAX is reported to copy such arrays on GPUs in the call that is
//! donated them (jax-ml/jax#18617), which no GPU has decided here: both figures are given.

use serde::Serialize;

use super::{Fact, Pools};
use crate::bytes::Bytes;
use crate::trace::{Event, TextId};

/// What donated arguments that were made from host memory would add to the peak if a GPU copied them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DonatedUploads {
    /// On which device.
    pub device: u32,
    /// Their bytes in the execution that would have most in use.
    pub bytes: u64,
    /// What would be in use then.
    pub in_use_bytes: u64,
}

impl DonatedUploads {
    /// Says what the peak is if they are copied.
    pub(crate) fn describe(&self) -> String {
        format!(
            "{} that a call is donated were made from host memory (uploaded, or restored): a GPU may copy them instead \
             of reusing them (jax-ml/jax#18617, not verified), and the peak be {}",
            Bytes(self.bytes),
            Bytes(self.in_use_bytes)
        )
    }
}

/// The execution that would have most in use.
#[derive(Debug, Default)]
pub(in crate::analysis) struct Highest(Option<DonatedUploads>);

impl Highest {
    fn add(&mut self, device: u32, bytes: u64, in_use_bytes: u64) {
        let in_use_bytes = in_use_bytes.saturating_add(bytes);
        if self.0.is_none_or(|highest| highest.in_use_bytes < in_use_bytes) {
            self.0 = Some(DonatedUploads { device, bytes, in_use_bytes });
        }
    }

    fn above(&self, peak_bytes: impl FnOnce(u32) -> u64) -> Option<DonatedUploads> {
        self.0.filter(|highest| highest.in_use_bytes > peak_bytes(highest.device))
    }
}

impl Fact for Highest {
    type Result = Option<DonatedUploads>;

    /// The event comes when the execution has allocated all that it needs.
    fn on(&mut self, event: &Event, pools: &Pools<'_>) {
        if let Event::DonatedUploads { device, bytes } = *event {
            self.add(device, bytes, pools.in_use_bytes(device));
        }
    }

    fn finish(&self, pools: &Pools<'_>, _: &dyn Fn(TextId) -> String) -> Option<DonatedUploads> {
        self.above(|device| pools.peak_bytes(device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_execution_that_would_have_most_in_use_counts() {
        let mut uploads = Highest::default();
        assert_eq!(uploads.above(|_| 0), None);
        uploads.add(1, 30, 50);
        uploads.add(0, 10, 60);
        let highest = DonatedUploads { device: 1, bytes: 30, in_use_bytes: 80 };
        assert_eq!(uploads.above(|_| 79), Some(highest));
        assert_eq!(uploads.above(|device| if device == 1 { 80 } else { 0 }), None);
    }
}
