"""Metrics without waiting: steps leave them on the device, and they are read in chunks, later.

Each step's metrics stay on the device. Once there are enough of them, one small program stacks them
into one array, and that is read when the next one is made: the device computed it long ago.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vramfit.train.loop.compiled_step import by_name
from vramfit.train.output.timers import Stopwatch

_MAX_STACK_WIDTH = 64  # arguments of the program that stacks scalars


class MetricsBuffer:
    """Takes the metrics of every step and returns them as numbers, one chunk later.

    Args:
        chunk_steps: Number of steps in a chunk.
        timers: The timers of the run, which count compilation apart.
        values_known: Whether values can be read; on a virtual GPU they never are.
    """

    def __init__(self, chunk_steps: int, timers: Stopwatch, *, values_known: bool = True) -> None:
        self._chunk_steps = chunk_steps
        self._timers = timers
        self._width = min(chunk_steps, _MAX_STACK_WIDTH)
        self.values_known = values_known
        self._single: list[Mapping[str, Any]] = []
        self._stacked: list[tuple[Mapping[str, Any], int]] = []
        self._previous: list[tuple[Mapping[str, Any], int]] = []
        self._count = 0
        self._stack: Any = None

    def add(self, metrics: Any, steps: int = 1, *, stacked: bool = False) -> None:
        """Add the metrics of a step, or of a stack of steps."""
        if not self.values_known:
            return
        self._count += steps
        if stacked:
            self._stacked.append((by_name(metrics), steps))
            return
        self._single.append(by_name(metrics))
        if len(self._single) == self._width:
            self._stack_single()

    def should_read(self) -> bool:
        """Return whether the chunk is full."""
        return self._count >= self._chunk_steps

    def rotate(self) -> list[dict[str, Any]]:
        """Start a new chunk, and return the numbers of the one before the last, if any."""
        self._stack_single()
        ready, self._previous, self._stacked = self._previous, self._stacked, []
        self._count = 0
        return [_fetch_metrics(ready)] if ready else []

    def flush(self) -> list[dict[str, Any]]:
        """Return all numbers that are left, in up to two chunks; waits for the device."""
        return self.rotate() + self.rotate()

    def _stack_single(self) -> None:
        if not self._single:
            return
        count = len(self._single)
        # Always the same width, so that it is compiled once.
        self._single += [self._single[-1]] * (self._width - count)
        rows = tuple(self._single)
        if self._stack is None:
            self._stack = _stack_program()
            with self._timers.section("compile"):
                stacked = self._stack(rows)
        else:
            stacked = self._stack(rows)
        self._stacked.append((stacked, count))
        self._single = []


def _stack_program() -> Any:
    import jax
    import jax.numpy as jnp

    def stack(rows: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
        return {name: jnp.stack([row[name] for row in rows]) for name in rows[0]}

    return jax.jit(stack)


def _fetch_metrics(parts: list[tuple[Mapping[str, Any], int]]) -> dict[str, Any]:
    import numpy as np

    return {
        name: np.concatenate([np.asarray(part[name], np.float64)[:count] for part, count in parts])
        for name in parts[0][0]
    }


def first_not_finite(losses: Any) -> int | None:
    """Return the index of the first loss that is NaN or infinite."""
    return next((index for index, loss in enumerate(losses) if not math.isfinite(loss)), None)
