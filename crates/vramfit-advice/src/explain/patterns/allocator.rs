//! Messages of XLA's allocators.

use super::{Match, Pattern, after_label, contains, contains_any, head, labelled_size, until};
use crate::allocator::PoolEnd;
use crate::explain::dump_line::PoolStats;
use crate::explain::message::Message;
use crate::explain::number::{Size, integer, size};
use crate::explain::other_allocator::AllocatorOwner;

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern::new("ranoutofmemorytryingtoallocate", pool_refusal),
    Pattern::new("outofmemorywhiletryingtoallocate", out_of_memory),
    Pattern::new("failedtoallocaterequestfor", direct_refusal),
    Pattern::new("cumemallocasyncfailedtoallocate", async_refusal),
    Pattern::new("notenoughpabudget", budget_refusal),
    Pattern::new("xlabackendallocating", |at| planned(at, true)),
    Pattern::new("xlabackendwilluseupto", |at| planned(at, false)),
    Pattern::fixed("'tf_gpu_allocator=cuda_malloc_async'", Message::AllocatorHint),
    Pattern::new("reportedbycuda:freememory/totalmemory:", cuda_memory),
    Pattern::new("memoryusage:", gpu_memory),
    Pattern::new("mib/", nvidia_smi_memory),
];

/// `Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.97GiB (rounded to 2110783744)requested by op`
fn pool_refusal(at: &Match<'_>) -> Option<Message> {
    let (size, rest) = size(at.record())?;
    // The warning of autotuning and scratch memory: its caller can do without.
    if contains_any(until(rest, b"*"), &["withfreed_by_count", "callerindicatesthatthisisnot"]) {
        return Some(Message::PoolWarning { size });
    }
    if of_tensorflow(at) {
        return Some(Message::other_allocator(AllocatorOwner::TensorFlow, Some(size)));
    }
    let rounded = after_label(head(rest, 48), "(roundedto").and_then(integer);
    let end = if contains(rest, "fromthelowerend") {
        Some(PoolEnd::Lower)
    } else if contains(rest, "fromtheupperend") {
        Some(PoolEnd::Upper)
    } else {
        None
    };
    let rounded = rounded.map(|(bytes, _)| bytes);
    Some(Message::PoolRefusal { size, rounded, end, device: device_of_pool(at) })
}

/// Returns `true` if the line ends with the name of an operation, `requested by op model/conv`, which only TensorFlow's
/// pool knows: in the lines of JAX's nothing follows.
fn of_tensorflow(at: &Match<'_>) -> bool {
    const MIN_NAME_BYTES: usize = 3;
    let line = at.line();
    let Some((_, name)) = line.rsplit_once("requested by op ") else {
        return false;
    };
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_/.:-".contains(&byte);
    let name = name.trim();
    name.len() >= MIN_NAME_BYTES
        && name.starts_with(|letter: char| letter.is_ascii_alphabetic())
        && name.bytes().all(is_part)
}

/// Returns the number of the GPU in the name of the pool in front of a match: `Allocator (GPU_3_bfc) `.
fn device_of_pool(at: &Match<'_>) -> Option<u32> {
    const MAX_NAME_BYTES: usize = 24;
    let before = at.before(MAX_NAME_BYTES);
    let name = &before[memchr::memmem::rfind(before, b"(gpu_")?..];
    let (number, rest) = integer(after_label(name, "(gpu_")?)?;
    rest.starts_with(b"_bfc)").then(|| u32::try_from(number).ok())?
}

/// `Out of memory while trying to allocate 73.30GiB. [executable_name='jit_step']`
fn out_of_memory(at: &Match<'_>) -> Option<Message> {
    const MAX_SUFFIX_BYTES: usize = 200;
    let (size, rest) = size(at.record())?;
    let rest = head(rest, MAX_SUFFIX_BYTES);
    let name = after_label(rest, "executable_name='").map(|name| until(name, b"'"));
    Some(Message::OutOfMemory { size, program: name.map(|name| at.original(name)) })
}

/// `Failed to allocate request for 6.27GiB (6727663616B) on device ordinal 0`
fn direct_refusal(at: &Match<'_>) -> Option<Message> {
    let (size, _) = size(at.record())?;
    Some(Message::DirectRefusal { size })
}

/// `gpu_async_0 cuMemAllocAsync failed to allocate 8589934592 bytes: …`
fn async_refusal(at: &Match<'_>) -> Option<Message> {
    let (size, _) = size(at.record())?;
    Some(Message::AsyncRefusal { size })
}

/// `Not enough PA budget for allocation: pa_allocated=…B, rounded_size=…B, pa_budget=…B`
fn budget_refusal(at: &Match<'_>) -> Option<Message> {
    let text = at.record();
    let wanted = after_label(text, "rounded_size=").or(after_label(text, "allocation_size="))?;
    let (wanted, _) = integer(wanted)?;
    let (budget, _) = integer(after_label(text, "pa_budget=")?)?;
    Some(Message::BudgetRefusal { size: Size::exact(wanted), budget })
}

/// `XLA backend allocating 63707234304 bytes on device 0 for BFCAllocator.`
fn planned(at: &Match<'_>, preallocated: bool) -> Option<Message> {
    let (bytes, rest) = integer(at.record())?;
    rest.starts_with(b"bytesondevice").then_some(Message::PoolPlanned { bytes, preallocated })
}

/// `Reported by CUDA: Free memory/Total memory: 1048576/84942979072`
fn cuda_memory(at: &Match<'_>) -> Option<Message> {
    let (free, rest) = integer(at.record())?;
    let (total, _) = integer(rest.strip_prefix(b"/")?)?;
    Some(Message::GpuMemory { free, total, at_failure: true })
}

/// `Memory usage: 707198976 bytes free, 4231397376 bytes total.`
fn gpu_memory(at: &Match<'_>) -> Option<Message> {
    let (free, rest) = integer(at.record())?;
    let (total, rest) = integer(rest.strip_prefix(b"bytesfree,")?)?;
    rest.starts_with(b"bytestotal").then_some(Message::GpuMemory { free, total, at_failure: true })
}

/// `76000MiB / 81920MiB` in the table of `nvidia-smi`: used and total.
fn nvidia_smi_memory(at: &Match<'_>) -> Option<Message> {
    let before = at.before(16);
    let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let (used, _) = integer(&before[before.len() - digits.count()..])?;
    let (total, rest) = integer(at.record())?;
    let bytes = |mib: u64| mib.checked_mul(1 << 20);
    let plausible = rest.starts_with(b"mib") && used <= total;
    let free = bytes(total.checked_sub(used)?)?;
    let total = bytes(total)?;
    plausible.then_some(Message::GpuMemory { free, total, at_failure: false })
}

/// Reads the statistics below `Stats:`, which the dump of BFC and of CUDA's pool have in common.
pub(super) fn pool_stats(text: &[u8]) -> Option<PoolStats> {
    let field = |label: &str| labelled_size(text, label);
    let stats = PoolStats {
        limit: field("limit:"),
        // `InUse:` is also the end of `MaxInUse:`, which follows it.
        in_use: field("inuse:"),
        peak_in_use: field("maxinuse:"),
        largest_free_block: field("largestfreeblock:"),
    };
    (stats.limit.is_some() && stats.in_use.is_some()).then_some(stats)
}
