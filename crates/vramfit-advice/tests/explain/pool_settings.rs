//! What the allocator, the fraction and the GPUs of a log mean for its cause and its remedies.

use vramfit_advice::explain::{CauseId, Explanation};
use vramfit_model::gpu;

use super::support::{explained, explained_on, limit_of, remedy};

const GIB: u64 = 1 << 30;

/// What XLA says of a program that found no memory.
fn program_of(total: u64) -> String {
    format!(
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate {total} bytes.\n\
         BufferAssignment OOM Debugging.\nBufferAssignment stats:\n             parameter allocation:         0B\n        \
         maybe_live_out allocation:         0B\n     preallocated temp allocation: {total}B\n                 \
         total allocation: {total}B\n"
    )
}

#[test]
fn the_fraction_comes_first_where_it_is_enough() {
    let cards = gpu::all().iter().filter(|gpu| gpu.mig_parent.is_none() && !gpu.shares_host_memory);
    for gpu in cards {
        let (before, after) = (limit_of(gpu, 0.75), limit_of(gpu, 0.92));
        let explained = |total| {
            explained_on(&format!("jax 0.10.1\n{}", program_of(total)), Some(gpu.name.as_str()))
        };
        for total in [before + 4096, (before + after) / 2, after] {
            let explanation = explained(total);
            let first = &explanation.remedies[0];
            assert_eq!(
                (first.id, first.bytes),
                ("raise-fraction", Some(after - before)),
                "{}",
                gpu.name
            );
            assert!(first.text.ends_with("; unless it is set, it is 0.75"), "{}", first.text);
        }
        // Not even all of that is enough.
        assert_eq!(remedy(&explained(after + 4096), "raise-fraction"), None, "{}", gpu.name);
    }
}

#[test]
fn both_wordings_of_a_pool_are_read() {
    let log = |label: &str| {
        format!(
            "env: XLA_PYTHON_CLIENT_PREALLOCATE=false\nbfc_allocator.cc:512] Allocator (GPU_0_bfc) ran out of memory \
             trying to allocate 5.00GiB (rounded to 5368709120)requested by op\nbfc_allocator.cc:1098] {label} \
             18253611008 memory_limit_: 18253611008 available bytes: 0 curr_region_allocation_bytes_: 36507222016\n\
             bfc_allocator.cc:1103] Stats: \nLimit: 18253611008\nInUse: 9663676416\nMaxInUse: 12884901888\n\
             NumAllocs: 4211\nMaxAllocSize: 4294967296\nReserved: 0\nPeakReserved: 0\nLargestFreeBlock: 3221225472\n\n"
        )
    };
    let (new, old) = (
        explained(&log("Total bytes in pool:")),
        explained(&log("total_region_allocated_bytes_:")),
    );
    assert_eq!(new.causes[0].id, CauseId::Fragmentation);
    assert_eq!(new.figures, old.figures);
    let judged = |it: &Explanation| (it.causes[0].id, it.causes[0].confidence, it.remedies.len());
    assert_eq!(judged(&new), judged(&old));
}

#[test]
fn without_a_pool_the_gpu_is_too_small() {
    let refused = "RESOURCE_EXHAUSTED: Failed to allocate request for 6.25GiB (6710886400B) on device ordinal 0\n";
    for (setting, has_pool) in
        [("", true), ("export XLA_PYTHON_CLIENT_ALLOCATOR=platform\n", false)]
    {
        let explanation = explained_on(&format!("{setting}{refused}"), Some("rtx-4090"));
        let cause = &explanation.causes[0];
        assert_eq!(cause.id, CauseId::PoolTooSmall);
        assert_eq!(cause.title == CauseId::PoolTooSmall.title(), has_pool);
        assert_eq!(cause.falsified_by.contains("pool"), has_pool, "{}", cause.falsified_by);
        let larger = remedy(&explanation, "larger-gpu").expect("a larger GPU");
        assert_eq!(larger.text.contains(" at 0."), has_pool, "{}", larger.text);
    }
}

#[test]
fn the_limit_of_unified_memory_has_memory_of_the_host() {
    let log = |fraction: f64, requested: u64| {
        let limit = (24.0 * fraction * GIB as f64) as u64;
        format!(
            "TF_FORCE_UNIFIED_MEMORY=1\nXLA_PYTHON_CLIENT_MEM_FRACTION={fraction}\nbfc_allocator.cc:497] Allocator \
             (GPU_0_bfc) ran out of memory trying to allocate 1GiB (rounded to {requested})requested by op\n\
             bfc_allocator.cc:1101] Stats: \nLimit: {limit}\nInUse: {GIB}\nMaxInUse: {GIB}\nNumAllocs: 9\n\
             LargestFreeBlock: 0\n\n"
        )
    };
    for fraction in [1.2, 1.5, 2.0] {
        let requested = (24.0 * (fraction + 0.5)) as u64 * GIB;
        let explanation = explained(&log(fraction, requested));
        let larger = remedy(&explanation, "unified-memory").expect("a larger fraction");
        let least = ((requested + GIB) as f64 / (24 * GIB) as f64 * 10.0).ceil() / 10.0;
        assert!(larger.text.contains(&format!("to {least} or more")), "{}", larger.text);
        // A GPU has 24 GiB of the limit.
        let count = (requested + GIB).div_ceil(24 * GIB);
        let several = format!("shard over at least {count} of this GPU");
        assert!(
            explanation.remedies.iter().any(|it| it.text.contains(&several)),
            "{explanation:#?}"
        );
    }
}

#[test]
fn commands_are_for_as_many_gpus_as_the_log_has() {
    let refused = |gpus: &[u32]| {
        let lines = gpus.iter().map(|gpu| {
            format!(
                "bfc_allocator.cc:512] Allocator (GPU_{gpu}_bfc) ran out of memory trying to allocate 40.00GiB (rounded \
                 to 42949672960)requested by op\n"
            )
        });
        format!("GPU 0: NVIDIA H100 80GB HBM3\n+ python train.py\n{}", lines.collect::<String>())
    };
    for (gpus, named, label) in [
        (&[0][..], None, "h100-80g"),
        // One of a process for each GPU.
        (&[3], None, "h100-80g"),
        (&[0, 1], None, "h100-80gx2"),
        (&[2, 7, 0], None, "h100-80gx8"),
        (&[0], Some("a100-40gx4"), "a100-40gx4"),
    ] {
        let explanation = explained_on(&refused(gpus), named);
        assert_eq!(explanation.figures.gpu_label().as_deref(), Some(label));
        let of_log = format!("--gpu {label} ");
        assert!(explanation.causes[0].next_command.contains(&of_log), "{explanation:#?}");
        let count = label.rsplit_once('x').map_or("", |(_, count)| count);
        for remedy in explanation.remedies.iter().filter(|it| it.command.contains("--gpu ")) {
            let gpu = remedy.command.split(' ').skip_while(|word| *word != "--gpu").nth(1);
            let gpu = gpu.expect("the value of the option");
            assert!(gpu.ends_with(&format!("x{count}")) || count.is_empty(), "{}", remedy.command);
        }
    }
}

#[test]
fn no_other_process_is_blamed_for_what_tensorflow_has() {
    let log = |taken: u64| {
        format!(
            "Created device /job:localhost/replica:0/task:0/device:GPU:0 with {taken} MB memory:  -> device: 0, name: \
             NVIDIA GeForce RTX 4090\n  File \"train.py\", line 1, in <module>\nRESOURCE_EXHAUSTED: Out of memory while \
             trying to allocate 134217728 bytes.\n"
        )
    };
    for (taken, fraction) in [(22_500, None), (12_000, Some("0.47")), (3_000, Some("0.6"))] {
        let explanation = explained(&log(taken));
        assert_eq!(explanation.remedies[0].id, "hide-from-tensorflow", "{explanation:#?}");
        if explanation.causes[0].id != CauseId::PoolNotObtained {
            continue;
        }
        assert_eq!(remedy(&explanation, "free-gpu"), None);
        assert_eq!(remedy(&explanation, "split-gpu"), None);
        let lower = remedy(&explanation, "lower-fraction").map(|it| it.command.as_str());
        let expected = fraction.map(|it| format!("vramfit run --fraction {it} -- python train.py"));
        assert_eq!(lower, expected.as_deref());
    }
}

#[test]
fn a_name_alone_in_a_line_is_the_gpu() {
    for gpu in gpu::all().iter().filter(|gpu| gpu.description.starts_with("Tesla")) {
        let explanation = explained(&format!("{}\n{}", gpu.description, program_of(GIB)));
        assert_eq!(explanation.figures.gpu, Some(gpu.name.as_str()));
    }
    assert_eq!(explained(&format!("Tesla T4\n{}", program_of(GIB))).figures.gpu, Some("t4"));
}
