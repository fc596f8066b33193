"""Calls a function of the user's once on the GPUs of this process; run by `vramfit check`.

Usage: ``python -m vramfit._functions._run_function MODULE:NAME ARGUMENTS``, where `ARGUMENTS` is
JSON: a list of pytrees whose leaves are texts such as ``float32[8,128]``, or the function that
returns the arguments, as ``MODULE:NAME``.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
import sys
from collections.abc import Callable
from typing import Any

from vramfit._functions._run_step import call_step
from vramfit._functions._step_file import ArraySpec
from vramfit.errors import InvalidArgumentError

_LEAF = re.compile(r"\s*(\w+)\s*\[([\d,\s]*)\]\s*")


def main(arguments: list[str]) -> None:
    """Call the function."""
    function = import_function(arguments[0])
    described = json.loads(arguments[1])
    import jax

    if isinstance(described, str):
        described = jax.eval_shape(import_function(described))
        described = described if isinstance(described, tuple) else (described,)
        described = jax.tree.map(
            lambda leaf: ArraySpec(leaf.shape, leaf.dtype, getattr(leaf, "sharding", None), None),
            described,
        )
    else:
        described = jax.tree.map(parse_array, described)
    args = jax.tree.map(
        lambda leaf: leaf.allocate({}) if isinstance(leaf, ArraySpec) else leaf, described
    )
    jax.block_until_ready(call_step(function, tuple(args), {}))


def import_function(name: str) -> Callable[..., Any]:
    """Return the function `MODULE:NAME`.

    Raises:
        InvalidArgumentError: If the module has no such function.
    """
    module_name, _, attributes = name.partition(":")
    module = importlib.import_module(module_name)
    try:
        function = functools.reduce(getattr, attributes.split("."), module)
    except AttributeError as error:
        raise InvalidArgumentError(
            f"`{module_name}` has no `{attributes}`", hint="check `function` in the entry"
        ) from error
    if not callable(function):
        raise InvalidArgumentError(
            f"`{name}` is not a function", hint="check `function` in the entry"
        )
    return function


def parse_array(leaf: Any) -> Any:
    """Return the array that a text such as ``float32[8,128]`` describes; numbers stay as they are.

    Raises:
        InvalidArgumentError: If it is no such text.
    """
    if not isinstance(leaf, str):
        return leaf
    import numpy as np
    from jax import dtypes

    match = _LEAF.fullmatch(leaf)
    try:
        dtype = dtypes.canonicalize_dtype(np.dtype(match[1])) if match else None
    except TypeError:
        # Types that NumPy does not know by name, such as bfloat16.
        import jax.numpy as jnp

        dtype = getattr(jnp, match[1], None) if match else None
        dtype = np.dtype(dtype) if dtype is not None else None
    if match is None or dtype is None:
        raise InvalidArgumentError(
            f"`{leaf}` does not describe an array", hint="for example `float32[8,128]` or `int32[]`"
        )
    shape = tuple(int(size) for size in match[2].split(",") if size.strip())
    return ArraySpec(shape, dtype, None, None)


if __name__ == "__main__":
    main(sys.argv[1:])
