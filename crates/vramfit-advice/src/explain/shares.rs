//! Who has how much of the GPU, by the message of another framework that found no memory beside JAX's pool.

use super::facts::Facts;
use super::message::{AllocatorOwner, Message, OtherAllocator};
use super::number::{Size, add_sizes};

/// The GPU's memory, divided by a framework's own figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shares {
    pub(super) owner: AllocatorOwner,
    pub(super) total: u64,
    pub(super) free: u64,
    /// What the framework has.
    pub(super) own: u64,
    /// What is left: the pool of JAX in the same process, and contexts.
    pub(super) jax: u64,
    /// What other processes have, where the message tells it.
    pub(super) other_processes: Option<u64>,
}

impl Shares {
    /// Returns what a refusal says; `None` where a figure is missing or they contradict each other.
    pub(super) fn of(facts: &Facts<'_>, refused: &OtherAllocator) -> Option<Shares> {
        let bytes = |size: Option<Size>| size.map(|size| size.bytes);
        let total = bytes(refused.total).or(facts.figures.gpu_total_bytes)?;
        let free = bytes(refused.free)?;
        let own = bytes(refused.held)?;
        let used = total.checked_sub(free)?;
        let of_process = bytes(refused.process);
        let sizes = [refused.total, refused.free, refused.process];
        let rounding = add_sizes(sizes.iter().flatten().map(|size| size.tolerance));
        Some(Shares {
            owner: refused.owner,
            total,
            free,
            own,
            jax: of_process.unwrap_or(used).checked_sub(own)?,
            // What may be rounding is none.
            other_processes: of_process
                .and_then(|process| used.checked_sub(process))
                .filter(|others| *others > rounding),
        })
    }

    /// Returns what the first refusal of a log says that has all figures.
    pub(super) fn find(facts: &Facts<'_>) -> Option<Shares> {
        let (_, shares) = facts.log.find(|message| match message {
            Message::OtherAllocator(refused) => Shares::of(facts, refused),
            _ => None,
        })?;
        Some(shares)
    }

    /// Returns `true` if other processes have most of what is not the framework's.
    pub(super) fn is_of_other_processes(&self) -> bool {
        self.other_processes.is_some_and(|others| others > self.jax)
    }
}
