"""Transforms of batches that a resumed run repeats."""

from __future__ import annotations

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
        self._is_random = _has_rng(function)

    def __call__(self, batch: Any, position: tuple[int, int]) -> Any:
        """Transform the batch that starts at a position: the epoch, and the samples before it."""
        if not self._is_random:
            return self._function(batch)
        import numpy as np

        epoch, sample = position
        # SeedSequence hashes its parts, so that those of other epochs and seeds are independent.
        rng = np.random.default_rng([self._seed, epoch, sample, self._rank])
        return self._function(batch, rng=rng)


def _has_rng(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return "rng" in parameters
