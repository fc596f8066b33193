//! cuSPARSE's buffers: JAX's handlers ask the pool for them in every execution
//! (`jaxlib/gpu/sparse_kernels.cc`). No figures were published. The API reference gives
//! `min(m, 8) * (3 + n)` elements for the tridiagonal solver with m equations and n right-hand
//! sides; products are bounded by a copy of their operands.

use super::routine::{Routine, count};
use super::{Estimate, EstimateSource, ScratchPhase};

pub(super) fn estimate(routine: &Routine<'_>) -> Option<Estimate> {
    let name = routine.target().strip_prefix("cusparse_")?;
    let name = name.strip_suffix("_ffi").unwrap_or(name);
    let high = match name.strip_suffix("_f32").or(name.strip_suffix("_f64")).unwrap_or(name) {
        "gtsv2" => {
            let sides = routine.operands.last()?;
            let [.., rows, columns] = sides.dims.as_slice() else {
                return None;
            };
            let element = u128::from(sides.element_type.bytes());
            let (rows, columns) = (count(*rows), count(*columns));
            // Either order of rows and columns.
            8 * (3 + rows.max(columns)) * element + routine.operand_bytes()
        }
        _ => routine.operand_bytes() + routine.result_bytes(),
    };
    Some(Estimate {
        library: "cuSPARSE",
        routine: routine.named(name),
        low: 0,
        high,
        source: EstimateSource::Estimated,
        phase: ScratchPhase::Execution,
    })
}
