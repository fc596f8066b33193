//! How much memory the program needed when it failed, and which GPUs have it.

use std::cmp::Reverse;

use super::facts::Facts;
use crate::bytes::Bytes;
use crate::gpu::{self, Gpu};
use crate::settings::{DEFAULT_FRACTION, MAX_FRACTION};

/// Bytes that a pool has to have for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) bytes: u64,
    /// What is certainly needed: less than `bytes` where those are an upper bound, until the failure.
    pub(super) least_bytes: u64,
    /// Whether the log leaves out part of it, such as what was in use before.
    pub(super) is_least: bool,
    /// Whether it is what XLA says of the program alone, without arrays that the program does not take.
    pub(super) is_of_program: bool,
}

/// Below, a bound or a program by itself says nothing about what is needed in all: it is what was in use that fills
/// the memory.
pub(super) const LARGE_BYTES: u64 = 4 << 30;

impl Need {
    /// Returns `true` if it is an upper bound.
    pub(super) fn is_most(&self) -> bool {
        self.least_bytes < self.bytes
    }
}

impl Facts<'_> {
    /// Returns what the program needs: what was in use and the request, or what XLA says of the program.
    pub(super) fn need(&self) -> Option<Need> {
        // Where outputs are all that there is, nothing else is in use.
        let by_outputs = self.figures.outputs_only.map(|_| 0);
        let in_use = self.figures.in_use_bytes.or(by_outputs);
        let requested = self.rounded_bytes();
        let with_request = |in_use: Option<u64>| Some(in_use?.saturating_add(requested?));
        let at_end = with_request(in_use).filter(|_| self.figures.in_use_is_at_end);
        // Arrays may have been released between the failure and the end, but no more was in use than the peak.
        let at_failure = match at_end {
            Some(_) => with_request(self.figures.peak_in_use_bytes.max(in_use)),
            None => with_request(in_use),
        };
        let program = self.figures.need.map(|need| need.total_bytes);
        let reached = self.reached_by_compiler();
        let known = at_failure.max(program).filter(|bytes| Some(*bytes) >= requested);
        match known {
            Some(bytes) if reached.is_none_or(|reached| reached <= bytes) => Some(Need {
                bytes,
                least_bytes: at_end.unwrap_or(bytes).max(program.unwrap_or(0)),
                is_least: at_failure.is_none() && bytes < LARGE_BYTES,
                is_of_program: at_failure.is_none(),
            }),
            _ => {
                let bytes = known.max(reached).max(requested)?;
                Some(Need { bytes, least_bytes: bytes, is_least: true, is_of_program: false })
            }
        }
    }

    /// Says how much is needed, of which that is a bound, and by what.
    pub(super) fn describe_need(&self, need: Need) -> String {
        let bound = match need.is_least {
            true => "at least ",
            false if need.is_most() => "at most ",
            false => "",
        };
        let scope = match need.is_of_program {
            true => " by the program alone",
            false if need.is_most() => " up to the failure",
            false => "",
        };
        let on_each = if self.log.count_refusing_gpus() > 1 { " on each" } else { "" };
        format!("{bound}{} are needed{on_each}{scope}", Bytes(need.bytes))
    }

    /// Returns how many GPUs share what the program needs if all of it is divided evenly; `None` where the log does
    /// not tell what one has for it.
    pub(super) fn gpus_if_sharded(&self, need: Need) -> Option<u64> {
        let total = self.figures.gpu_total_bytes;
        let settings = &self.settings;
        let limit = total.map(|total| match settings.has_pool() {
            true => settings.limit_bytes(total, settings.fraction_in_force().min(MAX_FRACTION)),
            false => total,
        });
        // With unified memory, part of the limit is memory of the host.
        let of_gpu = |limit: u64| (limit as f64 / settings.fraction_in_force().max(1.0)) as u64;
        let limit = self.figures.limit_bytes.map(of_gpu).or(limit).filter(|limit| *limit > 0)?;
        // What each of several GPUs needs is a part of the program already.
        let gpus = u64::from(self.log.count_refusing_gpus());
        Some(need.bytes.saturating_mul(gpus).div_ceil(limit).max(gpus + 1))
    }

    /// Returns the smallest GPU on which a pool of this fraction has so many bytes, or without one the GPU itself; of
    /// equally large ones the newest.
    fn smallest_gpu(&self, bytes: u64, fraction: Option<f64>) -> Option<&'static Gpu> {
        let limit = |gpu: &Gpu| match fraction {
            Some(fraction) => self.settings.limit_bytes(gpu.total_memory_bytes, fraction),
            None => gpu.total_memory_bytes,
        };
        let has_room = |gpu: &&Gpu| limit(gpu) >= bytes && self.is_larger(gpu, limit(gpu));
        let is_card = |gpu: &&Gpu| gpu.mig_parent.is_none() && !gpu.shares_host_memory;
        let cards = gpu::all().iter().filter(is_card);
        cards
            .filter(has_room)
            .min_by_key(|gpu| (gpu.total_memory_bytes >> 30, Reverse(gpu.compute_capability)))
    }

    /// Returns `true` if a GPU has more than the one of the log, and the pool that it would have more than that of the log.
    /// Totals of cards of one size differ by some percent.
    fn is_larger(&self, gpu: &Gpu, limit: u64) -> bool {
        let figures = &self.figures;
        let most = figures.gpu_total_bytes.map(|total| {
            let named = figures.gpu.and_then(gpu::get);
            named.map_or(total, |named| total.max(named.max_total_memory_bytes))
        });
        most.is_none_or(|most| gpu.total_memory_bytes > most.saturating_add(most / 20))
            && figures.limit_bytes.is_none_or(|seen| limit > seen)
    }

    /// Returns the smallest GPUs on which the program fits: with the default fraction, and with the largest one where
    /// that is another GPU. An allocator without a pool has no fraction.
    pub(super) fn fitting_gpus(&self, bytes: u64) -> Vec<(&'static Gpu, Option<f64>)> {
        let fractions: &[Option<f64>] = match self.settings.has_pool() {
            true => &[Some(DEFAULT_FRACTION), Some(MAX_FRACTION)],
            false => &[None],
        };
        let gpus =
            fractions.iter().map(|fraction| (self.smallest_gpu(bytes, *fraction), *fraction));
        let mut gpus: Vec<_> = gpus.filter_map(|(gpu, fraction)| Some((gpu?, fraction))).collect();
        gpus.dedup_by_key(|(gpu, _)| &gpu.name);
        gpus
    }
}
