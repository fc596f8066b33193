//! What XLA writes into the backend configuration of an instruction, as JSON.

use serde::Deserialize;

use crate::program::proto::HloInstructionProto;

/// The parts that say how long an instruction takes.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct BackendConfig {
    reification_cost: Vec<CostEntry>,
    known_trip_count: Option<TripCount>,
    gemm_backend_config: GemmConfig,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CostEntry {
    name: String,
    exec_time_us: f64,
}

#[derive(Deserialize)]
struct TripCount {
    n: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct GemmConfig {
    dot_dimension_numbers: DotDimensions,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DotDimensions {
    lhs_contracting_dimensions: Vec<String>,
}

impl BackendConfig {
    /// Reads the configuration; one of another form says nothing.
    pub(super) fn read(instruction: &HloInstructionProto) -> Self {
        serde_json::from_slice(&instruction.backend_config).unwrap_or_default()
    }

    /// Returns the microseconds by the cost model of this name; the general one has none.
    pub(super) fn time_us(&self, model: &str) -> Option<f64> {
        let mut entries = self.reification_cost.iter();
        let entry = entries.find(|entry| entry.name == model)?;
        Some(entry.exec_time_us)
    }

    /// Returns how often a `while` runs its body.
    pub(super) fn trip_count(&self) -> Option<f64> {
        self.known_trip_count.as_ref()?.n.parse().ok()
    }

    /// Returns the dimensions of its first operand that a call of cuBLAS contracts.
    pub(super) fn contracting_dimensions(&self) -> Vec<i64> {
        let dims = &self.gemm_backend_config.dot_dimension_numbers;
        let dims = dims.lhs_contracting_dimensions.iter();
        dims.filter_map(|dim| dim.parse().ok()).collect()
    }
}
