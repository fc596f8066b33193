//! cuFFT's work area: XLA's FFT thunk asks the pool for it in every execution
//! (`xla/backends/gpu/runtime/fft_thunk.cc`, `xla/stream_executor/cuda/cuda_fft.cc`).
//!
//! The cuFFT API reference ("Fourier Transform Setup") gives the range: from 1 up to 8 times
//! `batch * n[0] * … * n[rank-1]` complex elements. Figures that were published agree with the lower
//! end where all prime factors of the lengths are at most 7: 8,000,000,160 bytes for `rfft` of
//! `f64[10,100000000]` (exojax#277), which is the half spectrum; 80.0 to 1200.0 KB for `fft2` of
//! `c64[100,100]` to `c64[100,1500]` (arrayfire#1443). The upper end belongs to Bluestein's
//! algorithm, which other lengths may need.
//!
//! cuFFT 12 on an H200 (`fixtures/gpu/`): the lower end for one long dimension, or twice that for
//! `irfft`, each half in units of 256 bytes; nothing for two and three dimensions, each short enough
//! for one kernel, except 127 x 131 x 137 real numbers; 2 to 10 times the lower end for lengths with
//! large prime factors.

use super::routine::{Routine, count};
use super::{Estimate, EstimateSource, ScratchPhase};

/// Numbers of `FftType` in XLA's protos.
const NAMES: [&str; 4] = ["fft", "ifft", "rfft", "irfft"];
const RFFT: i32 = 2;
const IRFFT: i32 = 3;
/// Up to this length one kernel can do a one-dimensional transform, which needs no work area.
const MAX_SINGLE_KERNEL: i64 = 4096;
const MAX_FACTOR: u128 = 8;
const MAX_FACTOR_OF_SMOOTH: u128 = 2;
/// Each part of a work area is rounded up to this.
const UNIT: u128 = 256;

pub(super) fn estimate(routine: &Routine<'_>) -> Option<Estimate> {
    if routine.opcode() != "fft" {
        return None;
    }
    let (operand, result) = (routine.operands.first()?, routine.results.first()?);
    let kind = routine.instruction.fft_type;
    // The side with complex elements: the half spectrum of a real transform.
    let (complex, real) = match kind {
        RFFT => (result, operand),
        IRFFT => (operand, result),
        _ => (result, result),
    };
    let lengths = &routine.instruction.fft_length;
    let spectrum = u128::from(complex.bytes());
    let full = u128::from(real.elements()) * u128::from(complex.element_type.bytes());
    let smooth = lengths.iter().all(|&length| is_smooth(length));
    let is_single = matches!(lengths.as_slice(), [length] if *length <= MAX_SINGLE_KERNEL);
    let may_need_none = lengths.len() > 1 || smooth && is_single;
    Some(Estimate {
        library: "cuFFT",
        routine: routine.named(usize::try_from(kind).ok().and_then(|kind| NAMES.get(kind))?),
        low: if may_need_none { 0 } else { spectrum },
        high: match smooth {
            true => MAX_FACTOR_OF_SMOOTH * spectrum.next_multiple_of(UNIT),
            false => MAX_FACTOR * full.max(spectrum),
        },
        source: match smooth {
            true => EstimateSource::Published,
            false => EstimateSource::Documented,
        },
        phase: ScratchPhase::Execution,
    })
}

/// Returns `true` if all prime factors are at most 7: the lengths that cuFFT has kernels for.
fn is_smooth(length: i64) -> bool {
    let mut rest = count(length);
    for factor in [2, 3, 5, 7] {
        while rest > 0 && rest.is_multiple_of(factor) {
            rest /= factor;
        }
    }
    rest <= 1
}
