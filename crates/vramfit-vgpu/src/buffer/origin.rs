//! Where an array comes from: what tells a state that is replaced from one that stays.

use std::sync::atomic::{AtomicU64, Ordering};

/// Where the content of an array comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Different for each content, also where it replaces another in the same memory.
    pub(crate) id: u64,
    /// The program that returned it; none for what was put on the device.
    pub(crate) maker: Option<u32>,
    /// Programs with a backward pass that it was computed from, one bit each.
    pub(crate) lineage: u64,
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Origin {
    /// Returns the origin of what was put on a device.
    pub(crate) fn uploaded() -> Self {
        Origin {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            maker: None,
            lineage: 0,
        }
    }

    /// Returns the origin of what a program returns.
    pub(crate) fn returned(program: u32, lineage: u64) -> Self {
        Origin {
            maker: Some(program),
            lineage,
            ..Origin::uploaded()
        }
    }

    /// Returns the origin of a copy.
    pub(crate) fn copied(self) -> Self {
        Origin {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            ..self
        }
    }
}
