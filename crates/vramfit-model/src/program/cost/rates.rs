//! How fast a GPU is: by its data sheet, or as it was measured.

use crate::gpu::{Calibration, Gpu, HostLink};
use crate::program::shape::Shape;

/// The share of a link's rate that large copies between pinned memory and a GPU reach. `bandwidthTest` of
/// the CUDA samples prints 12 to 13 of 15.8 GB/s for PCIe 3.0 and 25 to 26 of 31.5 GB/s for PCIe 4.0.
const LINK_EFFICIENCY: f64 = 0.8;

/// The rates of a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates<'a> {
    pub(super) gpu: &'a Gpu,
    /// What was measured; those of the data sheet where it is not.
    pub(super) calibration: Option<&'a Calibration>,
}

impl Rates<'_> {
    /// Returns the microseconds that no kernel stays below which moves this many bytes.
    pub(super) fn min_memory_us(&self, bytes: u64) -> f64 {
        bytes as f64 / self.gpu.bandwidth_bytes_per_s as f64 * 1e6
    }

    /// Returns the microseconds that a kernel takes to move this many bytes; a copy has a rate of its own.
    pub(super) fn memory_us(&self, bytes: u64, is_copy: bool) -> f64 {
        let measured = self.calibration.and_then(|it| match is_copy {
            true => it.copy_bytes_per_s.or(it.elementwise_bytes_per_s),
            false => it.elementwise_bytes_per_s,
        });
        match measured {
            // What fits into the cache was not measured.
            Some(rate) if bytes > self.gpu.l2_bytes => bytes as f64 / rate * 1e6,
            _ => self.min_memory_us(bytes),
        }
    }

    /// Returns the rate of products of a type in 10^12 operations per second. XLA rounds 32-bit floats to
    /// TF32 unless the highest precision is asked for.
    pub(super) fn matmul_tflops(&self, operand: &Shape, is_highest: bool) -> Option<f64> {
        let name = operand.element_type.name();
        let measured = self.calibration.filter(|_| !is_highest);
        let measured = measured.and_then(|it| it.matmul_flops_per_s.get(name));
        match measured {
            Some(rate) => Some(rate / 1e12),
            None => self.peak_tflops(operand, is_highest),
        }
    }

    fn peak_tflops(&self, operand: &Shape, is_highest: bool) -> Option<f64> {
        let rates = &self.gpu.peak_tflops;
        match operand.element_type.name() {
            "f64" => rates.fp64,
            "f32" if is_highest => rates.fp32,
            "f32" => rates.tf32.or(rates.fp32),
            "bf16" => rates.bf16,
            "f16" => rates.fp16,
            "s8" | "u8" => rates.int8,
            name if name.starts_with("f8") => rates.fp8,
            _ => None,
        }
    }

    /// Returns the rate that no product of a type exceeds, at the highest clock: data sheets give that of a
    /// lower one for some GPUs. A unit does a power of two of operations in each cycle.
    pub(super) fn max_tflops(&self, operand: &Shape, is_highest: bool) -> Option<f64> {
        let rate = self.peak_tflops(operand, is_highest)?;
        let fastest = rate.max(self.peak_tflops(operand, false).unwrap_or(0.0));
        let cycles = f64::from(self.gpu.core_count) * self.gpu.clock_ghz / 1e3;
        // Figures are rounded: one that is 1 % above a power of two is that power.
        Some((fastest / cycles * 0.99).log2().ceil().exp2() * cycles)
    }

    /// Returns how many elements a function is computed of in a microsecond: as measured, or else by those that a
    /// multiprocessor computes in a cycle.
    pub(super) fn elementwise_per_us(&self, opcode: &str, per_cycle: f64) -> f64 {
        let measured = self.calibration;
        let measured = measured.and_then(|it| it.elementwise_ops_per_s.get(opcode));
        match measured {
            Some(rate) => rate / 1e6,
            None => per_cycle * f64::from(self.gpu.core_count) * self.gpu.clock_ghz * 1e3,
        }
    }

    /// Returns the microseconds of a collective of this many bytes; `None` where its rate was not measured.
    pub(super) fn collective_us(&self, opcode: &str, bytes: u64) -> Option<f64> {
        let name = opcode.strip_suffix("-start").unwrap_or(opcode);
        let rate = self.calibration?.collective_bytes_per_s.get(name)?;
        Some(bytes as f64 / rate * 1e6)
    }

    /// Returns the microseconds that transfers take to host memory, and from it.
    pub(super) fn transfer_us(&self, link: HostLink, [to_host, from_host]: [u64; 2]) -> [f64; 2] {
        let measured = |rate: fn(&Calibration) -> Option<f64>| self.calibration.and_then(rate);
        let us = |bytes: u64, measured: Option<f64>| {
            let rate = measured.unwrap_or(link.bytes_per_s() as f64 * LINK_EFFICIENCY);
            bytes as f64 / rate * 1e6
        };
        [
            us(to_host, measured(|it| it.to_host_bytes_per_s)),
            us(from_host, measured(|it| it.from_host_bytes_per_s)),
        ]
    }
}

/// Returns the microseconds that no transfer of these bytes in one direction stays below.
pub(super) fn min_transfer_us(link: HostLink, bytes: u64) -> f64 {
    bytes as f64 / link.bytes_per_s() as f64 * 1e6
}
