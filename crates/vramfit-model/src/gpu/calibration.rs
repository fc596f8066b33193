//! Rates that were measured on a GPU, which estimates of time use instead of those of its data sheet.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use vramfit_base::files::cannot_read;

use super::Gpu;
use crate::error::{Error, Result};

/// The version of the format.
const SCHEMA: u32 = 1;

/// Rates of one model of GPU, as `scripts/record/gpu.py` measures them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Version of the format.
    pub schema: u32,
    /// Name of the GPU in the catalog.
    pub gpu: String,
    /// The JAX release that measured it.
    pub jax: String,
    /// Whether a virtual GPU stood in for a real one, so that no number means anything.
    #[serde(default)]
    pub pretended: bool,
    /// Bytes per second that a large elementwise kernel reads and writes.
    pub elementwise_bytes_per_s: Option<f64>,
    /// Bytes per second that a copy on the GPU reads and writes.
    pub copy_bytes_per_s: Option<f64>,
    /// Bytes per second from the GPU to pinned host memory.
    pub to_host_bytes_per_s: Option<f64>,
    /// Bytes per second from pinned host memory to the GPU.
    pub from_host_bytes_per_s: Option<f64>,
    /// Operations per second of large matrix products at JAX's default precision, by the type of their
    /// operands as XLA writes it: `bf16`, `f32`.
    #[serde(default)]
    pub matmul_flops_per_s: BTreeMap<String, f64>,
    /// Operations per second on elements that are 32-bit floats, where a kernel does nothing else, by opcode: `tanh`.
    #[serde(default)]
    pub elementwise_ops_per_s: BTreeMap<String, f64>,
    /// Bytes per second of collectives among all GPUs of the machine, by their opcode: `all-reduce`. The
    /// bytes are those of the whole array on one GPU: of the operand or the result, whichever is larger.
    #[serde(default)]
    pub collective_bytes_per_s: BTreeMap<String, f64>,
}

impl Calibration {
    /// Reads the file of a calibration for a GPU.
    ///
    /// # Errors
    /// `io` where it cannot be read; `invalid-file` where it is no calibration of this GPU.
    pub fn read(path: &Path, gpu: &Gpu) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| cannot_read(path, error))?;
        Self::parse(&text, gpu).map_err(|error| error.context(format!("`{}`", path.display())))
    }

    fn parse(text: &str, gpu: &Gpu) -> Result<Self> {
        let calibration: Calibration = toml::from_str(text).map_err(|error| {
            Error::invalid_file("the file is not a calibration")
                .cause(error)
                .hint("`scripts/record/gpu.py` of the source repository records one on a GPU")
        })?;
        if calibration.schema != SCHEMA {
            return Err(Error::invalid_file(format!(
                "the calibration has format {}; this version reads format {SCHEMA}",
                calibration.schema
            )));
        }
        if calibration.pretended {
            return Err(Error::invalid_file("the calibration was recorded on a virtual GPU")
                .hint("record it on a GPU, without `--pretend`"));
        }
        if calibration.gpu != gpu.name {
            return Err(Error::invalid_file(format!(
                "the calibration is of `{}`, but the GPU is `{}`",
                calibration.gpu, gpu.name
            ))
            .hint("rates of one model say nothing about another: record them on that GPU"));
        }
        let is_rate = |rate: &f64| rate.is_finite() && *rate > 0.0;
        if let Some(rate) = calibration.rates().find(|rate| !is_rate(rate)) {
            return Err(Error::invalid_file(format!(
                "a rate of the calibration is {rate}; rates are positive numbers"
            )));
        }
        Ok(calibration)
    }

    fn rates(&self) -> impl Iterator<Item = f64> {
        let single = [
            self.elementwise_bytes_per_s,
            self.copy_bytes_per_s,
            self.to_host_bytes_per_s,
            self.from_host_bytes_per_s,
        ];
        let named = self.matmul_flops_per_s.values();
        let named = named.chain(self.elementwise_ops_per_s.values());
        let named = named.chain(self.collective_bytes_per_s.values()).copied();
        single.into_iter().flatten().chain(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu;

    const TEXT: &str = r#"
        schema = 1
        gpu = "h200-141g"
        jax = "0.10.2"
        elementwise_bytes_per_s = 4.1e12
        [matmul_flops_per_s]
        bf16 = 7.0e14
        [collective_bytes_per_s]
        all-reduce = 2.0e11
    "#;

    fn parse(text: &str) -> Result<Calibration> {
        Calibration::parse(text, &gpu::find("h200").expect("in the catalog"))
    }

    #[test]
    fn rates_are_read_and_what_was_not_measured_is_absent() {
        let calibration = parse(TEXT).expect("a calibration");
        assert_eq!(calibration.elementwise_bytes_per_s, Some(4.1e12));
        assert_eq!(calibration.matmul_flops_per_s["bf16"], 7.0e14);
        assert_eq!(calibration.collective_bytes_per_s["all-reduce"], 2.0e11);
        assert_eq!(calibration.copy_bytes_per_s, None);
    }

    #[test]
    fn what_is_no_calibration_of_this_gpu_is_refused() {
        for (from, to, expected) in [
            ("schema = 1", "schema = 2", "format 2"),
            ("\"h200-141g\"", "\"h100-80g\"", "is of `h100-80g`"),
            ("4.1e12", "0.0", "a rate of the calibration is 0"),
            ("7.0e14", "nan", "is NaN"),
            ("4.1e12", "4.1e12\npretended = true", "on a virtual GPU"),
            ("jax =", "jaxx =", "not a calibration"),
        ] {
            let error = parse(&TEXT.replace(from, to)).expect_err(to).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
