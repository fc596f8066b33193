//! Corrects what the environment says in words that JAX ignores or misreads.
//!
//! Only what is silently wrong is changed, and only where there is no doubt what was meant.

use super::super::budget::pool_bytes;
use super::super::names::{
    ALLOCATOR, FRACTION, NONEXISTENT_LIMIT, OLD_FRACTION, PREALLOCATE, turns_preallocation_off,
};
use super::super::platforms::{GPU_REQUIRED, PLATFORM_NAME, PLATFORMS, prefers_gpu};
use super::super::pool_size::PoolSize;
use super::Resolver;
use super::pool::{
    NEW_FRACTION_SINCE, enforces_limit, environment_allocator, environment_fraction,
};
use crate::allocator::DEFAULT_FRACTION;
use crate::bytes::Bytes;
use crate::error::{Error, Result};

/// Corrects the environment, and adds to the options what it means.
///
/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] where the environment sets a limit and an allocator that enforces
/// none: only a person can say which of the two is meant.
pub(super) fn apply(resolver: &mut Resolver<'_>) -> Result<()> {
    if resolver.options.preallocate.is_none() {
        correct_preallocation(resolver);
    }
    let is_empty = |name| (resolver.target.variable)(name).is_some_and(|value| value.is_empty());
    if resolver.options.allocator.is_none() && is_empty(ALLOCATOR) {
        let reason = "JAX rejects an empty value, and falls back to the CPU";
        resolver.set(ALLOCATOR, "default", reason);
    }
    let limit = remove_nonexistent_limit(resolver)?;
    resolver.size = resolver.size.or(limit);
    if resolver.size.is_none() {
        use_one_name(resolver);
    }
    correct_platform(resolver);
    Ok(())
}

/// JAX knows three values for "off" and takes every other one for "on".
fn correct_preallocation(resolver: &mut Resolver<'_>) {
    let Some(value) = resolver.non_empty_var(PREALLOCATE) else {
        return;
    };
    let means_off =
        ["false", "no", "off", "n", "f", "0"].contains(&value.trim().to_lowercase().as_str());
    if means_off && !turns_preallocation_off(&value) {
        resolver.set(
            PREALLOCATE,
            "false",
            format!(
                "JAX takes `{value}` for on; it recognizes only `false`, `False` and `0` as off"
            ),
        );
    }
}

/// Reads the nonexistent limit as what it says: at most this many bytes, whatever the fraction.
fn remove_nonexistent_limit(resolver: &mut Resolver<'_>) -> Result<Option<PoolSize>> {
    let Some(text) = resolver.non_empty_var(NONEXISTENT_LIMIT) else {
        return Ok(None);
    };
    let never = format!("no release of JAX reads `{NONEXISTENT_LIMIT}`");
    let Ok(Bytes(limit_bytes)) = text.parse() else {
        resolver.note(format!("{never}; `{text}` is not an amount of memory and is ignored"));
        return Ok(None);
    };
    let amount = Bytes(limit_bytes);
    if resolver.size.is_some() {
        resolver.note(format!("{never}; the option takes precedence over its {amount}"));
        return Ok(None);
    }
    let chosen = resolver.options.allocator;
    let kind = chosen.unwrap_or_else(|| environment_allocator(resolver));
    if !enforces_limit(kind) {
        let name = kind.name();
        if chosen.is_some() {
            resolver.note(format!(
                "{never}; its {amount} are ignored, because `{name}` was chosen and enforces no limit"
            ));
            return Ok(None);
        }
        return Err(Error::invalid_argument(format!(
                "`{NONEXISTENT_LIMIT}={text}` asks for at most {amount}, but `{ALLOCATOR}={name}` \
                 enforces no limit"
            ),
        )
        .hint(format!(
            "unset `{ALLOCATOR}` to have the limit, or unset `{NONEXISTENT_LIMIT}`, which no release \
             of JAX reads, to use `{name}`"
        )));
    }
    let Some(budget) = resolver.result.budget else {
        resolver.note(format!(
            "{never}, and its {amount} cannot be turned into a fraction, because the size of the GPU \
             is unknown; name the GPU with `--gpu`"
        ));
        return Ok(None);
    };
    let (fraction, source) = match environment_fraction(resolver) {
        Some(fraction) => (fraction, "the fraction that is set"),
        None => (DEFAULT_FRACTION, "JAX's default"),
    };
    let pool = pool_bytes(fraction, budget.total_bytes);
    if limit_bytes >= pool || limit_bytes == 0 {
        resolver.note(format!("{never}; {source} limits the pool to {} anyway", Bytes(pool)));
        return Ok(None);
    }
    resolver.note(format!("{never}; the fraction enforces its {amount} instead"));
    Ok(Some(PoolSize::Limit { limit_bytes, total_bytes: budget.total_bytes }))
}

/// Leaves one name of the fraction, the one that the release reads. Where the new name is read, the
/// rules of the pool remove the old one.
fn use_one_name(resolver: &mut Resolver<'_>) {
    if resolver.is_at_least(NEW_FRACTION_SINCE) {
        return;
    }
    let Some(new) = resolver.non_empty_var(FRACTION) else {
        return;
    };
    match (resolver.target.jax, resolver.non_empty_var(OLD_FRACTION)) {
        // An old release reads the old name only: a new one alone has no effect on it.
        (Some(version), None) => {
            resolver.set(OLD_FRACTION, new, format!("JAX {version} does not read `{FRACTION}`"));
        }
        (Some(_), Some(_)) | (None, None) => {}
        (None, Some(_)) => {
            resolver.set(
                OLD_FRACTION,
                new,
                "the name that every release reads, with the value of the newer name",
            );
            resolver.remove(FRACTION, &format!("JAX rejects it together with `{OLD_FRACTION}`"));
        }
    }
}

/// `JAX_PLATFORM_NAME=gpu` is meant to require the GPU. It is deprecated and still does that, but it
/// hides why no GPU is available; with the list of [`GPU_REQUIRED`], the error says why.
fn correct_platform(resolver: &mut Resolver<'_>) {
    let Some(platform) = resolver.non_empty_var(PLATFORM_NAME) else {
        return;
    };
    let list = resolver.non_empty_var(PLATFORMS);
    let deprecated = format!("`{PLATFORM_NAME}` is deprecated");
    let platform = platform.trim().to_lowercase();
    match (prefers_gpu(&platform), list) {
        (true, Some(list)) if prefers_gpu(&list) => {}
        (true, None) => {
            resolver.options.require_gpu = Some(true);
            let (name, value) = GPU_REQUIRED[0];
            resolver.note(format!(
                "{deprecated}, and alone it hides why no GPU is available; `{name}={value}` is set \
                 too, as by `--require-gpu`, so that the error says why"
            ));
        }
        (false, None) if platform == "cpu" => resolver.note(format!(
            "{deprecated}, and with `cpu` JAX still uses memory on a GPU; `{PLATFORMS}=cpu` avoids that"
        )),
        _ => resolver.note(format!("{deprecated}: use `{PLATFORMS}`")),
    }
}
