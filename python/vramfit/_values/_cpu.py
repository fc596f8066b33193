"""Compiles and runs StableHLO programs on JAX's CPU client, unnoticed by the user's JAX.

Nothing here goes through what JAX logs, counts or reports to its monitoring: the programs are none
of the user's. Relies on JAX's internals.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vramfit._values._cpu_rewrites import is_rewrite_needed, rewrite_for_cpu

if TYPE_CHECKING:
    from vramfit._values._module_slice import Slice

_DTYPES = {"pred": "bool", "c64": "complex64", "c128": "complex128"}


def run(
    executable: Any,
    inputs: list[bytes],
    input_shapes: list[tuple[str, list[int]]],
    output_shapes: list[tuple[str, list[int]]],
    wanted: int,
    has_callbacks: bool = True,
) -> list[bytes] | None:
    """Run what `compile_program` made.

    Args:
        executable: The program.
        inputs: Row-major bytes of the arguments of each device in turn.
        input_shapes: XLA's name of the element type, and dimensions, of each argument.
        output_shapes: The same of each result.
        wanted: For how many devices there are inputs.
        has_callbacks: Whether it calls functions of Python.

    Returns:
        Row-major bytes of the results of each device in turn; None if there are not as many.
    """
    devices = executable.local_devices()
    count = len(input_shapes)
    # A program that needs several devices to run, although all of them do the same, is given the
    # one device's inputs on each of them.
    inputs = inputs * (len(devices) // wanted)
    arguments = [
        _put([array_of(data, kind, dims) for data in inputs[number::count]], devices)
        for number, (kind, dims) in enumerate(input_shapes)
    ]
    done = executable.execute_sharded(arguments, with_tokens=has_callbacks)
    if has_callbacks:
        # A program without results may have callbacks all the same, on every device.
        done.consume_token().block_until_ready()
    results = done.disassemble_into_single_device_arrays()
    if len(results) != len(output_shapes):
        return None
    return [
        # A token orders side effects and has no bytes.
        b"" if kind == "token" else bytes_of(shards[device])
        for device in range(wanted)
        for shards, (kind, _) in zip(results, output_shapes, strict=True)
    ]


def run_on_one_device(
    executable: Any,
    inputs: Sequence[Any],
    input_shapes: list[tuple[str, list[int]]],
    output_shapes: list[tuple[str, list[int]]],
) -> list[Any] | None:
    """Run what `compile_program` made for one device, where no function of Python is called.

    Results stay arrays of JAX: a loop hands them on, and few of them are ever read. Needs no
    `default_jax_config` around it.

    Args:
        executable: The program.
        inputs: Its arguments, row-major bytes or arrays that this function returned.
        input_shapes: XLA's name of the element type, and dimensions, of each argument.
        output_shapes: The same of each result.

    Returns:
        The results, for `bytes_of`; None if there are not as many.
    """
    devices = executable.local_devices()
    if len(devices) > 1:
        # It needs several devices to run, although all of them do the same.
        data = [bytes_of(each) for each in inputs]
        return run(executable, data, input_shapes, output_shapes, 1, has_callbacks=False)
    arguments = list(inputs)
    for number, (kind, dims) in enumerate(input_shapes):
        if not _is_array(inputs[number], kind, dims):
            with default_jax_config(wide=is_wide([(kind, dims)])):
                data = array_of(bytes_of(inputs[number]), kind, dims)
                arguments[number] = _put([data], devices)
    done = executable.execute_sharded(arguments)
    results = [shards[0] for shards in done.disassemble_into_single_device_arrays()]
    if len(results) != len(output_shapes):
        return None
    for result in results:
        # What takes long is charged to the program that computes it.
        result.block_until_ready()
    return [
        b"" if kind == "token" else result
        for result, (kind, _) in zip(results, output_shapes, strict=True)
    ]


def _is_array(value: Any, kind: str, dims: Sequence[int]) -> bool:
    """Say whether a value is an array of this type and shape already."""
    return (
        not isinstance(value, bytes)
        and value.shape == tuple(dims)
        and value.dtype == dtype_of(kind)
    )


def bytes_of(value: Any) -> bytes:
    """Return the row-major bytes of a result, as `run` and `run_on_one_device` return them."""
    import numpy as np

    return value if isinstance(value, bytes) else np.asarray(value).tobytes()


def array_of(data: bytes, kind: str, dims: Sequence[int]) -> Any:
    """Return row-major bytes as an array of XLA's element type `kind`."""
    import numpy as np

    if kind == "token":
        return np.zeros(0, bool)  # what JAX itself passes for one
    return np.frombuffer(data, dtype=dtype_of(kind)).reshape(dims)


@functools.cache
def client(devices: int) -> Any:
    """Return JAX's CPU client, or one of our own: ``JAX_PLATFORMS`` may leave the CPU out."""
    from jax._src import xla_bridge
    from jax._src.lib import xla_client

    if devices == 1:
        with contextlib.suppress(RuntimeError):
            return xla_bridge.get_backend("cpu")
    return xla_client.make_cpu_client(num_devices=devices)


def compile_program(
    code: bytes,
    options: bytes,
    devices: int,
    shardings: tuple[list[bytes], list[bytes]],
    callbacks: Sequence[Any],
) -> Any:
    """Compile a program for the CPU.

    Args:
        code: StableHLO as JAX gave it to the plugin.
        options: The options it was compiled with, serialized.
        devices: On how many devices it is to run.
        shardings: How each argument, and each result, lies over the devices, as XLA's serialized
            message; empty lists if that is not known.
        callbacks: The Python functions that it calls.
    """
    if devices == 1:
        all_devices = device_count(options)
        if all_devices == 1:
            return _compile_for(1, code, options, callbacks)
        # All devices do the same. One will do, unless the program says what each of them does.
        with contextlib.suppress(Exception):
            return _compile_for(1, code, options, callbacks)
        devices = all_devices
    executable = _compile_for(devices, code, options, callbacks)
    inputs, outputs = shardings
    if not _are_shardings_equal(executable.get_parameter_shardings(), inputs):
        raise ValueError("the CPU compiler lays the arguments out in another way")
    if not _are_shardings_equal(executable.get_output_shardings(), outputs):
        raise ValueError("the CPU compiler lays the results out in another way")
    return executable


def _compile_for(devices: int, code: bytes, options: bytes, callbacks: Sequence[Any]) -> Any:
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir.dialects import hlo

    cpu = client(devices)
    chosen = xla_client.DeviceList(tuple(cpu.local_devices()[:devices]))
    chosen_options = _options(options, devices)
    if not callbacks and not is_rewrite_needed(code):
        return cpu.compile_and_load(code, chosen, chosen_options)
    # The names differ in one letter, so the bytes of the module keep their length.
    code = code.replace(b"_python_gpu_callback", b"_python_cpu_callback")
    with mlir.make_ir_context() as context:
        module = hlo.deserialize_portable_artifact(context, code)
        rewrite_for_cpu(module)
        rest = (chosen, chosen_options, list(callbacks))
        try:
            return cpu.compile_and_load(module, *rest)
        except TypeError:  # JAX 0.6 takes bytes
            return cpu.compile_and_load(mlir.module_to_bytecode(module), *rest)


def _options(options: bytes, devices: int) -> Any:
    """Return the compile options for the CPU."""
    import numpy as np
    from jax._src.lib import xla_client

    given = xla_client.CompileOptions.ParseFromString(options)
    if devices == 1:
        # Not by `get_compile_options` of JAX, which logs.
        alone = xla_client.CompileOptions()
        alone.num_replicas = alone.num_partitions = 1
        build, theirs = alone.executable_build_options, given.executable_build_options
        build.use_spmd_partitioning = True
        build.use_shardy_partitioner = theirs.use_shardy_partitioner
        return alone
    ids = np.arange(devices).reshape(given.num_replicas, given.num_partitions)
    given.device_assignment = xla_client.DeviceAssignment.create(ids)
    return given


def device_count(options: bytes) -> int:
    """Return for how many devices a program with these serialized options is."""
    from jax._src.lib import xla_client

    given = xla_client.CompileOptions.ParseFromString(options)
    return int(given.num_replicas * given.num_partitions)


def make_slice_options(options: bytes, slice_: Slice) -> bytes:
    """Return the options of a program for a slice of it.

    XLA ends the process where they do not say of each result, or of all at once, whether XLA
    chooses how it lies over the devices.
    """
    from jax._src.lib import xla_client

    given = xla_client.CompileOptions.ParseFromString(options)
    build = given.executable_build_options
    for name, places in (
        ("allow_spmd_sharding_propagation_to_output", slice_.outputs),
        ("allow_spmd_sharding_propagation_to_parameters", slice_.parameters),
    ):
        allowed = list(getattr(build, name, ()))
        if len(allowed) > 1:
            setattr(build, name, [allowed[place] for place in places])
    return bytes(given.SerializeAsString())


def _are_shardings_equal(got: Any, expected: list[bytes]) -> bool:
    """Say whether arrays lie over the devices as they do in the program for the GPU."""
    from jax._src.lib import xla_client

    if got is None or not expected:
        return not expected

    def parse(data: bytes) -> Any:
        message = xla_client.OpSharding()
        message.ParseFromString(data)
        return xla_client.HloSharding.from_proto(message)

    return [xla_client.HloSharding.from_proto(one) for one in got] == [
        parse(data) for data in expected
    ]


@contextlib.contextmanager
def default_jax_config(wide: bool = True) -> Iterator[None]:
    """Keep the user's settings away from transfers that are none of the user's.

    Args:
        wide: Whether arrays of 64-bit elements are transferred, or functions of Python are called.
    """
    import jax
    from jax._src import config

    # Entering these costs more than running a small program, so only where they change something.
    if wide and not config.enable_x64.value:
        with config.enable_x64(True), default_jax_config(wide=False):
            yield
    elif _has_transfer_guard():
        with jax.transfer_guard("allow"):
            yield
    else:
        yield


def _has_transfer_guard() -> bool:
    """Say whether the user forbids or logs transfers in this thread."""
    from jax._src import config

    try:
        guards = (
            config._transfer_guard,
            config.transfer_guard_host_to_device,
            config.transfer_guard_device_to_device,
            config.transfer_guard_device_to_host,
        )
        return any(guard.value not in (None, "allow") for guard in guards)
    except AttributeError:  # another release calls them otherwise
        return True


def is_wide(shapes: Sequence[tuple[str, Any]]) -> bool:
    """Say whether any of the element types has 64-bit numbers, which JAX narrows by its setting."""
    return any(kind.endswith("64") or kind == "c128" for kind, _ in shapes)


@functools.cache
def _sharding(device: Any) -> Any:
    import jax

    return jax.sharding.SingleDeviceSharding(device)


@functools.lru_cache(maxsize=1024)
def _aval(shape: tuple[int, ...], dtype: Any) -> Any:
    from jax._src import core

    return core.ShapedArray(shape, dtype)


def _put(shards: list[Any], devices: list[Any]) -> Any:
    """Put one array on each device, past all that JAX counts."""
    import jax
    import numpy as np
    from jax._src.lib import xla_client

    shape = shards[0].shape
    aval = _aval(shape, shards[0].dtype)
    pieces = [
        xla_client.batched_device_put(aval, _sharding(device), [shard], [device], True)
        for shard, device in zip(shards, devices, strict=True)
    ]
    if len(devices) == 1:
        return pieces[0]
    # Only the pieces matter to the program; any sharding with pieces of this shape will do.
    mesh = jax.sharding.Mesh(np.array(devices), ("device",))
    spec = jax.sharding.PartitionSpec(*("device",)[: len(shape)])
    whole = tuple(size * len(devices) if axis == 0 else size for axis, size in enumerate(shape))
    sharding = jax.sharding.NamedSharding(mesh, spec)
    return jax.make_array_from_single_device_arrays(whole, sharding, pieces)


@functools.cache
def dtype_of(kind: str) -> Any:
    """Return numpy's type for XLA's name of an element type."""
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
