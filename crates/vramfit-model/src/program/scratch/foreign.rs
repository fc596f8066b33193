//! Custom calls of other packages: they may ask the pool for scratch memory, and nothing is known of it.

use super::routine::Routine;
use super::{Estimate, EstimateSource, ScratchPhase};

/// Beginnings of names that XLA and JAX use for calls that take no scratch memory at run time, or
/// have it among their operands and results.
const TARGETS_WITHOUT_SCRATCH: &[&str] = &[
    "__",
    "cu_",
    "cublas_",
    "cudnn",
    "cusolver_",
    "xla_",
    "xla.",
    "triton_kernel_call",
    "mosaic_gpu",
    "Sharding",
    "SPMD",
    "annotate_",
    "AllocateBuffer",
    "PinBuffer",
    "UnpinBuffer",
    "CreateBuffer",
    "PadToStatic",
    "SliceToDynamic",
    "TopK",
    "MoveToHost",
    "MoveToDevice",
    "ExportToHost",
    "LayoutConstraint",
    "ResizeNearest",
    "ResizeBilinear",
    "tridiagonal_solve_perturbed_ffi",
];

pub(super) fn estimate(routine: &Routine<'_>) -> Option<Estimate> {
    let target = routine.target();
    if target.is_empty() || TARGETS_WITHOUT_SCRATCH.iter().any(|known| target.starts_with(known)) {
        return None;
    }
    Some(Estimate {
        library: "custom call",
        routine: routine.named(target),
        source: EstimateSource::Unknown,
        phase: ScratchPhase::Execution,
        ..Estimate::default()
    })
}
