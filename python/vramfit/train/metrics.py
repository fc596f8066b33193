"""Metrics without waiting: steps leave them on the device, and they are read in chunks, later.

Each step's metrics stay where they are. When there are enough of them they are put into one array
by one small program, and that is read when the next one is made: the device has long computed it.
Sums are made from single values, in 64 bits and in the order of the steps, so a mean does not
depend on where chunks end, or where a run was interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vramfit.train.compiled import ROWS, named
from vramfit.train.watch import Watch

_WIDEST = 64  # arguments of the program that puts scalars together


class Totals:
    """Sums of metrics over steps."""

    def __init__(self, sums: Mapping[str, float] | None = None, weight: float = 0.0) -> None:
        self.sums = dict(sums or {})
        self.weight = weight

    def add(self, rows: Mapping[str, Any]) -> None:
        """Add the values of several steps, an array for each metric."""
        weights = rows.get(ROWS)
        count = len(next(iter(rows.values())))
        for position in range(count):
            weight = 1.0 if weights is None else float(weights[position])
            if weight == 0:  # all of the batch is padding, and its mean means nothing
                continue
            for name, values in rows.items():
                if name != ROWS:
                    self.sums[name] = self.sums.get(name, 0.0) + weight * float(values[position])
            self.weight += weight

    def means(self) -> dict[str, float]:
        """Return the means, nothing if nothing was added."""
        return {name: value / self.weight for name, value in self.sums.items()}


class Meter:
    """Takes the metrics of every step and gives them back as numbers, a chunk later.

    Args:
        every: Steps of a chunk.
        watch: The clock of the run, which counts compiling apart.
        known: Whether values mean anything; on a virtual GPU they are never read.
    """

    def __init__(self, every: int, watch: Watch, *, known: bool = True) -> None:
        self._every = every
        self._watch = watch
        self._width = min(every, _WIDEST)
        self._known = known
        self._single: list[Mapping[str, Any]] = []
        self._joined: list[tuple[Mapping[str, Any], int]] = []
        self._before: list[tuple[Mapping[str, Any], int]] = []
        self._count = 0
        self._join: Any = None

    def add(self, metrics: Any, steps: int = 1, *, stacked: bool = False) -> None:
        """Take the metrics of a step, or of a stack of steps."""
        if not self._known:
            return
        self._count += steps
        if stacked:
            self._joined.append((named(metrics), steps))
            return
        self._single.append(named(metrics))
        if len(self._single) == self._width:
            self._put_together()

    def due(self) -> bool:
        """Say whether a chunk is full."""
        return self._count >= self._every

    def turn(self) -> list[dict[str, Any]]:
        """Begin a new chunk, and return the numbers of the one before the last, if there is one."""
        self._put_together()
        ready, self._before, self._joined = self._before, self._joined, []
        self._count = 0
        return [_read(ready)] if ready else []

    def settle(self) -> list[dict[str, Any]]:
        """Return all numbers that there are; waits for the device."""
        return self.turn() + self.turn()

    def _put_together(self) -> None:
        if not self._single:
            return
        count = len(self._single)
        # Always of one width, so that it is compiled once.
        self._single += [self._single[-1]] * (self._width - count)
        rows = tuple(self._single)
        if self._join is None:
            self._join = _joiner()
            with self._watch.part("compile"):
                joined = self._join(rows)
        else:
            joined = self._join(rows)
        self._joined.append((joined, count))
        self._single = []


def _joiner() -> Any:
    import jax
    import jax.numpy as jnp

    def join(rows: tuple[Mapping[str, Any], ...]) -> dict[str, Any]:
        return {name: jnp.stack([row[name] for row in rows]) for name in rows[0]}

    return jax.jit(join)


def _read(parts: list[tuple[Mapping[str, Any], int]]) -> dict[str, Any]:
    import numpy as np

    return {
        name: np.concatenate([np.asarray(part[name], np.float64)[:count] for part, count in parts])
        for name in parts[0][0]
    }


def first_bad(losses: Any) -> int | None:
    """Return the place of the first loss that is no finite number."""
    for place, loss in enumerate(losses):
        if not math.isfinite(loss):
            return place
    return None
