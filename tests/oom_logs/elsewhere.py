"""Logs that end with another error than the one that explains them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .beside import cubin, cublas_handle, cudnn_handle, dnn_failed
from .dump import GIB, MIB, Pool, dump, full_pool, warnings, with_holes
from .log import Line, OomLog, Role, decisive, log, plain
from .pool import A100_40G, A100_40G_POOL, H100_80G, cuda_async, hole_sizes
from .texts import Version, Writer, back_off, error_class, failed, out_of_memory, raised, traceback


@dataclass(frozen=True)
class Truth:
    """The earlier lines that explain a log."""

    lines: list[Line]
    cause: str
    maybe: str = ""
    requested: int | None = None


@dataclass(frozen=True)
class End:
    """The error that a log ends with, and the causes that it may rightly add."""

    lines: list[Line]
    adds: str = ""
    leads: str = ""


def visible_error_elsewhere() -> list[OomLog]:
    """Each kind of explanation before each of several last errors."""
    logs = []
    for end_name, (jax, make_end) in _ENDS.items():
        for truth_name in _PAIRS[end_name]:
            name = f"elsewhere/{truth_name}/{end_name}"
            writer = Writer(jax, name)
            truth, end = _TRUTHS[truth_name](writer), make_end(writer)
            lines = [*truth.lines, *plain(*(line.text for line in end.lines))]
            logs.append(
                log(
                    name,
                    lines,
                    f"{truth.cause} {end.leads}",
                    present=truth.cause,
                    maybe=f"{truth.maybe} {end.adds}",
                    requested=truth.requested,
                )
            )
    return logs


def _exception(writer: Writer) -> Truth:
    size = 4_898_947_072
    text = f"train_step failed: {error_class(writer.jax)}: {out_of_memory(writer.jax, size)}"
    exact = size if writer.jax < (0, 5, 0) else None
    lines = decisive(f"ERROR:trainer:{text}")
    return Truth(lines, "pool-too-small", "fragmentation leak", exact)


def _warned(writer: Writer) -> Truth:
    size = 3_087_007_744
    pool = full_pool(writer, A100_40G_POOL, 268_435_456)
    lines = warnings(writer, pool, size, Role.DECISIVE)
    return Truth(lines, "pool-too-small", "fragmentation leak", size)


def _dumped(writer: Writer) -> Truth:
    size = 2_617_245_696
    pool = Pool(A100_40G_POOL, [with_holes(writer, A100_40G_POOL, hole_sizes(writer, size))])
    lines = dump(writer, pool, size, Role.DECISIVE)
    return Truth(lines, "fragmentation", "", size)


def _refused(writer: Writer) -> Truth:
    lines = decisive(*back_off(writer, A100_40G_POOL, 11 * GIB))
    return Truth(lines, "pool-not-obtained", "pool-too-small outside-pool")


def _async(writer: Writer) -> Truth:
    size = 6_039_797_760
    records = cuda_async(writer, size, 1_610_612_736, H100_80G, H100_80G - 2 * GIB)
    return Truth(decisive(*records), "pool-too-small", "leak", size)


_TRUTHS: dict[str, Callable[[Writer], Truth]] = {
    "exception": _exception,
    "warned": _warned,
    "dumped": _dumped,
    "refused": _refused,
    "async": _async,
}


def _cudnn(writer: Writer) -> End:
    handle = cudnn_handle(writer, "CUDNN_STATUS_NOT_INITIALIZED", 187 * MIB, A100_40G)
    return End([*plain(*handle), *raised(writer.jax, dnn_failed(writer.jax))], "outside-pool")


def _cublas(writer: Writer) -> End:
    text = "Attempting to perform BLAS operation using StreamExecutor without BLAS support"
    lines = failed(writer.jax, "INTERNAL", text)
    return End([*plain(*cublas_handle(writer)), *lines], "outside-pool")


def _nccl(writer: Writer) -> End:
    text = "NCCL operation ncclGroupEnd() failed: remote process exited or there was a network "
    text += "error. Last NCCL warning(error) log entry (may be unrelated) 'socketProgress: "
    text += "Connection closed by remote peer node03<41877>'."
    return End(failed(writer.jax, "INTERNAL", text))


def _module(writer: Writer) -> End:
    return End(raised(writer.jax, cubin(writer.jax)), leads="outside-pool")


def _capture(writer: Writer) -> End:
    text = "Failed to end stream capture: CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: operation failed "
    text += "due to a previous error during capture"
    return End(failed(writer.jax, "INTERNAL", text))


def _heartbeat(writer: Writer) -> End:
    text = "Terminating process because the JAX distributed service detected fatal errors. This "
    text += "most likely indicates that another task died; see the other task logs for more "
    text += "details. UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):"
    text += "\n/job:jax_worker/replica:0/task:3"
    return End(plain(writer.record("F", "client.cc", text)))


def _from_cpp(writer: Writer) -> End:
    text = "terminate called after throwing an instance of 'std::runtime_error'\n"
    text += "  what():  DataLoader worker (pid 5123) exited while the stream was open\n"
    return End(plain(f"{text}Aborted (core dumped)"))


def _in_handler(writer: Writer) -> End:
    again = "\nDuring handling of the above exception, another exception occurred:\n"
    error = "AttributeError: 'NoneType' object has no attribute 'wait_until_finished'"
    return End([*plain(again), *traceback(error, "manager.wait_until_finished()")])


def _in_finally(writer: Writer) -> End:
    return End(traceback("ValueError: I/O operation on closed file.", "metrics.flush()"))


_ENDS: dict[str, tuple[Version, Callable[[Writer], End]]] = {
    "cudnn": ((0, 4, 30), _cudnn),
    "cublas": ((0, 6, 2), _cublas),
    "nccl": ((0, 9, 1), _nccl),
    "cubin": ((0, 10, 1), _module),
    "graph-capture": ((0, 8, 2), _capture),
    "heartbeat": ((0, 7, 2), _heartbeat),
    "cpp-exception": ((0, 10, 2), _from_cpp),
    "except-block": ((0, 4, 35), _in_handler),
    "finally-block": ((0, 11, 0), _in_finally),
}
_PAIRS = {
    "cudnn": ("exception", "warned", "refused"),
    "cublas": ("exception", "dumped", "refused"),
    "nccl": ("exception", "warned", "async"),
    "cubin": ("warned", "dumped", "async"),
    "graph-capture": ("warned", "dumped", "exception"),
    "heartbeat": ("exception", "warned", "refused"),
    "cpp-exception": ("warned", "async", "dumped"),
    "except-block": ("exception", "warned", "dumped"),
    "finally-block": ("exception", "warned"),
}
