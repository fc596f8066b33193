"""Modules of Equinox, which are called with one row."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from vramfit.errors import InvalidArgumentError
from vramfit.train.task.model import accepts, by_path


class EquinoxModel:
    """A module of Equinox, mapped over the rows of a batch.

    Its arrays of floats are trained; other arrays are kept as they are.

    Args:
        build: Makes the module.
        name: What it is called in messages.
    """

    library = "equinox"

    def __init__(self, build: Callable[[], Any], name: str) -> None:
        import jax

        self._build = build
        found: list[Any] = []

        def probe() -> None:
            found.append(self._take_apart(build())[2])

        jax.eval_shape(probe)
        self._static = found[0]
        call = type(self._static).__call__
        required = [
            word
            for word, one in list(inspect.signature(call).parameters.items())[2:]
            if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD and word != "key"
        ]
        if required:
            raise InvalidArgumentError(
                f"`{name}` is called with `{required[0]}` beside its inputs, which is not there",
                hint="call it with one row, and `key`; what has a state of its own, such as "
                "`equinox.nn.BatchNorm`, is trained by `vramfit.train.fit` from your own program",
            )
        self._takes_key = accepts(call, "key") is not None

    def init(self, example: Any) -> tuple[Any, Any]:
        """Return the floats of a new module, and its other arrays."""
        import jax

        parameters, others, _ = self._take_apart(self._build())
        return parameters, others if jax.tree.leaves(others) else None

    def apply(self, parameters: Any, variables: Any, inputs: Any, key: Any) -> tuple[Any, Any]:
        """Call the module with each row; with a key of its own if there is one."""
        import equinox as eqx
        import jax

        module = self._put_together(parameters, variables)
        if key is None:
            module = eqx.nn.inference_mode(module)
        if not self._takes_key:
            return jax.vmap(module)(inputs), variables
        if key is None:
            return jax.vmap(lambda row: module(row, key=None))(inputs), variables
        keys = jax.random.split(key, inputs.shape[0])
        return jax.vmap(lambda row, own: module(row, key=own))(inputs, keys), variables

    def build(self, parameters: Any, variables: Any) -> Any:
        """Return the module for inference, which is called with one row."""
        import equinox as eqx

        return eqx.nn.inference_mode(self._put_together(parameters, variables))

    def named_arrays(self, parameters: Any, variables: Any) -> dict[str, Any]:
        """Return all arrays but keys of random numbers."""
        import jax

        arrays = by_path(parameters) | by_path(variables)
        is_key = jax.dtypes.prng_key
        return {
            name: it for name, it in arrays.items() if not jax.dtypes.issubdtype(it.dtype, is_key)
        }

    def _put_together(self, parameters: Any, variables: Any) -> Any:
        import equinox as eqx

        others = () if variables is None else (variables,)
        return eqx.combine(parameters, *others, self._static)

    @staticmethod
    def _take_apart(module: Any) -> tuple[Any, Any, Any]:
        """Return the floats of a module, its other arrays, and what is no array."""
        import equinox as eqx

        arrays, static = eqx.partition(module, eqx.is_array)
        parameters, others = eqx.partition(arrays, eqx.is_inexact_array)
        return parameters, others, static
