"""Pickles functions that another process calls.

Devices, keys and functions of `jax.jit` are rebuilt there; JAX itself cannot pickle them all.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from vramfit.errors import InvalidArgumentError, PackageMissingError


def pickle_call(call: Any) -> bytes:
    """Pickle a function and its arguments; code that cannot be imported is included.

    Raises:
        PackageMissingError: If cloudpickle is not installed.
        InvalidArgumentError: If something that the function uses cannot be pickled.
    """
    try:
        import cloudpickle
    except ImportError as error:
        raise PackageMissingError(
            "cannot hand the function to another process",
            cause=str(error),
            hint="install cloudpickle: `pip install cloudpickle`",
        ) from error

    public = _replaced_functions()

    class StepPickler(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            import jax

            place = public.get(id(obj))
            if place is not None:
                return getattr, place
            if isinstance(obj, jax.Device):
                return _device, (obj.id,)
            if type(obj).__name__ == "PjitFunction":
                return _jit, (obj.__wrapped__, _jit_options(obj))
            if isinstance(obj, jax.Array) and jax.dtypes.issubdtype(obj.dtype, jax.dtypes.prng_key):
                return _key, (jax.random.key_data(obj), obj.dtype._impl.name)
            return super().reducer_override(obj)

    buffer = io.BytesIO()
    try:
        StepPickler(buffer).dump(call)
    except Exception as error:
        raise InvalidArgumentError(
            "cannot hand the function to another process",
            cause=f"{type(error).__name__}: {error}",
            hint="keep open files, locks and generators out of what the function uses",
        ) from error
    return buffer.getvalue()


def _device(index: int) -> Any:
    return first_devices(index + 1)[index]


def _key(data: Any, impl: str) -> Any:
    import jax

    return jax.random.wrap_key_data(data, impl=impl)


def _jit(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    import jax

    return jax.jit(function, **options)


def _jit_options(jitted: Any) -> dict[str, Any]:
    """Return the keyword arguments of `jax.jit` that a function was compiled with."""
    info = jitted._jit_info
    names = ("static_argnums", "static_argnames", "donate_argnums", "donate_argnames")
    options = {name: getattr(info, name) for name in (*names, "keep_unused", "inline")}
    if info.compiler_options_kvs:
        options["compiler_options"] = dict(info.compiler_options_kvs)
    for name in ("in_shardings", "out_shardings"):
        leaves = getattr(info, f"{name}_leaves")
        if any(type(leaf).__name__ != "UnspecifiedValue" for leaf in leaves):
            options[name] = getattr(info, f"{name}_treedef").unflatten(leaves)
    return options


def first_devices(count: int) -> list[Any]:
    """Return the first devices of this process.

    Raises:
        InvalidArgumentError: If there are not as many.
    """
    import jax

    devices: list[Any] = jax.devices()
    if len(devices) < count:
        raise InvalidArgumentError(
            f"the arguments are sharded over {count} devices, and there are {len(devices)} GPUs",
            hint=f"give the number of GPUs, such as `gpu='h100-80gx{count}'`",
        )
    return devices[:count]


def _replaced_functions() -> dict[int, tuple[Any, str]]:
    """Return modules and names of the functions of JAX that a plan replaces.

    By these the other process finds its own, also for programs that imported them by name.
    """
    import jax

    from vramfit._plan._sites import DIFFERENTIATING

    names = [name for name in (*DIFFERENTIATING, "shard_map") if hasattr(jax, name)]
    return {id(getattr(jax, name)): (jax, name) for name in names}
