//! Messages of other frameworks in the process, which take GPU memory beside JAX's pool; and words about memory that
//! no other pattern knows.

use super::driver::{OF_PINNED_MEMORY, names_memory};
use super::{Match, Pattern, after_label, contains, contains_any, head, labelled_size};
use crate::explain::message::{HostFailure, Library, Message, Reason};
use crate::explain::number::{integer, size};
use crate::explain::other_allocator::{AllocatorOwner, OtherAllocator};

pub(super) const PATTERNS: &[Pattern] = &[
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
        size: Some(refused),
        held: labelled_size(head(text, 120), "allocatedsofar:"),
        ..OtherAllocator::new(AllocatorOwner::Cupy)
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
    // The error by its name, which is a message of its own, or the rest of one that is read from its beginning.
    let codes = ["cuda_error_out_of_memory", "cudaerrormemory", "cudafailure", "failedtoalloc"];
    if contains_any(before, &codes) {
        return None;
    }
    // The end of a name in code, too.
    if contains(before, "autotun") || after.starts_with(b"error") {
        return Some(Message::MemoryNamed);
    }
    if contains_any(before, &OF_PINNED_MEMORY) {
        return Some(Message::Host { how: HostFailure::PinnedRefused, size: None });
    }
    // `srun: error: node12: task 0: Out Of Memory`
    if contains_any(before, &["srun:error", "slurmstepd:error"]) {
        let (how, size) = (HostFailure::Killed, None);
        return Some(Message::Host { how, size });
    }
    let host = ["cpu", "host", "killed", "slurm", "task"];
    let of_host = contains_any(before, &host) || contains_any(after, &host);
    let failures = ["error", "fail", "warn", "unable", "couldnot"];
    let of_nccl = contains(before, "nccl") && contains_any(before, &failures);
    if at.pattern() == b"outofmemory" && of_nccl && !of_host {
        return Some(Message::Library { library: Library::Nccl, reason: Reason::Memory });
    }
    let words = ["cuda", "gpu", "vram", "hip", "devicememory", "cumem"];
    let of_gpu = at.pattern() == b"outofmemory" && contains_any(before, &words);
    match of_gpu && !of_host {
        true => unknown(at),
        false => Some(Message::MemoryNamed),
    }
}
