//! What libraries and the driver say when something of theirs fails.

use vramfit_advice::explain::{CauseId, Confidence};

use super::support::{explained, first, ids};

/// A library that says that a kernel failed had started: memory may be the reason, and the error does not say so.
#[test]
fn a_kernel_that_fails_is_no_library_that_could_not_start() {
    const OF_KERNELS: [&str; 10] = [
        "solver_kernels.cc:45: operation cusolverDnSgetrf(handle.get(), m, n) failed: cuSolver execution failed",
        "cuSolver error: CUSOLVER_STATUS_EXECUTION_FAILED",
        "failed to run cuBLAS routine: CUBLAS_STATUS_EXECUTION_FAILED",
        "cuBLAS execution failed",
        "CUDNN_STATUS_EXECUTION_FAILED\nin external/xla/xla/stream_executor/cuda/cuda_dnn.cc(5117): 'status'",
        "cuSparse execution failed",
        "CUSPARSE_STATUS_EXECUTION_FAILED",
        "cuFFT error: CUFFT_EXEC_FAILED",
        "CURAND_STATUS_LAUNCH_FAILURE",
        "HIPBLAS_STATUS_EXECUTION_FAILED",
    ];
    let free = |bytes: u64| format!("Memory usage: {bytes} bytes free, 8462794752 bytes total.\n");
    for error in OF_KERNELS {
        let log = format!("jaxlib.xla_extension.XlaRuntimeError: INTERNAL: {error}\n");
        for (log, confidence) in [
            (log.clone(), Confidence::Possible),
            (format!("{}{log}", free(6 << 30)), Confidence::Likely),
        ] {
            let explanation = explained(&log);
            assert_eq!(first(&explanation), Some((CauseId::NotMemory, confidence)), "{log}");
            assert_eq!(explanation.causes.len(), 1, "{log}");
            let cause = &explanation.causes[0];
            assert!(cause.title.starts_with("a kernel of a library failed"), "{log}");
            assert!(cause.summary.contains("had started"), "{log}");
            assert!(ids(&explanation).contains(&"check-installation"), "{log}");
        }
        let full = explained(&format!("{}{log}", free(16 << 20)));
        assert_eq!(first(&full), Some((CauseId::OutsidePool, Confidence::Possible)), "{log}");
        // An error that names what failed tells more.
        let fault =
            explained(&format!("{log}CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access\n"));
        assert!(fault.causes[0].summary.starts_with("a kernel did what it may not"), "{log}");
        let refused = "CUDNN_STATUS_ALLOC_FAILED\n";
        let refused = explained(&format!("{log}{refused}"));
        assert_eq!(first(&refused), Some((CauseId::OutsidePool, Confidence::Sure)), "{log}");
    }
}

/// The driver's error names a lack of memory, whatever surrounds it.
#[test]
fn an_error_of_the_driver_is_read_in_any_message() {
    let (likely, sure) = (Confidence::Likely, Confidence::Sure);
    for (log, cause, confidence, says) in [
        (
            "INTERNAL: Failed to capture gpu graph: no memory: cuGraphInstantiate CUDA_ERROR_OUT_OF_MEMORY",
            CauseId::OutsidePool,
            likely,
            "`cuGraphInstantiate` failed for lack of memory",
        ),
        (
            "failed to load PTX: cuModuleLoadDataEx(&module, ptx) returned CUDA_ERROR_OUT_OF_MEMORY",
            CauseId::OutsidePool,
            likely,
            "`cuModuleLoadDataEx` failed",
        ),
        (
            "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
            CauseId::OutsidePool,
            likely,
            "`cuMemAlloc` failed",
        ),
        (
            "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuDevicePrimaryCtxRetain results in \
             CUDA_ERROR_OUT_OF_MEMORY",
            CauseId::PoolNotObtained,
            likely,
            "CUDA context",
        ),
        (
            "could not create CUDA stream: CUDA_ERROR_OUT_OF_MEMORY",
            CauseId::OutsidePool,
            likely,
            "the driver failed",
        ),
        (
            "Failed to allocate scratch buffer: CUDA_ERROR_OUT_OF_MEMORY",
            CauseId::OutsidePool,
            likely,
            "the driver",
        ),
        (
            "Failed to allocate memory on host: CUDA_ERROR_OUT_OF_MEMORY",
            CauseId::HostMemory,
            likely,
            "pin host memory",
        ),
        (
            "terminate called: cudaMalloc(&p, n) failed with cudaErrorMemoryAllocation",
            CauseId::OutsidePool,
            likely,
            "`cudaMalloc` failed",
        ),
        (
            "cuDNN in some wrapper: CUDNN_STATUS_ALLOC_FAILED",
            CauseId::OutsidePool,
            sure,
            "cuDNN found no memory",
        ),
        (
            "NCCL error in init.cc: out of memory",
            CauseId::OutsidePool,
            sure,
            "NCCL found no memory",
        ),
        (
            "Failed to create graph: hipGraphInstantiate hipErrorOutOfMemory",
            CauseId::OutsidePool,
            likely,
            "`hipGraphInstantiate` failed",
        ),
        (
            "Failed to launch CUDA graph: CUDA_ERROR_OUT_OF_MEMORY",
            CauseId::OutsidePool,
            likely,
            "a CUDA graph failed",
        ),
        // What reads the message from its beginning reads the error as well.
        (
            "Failed to load in-memory CUBIN (compiled for a different GPU?).: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
            CauseId::OutsidePool,
            sure,
            "loading compiled kernels failed",
        ),
    ] {
        let explanation = explained(&format!("{log}\n"));
        assert_eq!(first(&explanation), Some((cause, confidence)), "{log}");
        assert!(explanation.causes[0].summary.contains(says), "{}", explanation.causes[0].summary);
        let of_graphs = ids(&explanation).contains(&"disable-graphs");
        assert_eq!(of_graphs, log.to_lowercase().contains("graph"), "{log}");
    }
}

/// XLA goes on without pinned memory.
#[test]
fn pinned_memory_that_a_run_goes_on_without_is_a_warning() {
    let log = "failed to alloc 2147483648 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n\
               could not allocate pinned host memory of size: 2147483648\nstep 1 loss 3.2\nstep 2 loss 3.1\n";
    let explanation = explained(log);
    assert_eq!(first(&explanation), Some((CauseId::NotMemory, Confidence::Likely)));
    assert!(!explanation.speaks_of_memory);
}

/// Without memory of the host that processes share, NCCL fails on the GPU as well.
#[test]
fn what_nccl_does_not_get_of_the_host_is_not_missing_on_the_gpu() {
    let shared =
        "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-aB (size 33030528)\n";
    let failed = "NCCL operation ncclCommInitRank failed: unhandled system error\n";
    let explanation = explained(&format!("{shared}{failed}"));
    assert_eq!(first(&explanation), Some((CauseId::HostMemory, Confidence::Likely)));
    assert_eq!(explanation.causes.len(), 1);
    let refused = explained(&format!("{shared}NCCL WARN Cuda failure 2 'out of memory'\n{failed}"));
    assert_eq!(first(&refused), Some((CauseId::OutsidePool, Confidence::Sure)));
}

/// Memory that runs out in a line of NCCL, and words that only look like that.
#[test]
fn words_of_nccl_are_a_failure_where_they_say_so() {
    for (log, is_failure) in [
        ("NCCL error in init.cc:40: out of memory", true),
        ("ncclCommInitRank failed: out of memory", true),
        ("NCCL INFO out of memory budget disabled", false),
    ] {
        let found = first(&explained(&format!("{log}\n"))).map(|(id, _)| id);
        assert_eq!(found == Some(CauseId::OutsidePool), is_failure, "{log}");
    }
}

/// An internal error may be one of a library that runs: it is not called one that could not start.
#[test]
fn a_library_could_not_start_where_its_error_is_about_that() {
    for (error, could_not_start) in [
        ("failed to create cublas handle: CUBLAS_STATUS_INTERNAL_ERROR", true),
        ("operation gpusolverDnCreate(&handle) failed: cuSolver internal error", true),
        ("cuSolver has not been initialized", true),
        ("failed to run cuBLAS routine: CUBLAS_STATUS_INTERNAL_ERROR", false),
        ("cuSparse internal error", false),
    ] {
        let explanation = explained(&format!("XlaRuntimeError: INTERNAL: {error}\n"));
        assert_eq!(
            first(&explanation),
            Some((CauseId::OutsidePool, Confidence::Likely)),
            "{error}"
        );
        let says = explanation.causes[0].summary.contains("could not start");
        assert_eq!(says, could_not_start, "{error}");
    }
}

#[test]
fn a_status_may_be_all_that_tells_of_a_refused_request() {
    for (log, found) in [
        ("RESOURCE_EXHAUSTED: Failed to allocate 5368709120 bytes", Some(CauseId::PoolTooSmall)),
        ("RESOURCE_EXHAUSTED: Failed to allocate 5368709120 bytes.", Some(CauseId::PoolTooSmall)),
        ("Failed to allocate 5368709120 bytes", None),
    ] {
        assert_eq!(first(&explained(&format!("{log}\n"))).map(|(id, _)| id), found, "{log}");
    }
}

#[test]
fn functions_that_pin_memory_are_about_the_host() {
    for log in [
        "cudaHostAlloc failed: out of memory",
        "cudaMallocHost(&ptr, n) failed: cudaErrorMemoryAllocation: out of memory",
        "INTERNAL: cuMemHostAlloc failed: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "cuMemHostRegister: CUDA_ERROR_OUT_OF_MEMORY",
        "hipHostMalloc returned hipErrorOutOfMemory",
    ] {
        let explanation = explained(&format!("{log}\n"));
        assert_eq!(first(&explanation), Some((CauseId::HostMemory, Confidence::Likely)), "{log}");
        assert_eq!(explanation.causes.len(), 1, "{log}");
    }
}

/// A library that found no memory beside plenty of the GPU's lacked another memory, or something else.
#[test]
fn memory_that_was_free_did_not_run_out() {
    for (free, confidence, says) in [
        (4 << 20, Confidence::Sure, "the pool leaves too little"),
        (
            9_u64 << 30,
            Confidence::Possible,
            "(9.0 GiB were free): of the GPU's memory that was enough",
        ),
    ] {
        let log = format!(
            "Could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED\n\
             Memory usage: {free} bytes free, 12884901888 bytes total.\n"
        );
        let explanation = explained(&log);
        assert_eq!(first(&explanation), Some((CauseId::OutsidePool, confidence)), "{log}");
        assert!(explanation.causes[0].summary.contains(says), "{}", explanation.causes[0].summary);
    }
}

/// A server that looks at the free memory first raises an error of Python's own classes for want of it.
#[test]
fn errors_of_servers_about_free_memory_are_not_called_something_else() {
    for error in [
        "No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
        "Free memory on device (3.1/23.6 GiB) on startup is less than desired GPU memory utilization",
        "9.0 GiB KV cache is needed, which is larger than the available KV cache memory (4.1 GiB).",
    ] {
        assert_eq!(explained(&format!("ValueError: {error}\n")).causes, [], "{error}");
    }
}
