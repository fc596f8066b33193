//! Sets right what the environment says in words that JAX ignores or trips over.
//!
//! Only what is silently wrong is touched, and only where there is no doubt what was meant.

use super::super::platforms::{GPU_REQUIRED, PLATFORM_NAME, PLATFORMS, prefers_gpu};
use super::super::room::pool_bytes;
use super::super::share::{DEFAULT_FRACTION, Share};
use super::pool::{NEW_FRACTION_NAME, held_allocator, keeps_to_a_limit};
use super::{ALLOCATOR, Changes, FRACTION, OLD_FRACTION, PREALLOCATE, Policy};
use crate::bytes::Bytes;
use crate::error::{Error, ErrorKind, Result};

/// A name that no release of JAX has ever read, found in many projects.
const INVENTED_LIMIT: &str = "JAX_PREALLOCATION_SIZE_LIMIT_BYTES";

/// Returns the policy with what the environment means added to it.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] where the environment asks for a limit and for an allocator that keeps
/// to none: which of the two is meant, only a person can say.
pub(super) fn mend(policy: &Policy, changes: &mut Changes<'_>) -> Result<Policy> {
    let mut policy = *policy;
    if policy.preallocate.is_none() {
        preallocation(changes);
    }
    if policy.allocator.is_none() && (changes.get)(ALLOCATOR).is_some_and(|word| word.is_empty()) {
        let reason = "JAX refuses the empty text, and goes on with the CPU";
        changes.set(ALLOCATOR, "default", reason);
    }
    let limit = invented_limit(&policy, changes)?;
    if policy.share.is_none() {
        policy.share = limit;
    }
    if policy.share.is_none() {
        one_name(changes);
    }
    platform(&mut policy, changes);
    Ok(policy)
}

/// JAX knows three words for "off" and takes every other one for "on".
fn preallocation(changes: &mut Changes<'_>) {
    let Some(word) = changes.held(PREALLOCATE) else {
        return;
    };
    let means_off =
        ["false", "no", "off", "n", "f", "0"].contains(&word.trim().to_lowercase().as_str());
    if means_off && !matches!(word.as_str(), "false" | "False" | "0") {
        changes.set(
            PREALLOCATE,
            "false",
            format!("JAX takes `{word}` for on; it knows only `false`, `False` and `0`"),
        );
    }
}

/// Reads the invented limit as what it says: at most so many bytes, besides any fraction.
fn invented_limit(policy: &Policy, changes: &mut Changes<'_>) -> Result<Option<Share>> {
    let Some(text) = changes.held(INVENTED_LIMIT) else {
        return Ok(None);
    };
    let never = format!("`{INVENTED_LIMIT}` is read by no release of JAX");
    let Ok(Bytes(limit_bytes)) = text.parse() else {
        changes.note(format!(
            "{never}; `{text}` is no amount, so it is left alone"
        ));
        return Ok(None);
    };
    let amount = Bytes(limit_bytes);
    if policy.share.is_some() {
        changes.note(format!("{never}; its {amount} yield to the option"));
        return Ok(None);
    }
    let kind = policy.allocator.unwrap_or_else(|| held_allocator(changes));
    if !keeps_to_a_limit(kind) {
        let name = kind.name();
        if policy.allocator.is_some() {
            changes.note(format!(
                "{never}; its {amount} yield to `{name}`, which was chosen and keeps to no limit"
            ));
            return Ok(None);
        }
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "`{INVENTED_LIMIT}={text}` asks for at most {amount}, and `{ALLOCATOR}={name}` keeps \
                 to no limit"
            ),
        )
        .hint(format!(
            "choose: unset `{ALLOCATOR}` to have the limit, or unset `{INVENTED_LIMIT}`, which no \
             release of JAX reads, to have `{name}`"
        )));
    }
    let Some(room) = policy.room else {
        changes.note(format!(
            "{never}, and its {amount} cannot be made true: the card's size is not known; name the \
             card with `--gpu`"
        ));
        return Ok(None);
    };
    let (part, whose) = match held_fraction(changes) {
        Some(part) => (part, "the fraction that is set"),
        None => (DEFAULT_FRACTION, "JAX's default"),
    };
    let pool = pool_bytes(part, room.total_bytes);
    if limit_bytes >= pool || limit_bytes == 0 {
        changes.note(format!(
            "{never}; {whose} keeps the pool at {} anyway",
            Bytes(pool)
        ));
        return Ok(None);
    }
    changes.note(format!(
        "{never}; its {amount} are made true through the fraction"
    ));
    Ok(Some(Share::Limit {
        limit_bytes,
        total_bytes: room.total_bytes,
    }))
}

/// Returns the fraction that JAX would read, if it is a number.
pub(super) fn held_fraction(changes: &Changes<'_>) -> Option<f64> {
    let new = changes
        .held(FRACTION)
        .filter(|_| changes.version.is_none() || changes.is_since(NEW_FRACTION_NAME));
    let text = new.or_else(|| changes.held(OLD_FRACTION))?;
    text.trim().parse().ok().filter(|part| *part > 0.0)
}

/// Leaves one name of the fraction, the one that the release reads. Where the new name is read, the
/// pool's own rule parts a pair.
fn one_name(changes: &mut Changes<'_>) {
    if changes.is_since(NEW_FRACTION_NAME) {
        return;
    }
    let (Some(new), old) = (changes.held(FRACTION), changes.held(OLD_FRACTION)) else {
        return;
    };
    match (changes.version, old) {
        // An old release reads the old name only: a lone new one is lost on it.
        (Some(version), None) => changes.set(
            OLD_FRACTION,
            new,
            format!("JAX {version} does not read `{FRACTION}`"),
        ),
        (Some(_), Some(_)) | (None, None) => {}
        (None, Some(_)) => {
            changes.set(
                OLD_FRACTION,
                new,
                "the one name that every release reads, with the value of the newer name",
            );
            changes.remove(FRACTION, &format!("JAX refuses it beside `{OLD_FRACTION}`"));
        }
    }
}

/// `JAX_PLATFORM_NAME=gpu` is written to be sure of the GPU. It is deprecated and still does that, but it
/// hides why a GPU cannot be had; the list beside it, [`GPU_REQUIRED`], says so.
fn platform(policy: &mut Policy, changes: &mut Changes<'_>) {
    let Some(word) = changes.held(PLATFORM_NAME) else {
        return;
    };
    let list = changes.held(PLATFORMS);
    let deprecated = format!("`{PLATFORM_NAME}` is deprecated");
    let word = word.trim().to_lowercase();
    match (prefers_gpu(&word), list) {
        (true, Some(list)) if prefers_gpu(&list) => {}
        (true, None) => {
            policy.require_gpu = true;
            let (name, value) = GPU_REQUIRED[0];
            changes.note(format!(
                "{deprecated}, and alone it hides why a GPU cannot be had; `{name}={value}` beside \
                 it says why, as `--require-gpu` sets them"
            ));
        }
        (false, None) if word == "cpu" => changes.note(format!(
            "{deprecated}, and `cpu` in it still takes memory on a card: `{PLATFORMS}=cpu` stays \
             off it"
        )),
        _ => changes.note(format!("{deprecated}: use `{PLATFORMS}`")),
    }
}
