//! Refusals of GPU memory by PyTorch's allocators, in the wordings of its releases.

use super::{Match, Pattern, contains, head, labelled_size};
use crate::explain::message::Message;
use crate::explain::number::{Size, plain_integer, size};
use crate::explain::other_allocator::{AllocatorOwner, OtherAllocator};
use crate::explain::shares::MAX_CONTEXT_BYTES;

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern::new("cudaoutofmemory", refusal),
    Pattern::new("hipoutofmemory", refusal),
    Pattern::new("xpuoutofmemory", refusal),
    Pattern::new("mpsbackendoutofmemory", refusal),
    Pattern::new("wouldexceedallowedmemory", refusal_of_cuda_pool),
    Pattern::new("cudaerror:outofmemory", error),
    Pattern::new("hiperror:outofmemory", error),
    // Of releases before 1.0.
    Pattern::new("cudaruntimeerror(2):outofmemory", |_| {
        Some(Message::other_allocator(AllocatorOwner::Pytorch, None))
    }),
];

/// The longest refusal, which may list the processes on the GPU.
const MAX_TEXT_BYTES: usize = 1200;

/// Reads the figures behind `CUDA out of memory.`:
///
/// | since | |
/// | --- | --- |
/// | 1.0 | `Tried to allocate 52.00 MiB (GPU 0; 79.20 GiB total capacity; 752.52 MiB already allocated; 27.25 MiB free; 12.00 MiB cached)` |
/// | 1.4 | `886.00 MiB reserved in total by PyTorch)` in place of what is cached beside |
/// | 2.1 | `GPU 0 has a total capacity of 79.10 GiB of which 1.21 GiB is free. Process 7 has 2.00 GiB memory in use. Including non-PyTorch memory, this process has 16.6 GiB memory in use. Of the allocated memory 15.03 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.` |
/// | 2.4 | `15.03 GiB is allocated by PyTorch, with 1.20 GiB allocated in private pools (e.g., CUDA Graphs), and …` |
///
/// `4.00 GiB allowed;` is among them where the program has limited itself.
fn refusal(at: &Match<'_>) -> Option<Message> {
    let text = head(at.record(), MAX_TEXT_BYTES);
    // The next refusal may follow at once.
    let text = &text[..memchr::memmem::find(text, b"outofmemory.tried").unwrap_or(text.len())];
    let listed = |label: &str| size_before(text, label, ";");
    let told = |label: &str| labelled_size(text, label);
    let requested = told("triedtoallocate");
    if requested.is_none() && !is_message(at) {
        return Some(Message::MemoryNamed);
    }
    let reserved = listed("reservedintotal");
    let allocated = (listed("alreadyallocated").or_else(|| told("oftheallocatedmemory")))
        .or_else(|| told("mpsallocated:"));
    let unallocated = size_before(text, "isreservedbypytorchbut", "and")
        .or_else(|| listed("cached"))
        .or_else(|| subtract(reserved?, allocated?));
    let held = reserved.or_else(|| Some(add(allocated?, unallocated)));
    Some(Message::OtherAllocator(OtherAllocator {
        size: requested,
        held,
        unallocated,
        process: told("thisprocesshas").or_else(|| own_process(text, held?)),
        free: listed("free;").or_else(|| told("ofwhich")),
        // PyTorch 2.1 writes `capacty`.
        total: (told("totalcapacityof").or_else(|| told("totalcapactyof")))
            .or_else(|| listed("totalcapacity;")),
        allowed: (listed("allowed;").or_else(|| size_before(text, "allowed;", "isfree.")))
            .or_else(|| size_before(text, "allowed;", "inuse."))
            .or_else(|| told("maxallowed:")),
        ..OtherAllocator::new(AllocatorOwner::Pytorch)
    }))
}

/// Returns `true` if the words are a message: behind the class of an exception or a logger's prefix, or at the end of a line
/// that is no code.
fn is_message(at: &Match<'_>) -> bool {
    const OF_CODE: [&str; 5] = ["print(", "raise ", "except ", "return ", "#"];
    const PUNCTUATION: &[char] = &['.', '!', '"', '\'', ')', '}', ']', ' '];
    let line = at.line();
    let rest = at.block.place(at.from).text;
    let before = line.strip_suffix(&rest).unwrap_or_default().trim_end();
    let begins = before.is_empty() || before.ends_with([':', ']', '-', '|']);
    let ends = rest.trim_end_matches(PUNCTUATION).to_ascii_lowercase().ends_with("of memory");
    begins || (ends && !OF_CODE.iter().any(|code| before.contains(code)))
}

/// Returns what this process has, of the list of all processes: `Process 7 has 2.00 GiB memory in use.` In a container they
/// have other numbers than PyTorch knows, and only the size tells which one it is.
fn own_process(text: &[u8], held: Size) -> Option<Size> {
    const LABEL: &[u8] = b"process";
    let listed = memchr::memmem::find_iter(text, LABEL).filter_map(|at| {
        let (_, rest) = plain_integer(&text[at + LABEL.len()..])?;
        let (size, rest) = size(rest.strip_prefix(b"has")?)?;
        rest.starts_with(b"memoryinuse").then_some(size)
    });
    let most = held.max().saturating_add(MAX_CONTEXT_BYTES);
    let mut own = listed.filter(|size| (held.min()..=most).contains(&size.bytes));
    own.next().filter(|_| own.next().is_none())
}

/// `Allocation on device 0 would exceed allowed memory. (out of memory)`, with a table of figures, of the allocator
/// `cudaMallocAsync`.
fn refusal_of_cuda_pool(at: &Match<'_>) -> Option<Message> {
    const MAX_DISTANCE: usize = 40;
    let text = head(at.after(), MAX_TEXT_BYTES);
    let told = |label: &str| labelled_size(text, label);
    contains(at.before(MAX_DISTANCE), "allocationondevice").then(|| {
        Message::OtherAllocator(OtherAllocator {
            size: told("requested:"),
            held: told("currentlyallocated:"),
            free: told("free(accordingtocuda):"),
            total: told("devicelimit:"),
            allowed: told("user-suppliedmemoryfraction):"),
            ..OtherAllocator::new(AllocatorOwner::Pytorch)
        })
    })
}

/// `RuntimeError: CUDA error: out of memory`, of PyTorch where its advice about asynchronous errors follows.
fn error(at: &Match<'_>) -> Option<Message> {
    const MAX_DISTANCE: usize = 120;
    // `cuMemAllocAsync failed to allocate 8589934592 bytes: CUDA error: out of memory`, of CUDA's own pool under JAX.
    if contains(at.before(MAX_DISTANCE), "cumemallocasyncfailed") {
        return None;
    }
    let of_pytorch = contains(head(at.after(), MAX_DISTANCE), "kernelerrorsmight");
    let owner = match of_pytorch {
        true => AllocatorOwner::Pytorch,
        false => AllocatorOwner::Unknown,
    };
    Some(Message::other_allocator(owner, None))
}

fn add(size: Size, more: Option<Size>) -> Size {
    let more = more.unwrap_or_default();
    Size {
        bytes: size.bytes.saturating_add(more.bytes),
        tolerance: size.tolerance.saturating_add(more.tolerance),
    }
}

fn subtract(size: Size, less: Size) -> Option<Size> {
    Some(Size {
        bytes: size.bytes.checked_sub(less.bytes)?,
        tolerance: size.tolerance.saturating_add(less.tolerance),
    })
}

/// Returns the size that stands in front of a label, behind a separator.
fn size_before(text: &[u8], label: &str, separator: &str) -> Option<Size> {
    let end = memchr::memmem::find(text, label.as_bytes())?;
    let from = memchr::memmem::rfind(&text[..end], separator.as_bytes())? + separator.len();
    let (size, rest) = size(&text[from..])?;
    (rest.len() == text.len() - end).then_some(size)
}
