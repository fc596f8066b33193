"""Runs small programs for real, on JAX's CPU backend, for the virtual GPU.

A dry run does no arithmetic, but a program's path may depend on small values: random keys,
counters, the size of ``nonzero``. When such a value is read, the program that makes it, which is
known exactly, is compiled for the CPU and run. Called from Rust; relies on JAX's internals.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import Any

# A program that takes longer than this is not run again: a dry run does not wait for arithmetic.
PATIENCE_S = 2.0

_compiled: dict[int, Any] = {}
_too_slow: set[int] = set()

# Python functions that a program calls back, by its number; and those of the program that this
# thread is compiling.
_callbacks: dict[int, Sequence[Any]] = {}
_compiling = threading.local()

_DTYPES = {"pred": "bool", "c64": "complex64", "c128": "complex128"}


def evaluate(
    program: int,
    code: bytes,
    inputs: list[bytes],
    input_shapes: list[tuple[str, list[int]]],
    output_shapes: list[tuple[str, list[int]]],
) -> list[bytes] | None:
    """Run a program on the CPU.

    Args:
        program: Its number, for remembering what was compiled.
        code: StableHLO as JAX gave it to the plugin.
        inputs: Row-major bytes of the arguments.
        input_shapes: XLA's name of the element type, and dimensions, of each argument.
        output_shapes: The same of each result.

    Returns:
        Row-major bytes of the results, or None if the program cannot be run on the CPU.
    """
    try:
        return _evaluate(program, code, inputs, input_shapes, output_shapes)
    except Exception:
        # Custom calls that only CUDA has, types numpy does not have, a callback that raised: the
        # values stay unknown, which the report counts.
        if os.environ.get("VRAMFIT_VERBOSE"):
            traceback.print_exc()
        return None


def _evaluate(
    program: int,
    code: bytes,
    inputs: list[bytes],
    input_shapes: list[tuple[str, list[int]]],
    output_shapes: list[tuple[str, list[int]]],
) -> list[bytes] | None:
    import jax
    import numpy as np

    if program in _too_slow:
        return None
    start = time.monotonic()
    client = _cpu_client()
    executable = _compiled.get(program)
    if executable is None:
        executable = _compile(client, code, _callbacks.get(program, ()))
        _compiled[program] = executable
    device = client.local_devices()[0]
    arguments = [
        jax.device_put(_array(data, kind, dims), device)
        for data, (kind, dims) in zip(inputs, input_shapes, strict=True)
    ]
    results = _execute(executable, arguments)
    if len(results) != len(output_shapes):
        return None
    # A token orders side effects and has no bytes.
    data = [
        b"" if kind == "token" else np.asarray(result).tobytes()
        for result, (kind, _) in zip(results, output_shapes, strict=True)
    ]
    if time.monotonic() - start > PATIENCE_S:
        _too_slow.add(program)
    return data


def _array(data: bytes, kind: str, dims: list[int]) -> Any:
    import numpy as np

    if kind == "token":
        return np.zeros(0, bool)  # what JAX itself passes for one
    return np.frombuffer(data, dtype=_dtype(kind)).reshape(dims)


def compiled(program: int) -> None:
    """Note that this thread has compiled a program, with the callbacks JAX gave for it."""
    callbacks = getattr(_compiling, "callbacks", None)
    if callbacks:
        _callbacks[program] = callbacks


def note_callbacks() -> None:
    """Let JAX's compile function tell which Python functions a program calls back.

    They never reach a plugin: JAX's own run time calls them. On the virtual GPU they are called
    when a program that is run on the CPU calls them.
    """
    from jax._src import compiler

    compile_and_load = compiler.backend_compile_and_load

    @functools.wraps(compile_and_load)
    def noting(
        backend: Any, module: Any, executable_devices: Any, options: Any, host_callbacks: Any
    ) -> Any:
        _compiling.callbacks = host_callbacks
        try:
            return compile_and_load(backend, module, executable_devices, options, host_callbacks)
        finally:
            _compiling.callbacks = None

    compiler.backend_compile_and_load = noting


def site() -> str | None:
    """Return the innermost line of the user's own code, as ``file:line (function)``."""
    # Never this function's own frame: a frame that is held by a variable of its own is a cycle, and
    # would keep every array of every caller alive until the garbage collector comes by.
    frame: FrameType | None = sys._getframe(1)
    try:
        while frame is not None and _is_library(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return None
        return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
    finally:
        del frame


def _is_library(file: str) -> bool:
    return (
        "/site-packages/" in file
        or "/dist-packages/" in file
        or "/lib/python3" in file
        or file.startswith("<")
        or file == __file__
    )


@functools.cache
def _cpu_client() -> Any:
    """Return JAX's CPU client, or one of our own where ``JAX_PLATFORMS`` leaves the CPU out."""
    from jax._src import xla_bridge
    from jax._src.lib import xla_client

    try:
        return xla_bridge.get_backend("cpu")
    except RuntimeError:
        return xla_client.make_cpu_client()


def _compile(client: Any, code: bytes, callbacks: Sequence[Any]) -> Any:
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir.dialects import hlo

    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    devices = xla_client.DeviceList((client.local_devices()[0],))
    if not callbacks:
        return client.compile_and_load(code, devices, options)
    # The names differ in one letter, so the bytes of the module keep their length.
    code = code.replace(b"_python_gpu_callback", b"_python_cpu_callback")
    with mlir.make_ir_context() as context:
        module = hlo.deserialize_portable_artifact(context, code)
        return client.compile_and_load(module, devices, options, list(callbacks))


def _execute(executable: Any, arguments: list[Any]) -> list[Any]:
    results = executable.execute_sharded(arguments)
    return [shards[0] for shards in results.disassemble_into_single_device_arrays()]


def _dtype(kind: str) -> Any:
    import ml_dtypes
    import numpy as np

    name = _DTYPES.get(kind)
    if name is None:
        letter = {"s": "int", "u": "uint", "f": "float"}.get(kind[0])
        if kind[1:].isdigit() and letter is not None:
            name = letter + kind[1:]
        else:
            name = {"bf16": "bfloat16"}.get(kind, "float" + kind[1:].replace("f8", "8_", 1))
            if kind.startswith("f8"):
                name = "float8_" + kind[2:]
    return np.dtype(getattr(ml_dtypes, name, None) or name)
