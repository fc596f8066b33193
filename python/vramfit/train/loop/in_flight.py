"""A limit on the steps that are in flight: dispatched by the program, not yet run by the device.

The program runs some steps ahead of the device, and no more: before it dispatches another, it waits
for one that was dispatched long ago. Otherwise the batches of all steps in flight would pile up in
device memory. Large batches mean long steps, of which two are enough; with small ones more help
against other programs on the machine.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

_MIN_STEPS, _MAX_STEPS = 2, 16
_MAX_BATCH_BYTES = 32 << 20  # of all batches in flight; little beside what a step needs


class StepsInFlight:
    """The steps that were dispatched, by one array of the results of each.

    Args:
        limit: How many may be in flight.
    """

    def __init__(self, limit: int) -> None:
        self._interval, self._max_results = _wait_schedule(limit)
        self._count = 0
        self._results: deque[Any] = deque()
        self._latest: Any = None

    def is_device_idle(self) -> bool:
        """Return whether all dispatched steps have finished."""
        return self._latest is None or bool(self._latest.is_ready())

    def add(self, result: Any) -> float:
        """Add a step; return the seconds that this waited for an earlier one."""
        self._latest = result
        self._count += 1
        if self._count % self._interval:
            return 0.0
        self._results.append(result)
        if len(self._results) <= self._max_results:
            return 0.0
        start = time.perf_counter()
        self._results.popleft().block_until_ready()
        return time.perf_counter() - start


def max_steps_in_flight(batch: Any, *, on_cpu: bool, max_held: int | None) -> int:
    """Return how many steps may be in flight.

    Args:
        batch: The first batch.
        on_cpu: Whether the device is a CPU, where batches stay in the memory of the loader.
        max_held: How many batches may be held there; None for any number.
    """
    import jax

    size = sum(leaf.nbytes for leaf in jax.tree.leaves(batch) if hasattr(leaf, "nbytes"))
    limit: int = min(_MAX_STEPS, max(_MIN_STEPS, _MAX_BATCH_BYTES // max(size, 1)))
    return min(limit, max_held or limit) if on_cpu else limit


def _wait_schedule(limit: int) -> tuple[int, int]:
    """Return after how many steps the program waits, and for the step how many waits ago.

    Waiting after every step would wake the program as often, beside a CPU that computes.
    """
    interval = max(1, limit // 4)
    return interval, (limit + 1) // interval - 1
