//! Who has how much of the GPU: by the message of another framework that found no memory beside JAX's pool, or by a table of
//! `nvidia-smi`.

use super::facts::Facts;
use super::log::Event;
use super::message::Message;
use super::number::{Size, add_sizes};
use super::other_allocator::{AllocatorOwner, OtherAllocator};

/// What the contexts of a process and its libraries take beside its pool.
pub(super) const MAX_CONTEXT_BYTES: u64 = 2 << 30;

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
        // Drivers that do not know it report all addresses.
        let of_process = bytes(refused.process).filter(|process| (own..=total).contains(process));
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

/// What other processes have of the GPU.
pub(super) struct OtherProcessesUsage<'a> {
    pub(super) event: &'a Event,
    pub(super) bytes: u64,
    pub(super) total: u64,
    /// Whether the message tells other processes from this one.
    pub(super) is_certain: bool,
}

impl<'a> OtherProcessesUsage<'a> {
    /// Finds the message of another framework in the process, or else a table of `nvidia-smi` from before the failure.
    pub(super) fn find(facts: &Facts<'a>) -> Option<Self> {
        let told = facts.log.find(|message| match message {
            Message::OtherAllocator(refused) => {
                let shares = Shares::of(facts, refused)?;
                Some((shares.other_processes?, shares.total))
            }
            _ => None,
        });
        if let Some((event, (bytes, total))) = told {
            return Some(OtherProcessesUsage { event, bytes, total, is_certain: true });
        }
        let (event, (free, total)) = facts.log.find(|message| match message {
            Message::GpuMemory { free, total, at_failure: false } => Some((*free, *total)),
            _ => None,
        })?;
        let bytes = total.checked_sub(free)?;
        // The table may be of while the program ran: it then has the program's own pool.
        let own = (total as f64 * facts.settings.fraction_in_force()) as u64;
        let is_own = (own..own.saturating_add(MAX_CONTEXT_BYTES)).contains(&bytes);
        let is_before = event.steps_before == 0 && !facts.is_after_failure(event);
        (is_before && !is_own).then_some(OtherProcessesUsage {
            event,
            bytes,
            total,
            is_certain: false,
        })
    }
}
