"""Functions of batches that run on the device, with keys that a resumed run repeats."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vramfit.data.transform import kind_of_parameter
from vramfit.errors import InvalidArgumentError

if TYPE_CHECKING:
    import numpy as np

    Words = np.ndarray[Any, Any]


def jit_map(function: Callable[..., Any]) -> Callable[[Any, Words], Any]:
    """Return a jitted function of a batch and of its position, from which the key is made."""
    import jax

    if not callable(function):
        raise InvalidArgumentError(
            f"`map_on_device` is {function!r}, but must be a function of a batch",
            hint="use `map_on_device=lambda batch, key: {**batch, ...}`",
        )
    kind = kind_of_parameter(function, "key")

    def call(batch: Any, words: Any) -> Any:
        if kind is None:
            return function(batch)
        # Keys are made of 32-bit numbers, whatever JAX's setting for 64-bit types is.
        key = jax.random.key(0)
        for word in words:
            key = jax.random.fold_in(key, word)
        if kind is inspect.Parameter.POSITIONAL_ONLY:
            return function(batch, key)
        return function(batch, key=key)

    jitted: Callable[[Any, Words], Any] = jax.jit(call)
    return jitted


def position_words(seed: int, position: tuple[Any, ...]) -> Words:
    """Return the seed, the epoch and the samples before a batch as 32-bit numbers."""
    import numpy as np

    numbers = np.array([seed, *position[:2]], np.uint64)
    return np.stack([numbers & 0xFFFF_FFFF, numbers >> 32], 1).astype(np.uint32).ravel()
