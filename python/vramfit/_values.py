"""Runs small programs for real, on JAX's CPU backend, for the virtual GPU.

A dry run does no arithmetic, but a program's path may depend on small values: random keys,
counters, the size of ``nonzero``. When such a value is read, the program that makes it, which is
known exactly, is compiled for the CPU and run. Called from Rust; relies on JAX's internals.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
import traceback
from collections.abc import Sequence
from typing import Any

from vramfit._callbacks import called_by, compiled, forget_errors, have_raised
from vramfit._interface import interface
from vramfit._origins import names, reader, site

__all__ = ["compiled", "costs", "evaluate", "interface", "names", "reader", "site"]

# A program that runs longer than this is not run again: a dry run does not wait for arithmetic.
PATIENCE_S = 2.0

_compiled: dict[int, Any] = {}
_too_slow: set[int] = set()

_DTYPES = {"pred": "bool", "c64": "complex64", "c128": "complex128"}


def evaluate(
    program: int,
    code: bytes,
    inputs: list[bytes],
    input_shapes: list[tuple[str, list[int]]],
    output_shapes: list[tuple[str, list[int]]],
    devices: int,
    options: bytes,
    output_shardings: list[bytes],
) -> list[bytes] | str | None:
    """Run a program on the CPU.

    Args:
        program: Its number, for remembering what was compiled.
        code: StableHLO as JAX gave it to the plugin.
        inputs: Row-major bytes of the arguments of each device in turn.
        input_shapes: XLA's name of the element type, and dimensions, of each argument.
        output_shapes: The same of each result.
        devices: On how many devices to run it.
        options: The options it was compiled with, serialised.
        output_shardings: How each result lies over the devices, as XLA's serialised message.

    Returns:
        Row-major bytes of the results of each device in turn; None if the program cannot be run on
        the CPU; an error's message if a function that the program calls back raised one.
    """
    callbacks = called_by(program)
    forget_errors(callbacks)
    try:
        if program in _too_slow:
            return None
        executable = _compiled.get(program)
        if executable is None:
            executable = _compiled[program] = _compile(
                code, options, devices, output_shardings, callbacks
            )
        wall, processor = time.monotonic(), time.process_time()
        with _as_jax_itself():
            data = _run(executable, inputs, input_shapes, output_shapes, devices)
        # Neither a busy machine nor busy threads of the user's may change what is known.
        spent = min(time.monotonic() - wall, time.process_time() - processor)
        if spent > PATIENCE_S:
            _too_slow.add(program)
        return data
    except Exception as error:
        if have_raised(callbacks):
            # XLA's message, with the traceback of the callback in it.
            return str(error).removeprefix("INTERNAL: ")
        # Custom calls that only CUDA has, types numpy does not have: the values stay unknown, which
        # the report counts.
        if os.environ.get("VRAMFIT_VERBOSE"):
            traceback.print_exc()
        return None


def _run(
    executable: Any,
    inputs: list[bytes],
    input_shapes: list[tuple[str, list[int]]],
    output_shapes: list[tuple[str, list[int]]],
    wanted: int,
) -> list[bytes] | None:
    import numpy as np

    devices = executable.local_devices()
    count = len(input_shapes)
    # A program that needs several devices to run, although all of them do the same, is given the
    # one device's inputs on each of them.
    inputs = inputs * (len(devices) // wanted)
    arguments = [
        _put([_array(data, kind, dims) for data in inputs[number::count]], devices)
        for number, (kind, dims) in enumerate(input_shapes)
    ]
    run = executable.execute_sharded(arguments, with_tokens=True)
    # A program without results may have callbacks all the same, on every device.
    run.consume_token().block_until_ready()
    results = run.disassemble_into_single_device_arrays()
    if len(results) != len(output_shapes):
        return None
    return [
        # A token orders side effects and has no bytes.
        b"" if kind == "token" else np.asarray(shards[device]).tobytes()
        for device in range(wanted)
        for shards, (kind, _) in zip(results, output_shapes, strict=True)
    ]


def _array(data: bytes, kind: str, dims: list[int]) -> Any:
    import numpy as np

    if kind == "token":
        return np.zeros(0, bool)  # what JAX itself passes for one
    return np.frombuffer(data, dtype=_dtype(kind)).reshape(dims)


def costs(module: bytes) -> list[tuple[str, float]]:
    """Return what XLA's cost model says of a serialised module: operations, bytes, and so on."""
    from jax._src.lib import xla_client

    parsed = xla_client.XlaComputation(module).get_hlo_module()
    figures = xla_client._xla.hlo_module_cost_analysis(_cpu_client(1), parsed)
    return list(figures.items())


@functools.cache
def _cpu_client(devices: int) -> Any:
    """Return JAX's CPU client, or one of our own: ``JAX_PLATFORMS`` may leave the CPU out."""
    from jax._src import xla_bridge
    from jax._src.lib import xla_client

    if devices == 1:
        with contextlib.suppress(RuntimeError):
            return xla_bridge.get_backend("cpu")
    return xla_client.make_cpu_client(num_devices=devices)


def _compile(
    code: bytes,
    options: bytes,
    devices: int,
    output_shardings: list[bytes],
    callbacks: Sequence[Any],
) -> Any:
    from jax._src.lib import xla_client

    if devices == 1:
        given = xla_client.CompileOptions.ParseFromString(options)
        all_devices = given.num_replicas * given.num_partitions
        if all_devices == 1:
            return _compile_for(1, code, options, callbacks)
        # All devices do the same. One will do, unless the program says what each of them does.
        with contextlib.suppress(Exception):
            return _compile_for(1, code, options, callbacks)
        devices = all_devices
    executable = _compile_for(devices, code, options, callbacks)
    if not _has_shardings(executable, output_shardings):
        raise ValueError("the CPU compiler lays the results out in another way")
    return executable


def _compile_for(devices: int, code: bytes, options: bytes, callbacks: Sequence[Any]) -> Any:
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir.dialects import hlo

    client = _cpu_client(devices)
    chosen = xla_client.DeviceList(tuple(client.local_devices()[:devices]))
    chosen_options = _options(options, devices)
    if not callbacks and not any(mark in code for mark in (*_PLACED, _SCAN)):
        return client.compile_and_load(code, chosen, chosen_options)
    # The names differ in one letter, so the bytes of the module keep their length.
    code = code.replace(b"_python_gpu_callback", b"_python_cpu_callback")
    with mlir.make_ir_context() as context:
        module = hlo.deserialize_portable_artifact(context, code)
        _forget_places(module)
        _write_out_scans(module)
        rest = (chosen, chosen_options, list(callbacks))
        try:
            return client.compile_and_load(module, *rest)
        except TypeError:  # JAX 0.6 takes bytes
            return client.compile_and_load(mlir.module_to_bytecode(module), *rest)


def _options(options: bytes, devices: int) -> Any:
    """Return the compile options for the CPU."""
    import numpy as np
    from jax._src import compiler
    from jax._src.lib import xla_client

    if devices == 1:
        return compiler.get_compile_options(num_replicas=1, num_partitions=1)
    given = xla_client.CompileOptions.ParseFromString(options)
    ids = np.arange(devices).reshape(given.num_replicas, given.num_partitions)
    given.device_assignment = xla_client.DeviceAssignment.create(ids)
    return given


def _has_shardings(executable: Any, expected: list[bytes]) -> bool:
    """Say whether a compiled program spreads its results as the program for the GPU does."""
    from jax._src.lib import xla_client

    got = executable.get_output_shardings()
    if got is None or not expected:
        return not expected

    def parse(data: bytes) -> Any:
        message = xla_client.OpSharding()
        message.ParseFromString(data)
        return xla_client.HloSharding.from_proto(message)

    return [xla_client.HloSharding.from_proto(one) for one in got] == [
        parse(data) for data in expected
    ]


# What programs contain that have arrays in the host's memory, or in an order of their own.
_PLACED = (b"pinned_host", b"mhlo.layout_mode")


def _forget_places(module: Any) -> None:
    """Let a program keep everything in one memory, row-major: as inputs come and results go.

    XLA's CPU client even ends the process when a result is to lie in another memory.
    """
    from jax._src.lib.mlir import ir

    def without_places(attributes: Any) -> Any:
        places = ("mhlo.memory_kind", "mhlo.layout_mode")
        kept = [
            {one.name: one.attr for one in each if one.name not in places} for each in attributes
        ]
        return ir.ArrayAttr.get([ir.DictAttr.get(each) for each in kept])

    moves = []

    def visit(operation: Any) -> Any:
        attributes = operation.attributes
        for name in ("arg_attrs", "res_attrs"):
            if operation.name == "func.func" and name in attributes:
                attributes[name] = without_places(attributes[name])
        is_call = operation.name == "stablehlo.custom_call"
        if is_call and attributes["call_target_name"].value == "annotate_device_placement":
            moves.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for move in moves:
        move.results[0].replace_all_uses_with(move.operands[0])
        move.erase()


# How a cumulative sum reaches CUDA's compiler since JAX 0.11.
_SCAN = b"chlo.scan"


def _write_out_scans(module: Any) -> None:
    """Replace each scan that only CUDA's compiler has by the loop that the module gives for it.

    JAX makes none for the CPU, whose compiler ends the process over one that is associative.
    """
    from jax._src.lib.mlir import ir

    scans = []

    def visit(operation: Any) -> Any:
        is_composite = operation.name == "stablehlo.composite"
        if is_composite and ir.StringAttr(operation.attributes["name"]).value == _SCAN.decode():
            scans.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for scan in scans:
        call = ir.Operation.create(
            "func.call",
            results=[result.type for result in scan.results],
            operands=list(scan.operands),
            attributes={"callee": scan.attributes["decomposition"]},
            loc=scan.location,
            ip=ir.InsertionPoint(scan),
        )
        for old, new in zip(scan.results, call.results, strict=True):
            old.replace_all_uses_with(new)
        scan.erase()


def _as_jax_itself() -> contextlib.AbstractContextManager[Any]:
    """Keep the user's settings away from transfers that are none of the user's."""
    import jax
    from jax._src import config

    stack = contextlib.ExitStack()
    stack.enter_context(config.enable_x64(True))
    stack.enter_context(jax.transfer_guard("allow"))
    return stack


def _put(shards: list[Any], devices: list[Any]) -> Any:
    """Put one array on each device, past all that JAX counts."""
    import jax
    import numpy as np
    from jax._src import core
    from jax._src.lib import xla_client

    aval = core.ShapedArray(shards[0].shape, shards[0].dtype)
    pieces = [
        xla_client.batched_device_put(
            aval, jax.sharding.SingleDeviceSharding(device), [shard], [device], True
        )
        for shard, device in zip(shards, devices, strict=True)
    ]
    if len(devices) == 1:
        return pieces[0]
    # Only the pieces matter to the program; any sharding with pieces of this shape will do.
    mesh = jax.sharding.Mesh(np.array(devices), ("device",))
    spec = jax.sharding.PartitionSpec(*("device",)[: len(aval.shape)])
    shape = tuple(
        size * len(devices) if axis == 0 else size for axis, size in enumerate(aval.shape)
    )
    sharding = jax.sharding.NamedSharding(mesh, spec)
    return jax.make_array_from_single_device_arrays(shape, sharding, pieces)


def _dtype(kind: str) -> Any:
    import ml_dtypes
    import numpy as np

    name = _DTYPES.get(kind)
    if name is None:
        letter = {"s": "int", "u": "uint", "f": "float"}.get(kind[0])
        if kind[1:].isdigit() and letter is not None:
            name = letter + kind[1:]
        else:
            # XLA's `f8e4m3fn` is `float8_e4m3fn`.
            name = {"bf16": "bfloat16"}.get(kind, f"float{kind[1]}_{kind[2:]}")
    return np.dtype(getattr(ml_dtypes, name, None) or name)
