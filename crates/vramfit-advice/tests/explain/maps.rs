//! Maps of a pool of which nothing is in use.

use vramfit_advice::explain::{CauseId, Confidence};

use super::support::{explained, first};

const GIB: u64 = 1 << 30;

/// Nothing is in use, and a request has no room: the pool is smaller than it should be, or the request exceeds its limit.
#[test]
fn an_empty_map_is_of_a_pool_that_was_not_obtained_unless_the_limit_is_less() {
    let empty = "_".repeat(100);
    let used = format!("*{}", "_".repeat(99));
    let none = "<allocator contains no memory>";
    let stats = |limit: u64, in_use: u64| {
        format!(
            "I0601 00:00:00.000001 7 bfc_allocator.cc:1100] Stats: \nLimit: {limit}\nInUse: {in_use}\nMaxInUse: {in_use}\n\
             NumAllocs: 0\nMaxAllocSize: 0\n\n"
        )
    };
    let not_obtained = |confidence| (CauseId::PoolNotObtained, confidence);
    let too_small = |confidence| (CauseId::PoolTooSmall, confidence);
    let (likely, sure) = (Confidence::Likely, Confidence::Sure);
    let t4 = "| N/A   53C    P8     7W /  74W |    110MiB / 15360MiB |\n";
    for (before, gib, dump, map, found) in [
        ("", 6, String::new(), empty.as_str(), not_obtained(likely)),
        ("", 1, String::new(), &empty, not_obtained(likely)),
        ("", 6, String::new(), none, not_obtained(likely)),
        // So much few pools have.
        ("", 26, String::new(), &empty, too_small(likely)),
        ("", 6, stats(12 * GIB, 0), &empty, not_obtained(likely)),
        ("", 6, stats(5 * GIB, 0), &empty, too_small(sure)),
        ("", 6, stats(12 * GIB, 9 * GIB), &empty, too_small(sure)),
        ("bytes_limit: 12884901888\n", 6, String::new(), &empty, not_obtained(likely)),
        ("bytes_limit: 5368709120\n", 6, String::new(), &empty, too_small(likely)),
        (t4, 6, String::new(), &empty, not_obtained(likely)),
        (t4, 12, String::new(), &empty, too_small(likely)),
        ("", 6, String::new(), &used, too_small(likely)),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION=.1\n", 3, String::new(), &empty, too_small(likely)),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION=.1\n", 1, String::new(), &empty, not_obtained(likely)),
        ("TF_FORCE_UNIFIED_MEMORY=1\n", 3, String::new(), &empty, too_small(likely)),
        // It had room for the steps before.
        ("step 1 loss 2.0\nstep 2 loss 1.9\n", 6, String::new(), &empty, too_small(likely)),
    ] {
        let log = format!(
            "{before}W0601 00:00:00.000000 7 bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying to \
             allocate {gib}.00GiB (rounded to {bytes})requested by op \n{dump}\
             W0601 00:00:00.000001 7 bfc_allocator.cc:512] {map}\n\
             jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate {bytes} \
             bytes.\n",
            bytes = gib * GIB
        );
        let explanation = explained(&log);
        assert_eq!(first(&explanation), Some(found), "{log}");
        let others = explanation.causes.iter().filter(|cause| cause.id == CauseId::PoolTooSmall);
        if found.0 == CauseId::PoolNotObtained {
            assert!(others.into_iter().all(|it| it.confidence == Confidence::Possible), "{log}");
        }
    }
}
