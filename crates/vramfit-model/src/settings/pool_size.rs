//! The size of JAX's pool, as the text of the fraction that JAX reads.

use super::budget::{GpuMemoryBudget, no_processes, pool_bytes};
use super::version::Version;
use crate::allocator::{AllocatorKind, DEFAULT_FRACTION, PoolOptions};
use crate::bytes::Bytes;
use crate::error::{Error, Result};

/// How much of a GPU's memory the pool may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PoolSize {
    /// A fraction of the GPU's total memory.
    Fraction(f64),
    /// At most this many bytes of a GPU of that size. JAX has no such setting: it becomes the largest
    /// fraction of the GPU that does not exceed it.
    Limit { limit_bytes: u64, total_bytes: u64 },
    /// All of a GPU of that size, and so many bytes of host memory.
    Spill { host_bytes: u64, total_bytes: u64 },
    /// As much as each of several processes can have, with some memory of the GPU left free.
    Split {
        /// Number of processes on the GPU, this one included.
        processes: u32,
        keep_free_bytes: u64,
        /// `None` where nothing is known of the GPU; JAX's default fraction is split then.
        budget: Option<GpuMemoryBudget>,
    },
}

/// The largest fraction of GPU memory to give to the pool. The rest is for what allocates outside of it: CUDA context,
/// compiled programs, cuBLAS, cuDNN, NCCL.
pub const MAX_FRACTION: f64 = 0.92;

/// The multiple of the GPU's memory that AlphaFold 3's documentation gives a pool of unified memory; what needs more
/// would spend its time on the link.
pub const USUAL_UNIFIED_FRACTION: f64 = 3.2;

/// Of the host memory that is free, the part that `vramfit run --spill` gives to the pool; the program itself needs some,
/// too.
pub const SPILLED_PART: f64 = 0.9;

/// A fraction as JAX reads it, and why it is that one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FractionText {
    pub(super) text: String,
    pub(super) reason: String,
    /// What to know where the pool is not as large as requested.
    pub(super) note: Option<String>,
}

impl PoolSize {
    /// Returns the fraction for this size in that release (`None`: any) with that allocator.
    pub(super) fn fraction_text(
        self,
        version: Option<Version>,
        kind: AllocatorKind,
        unified_memory: bool,
        budget: Option<GpuMemoryBudget>,
    ) -> Result<FractionText> {
        // Newer releases round up; an unknown one is treated as if it did.
        let jax_version = version.unwrap_or(Version::MAX).into();
        let pool = |total_bytes: u64| PoolOptions {
            kind,
            jax_version,
            total_memory_bytes: total_bytes,
            ..PoolOptions::default()
        };
        let limit =
            |limit_bytes: u64, total_bytes: u64| fraction_for(limit_bytes, &pool(total_bytes));
        match self {
            PoolSize::Fraction(fraction) => Ok(FractionText {
                text: check_fraction(fraction, unified_memory)?,
                reason: fraction_reason(fraction, budget),
                note: None,
            }),
            PoolSize::Limit { limit_bytes, total_bytes } => {
                let fraction = limit(limit_bytes, total_bytes)?;
                let options =
                    PoolOptions { memory_fraction: f64::from(fraction), ..pool(total_bytes) };
                Ok(FractionText {
                    text: shortest_text(fraction),
                    reason: format!("{} of the GPU's {}", Bytes(limit_bytes), Bytes(total_bytes)),
                    note: limit_note(limit_bytes, &options),
                })
            }
            PoolSize::Spill { host_bytes, total_bytes } => {
                let fraction = (total_bytes as f64 + host_bytes as f64) / total_bytes as f64;
                Ok(FractionText {
                    // Truncated, so that it is never more host memory.
                    text: ((fraction * 1e3).floor() / 1e3).to_string(),
                    reason: format!(
                        "all of the GPU's {}, and up to {} of host memory",
                        Bytes(total_bytes),
                        Bytes(host_bytes)
                    ),
                    note: None,
                })
            }
            PoolSize::Split { processes, keep_free_bytes, budget: Some(budget) } => {
                let pool = budget.pool_bytes_each(processes, keep_free_bytes)?;
                Ok(FractionText {
                    text: shortest_text(limit(pool, budget.total_bytes)?),
                    reason: split_reason(pool, processes, keep_free_bytes, budget),
                    note: None,
                })
            }
            PoolSize::Split { keep_free_bytes, .. } if keep_free_bytes > 0 => {
                Err(Error::invalid_argument(format!(
                    "cannot keep {} of a GPU free whose size is unknown",
                    Bytes(keep_free_bytes)
                ))
                .hint(NAME_GPU_HINT))
            }
            PoolSize::Split { processes: 0, .. } => Err(no_processes()),
            PoolSize::Split { processes, .. } => {
                let fraction = DEFAULT_FRACTION / f64::from(processes);
                Ok(FractionText {
                    // Truncated and not rounded, so that the fractions never add up to more than the whole.
                    text: ((fraction * 1e4).floor() / 1e4).max(1e-4).to_string(),
                    reason: format!(
                        "JAX's default of 75 % split among {processes}; the GPU is unknown, and so is \
                         whether the rest is enough for {processes} CUDA contexts"
                    ),
                    note: None,
                })
            }
        }
    }
}

/// What to do where the size of the GPU is needed and unknown.
pub const NAME_GPU_HINT: &str =
    "name the GPU, such as `--gpu a100-80g`; `vramfit gpus` lists the known ones";

/// Returns a note about a limit in bytes that JAX cannot keep exactly.
fn limit_note(requested_bytes: u64, options: &PoolOptions) -> Option<String> {
    let pool_bytes = options.limit_bytes();
    if pool_bytes == requested_bytes {
        return None;
    }
    let why = match options.limit_step_bytes() {
        1 => "JAX reads the fraction as a 32-bit number".to_owned(),
        step => format!(
            "JAX reads the fraction as a 32-bit number and rounds pools to multiples of {}",
            Bytes(step)
        ),
    };
    let difference = Bytes(pool_bytes.abs_diff(requested_bytes));
    let direction = if pool_bytes < requested_bytes { "less" } else { "more" };
    // One decimal more than elsewhere, since the difference is small.
    let becomes = match pool_bytes as f64 / f64::from(1 << 30) {
        gibibytes if gibibytes >= 1.0 => format!("{gibibytes:.2} GiB"),
        _ => Bytes(pool_bytes).to_string(),
    };
    let limit = Bytes(requested_bytes).to_exact_text();
    Some(format!("the limit of {limit} becomes {becomes} ({difference} {direction}: {why})"))
}

fn fraction_reason(fraction: f64, budget: Option<GpuMemoryBudget>) -> String {
    let percent = fraction * 100.0;
    let Some(budget) = budget else {
        return format!("{percent:.1} % of the GPU's memory");
    };
    let total = budget.total_bytes;
    let pool = pool_bytes(fraction, total);
    format!(
        "{percent:.1} % of the GPU's {}, which leaves {} outside the pool",
        Bytes(total),
        Bytes(total.saturating_sub(pool))
    )
}

fn split_reason(pool: u64, processes: u32, keep_free: u64, budget: GpuMemoryBudget) -> String {
    let outside = Bytes(budget.outside_bytes);
    let mut text = format!("{} of the GPU's {}", Bytes(pool), Bytes(budget.total_bytes));
    text += &match processes {
        1 => format!(", after {outside} for context and libraries (estimated)"),
        _ => format!(
            ": a pool for each of {processes} processes, after {outside} each for context and \
             libraries (estimated)"
        ),
    };
    if budget.occupied_bytes > 0 {
        text += &format!(", {} used by other processes", Bytes(budget.occupied_bytes));
    }
    if keep_free > 0 {
        text += &format!(", {} kept free", Bytes(keep_free));
    }
    text
}

/// Returns the text of a fraction that is in range.
fn check_fraction(fraction: f64, unified_memory: bool) -> Result<String> {
    let max = if unified_memory { f64::MAX } else { 1.0 };
    if fraction > 0.0 && fraction <= max {
        return Ok(fraction.to_string());
    }
    let hint = if (2.0..=100.0).contains(&fraction) {
        format!(
            "write {fraction} % as `{}`; more than the GPU's memory needs `TF_FORCE_UNIFIED_MEMORY=1`",
            (fraction * 100.0).round() / 1e4
        )
    } else if fraction > 1.0 {
        "more than the GPU's memory needs `TF_FORCE_UNIFIED_MEMORY=1`".to_owned()
    } else {
        "write a number such as `0.9`".to_owned()
    };
    Err(Error::invalid_argument(format!(
        "memory fraction {fraction} is out of range; expected 0 < fraction <= 1"
    ))
    .hint(hint))
}

/// Returns the largest fraction whose pool, as XLA computes it, does not exceed the limit.
fn fraction_for(limit_bytes: u64, options: &PoolOptions) -> Result<f32> {
    let total_bytes = options.total_memory_bytes;
    let out_of_range = |hint: String| {
        Err(Error::invalid_argument(format!(
            "a limit of {} is out of range on a GPU of {}",
            Bytes(limit_bytes),
            Bytes(total_bytes)
        ))
        .hint(hint))
    };
    if limit_bytes == 0 || limit_bytes > total_bytes {
        return out_of_range(format!("give at most {}", Bytes(total_bytes).rounded_down()));
    }
    let step = options.limit_step_bytes();
    let whole = limit_bytes / step * step;
    if whole == 0 {
        return out_of_range(format!(
            "give at least {0}: JAX rounds pools to multiples of {0}",
            Bytes(step).to_exact_text()
        ));
    }
    let pool = |fraction: f32| {
        PoolOptions { memory_fraction: f64::from(fraction), ..options.clone() }.limit_bytes()
    };
    let mut fraction = (whole as f64 / total_bytes as f64) as f32;
    while pool(fraction) > limit_bytes {
        fraction = fraction.next_down();
    }
    while pool(fraction.next_up()) <= limit_bytes {
        fraction = fraction.next_up();
    }
    Ok(fraction)
}

/// Returns a text that Python reads as a number which becomes exactly this one in 32 bits.
pub(super) fn shortest_text(fraction: f32) -> String {
    let short = fraction.to_string();
    // Python reads 64 bits first, and rounding twice is not rounding once.
    if short.parse::<f64>().is_ok_and(|read| read as f32 == fraction) {
        short
    } else {
        f64::from(fraction).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASES: [Version; 2] = [Version::new(0, 10, 1), Version::new(0, 10, 2)];

    /// The pool that JAX and XLA make of a text: Python's 64 bits, the C API's 32, and XLA's product.
    fn pool(text: &str, total_memory_bytes: u64, jax: Version, kind: AllocatorKind) -> u64 {
        PoolOptions {
            kind,
            total_memory_bytes,
            memory_fraction: f64::from(text.parse::<f64>().unwrap() as f32),
            jax_version: jax.into(),
            ..PoolOptions::default()
        }
        .limit_bytes()
    }

    #[test]
    fn a_limit_is_never_exceeded_and_hardly_missed() {
        for total in [10_468_982_784_u64, 25_414_860_800, 84_942_979_072, 191_514_411_008] {
            for limit in [2 << 20, 1 << 30, 8 << 30, 8_589_934_593, total / 3, total - 1, total] {
                for (jax, kind) in
                    RELEASES.into_iter().zip([AllocatorKind::Bfc, AllocatorKind::CudaAsync])
                {
                    for kind in [AllocatorKind::Bfc, kind] {
                        let size = PoolSize::Limit { limit_bytes: limit, total_bytes: total };
                        let text = size.fraction_text(Some(jax), kind, false, None).unwrap().text;
                        let had = pool(&text, total, jax, kind);
                        assert!(had <= limit, "{limit} of {total}: {had}");
                        let more = f64::from((text.parse::<f64>().unwrap() as f32).next_up());
                        let next = pool(&more.to_string(), total, jax, kind);
                        assert!(next > limit, "{limit} of {total}: {next} would fit too");
                    }
                }
            }
        }
    }

    #[test]
    fn a_note_has_both_figures_of_a_limit_that_is_changed() {
        let note = |limit_bytes, jax, kind| {
            let size = PoolSize::Limit { limit_bytes, total_bytes: 84_942_979_072 };
            size.fraction_text(Some(jax), kind, false, None).unwrap().note
        };
        // 500 MiB are 250 pages; the nearest fraction of 32 bits is a few bytes below.
        let old = note(500 << 20, RELEASES[0], AllocatorKind::Bfc).unwrap();
        assert!(old.contains("the limit of 500MiB becomes 500.0 MiB ("), "{old}");
        assert!(old.contains(" B less: JAX reads"), "{old}");
        assert!(!old.contains("multiples"), "{old}");
        assert_eq!(note(500 << 20, RELEASES[1], AllocatorKind::Bfc), None);
        let pages = note((500 << 20) + 1, RELEASES[1], AllocatorKind::Bfc).unwrap();
        assert!(pages.contains("524288001 becomes 500.0 MiB (1 B less: "), "{pages}");
        assert!(pages.contains("multiples of 2.0 MiB"), "{pages}");
        assert!(note(500 << 20, RELEASES[1], AllocatorKind::CudaAsync).is_some());
    }

    #[test]
    fn a_pool_of_less_than_a_page_is_refused_where_pools_are_whole_pages() {
        let size = PoolSize::Limit { limit_bytes: 1 << 20, total_bytes: 1 << 34 };
        assert!(size.fraction_text(Some(RELEASES[0]), AllocatorKind::Bfc, false, None).is_ok());
        let error =
            size.fraction_text(Some(RELEASES[1]), AllocatorKind::Bfc, false, None).unwrap_err();
        assert!(error.hint_text().unwrap().contains("2MiB"), "{error}");
    }

    #[test]
    fn fractions_of_an_unknown_gpu_never_add_up_to_more_than_the_default() {
        for processes in 1..=64 {
            let size = PoolSize::Split { processes, keep_free_bytes: 0, budget: None };
            let text = size.fraction_text(None, AllocatorKind::Bfc, false, None).unwrap().text;
            let all = text.parse::<f64>().unwrap() * f64::from(processes);
            assert!(all <= DEFAULT_FRACTION && all > 0.74, "{processes}: {all}");
        }
    }
}
