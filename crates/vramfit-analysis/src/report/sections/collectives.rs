//! What exchanging data between GPUs takes: buffers of collectives in the pool, NCCL outside of it.

use crate::analysis::RunSummary;
use crate::bytes::Bytes;
use crate::report::{Content, Metric, Section, Value};

/// What a communicator of NCCL takes on each GPU. The low end is an order of magnitude; the high end is what a user
/// reports of one communicator (NVIDIA/nccl issue 864).
const COMMUNICATOR_BYTES: (u64, u64) = (100 << 20, 1638 << 20);

/// The share of collectives, where devices exchange data.
pub(in crate::report) fn section(summary: &RunSummary) -> Option<Section> {
    if summary.communicators == 0 {
        return None;
    }
    let mut metrics = Vec::new();
    if let Some(program) = &summary.program_memory {
        let buffers = program.memory.buffers.iter();
        let collective = buffers.filter(|buffer| buffer.collective);
        let bytes = collective.map(|buffer| buffer.peak_bytes).sum();
        let name = &summary.programs[program.program].name;
        let note = format!("in the pool: results of collectives when `{name}` needs most");
        metrics.push(Metric::new("collective buffers", Value::Bytes(bytes), note));
    }
    let (low, high) = COMMUNICATOR_BYTES;
    let count = summary.communicators;
    let range = format!("{} to {}", Bytes(low * count), Bytes(high * count));
    let note = format!(
        "estimate by published reports, outside the pool and not in any other figure: {count} \
         communicator{}; channels, network and `NCCL_BUFFSIZE` decide",
        if count == 1 { "" } else { "s" }
    );
    metrics.push(Metric::new("NCCL", Value::Text(range), note));
    Some(Section::new("exchange of data between GPUs", Content::Metrics(metrics)))
}
