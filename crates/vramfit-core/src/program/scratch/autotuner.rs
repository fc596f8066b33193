//! What XLA's autotuner takes from the pool while it compiles a program on a GPU: for one kernel after
//! the other its inputs with a red zone on both sides of each, the output, and a reference to compare
//! it with (`xla/backends/gpu/autotuner/gpu_profiler.cc`; `xla_gpu_redzone_padding_bytes`, 8 MiB).

use super::routine::Routine;
use super::{Estimate, EstimateSource, ScratchPhase};

const RED_ZONES: u128 = 2 * (8 << 20);
const CALLS: &[&str] = &["__cublas$", "__cudnn$"];
/// In the backend configuration of a fusion that Triton makes a matrix product of.
const TRITON: &[&str] = &[
    "__triton_gemm",
    "__triton_nested_gemm_fusion",
    "__cudnn$fusion",
];

pub(super) fn estimate(routine: &Routine<'_>) -> Option<Estimate> {
    let config = &routine.instruction.backend_config;
    let is_call = CALLS
        .iter()
        .any(|prefix| routine.target().starts_with(prefix));
    let is_fusion =
        routine.opcode() == "fusion" && TRITON.iter().any(|kind| contains(config, kind));
    if !(is_call || is_fusion) {
        return None;
    }
    let zones = RED_ZONES * routine.operands.len() as u128;
    Some(Estimate {
        library: "XLA's autotuner",
        routine: routine.named("inputs and outputs of a kernel,"),
        low: 0,
        high: routine.operand_bytes() + zones + 2 * routine.result_bytes(),
        source: EstimateSource::Documented,
        phase: ScratchPhase::Compilation,
    })
}

fn contains(config: &[u8], text: &str) -> bool {
    config
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}
