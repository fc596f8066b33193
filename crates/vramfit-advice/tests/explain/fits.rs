//! The largest request that would have fitted, from a dump alone, against the pool that made the dump.

use std::path::PathBuf;

use vramfit_advice::explain::{
    CauseId, Confidence, ExplainOptions, Explanation, LogScanner, explain,
};
use vramfit_model::allocator::{
    Allocator, Bfc, BfcOptions, PAGE_BYTES, PoolSpace, SimulatedDeviceMemory, Spatial,
    SpatialPolicy,
};

use proptest::prelude::*;

const UNIT: u64 = 256;
const MIB: u64 = 1 << 20;

/// What a program does with a pool.
#[derive(Clone, Debug)]
enum Operation {
    Allocate(u64),
    /// Frees one of the live blocks.
    Free(usize),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Preallocated,
    Growing,
    Partitioned,
}

fn new_pool(kind: Kind, limit_bytes: u64) -> Box<dyn Allocator> {
    let options = BfcOptions { limit_bytes, grows: kind == Kind::Growing, ..BfcOptions::default() };
    let memory = Box::new(SimulatedDeviceMemory::new(limit_bytes.next_multiple_of(PAGE_BYTES)));
    match kind {
        Kind::Partitioned => Box::new(Spatial::new(options, SpatialPolicy::JAX_0_11, memory)),
        Kind::Preallocated | Kind::Growing => Box::new(Bfc::new(options, memory)),
    }
}

/// Brings a fresh pool to the state after the operations.
fn replay(kind: Kind, limit_bytes: u64, operations: &[Operation]) -> Box<dyn Allocator> {
    let mut pool = new_pool(kind, limit_bytes);
    let mut live: Vec<u64> = Vec::new();
    for operation in operations {
        match operation {
            Operation::Allocate(bytes) => {
                live.extend(pool.allocate(*bytes, UNIT, PoolSpace::Default).ok());
            }
            Operation::Free(which) if !live.is_empty() => {
                let address = live.swap_remove(which % live.len());
                pool.free(address).expect("it is live");
            }
            Operation::Free(_) => {}
        }
    }
    pool
}

fn explain_dump(pool: &dyn Allocator, bytes: u64) -> Explanation {
    let mut scanner = LogScanner::new("");
    for record in pool.out_of_memory_log(bytes, PoolSpace::Default) {
        scanner.push(
            b"2026-05-05 10:00:00.000001: I external/xla/xla/tsl/framework/bfc_allocator.cc:1] ",
        );
        scanner.push(record.text.as_bytes());
        scanner.push(b"\n");
    }
    explain(&scanner.finish(), &ExplainOptions::default())
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let sizes = prop_oneof![1..4096_u64, 4096..MIB, MIB..24 * MIB];
    let operation = prop_oneof![
        3 => sizes.prop_map(Operation::Allocate),
        2 => any::<usize>().prop_map(Operation::Free),
    ];
    proptest::collection::vec(operation, 1..120)
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Preallocated), Just(Kind::Growing), Just(Kind::Partitioned)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn the_largest_fit_fits_and_256_bytes_more_do_not(
        kind in kinds(),
        operations in operations(),
        limit_pages in 8..96_u64,
    ) {
        let limit = limit_pages * PAGE_BYTES;
        let pool = replay(kind, limit, &operations);
        // Larger than anything that can fit, so that it fails in any state.
        let explanation = explain_dump(&*pool, limit + 1);
        let fits = &explanation.figures.fits;
        prop_assume!(fits.now.is_some());
        prop_assert!(fits.is_exact || pool.regions().is_empty());
        let most = fits.now.max(fits.by_growing).expect("it is there");
        let allocate = |bytes: u64| {
            let mut pool = replay(kind, limit, &operations);
            pool.allocate(bytes, UNIT, PoolSpace::Default).is_ok()
        };
        if most > 0 {
            prop_assert!(allocate(most), "{most} should fit");
        }
        prop_assert!(!allocate(most + UNIT), "{} should not fit", most + UNIT);
    }

    #[test]
    fn fresh_pools_hold_the_same_blocks_and_what_is_said_to_fit(
        kind in kinds(),
        operations in operations(),
        limit_pages in 8..96_u64,
    ) {
        let limit = limit_pages * PAGE_BYTES;
        let pool = replay(kind, limit, &operations);
        let fits = explain_dump(&*pool, limit + 1).figures.fits;
        for (other, said) in [
            (Kind::Preallocated, fits.preallocated),
            (Kind::Growing, fits.growing),
            (Kind::Partitioned, fits.partitioned),
        ] {
            let fresh = || {
                let mut fresh = new_pool(other, limit);
                for chunk in pool.chunks().iter().filter(|chunk| chunk.in_use) {
                    fresh.allocate(chunk.bytes, UNIT, PoolSpace::Default).ok()?;
                }
                Some(fresh)
            };
            let Some(most) = said else {
                // The blocks themselves do not fit there; or the limit is not known to the byte, as the dump
                // rounds it and the pool has not reached it.
                let is_unknown = pool.regions().is_empty() || kind == Kind::Growing;
                prop_assert!(fresh().is_none() || is_unknown);
                continue;
            };
            let allocate = |bytes: u64| {
                let mut fresh = fresh().expect("the blocks fit");
                fresh.allocate(bytes, UNIT, PoolSpace::Default).is_ok()
            };
            prop_assert!(most == 0 || allocate(most));
            prop_assert!(!allocate(most + UNIT));
        }
    }

    #[test]
    fn what_failed_is_called_by_its_name(
        kind in kinds(),
        operations in operations(),
        limit_pages in 8..96_u64,
        share in 1..100_u64,
    ) {
        let limit = limit_pages * PAGE_BYTES;
        let bytes = limit / 100 * share;
        let mut pool = replay(kind, limit, &operations);
        // A preallocated pool takes its memory at the first request.
        prop_assume!(!pool.regions().is_empty());
        prop_assume!(pool.allocate(bytes, UNIT, PoolSpace::Default).is_err());
        let free: u64 = pool.chunks().iter().filter(|it| !it.in_use).map(|it| it.bytes).sum();
        let in_use: u64 = pool.chunks().iter().filter(|it| it.in_use).map(|it| it.bytes).sum();
        let explanation = explain_dump(&*pool, bytes);
        let sure = explanation.causes.iter().filter(|cause| cause.confidence == Confidence::Sure);
        for cause in sure {
            match cause.id {
                CauseId::Fragmentation => prop_assert!(bytes <= free),
                CauseId::PoolTooSmall => prop_assert!(bytes > limit - in_use),
                other => prop_assert!(false, "{other:?} is not what happened"),
            }
        }
        prop_assert!(!explanation.causes.is_empty());
    }
}

/// The dumps of the real allocator, in three wordings.
#[test]
fn recorded_dumps_are_read_to_the_byte() {
    let folder =
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/bfc/oom_dumps"));
    let dumps =
        std::fs::read_dir(folder).expect("the fixtures").flatten().map(|entry| entry.path());
    let dumps: Vec<PathBuf> =
        dumps.filter(|path| path.to_string_lossy().contains(".dump")).collect();
    assert!(dumps.len() >= 15, "{dumps:?}");
    for path in dumps {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let mut scanner = LogScanner::new("");
        scanner.push(&std::fs::read(&path).expect("readable"));
        let explanation = explain(&scanner.finish(), &ExplainOptions::default());
        let figures = &explanation.figures;
        let cause = (explanation.causes[0].id, explanation.causes[0].confidence);
        let expected = match &name[..2] {
            "d3" => CauseId::Fragmentation,
            "d6" => CauseId::MemoryTakenLater,
            _ => CauseId::PoolTooSmall,
        };
        assert_eq!(cause, (expected, Confidence::Sure), "{name}");
        if &name[..2] == "d4" {
            assert_eq!(figures.pool_bytes, Some(0), "{name}");
            continue;
        }
        let chunks = explanation.regions.iter().flat_map(|region| &region.chunks);
        let free = chunks.clone().filter(|chunk| !chunk.in_use).map(|chunk| chunk.bytes);
        assert!(figures.fits.is_exact, "{name}");
        assert_eq!(figures.fits.now, Some(free.clone().max().unwrap_or(0)), "{name}");
        assert_eq!(figures.fits.without_fragmentation, Some(free.sum()), "{name}");
        let rounded = figures.rounded_bytes.expect("each names it");
        assert!(figures.fits.now < Some(rounded), "{name}: it failed");
    }
}
