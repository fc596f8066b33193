//! Messages of other frameworks in the process, which take GPU memory beside JAX's pool; and words about memory that
//! no other pattern knows.

use super::driver::names_memory;
use super::{Match, Pattern, after_label, contains, contains_any, head, labelled_size};
use crate::explain::message::{AllocatorOwner, HostFailure, Message, OtherAllocator};
use crate::explain::number::{Size, integer, size};

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern::new("cudaoutofmemory", pytorch),
    Pattern::new("hipoutofmemory", pytorch),
    Pattern::new("cudaerror:outofmemory", cuda_error),
    Pattern::new("oomwhenallocatingtensor", tensorflow),
    Pattern::new("cudaruntimeimplicitinitialization", implicit_initialization),
    Pattern::new("dsttensorisnotinitialized", |_| {
        Some(Message::other_allocator(AllocatorOwner::TensorFlow, None))
    }),
    Pattern::new("createddevice/", tensorflow_device),
    Pattern::new("warpcudaerror", warp),
    Pattern::new("outofmemoryallocating", allocating),
    Pattern::new("outofmemorytoallocate", cupy),
    Pattern::new("rmmfailureat:", rmm),
    Pattern::new("rmm::out_of_memory", rmm),
    Pattern::new("maximumpoolsizeexceeded", rmm),
    Pattern::new("cumemallocfailed:outofmemory", unknown),
    Pattern::new("cudamallocfailed:outofmemory", unknown),
    Pattern::new("requestedamountofgpumemory", unknown),
    Pattern::new("out_of_device_memory", unknown),
    // Of the kernel under WSL: Windows cannot keep the memory of a process on the GPU (ENOMEM).
    Pattern::new("dxgkio_make_resident:ioctlfailed:-12", unknown),
    // Words that say that memory ran out, and not whose.
    Pattern::new("outofmemory", named),
    Pattern::new("notenoughmemory", named),
    Pattern::new("insufficientmemory", named),
    Pattern::new("can'tallocate", named),
    Pattern::new("memoryallocation", named),
    Pattern::new("allocationfailed", named),
    Pattern::new("allocationfailure", named),
    Pattern::new("memoryexhausted", named),
];

/// `CUDA out of memory. Tried to allocate 52.00 MiB (GPU 0; 79.20 GiB total capacity; 752.52 MiB already allocated;
/// 27.25 MiB free; 886.00 MiB reserved in total by PyTorch)`, and since PyTorch 2.1 `GPU 0 has a total capacity of
/// 79.10 GiB of which 1.21 GiB is free. Process 7 has 2.00 GiB memory in use. Including non-PyTorch memory, this process
/// has 16.6 GiB memory in use. Of the allocated memory 15.03 GiB is allocated by PyTorch, and 1.00 GiB is reserved by
/// PyTorch but unallocated.`
fn pytorch(at: &Match<'_>) -> Option<Message> {
    const MAX_TEXT_BYTES: usize = 600;
    let text = head(at.record(), MAX_TEXT_BYTES);
    let listed = |label: &str| size_before(text, label);
    let told = |label: &str| labelled_size(text, label);
    let unallocated = size_after(text, "isallocatedbypytorch,and", "isreservedbypytorch");
    let allocated = told("oftheallocatedmemory").map(|size| add(size, unallocated));
    Some(Message::OtherAllocator(OtherAllocator {
        owner: AllocatorOwner::Pytorch,
        size: told("triedtoallocate"),
        held: listed("reservedintotal").or_else(|| listed("alreadyallocated")).or(allocated),
        process: told("thisprocesshas"),
        free: listed("free;").or_else(|| told("ofwhich")),
        // PyTorch 2.1 writes `capacty`.
        total: (told("totalcapacityof").or_else(|| told("totalcapactyof")))
            .or_else(|| listed("totalcapacity;")),
    }))
}

fn add(size: Size, more: Option<Size>) -> Size {
    let more = more.unwrap_or_default();
    Size {
        bytes: size.bytes.saturating_add(more.bytes),
        tolerance: size.tolerance.saturating_add(more.tolerance),
    }
}

/// Returns the size behind a label, where these words follow it.
fn size_after(text: &[u8], label: &str, words: &str) -> Option<Size> {
    let (size, rest) = size(after_label(text, label)?)?;
    rest.starts_with(words.as_bytes()).then_some(size)
}

/// Returns the size that stands in front of a label, behind a semicolon.
fn size_before(text: &[u8], label: &str) -> Option<Size> {
    let end = memchr::memmem::find(text, label.as_bytes())?;
    let from = memchr::memrchr(b';', &text[..end])? + 1;
    let (size, rest) = size(&text[from..])?;
    (rest.len() == text.len() - end).then_some(size)
}

/// `RuntimeError: CUDA error: out of memory`, of PyTorch where its advice about asynchronous errors follows.
fn cuda_error(at: &Match<'_>) -> Option<Message> {
    let of_pytorch = contains(head(at.after(), 120), "kernelerrorsmight");
    let owner = match of_pytorch {
        true => AllocatorOwner::Pytorch,
        false => AllocatorOwner::Unknown,
    };
    Some(Message::other_allocator(owner, None))
}

/// `OOM when allocating tensor with shape[…] and type float on /job:localhost/…/device:GPU:0 by allocator GPU_0_bfc`
fn tensorflow(at: &Match<'_>) -> Option<Message> {
    const MAX_TEXT_BYTES: usize = 240;
    let text = head(at.record(), MAX_TEXT_BYTES);
    Some(match contains_any(text, &["device:cpu", "allocatorcpu", "mklcpu"]) {
        true => Message::Host { how: HostFailure::Cpp, size: None },
        false => Message::other_allocator(AllocatorOwner::TensorFlow, None),
    })
}

/// `CUDA runtime implicit initialization on GPU:0 failed. Status: out of memory`, of TensorFlow.
fn implicit_initialization(at: &Match<'_>) -> Option<Message> {
    const MAX_TEXT_BYTES: usize = 80;
    let text = head(at.record(), MAX_TEXT_BYTES);
    if names_memory(text) {
        return Some(Message::other_allocator(AllocatorOwner::TensorFlow, None));
    }
    contains(text, "kernelimage").then_some(Message::Installation)
}

/// `Created device /job:localhost/replica:0/task:0/device:GPU:0 with 14643 MB memory:  -> device: 0, …`, of TensorFlow,
/// which takes them at once unless it is told to grow.
fn tensorflow_device(at: &Match<'_>) -> Option<Message> {
    const MAX_TEXT_BYTES: usize = 120;
    let text = head(at.record(), MAX_TEXT_BYTES);
    let (mib, rest) = integer(after_label(after_label(text, "device:gpu:")?, "with")?)?;
    let bytes = mib.checked_mul(1 << 20)?;
    rest.starts_with(b"mbmemory").then_some(Message::TensorflowPool { bytes })
}

/// `Warp CUDA error 2: out of memory (in function wp_alloc_device_async, …`
fn warp(at: &Match<'_>) -> Option<Message> {
    const MAX_TEXT_BYTES: usize = 60;
    let text = head(at.record(), MAX_TEXT_BYTES);
    Some(match names_memory(text) {
        true => Message::other_allocator(AllocatorOwner::Warp, None),
        false => Message::DriverError,
    })
}

/// `Out of memory allocating 274877906944 bytes.` of JAX's backend for the CPU; `Out of memory allocating 25,600,000
/// bytes (allocated so far: 3,635,267,072 bytes).` of CuPy, whose memory is the GPU's.
fn allocating(at: &Match<'_>) -> Option<Message> {
    const MAX_SIZE_BYTES: usize = 24;
    const MAX_STATUS_BYTES: usize = 24;
    let text = at.record();
    let (size, rest) = size(text)?;
    let is_separated = text[..text.len() - rest.len()].contains(&b',');
    let of_cupy = ["(allocatedsofar", ",limitset"];
    if is_separated || contains_any(head(rest, MAX_SIZE_BYTES), &of_cupy) {
        return cupy(at);
    }
    // Without the status of XLA it may be another library of the host.
    let of_jax =
        contains_any(at.before(MAX_STATUS_BYTES), &["resource_exhausted:", "resourceexhausted:"]);
    let how = match of_jax {
        true => HostFailure::CpuBackend,
        false => HostFailure::Cpp,
    };
    let size = Some(size);
    Some(Message::Host { how, size })
}

fn cupy(at: &Match<'_>) -> Option<Message> {
    let text = at.record();
    let (refused, _) = size(text)?;
    Some(Message::OtherAllocator(OtherAllocator {
        owner: AllocatorOwner::Cupy,
        size: Some(refused),
        held: labelled_size(head(text, 120), "allocatedsofar:"),
        process: None,
        free: None,
        total: None,
    }))
}

/// `std::bad_alloc: out_of_memory: RMM failure at:…/pool_memory_resource.hpp:196: Maximum pool size exceeded`
fn rmm(at: &Match<'_>) -> Option<Message> {
    let text = head(at.record(), 240);
    let size = labelled_size(text, "failedtoallocate");
    Some(Message::other_allocator(AllocatorOwner::Rmm, size))
}

fn unknown(_: &Match<'_>) -> Option<Message> {
    Some(Message::other_allocator(AllocatorOwner::Unknown, None))
}

/// Memory of the GPU, where the words around it say so and no message of another pattern leads to it.
fn named(at: &Match<'_>) -> Option<Message> {
    const MAX_DISTANCE: usize = 60;
    let (before, after) = (at.before(MAX_DISTANCE), head(at.record(), MAX_DISTANCE));
    // The end of a name in code, or a message that is read from its beginning.
    let is_known = contains_any(
        before,
        &["cuda_error_out_of_memory", "cudaerrormemory", "cudafailure", "failedtoalloc", "autotun"],
    );
    if is_known || after.starts_with(b"error") {
        return Some(Message::MemoryNamed);
    }
    // `srun: error: node12: task 0: Out Of Memory`
    if contains_any(before, &["srun:error", "slurmstepd:error"]) {
        let (how, size) = (HostFailure::Killed, None);
        return Some(Message::Host { how, size });
    }
    let words = ["cuda", "gpu", "vram", "hip", "devicememory", "cumem"];
    let of_gpu = at.pattern() == b"outofmemory" && contains_any(before, &words);
    let host = ["cpu", "host", "killed", "slurm", "task"];
    match of_gpu && !contains_any(before, &host) && !contains_any(after, &host) {
        true => unknown(at),
        false => Some(Message::MemoryNamed),
    }
}
