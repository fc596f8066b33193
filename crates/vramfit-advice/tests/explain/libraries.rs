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
