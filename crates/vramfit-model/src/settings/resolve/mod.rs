//! From options to the variables that the installed release of JAX reads.
//!
//! | file | what it decides |
//! | --- | --- |
//! | `pool.rs` | allocator, preallocation and fraction of the pool |
//! | `program.rs` | platforms, rematerialization, types, compilation, CPU devices |
//! | `repair.rs` | corrections of values in the environment that JAX misreads |
//!
//! Options take precedence over the environment, and a note says so. Flags inside `XLA_FLAGS` are only
//! ever added; one that the user has set there already stays, and a note says that too. What no option
//! sets stays as it is.

mod pool;
mod program;
mod repair;

pub use pool::allocator_since;

use super::budget::GpuMemoryBudget;
use super::defaults;
use super::names::{FRACTION, NONEXISTENT_LIMIT, OLD_FRACTION};
use super::options::{Assignment, GpuBudgets, Options, ResolvedSettings, Target};
use super::pool_size::{NAME_GPU_HINT, PoolSize};
use super::version::Version;
use crate::error::{Error, Result};

/// Decides which variables make the JAX of a process follow the options.
///
/// Of the two names of the fraction only one is left set: JAX rejects both together and then falls back
/// to the CPU.
///
/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] for options that exclude each other, a pool that no GPU can
/// have, an allocator that the release does not have; those of [`Target::gpu_budgets`], where the options
/// cannot be resolved without it.
pub fn resolve(options: &Options, target: &Target<'_>) -> Result<ResolvedSettings> {
    options.check()?;
    let mut resolver =
        Resolver { options: *options, size: None, target, result: ResolvedSettings::default() };
    if target.defaults {
        resolver.result.kept = defaults::apply(&mut resolver.options, target.variable);
    }
    resolver.set_pool_size()?;
    if target.repair {
        repair::apply(&mut resolver)?;
    }
    pool::apply(&mut resolver)?;
    program::apply(&mut resolver);
    if target.defaults && options.processes.is_some() {
        // Their environment was another one when they were started, and only that can be read.
        resolver.note(
            "running processes of the same split count as other processes; \
             `vramfit run --processes` recognizes them",
        );
    }
    let mut result = resolver.result;
    let (set, removed) = (&result.set, &result.removed);
    result.kept.retain(|kept| {
        !removed.contains(&kept.name) && set.iter().all(|set| set.name != kept.name)
    });
    Ok(result)
}

/// The options, the process they are for, and the settings so far.
struct Resolver<'a> {
    options: Options,
    /// The size of the pool that the options ask for.
    size: Option<PoolSize>,
    target: &'a Target<'a>,
    result: ResolvedSettings,
}

impl Resolver<'_> {
    /// Returns the value that a variable has; JAX takes an empty one as unset.
    fn non_empty_var(&self, name: &str) -> Option<String> {
        (self.target.variable)(name).filter(|value| !value.is_empty())
    }

    /// Returns `true` if the release is known to be this one or a newer one.
    fn is_at_least(&self, version: Version) -> bool {
        self.target.jax.is_some_and(|installed| installed >= version)
    }

    fn set(&mut self, name: &'static str, value: impl Into<String>, reason: impl Into<String>) {
        let (value, reason) = (value.into(), reason.into());
        if let Some(old) = self.non_empty_var(name).filter(|old| *old != value) {
            self.note(format!("`{name}` was {old} and is now {value}"));
        }
        self.result.set.push(Assignment { name, value, reason });
    }

    fn remove(&mut self, name: &'static str, why: &str) {
        if let Some(old) = self.non_empty_var(name) {
            self.note(format!("`{name}`, which was {old}, is removed: {why}"));
            self.result.removed.push(name);
        }
    }

    fn note(&mut self, text: impl Into<String>) {
        self.result.notes.push(text.into());
    }

    /// Finds out about the GPUs, as far as it matters, and decides the size of the pool.
    fn set_pool_size(&mut self) -> Result<()> {
        let memory = self.gpu_budgets()?;
        let options = &self.options;
        let (total_bytes, budgets) = match &memory {
            GpuBudgets::Unknown => (None, &[][..]),
            GpuBudgets::TotalOnly(bytes) => (Some(*bytes), &[][..]),
            GpuBudgets::Known(budgets) => {
                (budgets.iter().map(|budget| budget.total_bytes).max(), &budgets[..])
            }
        };
        // One fraction serves all GPUs: it must not be too much on any of them.
        let processes = options.processes.unwrap_or(1);
        let keep_free_bytes = options.keep_free.map_or(0, |bytes| bytes.0);
        let tightest = if options.is_split() {
            smallest_fraction(budgets, processes, keep_free_bytes)?
        } else {
            budgets.iter().min_by_key(|budget| budget.remaining_bytes()).copied()
        };
        self.size = match (options.fraction, options.limit, options.spill) {
            (Some(fraction), ..) => Some(PoolSize::Fraction(fraction)),
            (None, Some(limit), _) => Some(PoolSize::Limit {
                limit_bytes: limit.0,
                total_bytes: total_bytes
                    .ok_or_else(|| unknown_gpu_size(&format!("a limit of {limit}")))?,
            }),
            (None, None, Some(host)) => Some(PoolSize::Spill {
                host_bytes: host.0,
                total_bytes: total_bytes.ok_or_else(|| unknown_gpu_size("unified memory"))?,
            }),
            (None, None, None) => options.is_split().then_some(PoolSize::Split {
                processes,
                keep_free_bytes,
                budget: tightest,
            }),
        };
        self.result.budget = tightest;
        Ok(())
    }

    fn gpu_budgets(&self) -> Result<GpuBudgets> {
        let is_set = |name: &str| self.non_empty_var(name).is_some();
        let options = &self.options;
        let matters =
            options.requires_gpu_size() || options.is_split() || is_set(NONEXISTENT_LIMIT);
        let adds_detail = options.fraction.is_some() || is_set(FRACTION) || is_set(OLD_FRACTION);
        let is_asked = matters || (self.target.detailed && adds_detail);
        if !is_asked {
            return Ok(GpuBudgets::Unknown);
        }
        match (self.target.gpu_budgets)() {
            Err(error) if options.requires_gpu_size() => Err(error),
            memory => Ok(memory.unwrap_or_default()),
        }
    }
}

fn unknown_gpu_size(what: &str) -> Error {
    Error::invalid_argument(format!("{what} needs a GPU of known size")).hint(NAME_GPU_HINT)
}

/// Returns the budget of the GPU on which each pool can have the smallest fraction.
///
/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] where one of the GPUs has no memory left for a pool.
fn smallest_fraction(
    budgets: &[GpuMemoryBudget],
    processes: u32,
    keep_free_bytes: u64,
) -> Result<Option<GpuMemoryBudget>> {
    let mut smallest: Option<(f64, GpuMemoryBudget)> = None;
    for budget in budgets {
        let pool = budget.pool_bytes_each(processes, keep_free_bytes)?;
        let fraction = pool as f64 / budget.total_bytes as f64;
        if smallest.is_none_or(|(other, _)| fraction < other) {
            smallest = Some((fraction, *budget));
        }
    }
    Ok(smallest.map(|(_, budget)| budget))
}

#[cfg(test)]
mod tests;
