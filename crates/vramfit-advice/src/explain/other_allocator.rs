//! What another framework says when its own allocator finds no GPU memory.

use super::number::Size;

/// A refusal by the allocator of another framework, with the figures that it prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherAllocator {
    pub(super) owner: AllocatorOwner,
    pub(super) size: Option<Size>,
    /// What the framework holds itself.
    pub(super) held: Option<Size>,
    /// What of that it has in free pieces.
    pub(super) unallocated: Option<Size>,
    /// What the whole process holds, JAX and contexts included.
    pub(super) process: Option<Size>,
    /// What is free of the GPU, and what it has in all.
    pub(super) free: Option<Size>,
    pub(super) total: Option<Size>,
    /// What the program allows the framework to take.
    pub(super) allowed: Option<Size>,
}

impl OtherAllocator {
    /// Returns a refusal of which only the allocator is known.
    pub(super) fn new(owner: AllocatorOwner) -> OtherAllocator {
        OtherAllocator {
            owner,
            size: None,
            held: None,
            unallocated: None,
            process: None,
            free: None,
            total: None,
            allowed: None,
        }
    }
}

/// A framework that allocates GPU memory beside JAX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum AllocatorOwner {
    Cupy,
    Pytorch,
    Rmm,
    TensorFlow,
    Warp,
    /// One that the message does not name.
    Unknown,
}

impl AllocatorOwner {
    pub(super) fn label(self) -> &'static str {
        match self {
            AllocatorOwner::Cupy => "CuPy",
            AllocatorOwner::Pytorch => "PyTorch",
            AllocatorOwner::Rmm => "RAPIDS (RMM)",
            AllocatorOwner::TensorFlow => "TensorFlow",
            AllocatorOwner::Warp => "Warp",
            AllocatorOwner::Unknown => "something beside JAX",
        }
    }

    /// Returns what happened, as a sentence begins, where the framework itself is the one that needs much.
    pub(super) fn shortage(self) -> &'static str {
        match self {
            AllocatorOwner::Cupy => "CuPy found no GPU memory",
            AllocatorOwner::Pytorch => "PyTorch found no GPU memory",
            AllocatorOwner::Rmm => "RAPIDS (RMM) found no GPU memory",
            AllocatorOwner::TensorFlow => "TensorFlow found no GPU memory",
            AllocatorOwner::Warp => "Warp found no GPU memory",
            AllocatorOwner::Unknown => "something beside JAX found no GPU memory",
        }
    }
}
