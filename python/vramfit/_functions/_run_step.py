"""Calls a function once on the GPUs of this process; run by `vramfit.estimate` and `vramfit.plan`.

Usage: ``python -m vramfit._functions._run_step FILE [NAME=VALUE ...]``, where `FILE` was written
by `_step_file.write_step`, and the names are those of symbolic dimensions.
"""

from __future__ import annotations

import functools
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any


def main(arguments: list[str]) -> None:
    """Call the function; what it raises goes to `FILE.error`, too."""
    path, *values = arguments
    sizes = {name: int(value) for name, _, value in (each.partition("=") for each in values)}
    try:
        from vramfit._functions import _step_file

        step, args, kwargs = _step_file.read_step(path, sizes)
        import jax

        jax.block_until_ready(call_step(step, args, kwargs))
    except Exception as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            _write_error(error, f"{path}.error")
        raise


def call_step(step: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function once, compiled as a whole: by itself, or here if it is a plain function.

    Leaves of the arguments that are no arrays are constants of a plain function.
    """
    import jax
    import numpy as np

    if hasattr(step, "lower"):
        return step(*args, **kwargs)
    kinds = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)
    is_array = jax.tree.map(lambda leaf: isinstance(leaf, kinds), (args, kwargs))
    if all(jax.tree.leaves(is_array)):
        return jax.jit(step)(*args, **kwargs)
    arrays = jax.tree.map(lambda leaf, keep: leaf if keep else None, (args, kwargs), is_array)

    @functools.wraps(step)
    def with_constants(*own_args: Any, **own_kwargs: Any) -> Any:
        merged = jax.tree.map(
            lambda keep, constant, traced: traced if keep else constant,
            is_array,
            (args, kwargs),
            (own_args, own_kwargs),
        )
        return step(*merged[0], **merged[1])

    return jax.jit(with_constants)(*arrays[0], **arrays[1])


def _write_error(error: Exception, path: str) -> None:
    text = "".join(traceback.format_exception(error))
    try:
        content = pickle.dumps((error, text))
        pickle.loads(content)
    except Exception:
        content = pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), text))
    with open(path, "wb") as file:
        file.write(content)


if __name__ == "__main__":
    main(sys.argv[1:])
