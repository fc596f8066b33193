//! What single messages say, and what they do not.

use vramfit_advice::explain::{CauseId, Confidence};

use super::support::{explained, first, ids};

const GIB: u64 = 1 << 30;

/// What an allocation fails for, the driver says by its error.
#[test]
fn an_allocation_may_fail_for_another_reason_than_memory() {
    for (error, id) in [
        ("RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory", CauseId::PoolNotObtained),
        ("INTERNAL: : CUDA_ERROR_UNKNOWN: unknown error", CauseId::NotMemory),
        ("INTERNAL: : CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access", CauseId::NotMemory),
        ("INTERNAL: : CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: mismatch", CauseId::NotMemory),
    ] {
        let log = format!(
            "E0910 09:12:44.801103 1893 cuda_executor.cc:1182] [0] Failed to allocate device memory of 2.00GiB \
             (2147483648 bytes): {error}\n"
        );
        let causes = explained(&log).causes;
        assert_eq!(causes[0].id, id, "{error}");
        assert!(causes.iter().all(|cause| cause.confidence < Confidence::Sure), "{error}");
    }
}

/// Libraries and drivers name what is wrong in words of their own.
#[test]
fn errors_that_are_not_about_memory_are_told_from_those_that_are() {
    const NCCL: &str = "NCCL operation ncclCommInitRank(&comm, nranks, id, rank) failed:";
    let not_memory = Some((CauseId::NotMemory, Confidence::Likely));
    for (log, found) in [
        (format!("{NCCL} internal error - please report this issue to the NCCL developers.\n"), not_memory),
        (format!("{NCCL} invalid usage (run with NCCL_DEBUG=WARN for details)\n"), not_memory),
        (
            format!("{NCCL} remote process exited or there was a network error\n"),
            Some((CauseId::NotMemory, Confidence::Possible)),
        ),
        ("Unable to load NCCL library. Multi-GPU collectives will not work.\n".to_owned(), not_memory),
        (
            format!("{NCCL} internal error. Last NCCL warning(error) log entry 'Cuda failure 2 'out of memory''.\n"),
            Some((CauseId::OutsidePool, Confidence::Sure)),
        ),
        (format!("{NCCL} unhandled cuda error\n"), Some((CauseId::OutsidePool, Confidence::Likely))),
        ("RuntimeError: Internal: libdevice not found at ./libdevice.10.bc\n".to_owned(), not_memory),
        (
            "Failed to determine cuDNN version (Note that this is expected if the application doesn't link the cuDNN \
             plugin): INTERNAL: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR\n"
                .to_owned(),
            None,
        ),
        (
            "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR\n".to_owned(),
            Some((CauseId::OutsidePool, Confidence::Likely)),
        ),
        ("Failed to load module: hipErrorInvalidImage\n".to_owned(), not_memory),
        // The words of cuBLAS.
        (
            "XlaRuntimeError: INTERNAL: the library was not initialized\n".to_owned(),
            Some((CauseId::OutsidePool, Confidence::Likely)),
        ),
        (
            "XlaRuntimeError: INTERNAL: the resource allocation failed\n".to_owned(),
            Some((CauseId::OutsidePool, Confidence::Sure)),
        ),
        ("warning: the library was not initialized by main()\n".to_owned(), None),
        (
            "Exception has occurred: FloatingPointError\ninvalid value (nan) encountered in jit(f)\n".to_owned(),
            not_memory,
        ),
        (
            "Exception has occurred: XlaRuntimeError\nRESOURCE_EXHAUSTED: Out of memory while trying to allocate \
             6442450944 bytes.\n"
                .to_owned(),
            Some((CauseId::PoolTooSmall, Confidence::Likely)),
        ),
        // Under WSL, Windows keeps the memory of a process on the GPU, or says that it cannot.
        (
            "RuntimeError: CUDA driver error: device not ready\nmisc dxg: dxgk: dxgkio_make_resident: Ioctl failed: -12\n"
                .to_owned(),
            Some((CauseId::OutsidePool, Confidence::Possible)),
        ),
        (
            "Thread 787 \"data\" received signal SIGBUS, Bus error.\n".to_owned(),
            Some((CauseId::HostMemory, Confidence::Likely)),
        ),
    ] {
        assert_eq!(first(&explained(&log)), found, "{log}");
    }
}

#[test]
fn a_fault_of_a_kernel_is_one_whatever_it_did() {
    for (error, is_of_kernel) in [
        ("ILLEGAL_ADDRESS", true),
        ("MISALIGNED_ADDRESS", true),
        ("ILLEGAL_INSTRUCTION", true),
        ("LAUNCH_FAILED", true),
        ("NO_DEVICE", false),
        ("SYSTEM_NOT_READY", false),
    ] {
        let explanation = explained(&format!("JaxRuntimeError: INTERNAL: CUDA_ERROR_{error}\n"));
        assert_eq!(first(&explanation), Some((CauseId::NotMemory, Confidence::Likely)), "{error}");
        assert_eq!(ids(&explanation).contains(&"other-release"), is_of_kernel, "{error}");
    }
}

#[test]
fn the_packages_to_install_are_those_of_the_cuda_release_in_the_log() {
    for (named, extra) in [
        ("", "jax[cuda12]"),
        ("jax-cuda12-plugin 0.9.2\n", "jax[cuda12]"),
        ("jax_plugins.xla_cuda13.initialize()\n", "jax[cuda13]"),
        ("jax-cuda13-pjrt==0.10.2\n", "jax[cuda13]"),
    ] {
        let log = format!("{named}JaxRuntimeError: INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS\n");
        let explanation = explained(&log);
        assert!(explanation.remedies[0].command.contains(extra), "{named}");
    }
}

/// TensorFlow's warnings before 1.15 do not count what was freed.
#[test]
fn what_the_caller_can_do_without_is_no_failure() {
    let warning = |counted: &str| {
        format!(
            "W tensorflow/core/common_runtime/bfc_allocator.cc:215] Allocator (GPU_0_bfc) ran out of memory trying to \
             allocate 544.02MiB{counted}. The caller indicates that this is not a failure, but may mean that there could \
             be performance gains if more memory were available.\n"
        )
    };
    for counted in ["", " with freed_by_count=0"] {
        let explanation = explained(&warning(counted));
        assert_eq!(
            first(&explanation),
            Some((CauseId::NotMemory, Confidence::Likely)),
            "{counted}"
        );
        assert_eq!(explanation.figures.requested_bytes, None);
    }
}

#[test]
fn a_table_of_nvidia_smi_is_not_of_the_failure() {
    let refused = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 6291456 bytes.\n";
    let table = "| 0%   52C    P8    32W / 350W |   1177MiB / 24576MiB |      1%      Default |\n";
    let figures = explained(&format!("{table}{refused}")).figures;
    assert_eq!((figures.gpu_total_bytes, figures.gpu_free_bytes), (Some(24 * GIB), None));
    let told = "Memory usage: 707198976 bytes free, 4231397376 bytes total.\n";
    let figures = explained(&format!("{told}{refused}")).figures;
    let both = (figures.gpu_total_bytes, figures.gpu_free_bytes);
    assert_eq!(both, (Some(4_231_397_376), Some(707_198_976)));
}

/// Warnings of the compiler, without a request that failed.
#[test]
fn a_program_that_no_gpu_could_hold_is_not_called_fine() {
    let remat = |target: u64, reached: u64| {
        format!(
            "hlo_rematerialization.cc:3204] Can't reduce memory use below 1.00GiB ({target} bytes) by rematerialization; \
             only reduced to 1.00GiB ({reached} bytes), down from 1.00GiB ({reached} bytes) originally\n"
        )
    };
    let arguments = |bytes: u64| {
        format!(
            "gpu_hlo_schedule.cc:815] The byte size of input/output arguments ({bytes}) exceeds the base limit \
             (27028357120). This indicates an error in the calculation!\n"
        )
    };
    let (t4, unified) = (
        "| N/A   53C    P8     7W /  74W |    110MiB / 15360MiB |\n",
        "TF_FORCE_UNIFIED_MEMORY=true\n",
    );
    let too_small = Some((CauseId::PoolTooSmall, Confidence::Likely));
    let likely = Some((CauseId::NotMemory, Confidence::Likely));
    let possible = Some((CauseId::NotMemory, Confidence::Possible));
    for (log, found) in [
        (remat(24 * GIB, 34 * GIB), likely),
        (remat(10 * GIB, 71 * GIB), possible),
        (remat(22 * GIB, 41_000 * GIB), too_small),
        (arguments(24 * GIB), likely),
        (arguments(24_000 * GIB), too_small),
        (format!("{t4}{}", arguments(24 * GIB)), too_small),
        (format!("{t4}{}", remat(10 * GIB, 18 * GIB)), likely),
        (format!("{t4}{}", remat(10 * GIB, 40 * GIB)), too_small),
        (format!("{t4}{unified}{}", arguments(24 * GIB)), likely),
        // It ran.
        (format!("step 1\n{}step 2\n", remat(22 * GIB, 41_000 * GIB)), possible),
    ] {
        assert_eq!(first(&explained(&log)), found, "{log}");
    }
}

#[test]
fn pinned_memory_that_the_driver_refuses_is_not_the_pool_of_xla() {
    let refused = "failed to alloc 245638656 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n\
        could not allocate pinned host memory of size: 245638656\n";
    let full =
        "RESOURCE_EXHAUSTED: Out of host memory while trying to allocate 4294967296 bytes.\n";
    for (log, confidence, remedy) in [
        (refused.to_owned(), Confidence::Likely, "allow-pinned-memory"),
        (full.to_owned(), Confidence::Sure, "raise-pinned-limit"),
        (format!("{refused}{full}"), Confidence::Sure, "raise-pinned-limit"),
    ] {
        let explanation = explained(&log);
        assert_eq!(first(&explanation), Some((CauseId::HostMemory, confidence)), "{log}");
        let says_full = explanation.causes[0].summary.contains("is full");
        assert_eq!(says_full, remedy == "raise-pinned-limit", "{log}");
        assert_eq!(explanation.remedies[0].id, remedy, "{log}");
    }
}

/// Of unified memory other processes of the GPU leave as much as there is.
#[test]
fn unified_memory_that_is_refused_is_not_used_by_others() {
    let refused = |bytes: u64| {
        format!(
            "failed to alloc {bytes} bytes unified memory; result: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
        )
    };
    let log = format!(
        "{}{}Allocator (GPU_0_bfc) ran out of memory trying to allocate 12.00MiB (rounded to 12582912)requested by op\n",
        refused(14_555_565_056),
        refused(13_100_008_448)
    );
    let explanation = explained(&log);
    assert_eq!(first(&explanation), Some((CauseId::PoolTooSmall, Confidence::Likely)));
    let others: Vec<CauseId> = explanation.causes[1..].iter().map(|cause| cause.id).collect();
    assert!(others.contains(&CauseId::HostMemory) && !others.contains(&CauseId::PoolNotObtained));
}

/// JAX says of a plugin that it cannot load only what follows, which may be anything.
#[test]
fn a_plugin_that_is_not_loaded_proves_no_wrong_setting() {
    let plugin = "Jax plugin configuration error: Exception when calling jax_plugins.xla_cuda12.initialize()\n\
        Traceback (most recent call last):\n  File \"/x/jax/_src/xla_bridge.py\", line 497, in discover_pjrt_plugins\n";
    let named = "ValueError: could not convert string to float: '75%'\n";
    for (log, found) in [
        (plugin.to_owned(), (CauseId::WrongSetting, Confidence::Likely)),
        (format!("{plugin}{named}"), (CauseId::WrongSetting, Confidence::Sure)),
        (
            format!(
                "{plugin}Shared memory size limit exceeded: requested 73728, available: 65536\n"
            ),
            (CauseId::NotMemory, Confidence::Sure),
        ),
    ] {
        assert_eq!(first(&explained(&log)), Some(found), "{log}");
    }
}

/// The driver's refusal of a pool: who has to leave, or how much to ask for.
#[test]
fn a_pool_that_was_not_obtained_can_ask_for_less() {
    let refusal = |bytes: u64| {
        let gib = bytes / GIB;
        format!(
            "XLA backend allocating {bytes} bytes on device 0 for BFCAllocator.\n\
             cuda_executor.cc:1182] [0] Failed to allocate device memory of {gib}.00GiB ({bytes} bytes): \
             RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory\n\
             RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes.\n"
        )
    };
    let wsl = "platform: Linux-6.6.87.2-microsoft-standard-WSL2-x86_64\n";
    for (log, confidence, first_remedy, fraction) in [
        (refusal(9 * GIB), Confidence::Sure, "free-gpu", "--fraction 0.6 "),
        (
            format!("XLA_PYTHON_CLIENT_MEM_FRACTION=0.4\n{}", refusal(9 * GIB)),
            Confidence::Sure,
            "free-gpu",
            "--fraction 0.2 ",
        ),
        (format!("{wsl}{}", refusal(9 * GIB)), Confidence::Likely, "cuda-async", "--fraction 0.6 "),
        (format!("{wsl}{}", refusal(3 * GIB)), Confidence::Likely, "free-gpu", "--fraction 0.6 "),
        (
            format!("{wsl}jax 0.10.1\n{}", refusal(9 * GIB)),
            Confidence::Likely,
            "free-gpu",
            "--fraction 0.6 ",
        ),
    ] {
        let explanation = explained(&log);
        let found = first(&explanation);
        assert_eq!(found, Some((CauseId::PoolNotObtained, confidence)), "{log}");
        assert_eq!(explanation.remedies[0].id, first_remedy, "{log}");
        let lower = explanation.remedies.iter().find(|remedy| remedy.id == "lower-fraction");
        assert!(lower.is_some_and(|it| it.command.contains(fraction)), "{log}");
    }
}

#[test]
fn a_setting_that_does_nothing_is_named() {
    for setting in ["TF_GPU_ALLOCATOR=cuda_malloc_async", "XLA_PYTHON_CLIENT_MEM_FRACTION=100"] {
        let log = format!(
            "XLA_PYTHON_CLIENT_PREALLOCATE=true {setting}\n\
             RESOURCE_EXHAUSTED: Out of memory while trying to allocate 400.00MiB\n"
        );
        let causes = explained(&log).causes;
        let wrong = causes.iter().find(|cause| cause.id == CauseId::WrongSetting);
        let (name, _) = setting.split_once('=').expect("a setting");
        assert!(wrong.is_some_and(|cause| cause.summary.contains(name)), "{setting}");
    }
}
