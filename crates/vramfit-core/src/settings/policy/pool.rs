//! The pool: which allocator, how much of the card, taken when.

use super::super::plugin::PluginSettings;
use super::super::room::{Room, pool_bytes};
use super::super::share::{Part, Share};
use super::super::version::Version;
use super::mend::held_fraction;
use super::{ALLOCATOR, CREATE_OPTIONS, Changes, FRACTION, OLD_FRACTION, PREALLOCATE, Policy};
use crate::allocator::Kind;
use crate::bytes::Bytes;
use crate::error::{Error, ErrorKind, Result};

/// The first release that reads the new name of the fraction. It was written between 0.4.31 and
/// 0.4.33; 0.4.32 was never released.
pub(super) const NEW_FRACTION_NAME: Version = Version::new(0, 4, 33);

/// The first release in which `platform` was reported to keep memory (jax-ml/jax#39145).
const PLATFORM_KEEPS: Version = Version::new(0, 10, 0);

pub(super) fn apply(policy: &Policy, changes: &mut Changes<'_>) -> Result<()> {
    let kind = match policy.allocator {
        Some(kind) => {
            if let Some(version) = changes.version {
                check_allocator(kind, version)?;
            }
            changes.set(ALLOCATOR, kind.name(), allocator_reason(kind));
            kind
        }
        None => held_allocator(changes),
    };
    if let Some(preallocate) = policy.preallocate {
        let reason = if preallocate {
            "the pool takes its whole limit at the first operation"
        } else {
            "the pool grows as needed; it is more prone to fragmentation"
        };
        changes.set(PREALLOCATE, preallocate.to_string(), reason);
    }
    if let Some(share) = policy.share {
        check_allocator_keeps(share, kind)?;
    }
    let part = fraction(policy, kind, changes)?;
    let part = part.and_then(|part| part.text.parse().ok());
    // A fraction that the environment sets stays, and is judged as one that was asked for.
    let held = held_fraction(changes);
    let told = match (part, held) {
        (None, Some(part)) => format!("a fraction of {part} is set: "),
        _ => String::new(),
    };
    if let (Some(part), Some(room)) = (part.or(held), policy.room) {
        let preallocate = policy.preallocate.unwrap_or_else(|| preallocates(changes));
        note_room(part, &told, kind, room, preallocate, changes);
    }
    notes(policy, kind, changes);
    Ok(())
}

/// Says whether an allocator refuses what goes beyond the fraction. `platform` and `address` have no
/// pool; of `cuda_async` it is only what its pool keeps.
pub(super) fn keeps_to_a_limit(kind: Kind) -> bool {
    match kind {
        Kind::Bfc | Kind::Vmm => true,
        Kind::Platform | Kind::Address | Kind::CudaAsync => false,
    }
}

/// Refuses amounts that an allocator without a pool cannot keep to. A plain fraction promises nothing
/// and is told in a note; so is `cuda_async`, which keeps its pool at the amount.
fn check_allocator_keeps(share: Share, kind: Kind) -> Result<()> {
    if !matches!(kind, Kind::Platform | Kind::Address) {
        return Ok(());
    }
    let amount = match share {
        Share::Fraction(_) => return Ok(()),
        Share::Limit { limit_bytes, .. } => format!("a limit of {}", Bytes(limit_bytes)),
        Share::Divided { .. } => "a part of the card beside other processes".to_owned(),
    };
    let name = kind.name();
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "{amount} cannot be kept with the allocator `{name}`, which asks the driver for every \
             buffer"
        ),
    )
    .hint(format!(
        "choose: `--allocator default` keeps to it; without it `{name}` takes what it needs"
    )))
}

/// Returns the allocator that the environment asks for.
pub(super) fn held_allocator(changes: &Changes<'_>) -> Kind {
    let word = changes.held(ALLOCATOR);
    word.and_then(|word| word.parse().ok()).unwrap_or(Kind::Bfc)
}

/// Says whether the environment leaves preallocation on: JAX knows three words for off.
fn preallocates(changes: &Changes<'_>) -> bool {
    let word = changes.held(PREALLOCATE);
    !word.is_some_and(|word| matches!(word.as_str(), "false" | "False" | "0"))
}

fn allocator_reason(kind: Kind) -> &'static str {
    match kind {
        Kind::Bfc => "one pool for all arrays, JAX's default",
        Kind::Platform => "every buffer straight from the driver: exact, and slow",
        Kind::Address => "every buffer straight from the driver, by address: exact, and slow",
        Kind::CudaAsync => "CUDA's own pool; JAX reads its choice here and not in TF_GPU_ALLOCATOR",
        Kind::Vmm => "pages mapped for each buffer, under a budget",
    }
}

/// What is to be known about an allocator and the rest of the policy.
fn notes(policy: &Policy, kind: Kind, changes: &mut Changes<'_>) {
    let asks = policy.share.is_some() || policy.preallocate.is_some();
    let preallocate = policy.preallocate.unwrap_or_else(|| preallocates(changes));
    match kind {
        Kind::Platform | Kind::Address if asks => changes.note(format!(
            "the allocator `{}` asks the driver for every buffer: neither a fraction nor \
             preallocation applies to it",
            kind.name()
        )),
        Kind::CudaAsync if policy.share.is_some() && !preallocate => changes.note(
            "without preallocation the pool of `cuda_async` keeps nothing, and the share has no effect",
        ),
        Kind::CudaAsync if policy.share.is_some() => changes.note(
            "the allocator `cuda_async` takes the share as what its pool keeps, not as a limit",
        ),
        Kind::Vmm if policy.preallocate == Some(true) => {
            changes.note("the allocator `vmm` does not preallocate");
        }
        _ => {}
    }
    if policy.allocator == Some(Kind::Platform) && changes.is_since(PLATFORM_KEEPS) {
        changes.note(
            "from 0.10 on, JAX is reported to keep what it took with `platform`, instead of giving it \
             back to the driver (jax-ml/jax#39145)",
        );
    }
    let name = "TF_CUDA_MALLOC_ASYNC_SUPPORTED_PREALLOC";
    if policy.allocator == Some(Kind::CudaAsync) && changes.held(name).is_some() {
        changes.note(if preallocate {
            format!("`{name}` has no effect: preallocation takes the whole share")
        } else {
            format!(
                "`{name}` is taken at the start and given back when something is freed: without \
                 preallocation the pool keeps nothing"
            )
        });
    }
    let options = changes.held(CREATE_OPTIONS).unwrap_or_default();
    for (option, ours) in [
        ("allocator", policy.allocator.is_some()),
        ("memory_fraction", policy.share.is_some()),
        ("preallocate", policy.preallocate.is_some()),
    ] {
        let named = options
            .split(';')
            .any(|item| item.split(':').next() == Some(option));
        if ours && named {
            changes.note(format!(
                "`{CREATE_OPTIONS}` names `{option}` too, and JAX prefers it"
            ));
        }
    }
}

/// Sets the fraction in the name that the release reads, and leaves only that name.
fn fraction(policy: &Policy, kind: Kind, changes: &mut Changes<'_>) -> Result<Option<Part>> {
    let new_name = changes.is_since(NEW_FRACTION_NAME);
    let refused = format!("JAX refuses it beside `{FRACTION}`");
    let Some(share) = policy.share else {
        if new_name && changes.held(FRACTION).is_some() {
            changes.remove(OLD_FRACTION, &refused);
        }
        return Ok(None);
    };
    let unified = PluginSettings::read(changes.get).is_ok_and(|plugin| plugin.unified_memory);
    let part = share.part(changes.version, kind, unified, policy.room)?;
    if unified && !matches!(share, Share::Fraction(_)) {
        changes.note("with `TF_FORCE_UNIFIED_MEMORY` the pool is never smaller than the card");
    }
    let (wanted, other) = if new_name {
        (FRACTION, OLD_FRACTION)
    } else {
        (OLD_FRACTION, FRACTION)
    };
    changes.set(wanted, part.text.clone(), part.reason.clone());
    if let Some(note) = part.note.clone().filter(|_| !unified) {
        changes.note(note);
    }
    let why = match changes.version {
        _ if new_name => refused,
        Some(version) => format!("JAX {version} does not read it"),
        None => format!("newer releases of JAX refuse it beside `{OLD_FRACTION}`"),
    };
    changes.remove(other, &why);
    Ok(Some(part))
}

/// Tells what a pool of that fraction does to the rest of the card.
fn note_room(
    part: f64,
    told: &str,
    kind: Kind,
    room: Room,
    preallocate: bool,
    changes: &mut Changes<'_>,
) {
    // Above 1 the pool is of managed memory, or the fraction itself is the mistake.
    if !matches!(kind, Kind::Bfc | Kind::CudaAsync) || part > 1.0 {
        return;
    }
    let pool = pool_bytes(part, room.total_bytes);
    if room.missing_beside(pool).is_some() {
        changes.note(format!(
            "{told}{} beside the pool is less than the {} that context and libraries are taken to need: \
             they may fail to start, with errors that do not look like memory",
            Bytes(room.total_bytes.saturating_sub(pool)),
            Bytes(room.outside_bytes)
        ));
    } else if pool > room.left_bytes() {
        let consequence = if preallocate {
            "JAX will take a smaller one without a word"
        } else {
            "it cannot grow that far"
        };
        changes.note(format!(
            "{told}others hold {} of the card, so a pool of {} cannot be had: {consequence}",
            Bytes(room.held_bytes),
            Bytes(pool)
        ));
    }
}

/// Returns the first release that has an allocator; zero for those that every release has.
pub(crate) fn allocator_since(kind: Kind) -> Version {
    match kind {
        Kind::Bfc | Kind::Platform | Kind::CudaAsync => Version::new(0, 0, 0),
        Kind::Vmm => Version::new(0, 10, 0),
        Kind::Address => Version::new(0, 11, 0),
    }
}

fn check_allocator(kind: Kind, version: Version) -> Result<()> {
    let since = allocator_since(kind);
    if version >= since {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!(
            "JAX {version} has no allocator `{}`; it came with {since}",
            kind.name()
        ),
    )
    .hint("take `bfc`, `platform` or `cuda_async`, or a newer JAX"))
}
