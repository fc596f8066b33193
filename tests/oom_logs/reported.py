"""Wordings of users' reports that are easily taken for another cause."""

from __future__ import annotations

from .log import Line, OomLog, decisive, log, plain
from .texts import Writer, failed, raised, steps, traceback


def reported() -> list[OomLog]:
    """Returns logs of errors that are often taken for a lack of GPU memory, and of the reverse."""
    return [
        *_libraries(),
        *_installation(),
        *_driver(),
        *_kernels(),
        *_host(),
        *_settings(),
        *_program(),
        *_tpu(),
        *_without_context(),
    ]


def _other(name: str, lines: list[Line]) -> OomLog:
    return log(f"not-memory/{name}", lines, "not-memory", exit_code=1)


def _fft(jax: tuple[int, int, int], code: int) -> list[Line]:
    writer = Writer(jax, f"fft-{code}")
    failed = "failed to initialize batched cufft plan with customized allocator: "
    return [
        *decisive(writer.error("cuda_fft.cc", f"failed to create cuFFT batched plan:{code}")),
        *plain(writer.record("F", "cuda_fft.cc", f"{failed}Failed to create cuFFT batched plan.")),
    ]


def _libraries() -> list[OomLog]:
    invalid = "node7:52110:52302 [1] include/alloc.h:88 NCCL WARN Cuda failure 1 'invalid argument'"
    nccl = "NCCL operation ncclGroupEnd() failed: unhandled cuda error (run with NCCL_DEBUG=INFO "
    nccl += "for details)"
    version = "Could not create cudnn handle: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"
    writer = Writer((0, 5, 3), "mismatch")
    return [
        # The number is cuFFT's status: 2 is a failed allocation, 11 an invalid device.
        log("outside-pool/cufft-status-0.3", _fft((0, 3, 4), 2), "outside-pool"),
        _other("cufft-status-0.2", _fft((0, 2, 9), 11)),
        _other("nccl-argument-0.6", [*decisive(invalid), *failed((0, 6, 1), "INTERNAL", nccl)]),
        _other("cudnn-version-0.5", decisive(writer.error("cuda_dnn.cc", version))),
    ]


def _installation() -> list[OomLog]:
    parts = "Unable to use CUDA because of the following issues with CUDA components:\n"
    outdated = f"RuntimeError: {parts}Outdated cuBLAS installation found.\nVersion JAX was built "
    outdated += "against: 120401\nMinimum supported: 120100\nInstalled version: 110900"
    unloaded = "WARNING:jax._src.xla_bridge:CUDA backend failed to initialize: Unable to load "
    unloaded += "CUDA. Is it installed?"
    module = "ERROR:jax._src.xla_bridge:Jax plugin configuration error: Plugin module "
    module += "jax_plugins.xla_cuda13 could not be loaded"
    missing = "ImportError: cannot import name 'cuda_versions' from 'jax_cuda13_plugin'"
    toolchain = "jaxlib/cuda/prng_kernels.cc:33: operation cudaGetLastError() failed: the provided "
    toolchain += "PTX was compiled with an unsupported toolchain."
    return [
        _other("outdated-library-0.7", traceback(outdated)),
        _other("no-cuda-0.4", [*decisive(unloaded), *plain("found no GPU, exiting")]),
        _other("plugin-module-0.11", [*decisive(module), *traceback(missing)]),
        _other("toolchain-0.3", failed((0, 3, 15), "INTERNAL", toolchain)),
    ]


def _driver() -> list[OomLog]:
    link = "CUDA error: Could not synchronize CUDA stream: CUDA_ERROR_NVLINK_UNCORRECTABLE: "
    link += "uncorrectable NVLink error detected during the execution"
    ready = "failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: "
    ready += "CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized"
    writer = Writer((0, 4, 35), "driver")
    values = [
        f"failed to alloc {size} bytes unified memory; result: CUDA_ERROR_INVALID_VALUE: "
        "invalid argument"
        for size in (25_501_368_320, 22_951_231_488, 20_656_108_339)
    ]
    amd = "failed to allocate 1.21G (1299333120 bytes) from device: HIP_ERROR_OutOfMemory"
    return [
        _other("nvlink-0.9", failed((0, 9, 0), "INTERNAL", link)),
        _other("not-ready-0.4", decisive(writer.error("cuda_driver.cc", ready))),
        _other(
            "unified-refused-0.4",
            decisive(*(writer.error("cuda_driver.cc", text) for text in values)),
        ),
        log(
            "pool-not-obtained/rocm-alone-0.2",
            decisive(Writer((0, 2, 21), "rocm").error("rocm_driver.cc", amd)),
            "pool-not-obtained pool-too-small memory-taken-later",
        ),
    ]


def _kernels() -> list[OomLog]:
    fatal = Writer((0, 5, 0), "fatal").record(
        "F", "gemm_fusion_autotuner.cc", "Non-OK-status: has_executable.status()"
    )
    reason = "Status: FAILED_PRECONDITION: Can not propagate dim orders and requirements."
    crash = "*** SIGSEGV received at time=1764000000 on cpu 9 ***"
    return [
        _other("fatal-status-0.5", decisive(fatal, reason)),
        _other(
            "segfault-with-settings",
            [*plain("+ export XLA_PYTHON_CLIENT_PREALLOCATE=false"), *decisive(crash)],
        ),
    ]


def _host() -> list[OomLog]:
    pinned = Writer((0, 6, 2), "pinned").warning(
        "stream_executor_allocator.cc", "could not allocate pinned host of size: 8589934592"
    )
    return [
        log("host-memory/pinned-refused-0.6", decisive(pinned), "host-memory"),
        log(
            "host-memory/killed-after-text",
            [*plain("Writing the checkpoint."), *decisive("Killed")],
            "host-memory",
        ),
    ]


def _program() -> list[OomLog]:
    """Errors of the program itself: the code above the error ends in a word."""
    return [
        _other("division", traceback("ZeroDivisionError: division by zero", "rate = done / 0")),
        _other(
            "attribute",
            traceback("AttributeError: 'dict' object has no attribute 'kernel'", "w = p.kernel"),
        ),
    ]


def _settings() -> list[OomLog]:
    text = 'ValueError: XLA_PYTHON_CLIENT_ALLOCATOR env var must be "default", "platform", "bfc", '
    text += '"cuda_async", or "vmm", got "pool"'
    return [log("wrong-setting/allocator-0.10", traceback(text), "wrong-setting")]


def _tpu() -> list[OomLog]:
    texts = {
        "device-buffer-0.4": "Could not allocate 25165824 bytes in memory 0x1x0_HBM0; 9437184 "
        "bytes allocatable, 31457280 bytes available",
        "exceed-0.9": "Allocation (size=68719476736) would exceed memory (size=34359738368) :: "
        "#allocation3 [shape = 'bf16[131072,262144]', space=hbm, size = 0xffffffffffffffff]",
        "program-0.8": "Error loading program 'jit_train_step': Attempting to reserve 11.37G at "
        "the bottom of memory. That was not possible. There are 212.40M free, 0B reserved, and "
        "212.40M reservable.",
    }
    logs = []
    for name, text in texts.items():
        jax = (0, int(name.rpartition(".")[2]), 1)
        logs.append(log(f"tpu/{name}", raised(jax, f"RESOURCE_EXHAUSTED: {text}"), "tpu"))
    return logs


def _without_context() -> list[OomLog]:
    """Logs of which the decisive line is cut off, and of other frameworks."""
    writer = Writer((0, 2, 20), "tail")
    tail = [
        writer.info("bfc_allocator.cc", "Sum Total of in-use chunks: 6.12GiB"),
        writer.info("bfc_allocator.cc", "Stats: "),
        "Limit:                  9663676416",
        "InUse:                  6571299840",
        "MaxInUse:               8053063680",
        "NumAllocs:                   90211",
        "MaxAllocSize:           1610612736",
    ]
    torch = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a "
    torch += "total capacity of 23.64 GiB of which 1.21 GiB is free."
    return [
        log("pool-too-small/tail-of-a-dump-0.2", decisive(*tail), "pool-too-small fragmentation"),
        log("outside-pool/torch-alone", [*decisive(torch), *plain(steps(1, 3, 1))], "outside-pool"),
    ]
