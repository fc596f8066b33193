"""The words of each JAX version: log records, exceptions, reports."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from .log import Line, decisive, plain

Version = tuple[int, int, int]

_OLD = "external/org_tensorflow/tensorflow"
_FOLDERS = {
    "bfc_allocator.cc": (f"{_OLD}/core/common_runtime", "external/tsl/tsl/framework"),
    "gpu_helpers.cc": (f"{_OLD}/compiler/xla/pjrt/gpu", "external/xla/xla/pjrt/gpu"),
    "cuda_driver.cc": (f"{_OLD}/stream_executor/cuda", "external/xla/xla/stream_executor/cuda"),
    "rocm_driver.cc": (f"{_OLD}/stream_executor/rocm", "external/xla/xla/stream_executor/rocm"),
    "cuda_dnn.cc": (f"{_OLD}/stream_executor/cuda", "external/xla/xla/stream_executor/cuda"),
    "cuda_blas.cc": (f"{_OLD}/stream_executor/cuda", "external/xla/xla/stream_executor/cuda"),
    "cuda_fft.cc": (f"{_OLD}/stream_executor/cuda", "external/xla/xla/stream_executor/cuda"),
}


def human(size: int) -> str:
    """Shows a size as XLA's log lines do."""
    if size < 1024:
        return f"{size}B"
    units = iter(["KiB", "MiB", "GiB", "TiB", "PiB"])
    unit = next(units)
    while size >= 1 << 20:
        size //= 1024
        unit = next(units)
    return f"{size / 1024:.{1 if unit == 'KiB' else 2}f}{unit}"


class Writer:
    """Writes log records as one version does, with a clock of its own."""

    def __init__(self, jax: Version, seed: str) -> None:
        self.jax = jax
        self.rng = random.Random(seed)
        year = 2021 if jax < (0, 3, 0) else 2023 if jax < (0, 4, 20) else 2025
        self._now = datetime(year, 1, 1) + timedelta(seconds=self.rng.randrange(31_000_000))
        self._thread = self.rng.randrange(1_200, 4_000_000)

    def record(self, severity: str, file: str, text: str, line: int | None = None) -> str:
        """Returns one record: TSL's prefix up to 0.4, absl's since."""
        self._now += timedelta(microseconds=self.rng.randrange(20, 90_000))
        number = self.rng.randrange(150, 3200) if line is None else line
        if self.jax >= (0, 5, 0):
            stamp = self._now.strftime("%m%d %H:%M:%S.%f")
            return f"{severity}{stamp} {self._thread:>7} {file}:{number}] {text}"
        folders = _FOLDERS.get(file, (f"{_OLD}/compiler/xla/service", "external/xla/xla/service"))
        folder = folders[self.jax >= (0, 4, 8)]
        stamp = self._now.strftime("%Y-%m-%d %H:%M:%S.%f")
        return f"{stamp}: {severity} {folder}/{file}:{number}] {text}"

    def info(self, file: str, text: str, line: int | None = None) -> str:
        return self.record("I", file, text, line)

    def warning(self, file: str, text: str, line: int | None = None) -> str:
        return self.record("W", file, text, line)

    def error(self, file: str, text: str, line: int | None = None) -> str:
        return self.record("E", file, text, line)


def error_class(jax: Version) -> str:
    """Returns the name of the exception that a failed execution raises."""
    if jax < (0, 3, 0):
        return "RuntimeError"
    if jax <= (0, 6, 0):
        return "jaxlib.xla_extension.XlaRuntimeError"
    if jax < (0, 10, 0):
        return "jaxlib._jax.XlaRuntimeError"
    return "jax.errors.JaxRuntimeError"


def status(jax: Version, code: str, text: str, executable: str = "jit_train_step") -> str:
    """Returns a status with its code as the version spells it, and what it appends."""
    if jax < (0, 3, 0):
        return f"{code.replace('_', ' ').capitalize()}: {text}"
    suffix = f" [executable_name='{executable}']" if jax >= (0, 10, 0) else ""
    return f"{code}: {text}{suffix}"


def out_of_memory(jax: Version, size: int, executable: str = "jit_train_step") -> str:
    """Returns the status of a request that a pool refused."""
    amount = f"{size} bytes" if jax < (0, 5, 0) else human(size)
    text = f"Out of memory while trying to allocate {amount}."
    if (0, 5, 0) <= jax < (0, 7, 0):
        text += " [tf-allocator-allocation-error='']"
    return status(jax, "RESOURCE_EXHAUSTED", text, executable)


def traceback(error: str, call: str = "state, loss = train_step(state, batch)") -> list[Line]:
    """Returns a Python traceback; the error is the decisive part."""
    head = (
        "Traceback (most recent call last):\n"
        '  File "/workspace/train.py", line 231, in <module>\n'
        "    main()\n"
        '  File "/workspace/train.py", line 204, in main\n'
        f"    {call}"
    )
    return [*plain(head), *decisive(error)]


def raised(
    jax: Version, error: str, call: str = "state, loss = train_step(state, batch)", report: str = ""
) -> list[Line]:
    """Returns the traceback of a failed execution, with JAX's remark at the end."""
    lines = traceback(f"{error_class(jax)}: {error}", call)
    lines += plain(report) if report else []
    if jax < (0, 4, 0):
        return lines
    remark = "For simplicity, JAX has removed its internal frames from the traceback of the "
    remark += "following exception. Set JAX_TRACEBACK_FILTERING=off to include these."
    return [*lines, *plain("--------------------", remark)]


def refused(
    jax: Version, size: int, call: str = "state, loss = train_step(state, batch)", report: str = ""
) -> list[Line]:
    """Returns the traceback of a request that a pool refused."""
    return raised(jax, out_of_memory(jax, size), call, report)


def failed(
    jax: Version, code: str, text: str, call: str = "state, loss = train_step(state, batch)"
) -> list[Line]:
    """Returns the traceback of an execution that failed with a status."""
    return raised(jax, status(jax, code, text), call)


def buffer_report(parameters: int, temporaries: int, results: int) -> str:
    """Returns the report about a program's buffers that follows some errors."""
    total = parameters + temporaries + results
    rows = [
        ("parameter allocation", human(parameters)),
        ("constant allocation", "0B"),
        ("maybe_live_out allocation", human(results)),
        ("preallocated temp allocation", human(temporaries)),
        ("total allocation", human(total)),
    ]
    text = "BufferAssignment OOM Debugging.\nBufferAssignment stats:\n"
    text += "\n".join(f"{label + ':':>34} {value:>10}" for label, value in rows)
    text += "\nPeak buffers:"
    peak = temporaries // 2
    for number in range(1, 4):
        text += (
            f"\n\tBuffer {number}:\n\t\tSize: {human(peak)}\n"
            f'\t\tOperator: op_name="jit(train_step)/jit(main)/layer_{number}/dot_general" '
            f'source_file="/workspace/model.py" source_line={70 + number}\n'
            f"\t\tXLA Label: fusion\n\t\tShape: f32[{peak // 4096},1024]\n"
            "\t\t=========================="
        )
        peak //= 2
    return text


def driver_refusal(writer: Writer, size: int, device: str = "device") -> str:
    """Returns the record of memory that the driver did not give."""
    if writer.jax < (0, 5, 0):
        error = "CUDA_ERROR_OUT_OF_MEMORY: out of memory"
        text = f"failed to allocate {human(size)} ({size} bytes) from {device}: {error}"
        return writer.error("cuda_driver.cc", text)
    error = "RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    ordinal = "[0] " if writer.jax >= (0, 10, 0) else ""
    text = f"{ordinal}Failed to allocate {device} memory of {human(size)} ({size} bytes): {error}"
    return writer.error("cuda_executor.cc", text)


def back_off(writer: Writer, size: int, below: int) -> list[str]:
    """Returns the refusals of ever smaller requests, until one is granted or none is left."""
    records = []
    while size > below:
        records.append(driver_refusal(writer, size))
        size = -(-size * 9 // 10 // 256) * 256
    return records


def rematerialization(writer: Writer, target: int, reached: int, before: int) -> str:
    """Returns the warning that the compiler could not get below its limit."""
    sign = "-" if target < 0 else ""
    return writer.warning(
        "hlo_rematerialization.cc",
        f"Can't reduce memory use below {sign}{human(abs(target))} ({target} bytes) by "
        f"rematerialization; only reduced to {human(reached)} ({reached} bytes), down from "
        f"{human(before)} ({before} bytes) originally",
    )


def base_limit(writer: Writer, arguments: int, limit: int) -> str:
    """Returns the error about arguments and results that leave nothing for the rest."""
    return writer.error(
        "gpu_hlo_schedule.cc",
        f"The byte size of input/output arguments ({arguments}) exceeds the base limit "
        f"({limit}). This indicates an error in the calculation!",
    )


def steps(first: int, last: int, every: int, extra: str = "") -> str:
    """Returns what a training loop prints; `extra` may use `{step}`."""
    rows = []
    for step in range(first, last + 1, every):
        more = extra.format(step=step)
        rows.append(f"step {step:>6} | loss {11 / (1 + step / 400) ** 0.5:.4f} | lr 3.0e-04{more}")
    return "\n".join(rows)
