"""Transforms of batches that a resumed run repeats."""

from __future__ import annotations

import functools
import inspect
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

from vramfit.data.checks import as_integer
from vramfit.data.decode import Decoder
from vramfit.errors import InvalidArgumentError

TransformTask = tuple[Any, tuple[int, int], tuple[int, int]]
"""A batch, and the positions before and after it."""


class Transform:
    """Decodes a batch and applies a function to it, with random numbers of its own for each batch.

    Args:
        function: The function of the user, if there is one.
        decoder: What decodes columns before.
        seed: The seed of the loader.
        rank: The number of the process.
    """

    @classmethod
    def of(
        cls, function: Callable[..., Any] | None, decoder: Decoder, seed: int, rank: int
    ) -> Self | None:
        """Return the transform, or None if batches stay as they are."""
        if function is None and not decoder.columns:
            return None
        return cls(function, decoder, seed, rank)

    def __init__(
        self, function: Callable[..., Any] | None, decoder: Decoder, seed: int, rank: int
    ) -> None:
        if function is not None and not callable(function):
            raise InvalidArgumentError(
                f"`transform` is {function!r}, but must be a function of a batch",
                hint="use `transform=lambda batch: {**batch, ...}`",
            )
        self._function = function
        self._decoder = decoder
        self._seed = seed
        self._rank = rank
        kind = None if function is None else kind_of_parameter(function, "rng")
        self._is_random = kind is not None
        self._is_positional = kind is inspect.Parameter.POSITIONAL_ONLY

    def __call__(self, batch: Any, position: tuple[int, int]) -> Any:
        """Transform the batch that starts at a position: the epoch, and the samples before it."""
        batch = self._decoder(batch)
        if self._function is None:
            return batch
        if not self._is_random:
            return self._function(batch)
        import numpy as np

        epoch, sample = position
        # SeedSequence hashes its parts, so that those of other epochs and seeds are independent.
        rng = np.random.default_rng([self._seed, epoch, sample, self._rank])
        if self._is_positional:
            return self._function(batch, rng)
        return self._function(batch, rng=rng)


class TransformPipeline:
    """Applies a transform to batches, with threads to those that come next.

    Args:
        transform: The transform, if there is one.
        threads: Number of threads; without any, it is applied when a batch is asked for.
    """

    def __init__(self, transform: Transform | None, threads: int) -> None:
        self._threads = as_integer("transform_threads", threads)
        if self._threads < 0:
            raise InvalidArgumentError(f"`transform_threads` is {threads}, but must be 0 or more")
        self._transform = transform or _leave
        self._executor: ThreadPoolExecutor | None = None
        self._pending: deque[tuple[Future[Any], tuple[int, int]]] = deque()

    @property
    def threads(self) -> int:
        """The number of threads."""
        return self._threads

    def check_batches(self, max_batches: int) -> None:
        """Check that there is memory for the batches that are transformed."""
        # Those of the threads, one that is being read, and the one that the program has.
        if self._threads + 2 > max_batches:
            raise InvalidArgumentError(
                f"{self._threads} transform threads need {self._threads + 2} batches, but the "
                f"loader has memory for {max_batches}",
                hint="give the loader more memory, or use fewer threads or smaller batches",
            )

    def next(self, read: Callable[[], TransformTask | None]) -> tuple[Any, tuple[int, int]] | None:
        """Return the next batch after its transform, and the position after it, or None."""
        if self._threads == 0:
            if (task := read()) is None:
                return None
            batch, start, end = task
            return self._transform(batch, start), end
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._threads, "vramfit-transform")
        while len(self._pending) <= self._threads and (task := read()) is not None:
            batch, start, end = task
            self._pending.append((self._executor.submit(self._transform, batch, start), end))
            del batch, task
        if not self._pending:
            return None
        future, end = self._pending.popleft()
        return future.result(), end

    def clear(self) -> None:
        """Drop the batches that are being transformed."""
        for future, _ in self._pending:
            future.cancel()
        for future, _ in self._pending:
            if not future.cancelled():
                future.exception()
        self._pending.clear()

    def close(self) -> None:
        """Stop the threads."""
        self.clear()
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None


def _leave(batch: Any, _: tuple[int, int]) -> Any:
    """Return a batch as it is."""
    return batch


def kind_of_parameter(function: Callable[..., Any], name: str) -> Any:
    """Return the kind of a parameter of a function, or None without one to be filled."""
    if isinstance(function, functools.partial) and name in function.keywords:
        return None
    try:
        parameter = inspect.signature(function).parameters.get(name)
    except (TypeError, ValueError):
        return None
    return None if parameter is None else parameter.kind
