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
            "donated arguments of {} were made from host memory (uploaded, or restored): a GPU may copy them instead \
             of reusing them (jax-ml/jax#18617, not verified), and the peak would then be {}",
            Bytes(self.bytes),
            Bytes(self.in_use_bytes)
        )
    }
}

/// The execution that would have most in use with copies.
#[derive(Debug, Default)]
pub(in crate::analysis) struct HighestWithCopies {
    /// Device and bytes of the execution that goes on.
    donated: Vec<(u32, u64)>,
    highest: Option<DonatedUploads>,
}

impl HighestWithCopies {
    fn above(&self, peak_bytes: impl FnOnce(u32) -> u64) -> Option<DonatedUploads> {
        self.highest.filter(|highest| highest.in_use_bytes > peak_bytes(highest.device))
    }
}

impl Fact for HighestWithCopies {
    type Result = Option<DonatedUploads>;

    fn on(&mut self, event: &Event, pools: &Pools<'_>) {
        match *event {
            Event::DonatedUploads { device, bytes } => {
                self.donated.push((device, bytes));
                self.on_allocated(device, pools.in_use_bytes(device));
            }
            Event::End => self.donated.clear(),
            _ => {}
        }
    }

    fn on_allocated(&mut self, device: u32, in_use_bytes: u64) {
        for (_, bytes) in self.donated.iter().filter(|(donated_on, _)| *donated_on == device) {
            let in_use_bytes = in_use_bytes.saturating_add(*bytes);
            if self.highest.is_none_or(|highest| highest.in_use_bytes < in_use_bytes) {
                self.highest = Some(DonatedUploads { device, bytes: *bytes, in_use_bytes });
            }
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
    fn the_allocation_that_would_have_most_in_use_counts() {
        let mut uploads = HighestWithCopies::default();
        let (none, donated) = (Pools(&[]), |device, bytes| Event::DonatedUploads { device, bytes });
        uploads.on(&donated(1, 30), &none);
        uploads.on_allocated(1, 50);
        uploads.on_allocated(0, 90);
        uploads.on(&Event::End, &none);
        // Copies end with their execution.
        uploads.on_allocated(1, 70);
        uploads.on(&donated(0, 10), &none);
        uploads.on_allocated(0, 60);
        let highest = DonatedUploads { device: 1, bytes: 30, in_use_bytes: 80 };
        assert_eq!(uploads.above(|_| 79), Some(highest));
        assert_eq!(uploads.above(|device| if device == 1 { 80 } else { 0 }), None);
    }
}
