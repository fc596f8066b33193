//! Shared by tests of the allocators.

use super::{Allocator, PoolSpace};

/// Allocates ordinary memory where there is room for it.
pub(super) fn take(allocator: &mut dyn Allocator, bytes: u64) -> u64 {
    let address = allocator.allocate(bytes, 64, PoolSpace::Default);
    address.expect("there is room")
}
