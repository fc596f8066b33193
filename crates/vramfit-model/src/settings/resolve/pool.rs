//! The pool: which allocator, how much of the GPU's memory, preallocated or not.

use super::super::budget::{GpuMemoryBudget, pool_bytes};
use super::super::names::{
    ALLOCATOR, CREATE_OPTIONS, FRACTION, OLD_FRACTION, PREALLOCATE, UNIFIED_MEMORY,
    turns_preallocation_off,
};
use super::super::plugin::PluginSettings;
use super::super::pool_size::{FractionText, PoolSize};
use super::super::version::Version;
use super::Resolver;
use crate::allocator::AllocatorKind;
use crate::bytes::Bytes;
use crate::error::{Error, Result};

/// The first release that reads the new name of the fraction. It was written between 0.4.31 and
/// 0.4.33; 0.4.32 was never released.
pub(super) const NEW_FRACTION_SINCE: Version = Version::new(0, 4, 33);

/// The first release in which `platform` was reported to retain memory (jax-ml/jax#39145).
const PLATFORM_RETAINS_MEMORY_SINCE: Version = Version::new(0, 10, 0);

pub(super) fn apply(resolver: &mut Resolver<'_>) -> Result<()> {
    let kind = match resolver.options.allocator {
        Some(kind) => {
            if let Some(version) = resolver.target.jax {
                check_allocator(kind, version)?;
            }
            resolver.set(ALLOCATOR, kind.name(), allocator_reason(kind));
            kind
        }
        None => environment_allocator(resolver),
    };
    let spills = matches!(resolver.size, Some(PoolSize::Spill { .. }));
    if spills {
        let reason =
            "what the GPU has no room for lies in host memory, and moves over the link: slow";
        resolver.set(UNIFIED_MEMORY, "true", reason);
    }
    // Managed memory takes none of the GPU's and the host's before it is touched, and regions of a pool that grows
    // would leave gaps of half the GPU.
    let preallocate = resolver.options.preallocate.or(spills.then_some(true));
    if let Some(preallocate) = preallocate {
        let reason = if spills && preallocate {
            "one region without gaps; unified memory takes no memory before it is used"
        } else if preallocate {
            "the pool is preallocated at startup"
        } else {
            "the pool grows as needed, which makes fragmentation more likely"
        };
        resolver.set(PREALLOCATE, preallocate.to_string(), reason);
    }
    if let Some(size) = resolver.size {
        check_enforceable(size, kind)?;
    }
    let fraction = set_fraction(kind, resolver)?;
    let fraction = fraction.and_then(|fraction| fraction.text.parse().ok());
    // A fraction that the environment sets stays, and is judged like one from an option.
    let from_environment = environment_fraction(resolver);
    let prefix = match (fraction, from_environment) {
        (None, Some(fraction)) => format!("a fraction of {fraction} is set: "),
        _ => String::new(),
    };
    if let (Some(fraction), Some(budget)) = (fraction.or(from_environment), resolver.result.budget)
    {
        note_headroom(fraction, &prefix, kind, budget, resolver);
    }
    note_conflicts(kind, resolver);
    Ok(())
}

/// Returns `true` if an allocator rejects requests beyond the fraction. `platform` and `address` have no
/// pool; for `cuda_async` it is only how much its pool retains.
pub(super) fn enforces_limit(kind: AllocatorKind) -> bool {
    matches!(kind, AllocatorKind::Bfc | AllocatorKind::Vmm)
}

/// Rejects sizes that an allocator without a pool cannot enforce. A plain fraction promises nothing
/// and gets a note; so does `cuda_async`, whose pool retains that much.
fn check_enforceable(size: PoolSize, kind: AllocatorKind) -> Result<()> {
    let enforces = match size {
        // Only this pool is made of managed memory.
        PoolSize::Spill { .. } => kind == AllocatorKind::Bfc,
        _ => !matches!(kind, AllocatorKind::Platform | AllocatorKind::Address),
    };
    if enforces {
        return Ok(());
    }
    let what = match size {
        PoolSize::Fraction(_) => return Ok(()),
        PoolSize::Limit { limit_bytes, .. } => format!("enforce a limit of {}", Bytes(limit_bytes)),
        PoolSize::Spill { .. } => "use unified memory".to_owned(),
        PoolSize::Split { .. } => "enforce an even split of the GPU".to_owned(),
    };
    let (name, why) = match kind {
        AllocatorKind::Platform | AllocatorKind::Address => {
            (kind.name(), ": it requests every buffer from the driver")
        }
        _ => (kind.name(), ""),
    };
    Err(Error::invalid_argument(format!("the allocator `{name}` cannot {what}{why}"))
        .hint(format!("use `--allocator default`, which does, or `{name}` without it")))
}

/// Returns the allocator that the environment selects.
pub(super) fn environment_allocator(resolver: &Resolver<'_>) -> AllocatorKind {
    let name = resolver.non_empty_var(ALLOCATOR);
    name.and_then(|name| name.parse().ok()).unwrap_or(AllocatorKind::Bfc)
}

/// Returns `true` if the pool is preallocated.
fn preallocates(resolver: &Resolver<'_>) -> bool {
    resolver.options.preallocate.unwrap_or_else(|| {
        let value = resolver.non_empty_var(PREALLOCATE);
        !value.is_some_and(|value| turns_preallocation_off(&value))
    })
}

fn allocator_reason(kind: AllocatorKind) -> &'static str {
    match kind {
        AllocatorKind::Bfc => "one pool for all arrays, JAX's default",
        AllocatorKind::Platform => "every buffer is requested from the driver: exact, and slow",
        AllocatorKind::Address => {
            "every buffer is requested from the driver, by address: exact, and slow"
        }
        AllocatorKind::CudaAsync => {
            "CUDA's own pool; JAX selects it here and not with TF_GPU_ALLOCATOR"
        }
        AllocatorKind::Vmm => "pages mapped for each buffer, within a budget",
    }
}

/// Notes what an allocator makes of the other options.
fn note_conflicts(kind: AllocatorKind, resolver: &mut Resolver<'_>) {
    let options = resolver.options;
    let (sets_size, chosen) = (resolver.size.is_some(), options.allocator);
    let preallocate = preallocates(resolver);
    match kind {
        AllocatorKind::Platform | AllocatorKind::Address if sets_size || options.preallocate.is_some() => resolver
            .note(format!(
                "the allocator `{}` requests every buffer from the driver: neither a fraction nor \
                 preallocation applies to it",
                kind.name()
            )),
        AllocatorKind::CudaAsync if sets_size && !preallocate => resolver.note(
            "without preallocation the pool of `cuda_async` retains nothing, and the fraction has no effect",
        ),
        AllocatorKind::CudaAsync if sets_size => resolver.note(
            "for the allocator `cuda_async` the fraction is what its pool retains, not a limit",
        ),
        AllocatorKind::Vmm if options.preallocate == Some(true) => {
            resolver.note("the allocator `vmm` does not preallocate");
        }
        _ => {}
    }
    if chosen == Some(AllocatorKind::Platform)
        && resolver.is_at_least(PLATFORM_RETAINS_MEMORY_SINCE)
    {
        resolver.note(
            "since 0.10, JAX is reported to retain memory with `platform` instead of returning it to \
             the driver (jax-ml/jax#39145)",
        );
    }
    let name = "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC";
    if chosen == Some(AllocatorKind::CudaAsync) && resolver.non_empty_var(name).is_some() {
        resolver.note(if preallocate {
            format!("`{name}` has no effect: the whole fraction is preallocated")
        } else {
            format!(
                "`{name}` is allocated at startup and returned when something is freed: without \
                 preallocation the pool retains nothing"
            )
        });
    }
    let create_options = resolver.non_empty_var(CREATE_OPTIONS).unwrap_or_default();
    for (option, is_set) in [
        ("allocator", chosen.is_some()),
        ("memory_fraction", sets_size),
        ("memory_fraction_policy", sets_size),
        ("preallocate", options.preallocate.is_some()),
    ] {
        let overrides =
            create_options.split(';').any(|item| item.split(':').next() == Some(option));
        if is_set && overrides {
            resolver.note(format!(
                "`{CREATE_OPTIONS}` sets `{option}` too, and takes precedence in JAX"
            ));
        }
    }
}

/// Sets the fraction in the name that the release reads, and removes the other name.
fn set_fraction(kind: AllocatorKind, resolver: &mut Resolver<'_>) -> Result<Option<FractionText>> {
    let reads_new_name = resolver.is_at_least(NEW_FRACTION_SINCE);
    let rejected = format!("JAX rejects it together with `{FRACTION}`");
    let Some(size) = resolver.size else {
        if reads_new_name && resolver.non_empty_var(FRACTION).is_some() {
            resolver.remove(OLD_FRACTION, &rejected);
        }
        return Ok(None);
    };
    let target = resolver.target;
    let spills = matches!(size, PoolSize::Spill { .. });
    let unified_memory =
        spills || PluginSettings::read(target.variable).is_ok_and(|plugin| plugin.unified_memory);
    let fraction = size.fraction_text(target.jax, kind, unified_memory, resolver.result.budget)?;
    if unified_memory && !spills && !matches!(size, PoolSize::Fraction(_)) {
        resolver.note(format!(
            "with `{UNIFIED_MEMORY}` the pool is never smaller than the GPU's memory"
        ));
    }
    let (wanted, other) =
        if reads_new_name { (FRACTION, OLD_FRACTION) } else { (OLD_FRACTION, FRACTION) };
    resolver.set(wanted, fraction.text.clone(), fraction.reason.clone());
    if let Some(note) = fraction.note.clone().filter(|_| !unified_memory) {
        resolver.note(note);
    }
    let why = match target.jax {
        _ if reads_new_name => rejected,
        Some(version) => format!("JAX {version} does not read it"),
        None => format!("newer releases of JAX reject it together with `{OLD_FRACTION}`"),
    };
    resolver.remove(other, &why);
    Ok(Some(fraction))
}

/// Notes where a pool of that fraction leaves too little, or cannot be allocated.
fn note_headroom(
    fraction: f64,
    prefix: &str,
    kind: AllocatorKind,
    budget: GpuMemoryBudget,
    resolver: &mut Resolver<'_>,
) {
    // Above 1 the pool is of managed memory, or the fraction itself is the mistake.
    if !matches!(kind, AllocatorKind::Bfc | AllocatorKind::CudaAsync) || fraction > 1.0 {
        return;
    }
    let pool = pool_bytes(fraction, budget.total_bytes);
    if budget.shortfall_outside(pool).is_some() {
        resolver.note(format!(
            "{prefix}{} outside the pool is less than the estimated {} for context and libraries: \
             they may fail to start, with errors that do not mention memory",
            Bytes(budget.total_bytes.saturating_sub(pool)),
            Bytes(budget.outside_bytes)
        ));
    } else if pool > budget.remaining_bytes() {
        let consequence = if preallocates(resolver) {
            "JAX silently allocates a smaller one"
        } else {
            "it cannot grow that far"
        };
        resolver.note(format!(
            "{prefix}other processes use {} of the GPU, so a pool of {} cannot be allocated: {consequence}",
            Bytes(budget.occupied_bytes),
            Bytes(pool)
        ));
    }
}

/// Returns the first release that has an allocator; zero for those that every release has.
pub fn allocator_since(kind: AllocatorKind) -> Version {
    match kind {
        AllocatorKind::Bfc | AllocatorKind::Platform | AllocatorKind::CudaAsync => {
            Version::new(0, 0, 0)
        }
        AllocatorKind::Vmm => Version::new(0, 10, 0),
        AllocatorKind::Address => Version::new(0, 11, 0),
    }
}

fn check_allocator(kind: AllocatorKind, version: Version) -> Result<()> {
    let since = allocator_since(kind);
    if version >= since {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "JAX {version} has no allocator `{}`; it was added in {since}",
        kind.name()
    ))
    .hint("use `bfc`, `platform` or `cuda_async`, or a newer JAX"))
}

/// Returns the fraction that JAX would read, if it is a number.
pub(super) fn environment_fraction(resolver: &Resolver<'_>) -> Option<f64> {
    let reads_new_name = resolver.target.jax.is_none() || resolver.is_at_least(NEW_FRACTION_SINCE);
    let new = resolver.non_empty_var(FRACTION).filter(|_| reads_new_name);
    let text = new.or_else(|| resolver.non_empty_var(OLD_FRACTION))?;
    text.trim().parse().ok().filter(|fraction| *fraction > 0.0)
}
