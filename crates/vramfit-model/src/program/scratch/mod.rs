//! Memory that library routines of a program take beside what XLA planned for it.
//!
//! cuFFT and cuSOLVER ask for their work area when they run; sorts and convolutions get one in the
//! temporaries, but only where the program was compiled on a GPU; the autotuner needs copies of
//! operands while it compiles. A compilation without a device knows none of these sizes. Each
//! routine is recognized in the optimized module, whatever release wrote it, and given a range in
//! bytes from its shapes, with where the figures come from ([`EstimateSource`]).
//!
//! | file | library | recognized by |
//! | --- | --- | --- |
//! | `routine` | | operands, results and element types of one instruction |
//! | `cufft` | cuFFT | opcode `fft` |
//! | `cusolver` | cuSOLVER | custom calls `cusolver_*_ffi`, and cuBLAS for batches of small matrices |
//! | `cusparse` | cuSPARSE | custom calls `cusparse_*_ffi` |
//! | `cub` | CUB | opcode `sort`, as the fallback of a compilation without a device |
//! | `cudnn` | cuDNN | custom calls `__cudnn$conv*`, opcode `convolution` |
//! | `autotuner` | XLA's autotuner | custom calls `__cublas$*` and `__cudnn$*`, fusions of a matrix product |
//! | `foreign` | custom calls of other packages | any other custom call: no range is known |

mod autotuner;
mod cub;
mod cudnn;
mod cufft;
mod cusolver;
mod cusparse;
mod foreign;
mod routine;

use serde::{Deserialize, Serialize};

use self::routine::Routine;
use super::hlo::HloGraph;
use super::memory::Frames;

/// XLA's message when cuFFT's work area cannot be allocated, of an `INTERNAL` error (`fft_thunk.cc`).
pub const CUFFT_PLAN_ERROR: &str = "Failed to create cuFFT batched plan with scratch allocator";

/// Scratch memory of the routines of one library that a line of the program calls with one shape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScratchNeed {
    /// The library, such as `cuFFT`.
    pub library: String,
    /// The routine and its operand, such as `rfft f64[10,100000000]`.
    pub routine: String,
    /// The user's line; empty when it is not known.
    pub site: String,
    /// Bytes that it takes at least: the smallest figure that is documented or was published.
    pub low_bytes: u64,
    /// Bytes that it takes at most. Equal to `low_bytes` for [`EstimateSource::Unknown`], where it
    /// says nothing.
    pub high_bytes: u64,
    /// Where the range comes from.
    pub source: EstimateSource,
    /// When the bytes are taken.
    pub phase: ScratchPhase,
}

/// Where the range of a [`ScratchNeed`] comes from.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum EstimateSource {
    /// The library's documentation or the caller's source code.
    Documented,
    /// Figures that were reported of real GPUs.
    Published,
    /// Neither: a bound by analogy with routines of which figures were published.
    #[default]
    Estimated,
    /// Nothing is known: the routine may take any amount.
    Unknown,
}

/// When the bytes of a [`ScratchNeed`] are taken from the pool.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum ScratchPhase {
    /// While the routine runs, beside the temporaries.
    #[default]
    Execution,
    /// As part of the temporaries, where the program was compiled on a GPU.
    Plan,
    /// While the program is compiled on a GPU.
    Compilation,
    /// Not from the pool: the library asks the driver.
    OutsidePool,
}

impl EstimateSource {
    /// All of them, in the order of their numbers in a trace.
    pub const ALL: [EstimateSource; 4] = [
        EstimateSource::Documented,
        EstimateSource::Published,
        EstimateSource::Estimated,
        EstimateSource::Unknown,
    ];
}

impl ScratchPhase {
    /// All of them, in the order of their numbers in a trace.
    pub const ALL: [ScratchPhase; 4] = [
        ScratchPhase::Execution,
        ScratchPhase::Plan,
        ScratchPhase::Compilation,
        ScratchPhase::OutsidePool,
    ];
}

/// What is known of one routine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Estimate {
    library: &'static str,
    routine: String,
    low: u128,
    high: u128,
    source: EstimateSource,
    phase: ScratchPhase,
}

/// Returns the scratch memory that the library routines of a module take, each line and routine
/// once, in the order of the module. Needs of nothing (`high_bytes` 0 with a known source) are left
/// out.
pub(super) fn needs(graph: &HloGraph<'_>) -> Vec<ScratchNeed> {
    let mut frames = Frames::new(graph.module());
    let mut needs: Vec<ScratchNeed> = Vec::new();
    let mut autotuned: Option<ScratchNeed> = None;
    for instruction in graph.module().instructions() {
        let routine = Routine::new(graph, instruction);
        let mut named = |estimate: Estimate| ScratchNeed {
            library: estimate.library.to_owned(),
            routine: estimate.routine,
            site: instruction
                .metadata
                .as_ref()
                .and_then(|metadata| frames.user_site(metadata))
                .unwrap_or_default(),
            low_bytes: bytes(estimate.low),
            high_bytes: bytes(estimate.high.max(estimate.low)),
            source: estimate.source,
            phase: estimate.phase,
        };
        if let Some(need) = autotuner::estimate(&routine).map(&mut named) {
            // Kernels are tuned one after the other: the largest counts.
            let largest = autotuned.as_ref().map_or(0, |need| need.high_bytes);
            if need.high_bytes > largest {
                autotuned = Some(need);
            }
        }
        let Some(need) = estimate(&routine).map(&mut named) else {
            continue;
        };
        let is_nothing = need.high_bytes == 0 && need.source != EstimateSource::Unknown;
        if !is_nothing && !needs.contains(&need) {
            needs.push(need);
        }
    }
    needs.extend(autotuned);
    needs
}

fn estimate(routine: &Routine<'_>) -> Option<Estimate> {
    cufft::estimate(routine)
        .or_else(|| cub::estimate(routine))
        .or_else(|| cudnn::estimate(routine))
        .or_else(|| cusolver::estimate(routine))
        .or_else(|| cusparse::estimate(routine))
        .or_else(|| foreign::estimate(routine))
}

/// Sizes of shapes from a file may overflow; the largest number is the honest answer then.
fn bytes(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
