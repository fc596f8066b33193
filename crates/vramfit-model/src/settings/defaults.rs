//! The defaults of `vramfit.jax_memory_fix`, and the pool that JAX makes by default.

use super::names::{
    ALLOCATOR, CREATE_OPTIONS, FRACTION, NONEXISTENT_LIMIT, OLD_FRACTION, UNIFIED_MEMORY,
};
use super::options::{Assignment, GpuBudgets, Options};
use super::platforms::{PLATFORM_NAME, PLATFORMS, prefers_gpu};
use super::table;
use super::version::Version;
use crate::allocator::{AllocatorKind, DEFAULT_FRACTION, PoolOptions};
use crate::error::Result;

/// The fraction that the pool may use where neither an option nor the environment says anything.
///
/// More than JAX's three quarters, and what is left is enough for a CUDA context and libraries
/// (0.8 GiB of a GPU of 8) by the estimate that every command uses; 0.95 leaves too little on
/// GPUs below 16 GiB.
const FRACTION_DEFAULT: f64 = 0.9;

/// Adds the defaults to the options, and returns the variables that take precedence over one.
pub(super) fn apply(
    options: &mut Options,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Vec<Assignment> {
    let non_empty = |name: &str| variable(name).filter(|value| !value.is_empty());
    let mut kept = default_fraction(options, &non_empty);
    kept.extend(default_platform(options, &non_empty));
    kept
}

fn default_fraction(
    options: &mut Options,
    variable: &impl Fn(&str) -> Option<String>,
) -> Vec<Assignment> {
    if options.sets_pool_size() {
        return Vec::new();
    }
    let kept: Vec<Assignment> = [FRACTION, OLD_FRACTION, NONEXISTENT_LIMIT]
        .into_iter()
        .filter_map(|name| {
            Some(Assignment {
                name,
                value: variable(name)?,
                reason: format!(
                    "it takes precedence over the default, a fraction of {FRACTION_DEFAULT}"
                ),
            })
        })
        .collect();
    let kind = options.allocator.or_else(|| variable(ALLOCATOR)?.parse().ok());
    if kept.is_empty() && matches!(kind, None | Some(AllocatorKind::Bfc | AllocatorKind::CudaAsync))
    {
        options.fraction = Some(FRACTION_DEFAULT);
    }
    kept
}

fn default_platform(
    options: &mut Options,
    variable: &impl Fn(&str) -> Option<String>,
) -> Option<Assignment> {
    if options.require_gpu.is_some() {
        return None;
    }
    // A value that names the GPU first asks for it too, but leaves a gap, which is closed.
    let kept = [PLATFORMS, PLATFORM_NAME].into_iter().find_map(|name| {
        let value = variable(name).filter(|value| !prefers_gpu(value))?;
        let reason = "it takes precedence over the default, which is to require a GPU".to_owned();
        Some(Assignment { name, value, reason })
    });
    if kept.is_none() {
        options.require_gpu = Some(true);
    }
    kept
}

/// Returns the limit of the pool on each GPU that a process will use, as its environment says; `None`
/// where that cannot be known.
///
/// # Errors
/// Those of `gpu_budgets`.
pub fn expected_pool_limits(
    jax: Version,
    variable: impl Fn(&str) -> Option<String>,
    gpu_budgets: impl FnOnce() -> Result<GpuBudgets>,
) -> Result<Option<Vec<u64>>> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let allocator = variable(ALLOCATOR).map_or(Ok(AllocatorKind::Bfc), |name| name.parse());
    let fraction = variable(FRACTION)
        .filter(|_| table::find(FRACTION).is_some_and(|setting| setting.is_read_by(jax)))
        .or_else(|| variable(OLD_FRACTION))
        .map_or(Ok(DEFAULT_FRACTION), |text| text.trim().parse());
    let (Ok(kind @ (AllocatorKind::Bfc | AllocatorKind::CudaAsync)), Ok(fraction)) =
        (allocator, fraction)
    else {
        return Ok(None);
    };
    // These change the meaning of the fraction, or take precedence over it.
    if [CREATE_OPTIONS, UNIFIED_MEMORY].iter().any(|name| variable(name).is_some()) {
        return Ok(None);
    }
    let GpuBudgets::Known(budgets) = gpu_budgets()? else {
        return Ok(None);
    };
    let limits = budgets.iter().map(|budget| {
        PoolOptions {
            kind,
            total_memory_bytes: budget.total_bytes,
            // JAX passes it in 32 bits.
            memory_fraction: f64::from(fraction as f32),
            jax_version: jax.into(),
            ..PoolOptions::default()
        }
        .limit_bytes()
    });
    Ok(Some(limits.collect()))
}

#[cfg(test)]
mod tests {
    use super::super::budget::GpuMemoryBudget;
    use super::super::options::{ResolvedSettings, Target};
    use super::super::resolve::resolve;
    use super::*;
    use crate::ErrorKind;

    const JAX: Version = Version::new(0, 10, 2);

    fn try_resolve(options: Options, environment: &[(&str, &str)]) -> Result<ResolvedSettings> {
        let target = Target {
            jax: Some(JAX),
            variable: &|name| {
                let found = environment.iter().find(|(known, _)| *known == name)?;
                Some(found.1.to_owned())
            },
            repair: true,
            defaults: true,
            ..Target::default()
        };
        resolve(&options, &target)
    }

    fn decide(options: Options, environment: &[(&str, &str)]) -> ResolvedSettings {
        try_resolve(options, environment).expect("resolved")
    }

    #[test]
    fn the_default_is_nine_tenths_of_a_required_gpu() {
        let done = decide(Options::default(), &[]);
        assert_eq!(done.value(FRACTION), Some("0.9"));
        assert_eq!(done.value(PLATFORMS), Some("cuda,cpu"));
        assert!(done.kept.is_empty());
    }

    #[test]
    fn options_precede_the_environment_and_that_precedes_defaults() {
        let environment = [(FRACTION, "0.4"), (PLATFORMS, "cpu")];
        let done = decide(Options::default(), &environment);
        assert!(done.set.is_empty());
        assert_eq!(done.kept.len(), 2);
        let options =
            Options { fraction: Some(0.5), require_gpu: Some(true), ..Options::default() };
        let done = decide(options, &environment);
        assert_eq!(done.value(FRACTION), Some("0.5"));
        assert_eq!(done.value(PLATFORMS), Some("cuda,cpu"));
        assert!(done.kept.is_empty());
    }

    #[test]
    fn a_split_notes_which_processes_it_does_not_recognize() {
        let options = Options { processes: Some(2), ..Options::default() };
        let done = decide(options, &[]);
        assert!(done.notes.iter().any(|note| note.contains("run --processes")));
    }

    #[test]
    fn a_list_that_names_the_gpu_is_completed() {
        let done = decide(Options::default(), &[(PLATFORMS, "cuda,cpu")]);
        assert_eq!(done.value(PLATFORM_NAME), Some("cuda"));
        assert!(done.kept.is_empty());
    }

    #[test]
    fn an_allocator_without_a_fraction_gets_none() {
        let done = decide(Options::default(), &[(ALLOCATOR, "platform")]);
        assert_eq!(done.value(FRACTION), None);
    }

    #[test]
    fn one_size_at_a_time() {
        let both = Options { fraction: Some(0.5), processes: Some(2), ..Options::default() };
        let error = try_resolve(both, &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let none = Options { processes: Some(0), ..Options::default() };
        assert!(try_resolve(none, &[]).is_err());
    }

    #[test]
    fn the_expected_limit_is_a_fraction_of_each_gpu() {
        let total_bytes = 15_642_329_088;
        let limits = expected_pool_limits(
            JAX,
            |name| (name == FRACTION).then(|| "0.5".to_owned()),
            || {
                Ok(GpuBudgets::Known(vec![GpuMemoryBudget {
                    total_bytes,
                    occupied_bytes: 0,
                    outside_bytes: 0,
                }]))
            },
        );
        let [limit] = limits.expect("read").expect("known")[..] else {
            panic!("one GPU");
        };
        assert!(limit.abs_diff(total_bytes / 2) <= 2 << 20);
    }
}
