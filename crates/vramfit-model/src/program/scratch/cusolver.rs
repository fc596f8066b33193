//! cuSOLVER's workspaces: JAX's handlers ask the pool for them in every execution
//! (`jaxlib/gpu/solver_kernels_ffi.cc`, `ffi::ScratchAllocator`). A batch uses one workspace after
//! the other, except where JAX calls a batched routine, which is decided by the shapes as there.
//!
//! Figures of the H200 are in `fixtures/gpu/`. Sizes in elements; m rows, n columns, k = min(m, n), b matrices:
//!
//! | routine | low | high | from |
//! | --- | --- | --- | --- |
//! | `syevd` n > 32 | 3 n² (complex: 2 n²) | 4 n² + 256 n + 65536 | jax#23413: `f64` passes 2³¹ from n = 26,733; an H200 with JAX 0.11.2: 4 n² + 144 n |
//! | the same, b > 1 | 3 n² (complex: 2 n²) | b (7 n² + 8) + 65536 | the H200: b (7 n² + 5), from `syevBatched` |
//! | `syevd` n ≤ 32 (`syevj`) | 1024 b (real: half) | 2048 + b (1024 + 4 (n + 1)²) | cupy#7261, table for `c64[b,4,4]` |
//! | `geqrf`, b > 1, m / b and n / b ≤ 128 | 2 b pointers | the same | JAX's source |
//! | `geqrf` | 0 | m n + 256 (m + n) + 65536 | estimated |
//! | `orgqr` | 0 | 128 (m + n) + 65536 | CUDA.jl#3258: passes 2³¹ from 16 M rows |
//! | the same, b > 1, m and n ≤ 128 | 0 | b m n more | the H200: JAX's own kernel for small matrices has a copy of the result |
//! | `ormqr` | m k | 2 m k + 256 (m + n) + 65536 | CUDA.jl#3258, MatrixAlgebraKit.jl#267 |
//! | `getrf`, b > 1, m = n, m / b ≤ 128 | b pointers | the same | JAX's source |
//! | `getrf`, `potrf` | 0 | m n + 256 (m + n) + 65536 | estimated |
//! | `gesvd`, `gesdd` | 0 | 6 k² + 2 m n + 65536, and m² for a full U | cupy#7611: fails between 18,900² and 19,000² |
//! | `gesvdj`, `gesvdp` | 0 | 8 k² + 3 m n + 65536, and m² for a full U | estimated |
//! | `geev` | 0 | 8 n² + 65536 | estimated |
//! | `sytrd` | 0 | n² + 256 n + 65536 | estimated |

use super::routine::{Matrices, Routine};
use super::{Estimate, EstimateSource, ScratchPhase};

const LIBRARY: &str = "cuSOLVER";
/// A pointer to one matrix of a batch.
const POINTER: u128 = 8;
/// What small matrices take whatever their size, in elements; generous.
const BASE: u128 = 65_536;

/// A range in elements, and where it is from.
struct Range {
    low: u128,
    high: u128,
    source: EstimateSource,
}

pub(super) fn estimate(routine: &Routine<'_>) -> Option<Estimate> {
    let name = name_of(routine.target())?;
    // It works in place.
    if name == "syrk" {
        return None;
    }
    let unknown = |phase| Estimate {
        library: LIBRARY,
        routine: routine.named(name),
        source: EstimateSource::Unknown,
        phase,
        ..Estimate::default()
    };
    if name == "csrlsvqr" {
        // cuSOLVER's sparse routines allocate by themselves.
        return Some(unknown(ScratchPhase::OutsidePool));
    }
    let matrices = routine.matrices()?;
    let (library, range) = match batched(name, &matrices) {
        Some(pointers) => {
            let bytes = pointers * POINTER;
            let exact = Range { low: bytes, high: bytes, source: EstimateSource::Documented };
            ("cuBLAS", exact)
        }
        None => {
            let Some(elements) = range(name, &matrices, routine) else {
                return Some(unknown(ScratchPhase::Execution));
            };
            let bytes = Range {
                low: elements.low * matrices.element,
                high: elements.high * matrices.element,
                source: elements.source,
            };
            (LIBRARY, bytes)
        }
    };
    Some(Estimate {
        library,
        routine: routine.named(name),
        low: range.low,
        high: range.high,
        source: range.source,
        phase: ScratchPhase::Execution,
    })
}

/// Returns the routine that a custom call stands for: `cusolver_syevd_ffi` since JAX 0.4.32,
/// `cusolver_syevd` before; `cublas_getrf_batched_ffi` and the like up to 0.4.34.
fn name_of(target: &str) -> Option<&str> {
    let rest = target.strip_prefix("cusolver_").or_else(|| target.strip_prefix("cublas_"))?;
    let rest = rest.strip_suffix("_ffi").unwrap_or(rest);
    Some(rest.strip_suffix("_batched").unwrap_or(rest))
}

/// Returns how many pointers a batched routine of cuBLAS takes, where JAX calls one.
fn batched(name: &str, matrices: &Matrices) -> Option<u128> {
    const MAX_BATCH: u128 = 128;
    let Matrices { batch, rows, columns, .. } = *matrices;
    if batch <= 1 || rows / batch > MAX_BATCH {
        return None;
    }
    match name {
        "getrf" if rows == columns => Some(batch),
        "geqrf" if columns / batch <= MAX_BATCH => Some(2 * batch),
        _ => None,
    }
}

/// Returns the elements of a workspace; `None` for routines of which nothing is known.
fn range(name: &str, matrices: &Matrices, routine: &Routine<'_>) -> Option<Range> {
    use EstimateSource::{Estimated, Published};
    let Matrices { batch, rows: m, columns: n, .. } = *matrices;
    let k = m.min(n);
    let panels = 256 * (m + n) + BASE;
    let is_complex =
        routine.operands.first().is_some_and(|shape| shape.element_type.name().starts_with('c'));
    let (low, high, source) = match name {
        // A Jacobi routine does small matrices, all of a batch at once.
        "syevd" | "syevj" if n <= 32 => {
            let each = 1024 + 4 * (n + 1) * (n + 1);
            let low = 1024 * batch;
            let low = if is_complex { low } else { low / 2 };
            (low, 2048 + batch * each, Published)
        }
        "syevd" | "syevj" => {
            let copies = if is_complex { 2 } else { 3 };
            let single = 4 * n * n + 256 * n + BASE;
            let batched = if batch > 1 { batch * (7 * n * n + 8) + BASE } else { 0 };
            (copies * n * n, single.max(batched), Published)
        }
        "orgqr" => {
            let copy = if batch > 1 && m.max(n) <= 128 { batch * m * n } else { 0 };
            (0, 128 * (m + n) + BASE + copy, Published)
        }
        "ormqr" => (m * k, 2 * m * k + panels, Published),
        "geqrf" | "getrf" | "potrf" => (0, m * n + panels, Estimated),
        "gesvd" | "gesdd" => (0, 6 * k * k + 2 * m * n + full_basis(routine) + BASE, Published),
        "gesvdj" | "gesvdp" if m <= 32 && n <= 32 => {
            let each = 1024 + 4 * (m + n + 1) * (m + n + 1);
            (0, 2048 + batch * each, Estimated)
        }
        "gesvdj" | "gesvdp" => (0, 8 * k * k + 3 * m * n + full_basis(routine) + BASE, Estimated),
        "geev" => (0, 8 * n * n + BASE, Estimated),
        "sytrd" => (0, n * n + 256 * n + BASE, Estimated),
        _ => return None,
    };
    Some(Range { low, high, source })
}

/// Returns the elements of the largest square result: U of a decomposition with `full_matrices`.
fn full_basis(routine: &Routine<'_>) -> u128 {
    let squares = routine.results.iter().filter_map(|shape| {
        let [.., rows, columns] = shape.dims.as_slice() else {
            return None;
        };
        (rows == columns).then(|| super::routine::count(*rows).pow(2))
    });
    squares.max().unwrap_or(0)
}
