//! Programs that ran on JAX's CPU backend: whether they did what the answer should be about.
//!
//! The virtual GPU sees nothing of them, so that a training on the CPU would fit on any GPU. Preparations on
//! the CPU are usual, and change nothing: data that is scaled, parameters that are initialized there.

use super::condition::Condition;
use super::programs::Evidence;
use super::summary::RunSummary;
use crate::trace::CpuProgram;

/// What needs this many times as much as any program of the GPU is the work of the run.
const MIN_WORK_RATIO: u64 = 10;
/// A program without a backward pass is not mentioned where it needs less than this part of what a program of the
/// GPU does.
const MAX_MENTIONED_RATIO: u64 = 10;
/// Nor one with a backward pass, where it needs less than this part: a gradient of a few numbers.
const MAX_BACKWARD_RATIO: u64 = 100;

impl RunSummary {
    /// Returns the program on the CPU that weighs most, where it is worth a word.
    pub(super) fn ran_on_cpu(&self) -> Option<Condition> {
        let executed = self.programs.iter().filter(|program| program.calls > 0);
        let on_gpu = executed.map(|program| program.sizes.needed_bytes());
        let gpu_bytes = on_gpu.max().unwrap_or(0);
        let has_gpu_step = self.step_evidence >= Some(Evidence::BackwardPass);
        let weigh = |program: &CpuProgram| {
            let needed = program.needed_bytes;
            let is_work = needed >= gpu_bytes.saturating_mul(MIN_WORK_RATIO);
            let is_mentioned = match (program.backward, program.products) {
                (true, _) => needed >= gpu_bytes / MAX_BACKWARD_RATIO,
                (false, true) => needed >= gpu_bytes / MAX_MENTIONED_RATIO,
                (false, false) => is_work,
            };
            let decides = match (program.backward, program.products) {
                (true, _) => is_work || !has_gpu_step && is_mentioned,
                (false, true) => is_work && !has_gpu_step,
                // Arrays that are filled or scaled, whatever their size.
                (false, false) => false,
            };
            (is_mentioned, decides)
        };
        let programs = self.cpu_programs.iter();
        let weighed = programs.map(|program| (weigh(program), program));
        let mentioned = weighed.filter(|((is_mentioned, _), _)| *is_mentioned);
        let ((_, decides), program) = mentioned.max_by_key(|((_, decides), program)| {
            (*decides, program.backward, program.needed_bytes)
        })?;
        Some(Condition::RanOnCpu { program: program.clone(), decides })
    }
}
