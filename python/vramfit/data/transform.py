"""Transforms of batches that a resumed run repeats."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from vramfit.errors import InvalidArgumentError


class Transform:
    """A function of a batch, with random numbers of its own for each batch.

    Args:
        function: The function of the user.
        seed: The seed of the loader.
        rank: The number of the process.
    """

    def __init__(self, function: Callable[..., Any], seed: int, rank: int) -> None:
        if not callable(function):
            raise InvalidArgumentError(
                f"`transform` is {function!r}, but must be a function of a batch",
                hint="use `transform=lambda batch: {**batch, ...}`",
            )
        self._function = function
        self._seed = seed
        self._rank = rank
        kind = _kind_of_rng(function)
        self._is_random = kind is not None
        self._is_positional = kind is inspect.Parameter.POSITIONAL_ONLY

    def __call__(self, batch: Any, position: tuple[int, int]) -> Any:
        """Transform the batch that starts at a position: the epoch, and the samples before it."""
        if not self._is_random:
            return self._function(batch)
        import numpy as np

        epoch, sample = position
        # SeedSequence hashes its parts, so that those of other epochs and seeds are independent.
        rng = np.random.default_rng([self._seed, epoch, sample, self._rank])
        if self._is_positional:
            return self._function(batch, rng)
        return self._function(batch, rng=rng)


def _kind_of_rng(function: Callable[..., Any]) -> Any:
    """Return the kind of the parameter `rng` of a function, or None without one to be filled."""
    if isinstance(function, functools.partial) and "rng" in function.keywords:
        return None
    try:
        parameter = inspect.signature(function).parameters.get("rng")
    except (TypeError, ValueError):
        return None
    return None if parameter is None else parameter.kind
