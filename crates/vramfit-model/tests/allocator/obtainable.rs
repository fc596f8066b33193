//! What is said to be available is the largest request that succeeds, in pools that are not partitioned.

use proptest::prelude::*;
use vramfit_model::allocator::{
    Allocator, AllocatorKind, PoolOptions, PoolSpace, SimulatedDeviceMemory, build,
};

const MIB: u64 = 1 << 20;

/// Allocates, or frees one of those alive by its position modulo their number.
#[derive(Clone, Debug)]
enum Operation {
    Allocate(u64),
    Free(usize),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let bytes = (8..28u32).prop_flat_map(|bits| (1u64 << bits)..(2u64 << bits));
    let operation = prop_oneof![
        3 => bytes.prop_map(Operation::Allocate),
        2 => any::<usize>().prop_map(Operation::Free),
    ];
    prop::collection::vec(operation, 1..60)
}

fn allocator_after(
    options: &PoolOptions,
    gpu_bytes: u64,
    operations: &[Operation],
) -> Box<dyn Allocator> {
    let mut allocator = build(options, Box::new(SimulatedDeviceMemory::new(gpu_bytes)));
    let mut alive = Vec::new();
    for operation in operations {
        match operation {
            Operation::Allocate(bytes) => {
                alive.extend(allocator.allocate(*bytes, 64, PoolSpace::Default));
            }
            Operation::Free(position) if !alive.is_empty() => {
                let address = alive.swap_remove(position % alive.len());
                allocator.free(address).expect("it is alive");
            }
            Operation::Free(_) => {}
        }
    }
    allocator
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_largest_request_that_succeeds_is_what_is_available(
        kind in prop::sample::select(vec![
            AllocatorKind::Bfc,
            AllocatorKind::CudaAsync,
            AllocatorKind::Platform,
            AllocatorKind::Vmm,
        ]),
        preallocate in any::<bool>(),
        jax_version in prop::sample::select(vec![(0, 6, 2), (0, 10, 2)]),
        memory_fraction in 0.1..1.0,
        total_memory_bytes in 256 * MIB..2048 * MIB,
        free_part in 0.3..1.0,
        operations in operations(),
    ) {
        let options = PoolOptions {
            kind,
            preallocate,
            jax_version,
            memory_fraction,
            total_memory_bytes,
            ..PoolOptions::default()
        };
        let gpu_bytes = (total_memory_bytes as f64 * free_part) as u64;
        let after = || allocator_after(&options, gpu_bytes, &operations);
        let allocator = after();
        let largest = allocator.largest_free_block().unwrap_or(0);
        let available = largest.max(allocator.obtainable_bytes(gpu_bytes));
        if available > 0 {
            let result = after().allocate(available, 64, PoolSpace::Default);
            prop_assert!(result.is_ok(), "{} bytes failed", available);
            let result = after().allocate(available + 1, 64, PoolSpace::Default);
            prop_assert!(result.is_err(), "{} bytes succeeded", available + 1);
        }
    }
}
