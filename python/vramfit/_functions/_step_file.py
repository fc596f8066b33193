"""A function and its arguments in a file: written by the caller's process, called in another one.

Functions that the other process cannot import, such as those of a notebook, are part of the file.
Arrays among the arguments are described by shape, type and sharding; only small ones keep their
values.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from typing import Any

from vramfit._functions._step_pickler import first_devices, pickle_call
from vramfit._inprogram import _frames
from vramfit.errors import InvalidArgumentError

# Values of arguments up to this size are kept: a step number or a mask may decide about a loop.
MAX_VALUE_BYTES = 64 << 10

# Options of JAX that say where and how it runs, which the other process decides by itself.
_PROCESS_OPTIONS = ("platform", "device", "cuda", "rocm", "cache", "distributed", "mock", "pjrt")


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """An array of the arguments; dimensions may be expressions of `jax.export.symbolic_shape`."""

    shape: tuple[Any, ...]
    dtype: Any
    sharding: Any
    # Its values, if they are known and few.
    value: Any

    def allocate(self, sizes: Mapping[str, int]) -> Any:
        """Return an array on the default device, or sharded as described.

        Args:
            sizes: The values of symbolic dimensions.
        """
        import jax
        import numpy as np

        if jax.dtypes.issubdtype(self.dtype, jax.dtypes.prng_key):
            data = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct(self.shape, self.dtype))
            inner = ArraySpec(data.shape, data.dtype, None, self.value).allocate(sizes)
            return jax.random.wrap_key_data(inner, impl=self.dtype._impl.name)
        shape = tuple(_dimension(each, sizes) for each in self.shape)
        # One element in host memory, whatever the shape: no bytes of large arrays are read.
        zero = np.zeros((), self.dtype)
        value = np.broadcast_to(zero, shape) if self.value is None else self.value
        return jax.device_put(value, _concrete(self.sharding))


def device_count(arguments: Any) -> int:
    """Return on how many devices arguments lie, of those that are sharded; else 1."""
    import jax

    shardings = (getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(arguments))
    return max(
        (each.num_devices for each in shardings if each is not None and _is_named(each)), default=1
    )


def write_step(
    path: str | os.PathLike[str], step: Callable[..., Any], args: Any, kwargs: Any
) -> bytes:
    """Write a call of a function to a file.

    Returns:
        What was written.

    Raises:
        PackageMissingError: If cloudpickle is not installed.
        InvalidArgumentError: If something that the function uses cannot be pickled.
    """
    import jax

    header = {
        "path": sys.path,
        "config": _changed_options(jax.config),
        "cells": dict(_frames.cell_numbers()),
    }
    call = (step, *jax.tree.map(_describe, (args, kwargs)))
    content = pickle.dumps(header) + pickle_call(call)
    with open(path, "wb") as file:
        file.write(content)
    return content


def read_step(
    path: str | os.PathLike[str], sizes: Mapping[str, int]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Read a call of a function, and put its arguments on the devices of this process.

    Args:
        path: File that `write_step` wrote.
        sizes: The values of symbolic dimensions.
    """
    with open(path, "rb") as file:
        header = pickle.load(file)
        # First what belongs to the virtual GPU, then what the caller imports from, in its order.
        sys.path[:] = [*(each for each in sys.path if each not in header["path"]), *header["path"]]
        _frames.set_cell_numbers(header["cells"])
        import jax

        for name, value in header["config"].items():
            if jax.config.values.get(name, value) != value:
                jax.config.update(name, value)
        step, args, kwargs = pickle.load(file)
    args, kwargs = jax.tree.map(
        lambda leaf: leaf.allocate(sizes) if isinstance(leaf, ArraySpec) else leaf, (args, kwargs)
    )
    return step, args, kwargs


def _describe(leaf: Any) -> Any:
    import jax
    import numpy as np

    if isinstance(leaf, jax.ShapeDtypeStruct):
        return ArraySpec(leaf.shape, leaf.dtype, leaf.sharding, None)
    if isinstance(leaf, jax.core.Tracer) or not isinstance(leaf, (jax.Array, np.ndarray)):
        return leaf
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    is_readable = getattr(leaf, "is_fully_addressable", True)
    value = None
    if is_readable and leaf.size * leaf.dtype.itemsize <= MAX_VALUE_BYTES:
        value = np.asarray(jax.random.key_data(leaf) if is_key else leaf)
    sharding = getattr(leaf, "sharding", None)
    return ArraySpec(leaf.shape, leaf.dtype, sharding if _is_named(sharding) else None, value)


def _is_named(sharding: Any) -> bool:
    import jax

    return isinstance(sharding, jax.sharding.NamedSharding)


def _concrete(sharding: Any) -> Any:
    """Return a sharding over the devices of this process, if it has only an abstract mesh."""
    import jax
    import numpy as np

    if not _is_named(sharding) or not isinstance(sharding.mesh, jax.sharding.AbstractMesh):
        return sharding
    mesh = sharding.mesh
    devices = np.array(first_devices(mesh.size)).reshape(mesh.axis_sizes)
    concrete = jax.sharding.Mesh(devices, mesh.axis_names, axis_types=mesh.axis_types)
    return jax.sharding.NamedSharding(concrete, sharding.spec, memory_kind=sharding.memory_kind)


def _dimension(size: Any, sizes: Mapping[str, int]) -> int:
    """Return a dimension; expressions of named ones are evaluated."""
    if isinstance(size, int):
        return size
    missing = [name for name in size._get_vars() if name not in sizes]
    if missing:
        raise InvalidArgumentError(
            f"the size of the dimension `{missing[0]}` is not known",
            hint=f"give its values, such as `vary={{'{missing[0]}': range(1, 513)}}`",
        )
    return int(size._evaluate(dict(sizes)))


def _changed_options(config: Any) -> dict[str, Any]:
    """Return JAX's options that are simple values and not about processes and devices."""
    values = {name: getattr(config, name, None) for name in config.values}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, (bool, int, float, str))
        and not any(word in name for word in _PROCESS_OPTIONS)
    }
