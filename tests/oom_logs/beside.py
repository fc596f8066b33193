"""Memory beside the pool, and memory that only the search for an algorithm takes."""

from __future__ import annotations

from .driver import DRIVER_OOM
from .dump import GIB, dump, full_pool
from .log import Line, OomLog, decisive, log, plain
from .pool import A100_40G_POOL
from .texts import Version, Writer, failed, raised, refused, status


def outside_pool() -> list[OomLog]:
    """A library, a module or a graph found no memory beside the pool."""
    return [*_cudnn(), *_cublas(), *_other_libraries(), *_nccl(), *_modules(), *_graphs()]


def cudnn_handle(writer: Writer, state: str, free: int, total: int) -> list[str]:
    """Returns the records of a cuDNN handle that could not be made."""
    return [
        writer.error("cuda_dnn.cc", f"Could not create cudnn handle: {state}"),
        writer.error("cuda_dnn.cc", f"Memory usage: {free} bytes free, {total} bytes total."),
    ]


def dnn_failed(jax: Version) -> str:
    """Returns the status of a program whose cuDNN handle could not be made."""
    text = "DNN library initialization failed. Look at the errors above for more details."
    return status(jax, "FAILED_PRECONDITION" if jax >= (0, 4, 20) else "UNKNOWN", text)


def _cudnn() -> list[OomLog]:
    logs = []
    for jax, state, free, total in (
        ((0, 4, 14), "CUDNN_STATUS_INTERNAL_ERROR", 35_782_656, 25_434_587_136),
        ((0, 4, 35), "CUDNN_STATUS_NOT_INITIALIZED", 9_633_792, 8_361_738_240),
        ((0, 11, 0), "CUDNN_STATUS_ALLOC_FAILED", 58_130_432, 47_810_936_832),
    ):
        name = f"outside-pool/cudnn-{'.'.join(map(str, jax))}"
        writer = Writer(jax, name)
        lines = decisive(*cudnn_handle(writer, state, free, total))
        lines += raised(jax, dnn_failed(jax))
        logs.append(log(name, lines, "outside-pool", maybe="pool-not-obtained memory-taken-later"))
    before = "There was an error before creating cudnn handle (2): cudaErrorMemoryAllocation : "
    before += "out of memory"
    name = "outside-pool/before-cudnn-0.6"
    writer = Writer((0, 6, 2), name)
    lines = decisive(writer.error("cuda_dnn.cc", before))
    lines += raised((0, 6, 2), dnn_failed((0, 6, 2)))
    maybe = "pool-not-obtained memory-taken-later"
    return [*logs, log(name, lines, "outside-pool", maybe=maybe)]


CUBLAS_HINT = (
    "Failure to initialize cublas may be due to OOM (cublas needs some free memory when you "
    "initialize it, and your deep-learning framework may have preallocated more than its fair "
    "share), or may be because this binary was not built with support for the GPU in your machine."
)


def cublas_handle(writer: Writer) -> list[str]:
    """Returns the records of a cuBLAS handle that could not be made."""
    old = writer.jax < (0, 5, 0)
    state = "CUBLAS_STATUS_NOT_INITIALIZED" if old else "the resource allocation failed"
    file = "cuda_blas.cc"
    records = [writer.error(file, f"failed to create cublas handle: {state}")]
    return [*records, writer.error(file, CUBLAS_HINT)] if old else records


def _cublas() -> list[OomLog]:
    blas = "Attempting to perform BLAS operation using StreamExecutor without BLAS support"
    logs = []
    for jax in ((0, 3, 10), (0, 4, 28), (0, 10, 1)):
        name = f"outside-pool/cublas-{jax[0]}.{jax[1]}"
        writer = Writer(jax, name)
        lines = [*decisive(*cublas_handle(writer)), *failed(jax, "INTERNAL", blas)]
        maybe = "pool-not-obtained memory-taken-later"
        logs.append(log(name, lines, "outside-pool", maybe=maybe))
    return logs


def _other_libraries() -> list[OomLog]:
    jax = (0, 4, 26)
    writer = Writer(jax, "libraries")
    plan = "failed to create cuFFT batched plan: CUFFT_ALLOC_FAILED(2)"
    fft = decisive(writer.error("cuda_fft.cc", plan))
    fft += failed(jax, "INTERNAL", "Failed to create FFT plan: plan is null")
    solver = "jaxlib/gpu/solver_handle_pool.cc:37: operation gpusolverDnCreate(&handle) failed: "
    solver += "cuSolver allocation failed"
    constant = "Failed to allocate 1409286144 bytes for new constant"
    return [
        log("outside-pool/cufft-0.4", fft, "outside-pool pool-too-small", maybe="fragmentation"),
        log(
            "outside-pool/cusolver-0.4.30",
            failed((0, 4, 30), "INTERNAL", solver, "w, v = jnp.linalg.eigh(a)"),
            "outside-pool",
            maybe="pool-not-obtained memory-taken-later",
        ),
        log(
            "outside-pool/constant-0.6",
            failed((0, 6, 2), "RESOURCE_EXHAUSTED", constant),
            "outside-pool pool-too-small",
            maybe="fragmentation",
            requested=1_409_286_144,
        ),
    ]


def nccl(call: str, entry: str) -> str:
    """Returns the text of a collective operation that failed."""
    return (
        f"NCCL operation {call} failed: unhandled cuda error (run with NCCL_DEBUG=INFO for "
        f"details). Last NCCL warning(error) log entry (may be unrelated) '{entry}'."
    )


def _nccl() -> list[OomLog]:
    old, new = (0, 4, 23), (0, 10, 2)
    cuda = "Cuda failure 'out of memory'"
    place = "external/xla/xla/service/gpu/nccl_api.cc:395: "
    entry = "node07:31337:31801 [2] include/alloc.h:178 NCCL WARN Cuda failure 2 'out of memory'"
    init = nccl("ncclCommInitRank(&comm, nranks, id, rank)", cuda)
    group = nccl("ncclGroupEnd()", "Cuda failure 2 'out of memory'")
    return [
        log("outside-pool/nccl-init-0.4", failed(old, "INTERNAL", place + init), "outside-pool"),
        log(
            "outside-pool/nccl-group-0.10",
            [*plain(entry), *failed(new, "INTERNAL", group)],
            "outside-pool",
        ),
    ]


def cubin(jax: Version) -> str:
    """Returns the status of a module that the driver could not load."""
    ordinal = "[0] " if jax >= (0, 10, 0) else ""
    text = f"{ordinal}Failed to load in-memory CUBIN (compiled for a different GPU?).: {DRIVER_OOM}"
    return status(jax, "RESOURCE_EXHAUSTED" if jax >= (0, 5, 0) else "INTERNAL", text)


def _modules() -> list[OomLog]:
    return [
        log(f"outside-pool/cubin-{jax[0]}.{jax[1]}", raised(jax, cubin(jax)), "outside-pool")
        for jax in ((0, 4, 31), (0, 6, 2), (0, 11, 0))
    ]


def graph(jax: Version, alive: int = 41) -> str:
    """Returns the status of a CUDA graph that could not be instantiated."""
    fraction = "reducing XLA_CLIENT_MEM_FRACTION (b) Disable "
    end = f"'XLA_FLAGS=--xla_gpu_enable_command_buffer=' (empty set). Original error: {DRIVER_OOM}"
    if jax < (0, 5, 0):
        text = "CUDA driver ran out of memory trying to instantiate CUDA graph with 212 nodes and "
        text += f"0 conditionals (total of {alive} alive CUDA graphs in the process). You can try "
        text += f"to (a) Give more memory to CUDA driver by {fraction}CUDA graph with {end}"
    elif jax < (0, 6, 2):
        text = "Underlying backend ran out of memory trying to instantiate graph with 387 nodes "
        text += f"and 2 conditionals (total of {alive} alive graphs in the process). You can try "
        text += f"to (a) Give more memory to the driver by {fraction}command buffers with {end}"
    else:
        text = "Underlying backend ran out of memory trying to instantiate command buffer with "
        text += f"164 (total of {alive} alive graphs in the process). You can try to (a) Give "
        text += f"more memory to the driver by {fraction}command buffers with {end}"
    return status(jax, "RESOURCE_EXHAUSTED", text)


def _graphs() -> list[OomLog]:
    return [
        log(
            f"outside-pool/graph-{'.'.join(map(str, jax))}", raised(jax, graph(jax)), "outside-pool"
        )
        for jax in ((0, 4, 33), (0, 5, 3), (0, 11, 0))
    ]


def autotuning() -> list[OomLog]:
    """Trying out an algorithm took memory that the program itself does not need."""
    return [*_pickers(), *_engines(), *_candidates()]


CANDIDATE_FAILED = (
    "Autotuning candidate failed with out of memory error. Consider disabling correctness checking "
    "(i.e. --xla_gpu_autotune_level=3) to reduce autotuning memory usage."
)
CONVOLUTION = (
    "%cudnn-conv.17 = (f32[192,256,64,64]{3,2,1,0}, u8[0]{0}) custom-call(f32[192,256,64,64]"
    "{3,2,1,0} %p.4, f32[256,256,3,3]{3,2,1,0} %p.9), window={size=3x3 pad=1_1x1_1}, "
    'custom_call_target="__cudnn$convForward"'
)


def _picked(jax: Version, original: str) -> list[Line]:
    text = f"Failed to determine best cudnn convolution algorithm for:\n{CONVOLUTION}\n\n"
    text += f"Original error: {original}\n\nTo ignore this failure and try to use a fallback "
    text += "algorithm (which may have suboptimal performance), use "
    text += "XLA_FLAGS=--xla_gpu_strict_conv_algorithm_picker=false.  Please also file a bug for "
    text += "the root cause of failing autotuning."
    return failed(jax, "UNKNOWN", text)


def _pickers() -> list[OomLog]:
    sizes = {(0, 4, 14): 3_221_356_544, (0, 4, 33): 805_437_440}
    logs = [
        log(
            f"autotuning/conv-picker-{'.'.join(map(str, jax))}",
            _picked(
                jax, f"RESOURCE_EXHAUSTED: Out of memory while trying to allocate {size} bytes."
            ),
            "autotuning",
            maybe="pool-too-small fragmentation",
            requested=size,
        )
        for jax, size in sizes.items()
    ]
    scratch = "INTERNAL: All algorithms tried for convolution failed, first: Scratch allocation "
    scratch += "failed: RESOURCE_EXHAUSTED"
    name = "autotuning/scratch-0.3"
    maybe = "pool-too-small fragmentation"
    return [*logs, log(name, _picked((0, 3, 25), scratch), "autotuning", maybe=maybe)]


def _engines() -> list[OomLog]:
    jax = (0, 6, 0)
    engine = "Profiling failure on cuDNN engine eng34{k2=4,k4=2,k13=0}: UNKNOWN: "
    engine += "CUDNN_STATUS_ALLOC_FAILED\nin external/xla/xla/stream_executor/cuda/cuda_dnn.cc: "
    engine += "'status'"
    ordinal = "Failed to allocate request for 4.25GiB (4563402752B) on device ordinal 0"
    cause = "Autotuning failed for HLO: %gemm_fusion_dot.41 = bf16[8192,16384] fusion(...): "
    maybe = "pool-too-small fragmentation memory-taken-later"
    return [
        log(
            "autotuning/cudnn-engine-0.6",
            [*plain(CONVOLUTION), *failed(jax, "INTERNAL", engine)],
            "autotuning",
            maybe=f"{maybe} outside-pool",
        ),
        log(
            "autotuning/gemm-0.4",
            failed((0, 4, 31), "RESOURCE_EXHAUSTED", cause + ordinal),
            "autotuning",
            maybe=maybe,
            requested=4_563_402_752,
        ),
    ]


def _candidates() -> list[OomLog]:
    jax, name, size = (0, 6, 2), "autotuning/candidate-0.6", 6_710_886_400
    writer = Writer(jax, name)
    lines = decisive(writer.warning("gemm_fusion_autotuner.cc", CANDIDATE_FAILED))
    lines += dump(writer, full_pool(writer, A100_40G_POOL, 2 * GIB), size)
    lines += refused(jax, size)
    both = "autotuning pool-too-small"
    maybe = "fragmentation"
    return [log(name, lines, both, present="autotuning", maybe=maybe, requested=size)]
