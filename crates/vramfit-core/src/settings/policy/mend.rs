//! Sets right what the environment says in words that JAX ignores or trips over.
//!
//! Only what is silently wrong is touched, and only where there is no doubt what was meant.

use super::super::share::{DEFAULT_FRACTION, Share};
use super::pool::NEW_FRACTION_NAME;
use super::{ALLOCATOR, Changes, FRACTION, OLD_FRACTION, PREALLOCATE, Policy};
use crate::bytes::Bytes;

/// A name that no release of JAX has ever read, found in many projects.
const INVENTED_LIMIT: &str = "JAX_PREALLOCATION_SIZE_LIMIT_BYTES";

/// Returns the policy with what the environment means added to it.
pub(super) fn mend(policy: &Policy, changes: &mut Changes<'_>) -> Policy {
    let mut policy = *policy;
    if policy.preallocate.is_none() {
        preallocation(changes);
    }
    if policy.allocator.is_none() && (changes.get)(ALLOCATOR).is_some_and(|word| word.is_empty()) {
        let reason = "JAX refuses the empty text, and goes on with the CPU";
        changes.set(ALLOCATOR, "default", reason);
    }
    let limit = invented_limit(&policy, changes);
    if policy.share.is_none() {
        policy.share = limit;
    }
    if policy.share.is_none() {
        one_name(changes);
    }
    platform(&mut policy, changes);
    policy
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
fn invented_limit(policy: &Policy, changes: &mut Changes<'_>) -> Option<Share> {
    let text = changes.held(INVENTED_LIMIT)?;
    let never = format!("`{INVENTED_LIMIT}` is read by no release of JAX");
    let Ok(Bytes(limit_bytes)) = text.parse() else {
        changes.note(format!(
            "{never}; `{text}` is no amount, so it is left alone"
        ));
        return None;
    };
    let amount = Bytes(limit_bytes);
    if policy.share.is_some() {
        changes.note(format!("{never}; its {amount} yield to the option"));
        return None;
    }
    let Some(room) = policy.room else {
        changes.note(format!(
            "{never}, and its {amount} cannot be made true: the card's size is not known; name the \
             card with `--gpu`"
        ));
        return None;
    };
    let (part, whose) = match held_fraction(changes) {
        Some(part) => (part, "the fraction that is set"),
        None => (DEFAULT_FRACTION, "JAX's default"),
    };
    let pool = (room.total_bytes as f64 * part) as u64;
    if limit_bytes >= pool || limit_bytes == 0 {
        changes.note(format!(
            "{never}; {whose} keeps the pool at {} anyway",
            Bytes(pool)
        ));
        return None;
    }
    changes.note(format!(
        "{never}; its {amount} are made true through the fraction"
    ));
    Some(Share::Limit {
        limit_bytes,
        total_bytes: room.total_bytes,
    })
}

/// Returns the fraction that JAX would read, if it is a number.
fn held_fraction(changes: &Changes<'_>) -> Option<f64> {
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
/// hides why a GPU cannot be had; named in `JAX_PLATFORMS`, the platform says so.
fn platform(policy: &mut Policy, changes: &mut Changes<'_>) {
    let name = "JAX_PLATFORM_NAME";
    let Some(word) = changes.held(name) else {
        return;
    };
    let deprecated = format!("`{name}` is deprecated");
    match word.trim().to_lowercase().as_str() {
        "gpu" | "cuda" => {
            policy.require_gpu |= changes.held("JAX_PLATFORMS").is_none();
            changes.note(format!(
                "{deprecated}; `--require-gpu` says the same, in all the names that it takes"
            ));
        }
        "cpu" if changes.held("JAX_PLATFORMS").is_none() => changes.note(format!(
            "{deprecated}, and `cpu` in it still takes memory on a card: \
             `JAX_PLATFORMS=cpu` stays off it"
        )),
        _ => changes.note(format!("{deprecated}: use `JAX_PLATFORMS`")),
    }
}
