//! Another framework in the process found no GPU memory: for its own need, or for what JAX's pool and others have.

use super::Judgement;
use super::outside_pool::{first_failure, is_outside};
use crate::bytes::Bytes;
use crate::explain::cause::Confidence;
use crate::explain::facts::Facts;
use crate::explain::log::Event;
use crate::explain::message::Message;
use crate::explain::number::Size;
use crate::explain::other_allocator::{AllocatorOwner, OtherAllocator};
use crate::explain::shares::Shares;

/// What other processes have that is worth a word.
const MIN_OTHERS_BYTES: u64 = 256 << 20;

fn bytes(size: Option<Size>) -> Option<u64> {
    size.map(|size| size.bytes)
}

/// Judges the refusal that tells most.
pub(super) fn judge(facts: &Facts<'_>, event: &Event, refused: &OtherAllocator) -> Judgement {
    let (confidence, summary) = match is_own_shortage(facts, refused) {
        true => judge_own_shortage(facts, refused),
        false => judge_beside_jax(facts, refused),
    };
    let confidence = match facts.is_after_failure(event) {
        true => Confidence::Possible,
        false => confidence,
    };
    let lines = std::iter::once(event).chain(facts.log.all(is_outside));
    Judgement::new(confidence, summary, facts.quote_all(lines))
}

/// Returns what a framework says that is short of memory by its own need, as far as the log tells.
pub(in crate::explain) fn own_shortage<'a>(facts: &Facts<'a>) -> Option<&'a OtherAllocator> {
    match &first_failure(facts)?.message {
        Message::OtherAllocator(refused) if is_own_shortage(facts, refused) => Some(refused),
        _ => None,
    }
}

fn is_own_shortage(facts: &Facts<'_>, refused: &OtherAllocator) -> bool {
    refused.owner != AllocatorOwner::Unknown
        && is_of_others(facts, refused) != Some(true)
        && (owns_half(facts, refused) || is_without_jax(facts, refused))
}

/// Returns `true` if nothing shows that JAX has a part in it: PyTorch and TensorFlow run out of memory by themselves often
/// enough.
fn is_without_jax(facts: &Facts<'_>, refused: &OtherAllocator) -> bool {
    let is_common = [AllocatorOwner::Pytorch, AllocatorOwner::TensorFlow].contains(&refused.owner);
    is_common && !is_jax_known(facts)
}

/// How to call it where the framework found no memory, and what shows that it is not so, if that is not about JAX's pool.
pub(super) fn describe(facts: &Facts<'_>) -> Option<(&'static str, &'static str)> {
    let Message::OtherAllocator(refused) = &first_failure(facts)?.message else {
        return None;
    };
    let falsified_by = match (is_own_shortage(facts, refused), is_without_jax(facts, refused)) {
        (true, _) => "`nvidia-smi` shows that other processes have most of the GPU at the failure",
        (false, true) => "`nvidia-smi` shows as much free memory as was requested at the failure",
        (false, false) => return None,
    };
    Some((refused.owner.shortage(), falsified_by))
}

/// Returns `true` if anything shows that JAX runs in the process.
fn is_jax_known(facts: &Facts<'_>) -> bool {
    let is_of_jax = |message: &Message| {
        matches!(message, Message::JaxNamed | Message::Jax { .. } | Message::Setting { .. })
    };
    facts.settings.is_of_process || !facts.requests.is_empty() || facts.log.has(is_of_jax)
}

/// Returns whether JAX and other processes have half of the GPU or more, where the figures tell.
fn is_of_others(facts: &Facts<'_>, refused: &OtherAllocator) -> Option<bool> {
    let shares = Shares::of(facts, refused)?;
    let others = shares.jax.saturating_add(shares.other_processes.unwrap_or(0));
    Some(others >= shares.total / 2)
}

fn total_bytes(facts: &Facts<'_>, refused: &OtherAllocator) -> Option<u64> {
    bytes(refused.total).or(facts.figures.gpu_total_bytes)
}

/// Returns `true` if the framework itself has half of the GPU or more.
fn owns_half(facts: &Facts<'_>, refused: &OtherAllocator) -> bool {
    let shares = bytes(refused.held).zip(total_bytes(facts, refused));
    shares.is_some_and(|(held, total)| held >= total.div_ceil(2))
}

fn judge_own_shortage(facts: &Facts<'_>, refused: &OtherAllocator) -> (Confidence, String) {
    let owner = refused.owner.label();
    let (size, held, free) = (bytes(refused.size), bytes(refused.held), bytes(refused.free));
    let total = total_bytes(facts, refused);
    let asked = size.map_or(String::new(), |size| format!(" for {}", Bytes(size)));
    let mut summary = format!("{owner} found no GPU memory{asked}");
    match (held, total) {
        (Some(held), Some(total)) => summary.push_str(&format!(
            ": its own allocator holds {} of the GPU's {}",
            Bytes(held),
            Bytes(total)
        )),
        (Some(held), None) => {
            summary.push_str(&format!(": its own allocator holds {}", Bytes(held)));
        }
        (None, Some(total)) => {
            summary.push_str(&format!(" of the GPU's {}", Bytes(total)));
        }
        (None, None) => {}
    }
    if let Some(free) = free {
        summary.push_str(&format!(", and {} are free", Bytes(free)));
    }
    let (least, most) = (1 << 20, total.unwrap_or(u64::MAX));
    if let Some(allowed) = bytes(refused.allowed).filter(|it| (least..most).contains(it)) {
        summary.push_str(&format!("; the program allows it {}", Bytes(allowed)));
    }
    if let Some(pieces) = free_pieces(refused) {
        summary.push_str(&format!(
            "; {} of what it holds are not in use, in pieces that are too small for the request",
            Bytes(pieces)
        ));
    }
    let others = Shares::of(facts, refused).and_then(|it| it.other_processes);
    if let Some(others) = others.filter(|others| *others >= MIN_OTHERS_BYTES) {
        summary.push_str(&format!("; other processes have {}", Bytes(others)));
    }
    if held.is_none() {
        summary.push_str("; its message does not tell who has the rest");
    }
    let exceeds = size.zip(held).zip(total);
    let exceeds = exceeds.is_some_and(|((size, held), total)| size.saturating_add(held) > total);
    let confidence = match exceeds && owns_half(facts, refused) && !is_jax_known(facts) {
        true => Confidence::Sure,
        false => Confidence::Likely,
    };
    (confidence, summary)
}

/// Returns what the framework has in free pieces, where that would have been enough in one.
pub(in crate::explain) fn free_pieces(refused: &OtherAllocator) -> Option<u64> {
    let needed = bytes(refused.size)?;
    bytes(refused.unallocated).filter(|unallocated| *unallocated >= needed)
}

fn judge_beside_jax(facts: &Facts<'_>, refused: &OtherAllocator) -> (Confidence, String) {
    let is_known = refused.owner != AllocatorOwner::Unknown;
    let confidence = match (is_known, is_of_others(facts, refused)) {
        (false, _) | (true, Some(false)) => Confidence::Possible,
        (true, _) => Confidence::Likely,
    };
    // Another line of the same failure may tell it.
    let told = facts.log.find(|message| match message {
        Message::OtherAllocator(other) if other.owner == refused.owner => other.size,
        _ => None,
    });
    let asked = match bytes(refused.size).or(told.map(|(_, size)| size.bytes)) {
        Some(bytes) => format!(" for {}", Bytes(bytes)),
        None => String::new(),
    };
    let owner = refused.owner.label();
    let summary = match Shares::of(facts, refused) {
        Some(shares) => {
            let divided = divided(&shares, is_jax_known(facts));
            format!("{owner} found no GPU memory{asked}: {divided}")
        }
        None => {
            let itself = match bytes(refused.held) {
                Some(held) => format!(", with {} of its own", Bytes(held)),
                None => String::new(),
            };
            format!(
                "{owner} found no GPU memory{asked}{itself}: it allocates beside JAX's pool, which may leave too \
                 little of the GPU to it"
            )
        }
    };
    (confidence, summary)
}

/// Returns the GPU's memory as a framework's own figures divide it.
fn divided(shares: &Shares, is_jax_known: bool) -> String {
    let Shares { owner, total, free, own, jax, other_processes } = *shares;
    let known = format!(
        "of {}, {} are free and {} are {}'s",
        Bytes(total),
        Bytes(free),
        Bytes(own),
        owner.label()
    );
    let rest = Bytes(jax);
    match (other_processes, is_jax_known) {
        (Some(others), true) => format!(
            "{known}; {rest} more are of this process, JAX's pool and contexts, and {} of other processes",
            Bytes(others)
        ),
        (Some(others), false) => format!(
            "{known}; {rest} more are of this process, such as JAX's pool and contexts, and {} of other processes",
            Bytes(others)
        ),
        (None, true) => format!(
            "{known}; the other {rest} are JAX's pool, unless other processes use the GPU as well"
        ),
        (None, false) => format!(
            "{known}; the other {rest} are of what else allocates in this process, such as JAX's pool, or of other \
             processes"
        ),
    }
}
